import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { openSecrets } from "../../src/secrets/secrets.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  executable,
  it,
  itWith,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const SCRIPT = "/usr/bin/script";
const isThere = process.platform === "linux" && existsSync(SCRIPT);
const skip = isThere
  ? false
  : `NOT TESTED: what a terminal shows of a token, for want of ${SCRIPT} of util-linux`;
const test = itWith({ skip });

const MANIFEST = { servers: { a: scripted() } };
const AUTO = ["--http", "127.0.0.1:0", "--token", "auto", "--log-level", "debug"];

function envOf(setup: TestFolder): Readonly<Record<string, string>> {
  return { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
}

async function serve(
  setup: TestFolder,
  args: readonly string[],
  more: Readonly<Record<string, string>> = {},
): Promise<{ hub: RawClient; url: string }> {
  const all = ["serve", ...args, "--config", setup.config];
  const hub = new RawClient(executable(), all, setup.dir, { ...envOf(setup), ...more });
  const url = await hub.until(10_000, "the address", () => /http:[^\s"]+/.exec(hub.stderr)?.[0]);
  return { hub, url };
}

async function stop(hub: RawClient): Promise<void> {
  hub.signal("SIGTERM");
  assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
}

/** The token in the secret store. */
async function kept(setup: TestFolder): Promise<string> {
  const secrets = openSecrets({ env: envOf(setup), platform: process.platform });
  const token = await secrets.file.get("toolmux/http-token");
  assert.ok(token !== undefined);
  return token;
}

/** What the server at that URL says to `initialize` with this token. */
async function postInitialize(url: string, token?: string): Promise<number> {
  const params = {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "c", version: "1" },
  };
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params }),
  });
  await response.text();
  return response.status;
}

/** All that files in the folder hold. */
function contents(folder: string): string {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "latin1"))
    .join("\n");
}

