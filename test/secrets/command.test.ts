import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { type CommandScope, runSecretCommand } from "../../src/secrets/command.ts";
import { poll } from "../harness/wait.ts";
import { isAlive } from "../harness/processes.ts";

const ENV = { PATH: process.env["PATH"], HOME: "/nowhere", MY_TOKEN: "hub-only", BUN_X: "1" };
const LIMIT = { timeout: 30_000 };

async function withFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-command-"));
  try {
    await run(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function read(text: string, place: Partial<CommandScope> = {}): Promise<string> {
  return runSecretCommand(text, { cwd: "/", env: ENV, ...place });
}

describe("a command that gives a value", () => {
  for (const [text, value] of [
    ["echo hello", "hello"],
    ["printf %s bare", "bare"],
    ["printf 'a\\nb\\n\\n'", "a\nb\n"],
    ["printf 'a\\r\\n'", "a"],
    ["printf ' spaces '", " spaces "],
    ["echo '$HOME' $(id) `id` ; echo x > /tmp/x | cat", "$HOME $(id) `id` ; echo x > /tmp/x | cat"],
    ["cat", undefined],
  ] as const) {
    it(`${text} gives ${JSON.stringify(value)}, without a shell or input`, LIMIT, async () => {
      if (value === undefined) await assert.rejects(read(text), /"cat" printed nothing/);
      else assert.equal(await read(text), value);
    });
  }

  it("runs in the folder of its file, from where its path begins", LIMIT, () =>
    withFolder(async (cwd) => {
      await writeFile(join(cwd, "give"), '#!/bin/sh\npwd; echo "$1"\n');
      await chmod(join(cwd, "give"), 0o700);
      assert.match(await read("./give 'a b'", { cwd }), new RegExp(`${cwd}\na b$`));
    }),
  );

  it("gets the small safe environment, and nothing else of the hub's", LIMIT, async () => {
    const variables = (await read("env")).split("\n").map((line) => line.split("=")[0]);
    assert.ok(variables.includes("HOME"));
    assert.ok(!variables.includes("MY_TOKEN") && !variables.includes("BUN_X"));
  });

  const SILENT = "canary-of-stdout";
  const LOUD = `echo ${SILENT}; echo no ${SILENT} >&2; exit 1`;
  for (const [what, script, end] of [
    ["fails", `echo ${SILENT}; echo why not >&2; exit 3`, /exited with code 3: why not$/],
    ["tells its value on stderr too", LOUD, /exited with code 1: no \[redacted\]$/],
    ["prints nothing", "true", /printed nothing$/],
    ["is killed", "kill -9 $$", /was killed by signal SIGKILL$/],
    ["prints no text", 'printf "\\377\\376"', /printed something other than UTF-8 text$/],
    ["prints much to stderr", "seq 100000 >&2; exit 1", /exited with code 1: [\d /]{1,500}$/],
  ] as const) {
    it(`and ${what} is an error that says so, and shows nothing of its stdout`, LIMIT, async () => {
      await assert.rejects(read(`sh -c '${script}'`), (error: Error & { code?: string }) => {
        assert.equal(error.code, "valueMissing");
        assert.match(error.message, new RegExp(`^the command "sh" ${end.source}`));
        assert.ok(!error.message.includes(SILENT));
        return true;
      });
    });
  }

  it("and is not there is an error without its arguments", LIMIT, async () => {
    for (const [line, message] of [
      ["no-such-program --token canary", 'the command "no-such-program" was not found'],
      ["/etc/passwd canary", 'the command "/etc/passwd" is not executable'],
    ] as const) {
      await assert.rejects(read(line), { message });
    }
  });

  it("and does not end is killed with all that it started", LIMIT, () =>
    withFolder(async (folder) => {
      const file = join(folder, "pid");
      const script = `sleep 1000 & echo $! > ${file}; setsid sleep 1000 & wait`;
      const message = 'the command "sh" did not end within 400 ms';
      await assert.rejects(read(`sh -c '${script}'`, { timeout: 400 }), { message });
      const pid = Number(await readFile(file, "utf8"));
      await poll(
        5000,
        () => "its child's end",
        () => (isAlive(pid) ? undefined : true),
      );
    }),
  );

  it("and prints without end is killed when it has printed too much", LIMIT, async () => {
    const message = 'the command "yes" printed more than 65536 bytes';
    await assert.rejects(read("yes canary"), { message });
  });

  it("and leaves an agent running gives its value at once", LIMIT, () =>
    withFolder(async (folder) => {
      const file = join(folder, "pid");
      const began = performance.now();
      const value = await read(`sh -c 'sleep 1000 & echo $! > ${file}; echo value'`);
      assert.equal(value, "value");
      assert.ok(performance.now() - began < 5000);
      const pid = Number(await readFile(file, "utf8"));
      assert.ok(isAlive(pid));
      process.kill(pid, "SIGKILL");
    }),
  );
});
