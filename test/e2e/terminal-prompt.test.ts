import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { openSecrets } from "../../src/secrets/secrets.ts";
import { RawClient } from "../harness/raw-client.ts";
import { shownBy, startInTerminal } from "../harness/terminal.ts";
import { poll } from "../harness/wait.ts";
import { EXIT_LIMIT, type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";

const SCRIPT = "/usr/bin/script";
const isThere = process.platform === "linux" && existsSync(SCRIPT);
const skip = isThere ? false : `NOT TESTED: the hidden prompt, for want of ${SCRIPT} of util-linux`;

const type = (setup: TestFolder, ...keys: readonly string[]) =>
  typeAt(setup, "secret set x", "(hidden)", keys);

/** Runs a command at a terminal, says after it how the terminal is, and types when it asks. What it writes into `notes` counts as shown. */
async function typeAt(setup: TestFolder, command: string, prompt: string, keys: readonly string[]) {
  const line = `trap : INT; '${executable()}' ${command}; echo "code $?"; stty -a`;
  const env = { ...setup.env, TERM: "xterm", SHELL: "/bin/sh" };
  const terminal = new RawClient(SCRIPT, ["-qfec", line, "/dev/null"], setup.dir, env);
  const notes = join(setup.dir, "notes");
  const shown = (): string =>
    terminal.lines.map(({ text }) => text).join("\n") +
    terminal.unterminatedOutput +
    terminal.stderr +
    (existsSync(notes) ? readFileSync(notes, "utf8") : "");
  await poll(
    10_000,
    () => "the prompt",
    () => shown().includes(prompt) || undefined,
  );
  for (const key of keys) terminal.write(key);
  await terminal.until(
    10_000,
    "the end",
    () => /code \d+[^]*stty|code \d+[^]*echo/.exec(shown()) ?? undefined,
  );
  terminal.end();
  await terminal.waitForExit(EXIT_LIMIT);
  const output = shown();
  const code = Number(/code (\d+)/.exec(output)?.[1]);
  return { output, code, isEchoing: /(?<!-)\becho\b/.test(output.split("code ")[1] ?? "") };
}

function read(setup: TestFolder): Promise<string | undefined> {
  const env = { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
  return openSecrets({ env, platform: process.platform })
    .find("x")
    .then((found) => found?.value);
}

describe("a value that is typed", { skip }, () => {
  for (const [what, keys, value] of [
    ["as it is", ["hunter2-typed\r"], "hunter2-typed"],
    ["key by key", Array.from("pä ß€\r"), "pä ß€"],
    ["with mistakes", ["wrong\u0015righx", "\u007f", "t\r"], "right"],
    [
      "with arrows and marks of a paste",
      ["\u001b[200~pasted\u001b[201~", "\u001b[D\u001bOA", "\r"],
      "pasted",
    ],
  ] as const) {
    it(`${what} is kept, and the terminal shows nothing of it`, () =>
      withTestFolder({ servers: {} }, async (setup) => {
        const { output, code, isEchoing } = await type(setup, ...keys);
        assert.equal(code, 0, output);
        assert.ok(!output.includes(value), output);
        assert.ok(isEchoing, output);
        assert.equal(await read(setup), value);
      }));
  }

  it("is hidden also where the question goes elsewhere", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const where = `2>'${join(setup.dir, "notes")}'`;
      const { output, code } = await typeAt(setup, `secret set x ${where}`, "(hidden)", [
        "hunter2-typed\r",
      ]);
      assert.equal(code, 0, output);
      assert.doesNotMatch(output, /hunter2/);
      assert.equal(await read(setup), "hunter2-typed");
    }));

  for (const [what, keys, exit] of [
    ["Ctrl-C", ["half\u0003"], 130],
    ["Ctrl-D", ["\u0004"], 130],
    ["nothing", ["\r"], 2],
    ["several lines", ["one\rtwo-lines\r"], 2],
  ] as const) {
    it(`and ends with ${what} keeps nothing, and leaves the terminal as it was`, () =>
      withTestFolder({ servers: {} }, async (setup) => {
        const { output, code, isEchoing } = await type(setup, ...keys);
        assert.equal(code, exit, output);
        assert.ok(isEchoing, output);
        assert.doesNotMatch(output, /half|two-lines/);
        assert.equal(await read(setup), undefined);
      }));
  }
});