describe("serve --http --token auto", () => {
  it("makes a token of 256 bits, lets in who has it alone, shows it nowhere and keeps it", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const first = await serve(setup, AUTO);
      await first.hub.until(
        10_000,
        "where it is kept",
        () => /toolmux\/http-token/.exec(first.hub.stderr)?.[0],
      );
      const token = await kept(setup);
      assert.match(token, /^[\w-]{43}$/);
      assert.equal(Buffer.from(token, "base64url").length, 32);
      assert.equal(await postInitialize(first.url), 401);
      assert.equal(await postInitialize(first.url, `${token}x`), 401);
      assert.equal(await postInitialize(first.url, token), 200);
      if (process.platform === "linux") {
        const line = readFileSync(`/proc/${first.hub.pid}/cmdline`, "latin1");
        assert.ok(!line.includes(token));
      }
      await stop(first.hub);
      const again = await serve(setup, [...AUTO, "--log-format", "json"]);
      assert.equal(await postInitialize(again.url, token), 200);
      await again.hub.until(
        10_000,
        "where it is kept",
        () => /toolmux\/http-token/.exec(again.hub.stderr)?.[0],
      );
      await stop(again.hub);
      for (const line of again.hub.stderr.trimEnd().split("\n")) JSON.parse(line);
      for (const { stderr, lines } of [first.hub, again.hub]) {
        assert.ok(!stderr.includes(token));
        assert.ok(!/no token is required/.test(stderr));
        assert.deepEqual(lines, []);
      }
      assert.ok(!contents(setup.dir).includes(token));
      assert.equal(await kept(setup), token);
    }));

  it("comes to one token when several are started at once", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const all = await Promise.all([1, 2, 3, 4].map(() => serve(setup, AUTO)));
      const token = await kept(setup);
      for (const { url } of all) assert.equal(await postInitialize(url, token), 200);
      await Promise.all(all.map(({ hub }) => stop(hub)));
    }));

  it("goes before the token of the manifest", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const text = readFileSync(setup.config, "utf8");
      writeFileSync(setup.config, `[hub]\nhttpToken = "of-the-manifest"\n\n${text}`);
      const { hub, url } = await serve(setup, AUTO);
      assert.equal(await postInitialize(url, "of-the-manifest"), 401);
      assert.equal(await postInitialize(url, await kept(setup)), 200);
      await stop(hub);
    }));

  for (const [what, redirect, isShown] of [
    ["shows the entry of a client with it to a terminal", "", true],
    ["shows it to no file, also if it was started at a terminal", "2>notes", false],
  ] as const)
    test(what, () =>
      withTestFolder(MANIFEST, async (setup) => {
        const line = `'${executable()}' serve ${AUTO.join(" ")} --config '${setup.config}' ${redirect}`;
        const env = { ...envOf(setup), TERM: "xterm", SHELL: "/bin/sh" };
        const terminal = new RawClient(SCRIPT, ["-qfec", line, "/dev/null"], setup.dir, env);
        const notes = join(setup.dir, "notes");
        const shown = (): string =>
          terminal.lines.map(({ text }) => text).join("\n") +
          terminal.unterminatedOutput +
          (existsSync(notes) ? readFileSync(notes, "utf8") : "");
        const end = isShown ? /\n\}\s/ : /toolmux\/http-token/;
        await poll(
          10_000,
          () => `the token in ${shown()}`,
          () => end.exec(shown()) ?? undefined,
        );
        const output = shown();
        const token = await kept(setup);
        assert.equal(output.includes(token), isShown, output);
        if (isShown) {
          const text = output.slice(output.indexOf("{"), output.lastIndexOf("}") + 1);
          const { mcpServers } = JSON.parse(text) as {
            mcpServers: Record<string, { url: string; headers: Record<string, string> }>;
          };
          const { url = "", headers } = mcpServers["toolmux"] ?? {};
          assert.equal(headers?.["Authorization"], `Bearer ${token}`);
          assert.equal(await postInitialize(url, token), 200);
        }
        terminal.write("\u0003");
        terminal.end();
        await terminal.waitForExit(EXIT_LIMIT);
      }),
    );

  for (const [args, what] of [
    [["--token", "auto"], "without --http"],
    [["--http", "0", "--token", "s3cr3t-value"], "with a token on the command line"],
    [["--http", "0", "--token", "auto", "--http-token-env", "T"], "with another token"],
  ] as const)
    it(`is refused ${what}, with exit code 2`, () =>
      withTestFolder(MANIFEST, async (setup) => {
        const all = ["serve", ...args, "--config", setup.config];
        const hub = new RawClient(executable(), all, setup.dir, { ...envOf(setup), T: "t" });
        assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 2);
        assert.ok(!hub.stderr.includes("s3cr3t-value"));
      }));
});

describe("serve --http", () => {
  it("says that every user of this machine can call every tool if there is no token", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub } = await serve(setup, ["--http", "127.0.0.1:0", "--log-format", "json"]);
      await hub.until(10_000, "the warning", () => /--token auto/.exec(hub.stderr)?.[0]);
      const levels = hub.stderr
        .trimEnd()
        .split("\n")
        .filter((line) => line.includes("--token auto"))
        .map((line) => (JSON.parse(line) as { level: string }).level);
      assert.deepEqual(levels, ["warn"]);
      await stop(hub);
      const args = ["--http", "127.0.0.1:0", "--http-token-env", "T"];
      const closed = await serve(setup, args, { T: "some-token" });
      await stop(closed.hub);
      assert.ok(!closed.hub.stderr.includes("--token auto"));
    }));

  it("takes its clients' token out of what servers say", () => {
    const token = "canary-token-of-clients";
    const args = ["-c", `echo "saw ${token} here" >&2; exit 1`];
    return withTestFolder({ servers: { a: { command: "sh", args } } }, async (setup) => {
      const all = ["--http", "127.0.0.1:0", "--http-token-env", "T", "--log-level", "debug"];
      const { hub, url } = await serve(setup, all, { T: token });
      assert.equal(await postInitialize(url, token), 200);
      await hub.until(10_000, "the server's word", () => /saw (\S+) here/.exec(hub.stderr)?.[0]);
      await stop(hub);
      assert.ok(!hub.stderr.includes(token), hub.stderr);
    });
  });
});