describe("the choice of servers to import", { skip }, () => {
  it("adds those that are chosen one by one", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const folder = join(setup.dir, ".cursor");
      mkdirSync(folder);
      const servers = { one: { command: "x" }, two: { command: "y" }, three: { command: "z" } };
      writeFileSync(join(folder, "mcp.json"), JSON.stringify({ mcpServers: servers }));
      const manifest = join(setup.dir, "new.toml");
      const command = `import cursor --project --config '${manifest}'`;
      const keys = ["c\r", "y\r", "n\r", "y\r"];
      const { output, code } = await typeAt(setup, command, "[y/N", keys);
      assert.equal(code, 0, output);
      const names = readFileSync(manifest, "utf8").match(/^\[servers\.\w+\]$/gm);
      assert.deepEqual(names, ["[servers.one]", "[servers.three]"]);
    }));

  it("asks with it whether secrets move into the store, for all or one by one", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const folder = join(setup.dir, ".cursor");
      mkdirSync(folder);
      const server = (key: string) => ({ command: key, env: { API_KEY: `sk-${key.repeat(32)}` } });
      const servers = { one: server("a"), two: server("b") };
      writeFileSync(join(folder, "mcp.json"), JSON.stringify({ mcpServers: servers }));
      for (const [keys, plain] of [
        [["c\r", "y\r", "p\r"], ["b"]],
        [["y\r"], []],
        [["p\r"], ["a", "b"]],
      ] as const) {
        const manifest = join(setup.dir, `${keys.length}-${plain.length}.toml`);
        const command = `import cursor --project --config '${manifest}'`;
        const { output, code } = await typeAt(setup, command, "[p]lain", keys);
        assert.equal(code, 0, output);
        const left = [...readFileSync(manifest, "utf8").matchAll(/sk-(.)/g)].map(([, key]) => key);
        assert.deepEqual(left, plain);
      }
    }));
});

describe("a question", { skip }, () => {
  for (const [what, keys, exit] of [
    ["Ctrl-C", ["\u0003"], 130],
    ["Ctrl-D", ["\u0004"], 2],
    ["no", ["n\r"], 2],
    ["nothing", ["\r"], 2],
  ] as const) {
    it(`that is answered with ${what} changes nothing, and leaves the terminal as it was`, () =>
      withTestFolder({ servers: {} }, async (setup) => {
        const folder = join(setup.dir, ".cursor");
        mkdirSync(folder);
        const servers = { one: { command: "x" } };
        writeFileSync(join(folder, "mcp.json"), JSON.stringify({ mcpServers: servers }));
        const manifest = join(setup.dir, "new.toml");
        const command = `import cursor --project --config '${manifest}'`;
        const { output, code, isEchoing } = await typeAt(setup, command, "[y/N]", keys);
        assert.equal(code, exit, output);
        assert.doesNotMatch(output, /Error|^ +at /m);
        assert.ok(isEchoing, output);
        assert.ok(!existsSync(manifest));
      }));
  }
});

describe("the status line", { skip }, () => {
  it("is not drawn while a question is open", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const file = fileURLToPath(new URL("../../src/terminal/terminal.ts", import.meta.url));
      const script = join(setup.dir, "draw.ts");
      const text = `const terminal = new Terminal(process.env);
        const line = terminal.openStatusLine();
        const draw = async () => line.show("meanwhile");
        await terminal.withoutStatus(draw);
        line.show("afterwards");`;
      writeFileSync(script, `import { Terminal } from ${JSON.stringify(file)};\n${text}`);
      const terminal = startInTerminal(setup, `'${process.execPath}' '${script}'`);
      await terminal.waitForExit(EXIT_LIMIT);
      assert.match(shownBy(terminal), /afterwards/);
      assert.doesNotMatch(shownBy(terminal), /meanwhile/);
    }));
});
