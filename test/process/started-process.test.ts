import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { spawnOnBun } from "../../src/base/runtime.ts";
import { Pipe } from "../../src/jsonrpc/pipe.ts";
import {
  type ProcessCommand,
  type ProcessOutput,
  type StartedProcess,
  startProcess,
} from "../../src/process/started-process.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { isAlive, waitUntilExited } from "../harness/processes.ts";
import { waitFor, withDeadline } from "../harness/wait.ts";

const SOCKETS = "Bun.spawn with sockets";
/** The tests run on all runtimes, and so with all implementations. */
const IMPLEMENTATIONS: readonly (readonly [
  means: string,
  start: (command: ProcessCommand) => Promise<StartedProcess>,
])[] =
  spawnOnBun === undefined
    ? [["node:child_process", startProcess]]
    : [
        [process.platform === "linux" ? SOCKETS : "Bun.spawn", startProcess],
        [
          "Bun.spawn with pipes",
          async (command) => {
            const { startWithBun } = await import("../../src/process/bun-process.ts");
            return startWithBun(
              command,
              spawnOnBun as NonNullable<typeof spawnOnBun>,
              () => undefined,
            );
          },
        ],
      ];

function within<Value>(what: string, promise: Promise<Value>): Promise<Value> {
  return withDeadline(
    20_000,
    () => what,
    (resolve, reject) => void promise.then(resolve, reject),
  );
}

/** Reads an output to its end. */
function textOf(output: ProcessOutput): Promise<string> {
  const chunks: Buffer[] = [];
  const ended = new Promise<void>((resolve) =>
    output.read((chunk) => void chunks.push(Buffer.from(chunk)), resolve),
  );
  return within(
    "the end of an output",
    ended.then(() => Buffer.concat(chunks).toString()),
  );
}

for (const [means, start] of IMPLEMENTATIONS)
  describe(`a process started by ${means}`, () => {
    const folder = mkdtempSync(join(tmpdir(), "toolmux-started-"));
    after(() => rmSync(folder, { recursive: true }));
    const file = (name: string, content: string, mode = 0o755): string => {
      const path = join(folder, name);
      writeFileSync(path, content);
      chmodSync(path, mode);
      return path;
    };
    const startCommand = async (
      argv: readonly [string, ...string[]],
      changes: Partial<ProcessCommand> = {},
    ): Promise<StartedProcess> => {
      const [path, ...args] = argv;
      const options = { env: {}, cwd: undefined, isDetached: true, stderr: "pipe" } as const;
      return start({ file: path, args, ...options, ...changes });
    };
    const startScript = (script: string, changes: Partial<ProcessCommand> = {}) =>
      startCommand(["/bin/sh", "-c", script], changes);

    it("gets its arguments without a shell, and only the environment that was given", async () => {
      const path = file("show", `#!/bin/sh\nprintf '<%s>' "$@"\nexec /usr/bin/env\n`);
      const child = await startCommand([path, "a b", "$HOME", "-c", "*", ""], {
        env: { ONLY: "this" },
      });
      const text = await textOf(child.stdout);
      assert.ok(text.startsWith("<a b><$HOME><-c><*><>"), text);
      // A shell sets these by itself.
      const lines = text.replace(/^<.*>/, "").trim().split("\n");
      assert.deepEqual(
        lines.filter((line) => !/^(?:PWD|OLDPWD|SHLVL|_)=/.test(line)),
        ["ONLY=this"],
      );
    });

    it("runs in the working directory that was given", async () => {
      const child = await startScript("pwd -P", { cwd: "/" });
      assert.equal(await textOf(child.stdout), "/\n");
    });

    it("leads a process group and a session of its own, whose members one signal ends", async () => {
      const child = await startScript("sleep 1000 & echo $!; wait");
      const pid = await new Promise<number>((resolve) =>
        child.stdout.read(
          (chunk) => resolve(Number(chunk.toString())),
          () => {},
        ),
      );
      assert.ok(isAlive(pid));
      process.kill(-child.pid, "SIGKILL");
      assert.deepEqual(await within("the exit", child.exited), { signal: "SIGKILL" });
      await waitUntilExited([pid], 5000);
    });

    it("ends with its exit code or its signal, which listeners learn before `exited` settles", async () => {
      for (const [script, status] of [
        ["exit 0", { code: 0 }],
        ["exit 7", { code: 7 }],
        ["kill -TERM $$", { signal: "SIGTERM" }],
        ["kill -KILL $$", { signal: "SIGKILL" }],
      ] as const) {
        const child = await startScript(script);
        const seen: unknown[] = [];
        child.onExit((exit) => seen.push(exit));
        assert.deepEqual(await within("the exit", child.exited), status);
        assert.deepEqual(seen, [status]);
        // It is no zombie: the system does not know its id any more.
        assert.ok(!isAlive(child.pid));
        child.stdout.destroy();
      }
    });

    it("loses nothing of what it wrote before it exited, to stdout and to stderr", async () => {
      const size = 3_000_000;
      const child = await startScript(
        `head -c ${size} /dev/zero | tr '\\0' x; printf last; head -c 60000 /dev/zero | tr '\\0' y >&2; printf end >&2; exit 3`,
        { env: { PATH: "/usr/bin:/bin" } },
      );
      const [out, err] = await Promise.all([textOf(child.stdout), textOf(child.stderr)]);
      assert.equal(out.length, size + 4);
      assert.ok(out.endsWith("xlast"));
      assert.equal(err.length, 60_003);
      assert.ok(err.endsWith("yend"));
      assert.deepEqual(await within("the exit", child.exited), { code: 3 });
    });

    it("loses nothing of what it wrote if it exits while its output is not read", async () => {
      const size = 60_000;
      const child = await startScript(`head -c ${size} /dev/zero; read -r line; exit 0`, {
        env: { PATH: "/usr/bin:/bin" },
      });
      let bytes = 0;
      const ended = new Promise<void>((resolve) =>
        child.stdout.read((chunk) => void (bytes += chunk.length), resolve),
      );
      child.stdout.pause();
      void child.stdin.write(utf8("\n"));
      assert.deepEqual(await within("the exit", child.exited), { code: 0 });
      for (let n = 0; n < 5; n++) await turn();
      child.stdout.resume();
      await within("the end of stdout", ended);
      assert.equal(bytes, size);
    });

    // Elsewhere nobody reads what it writes there, and the system may take that for an error at the end.
    it("keeps its stdin if it writes to that", { skip: means !== SOCKETS }, async () => {
      const child = await startScript("echo noise >&0 2>/dev/null; cat");
      const text = textOf(child.stdout);
      let isBroken = false;
      void child.stdin.broken.then(() => (isBroken = true));
      void child.stdin.write(utf8("heard"));
      child.stdin.end();
      assert.equal(await text, "heard");
      assert.deepEqual(await within("the exit", child.exited), { code: 0 });
      assert.ok(!isBroken);
    });

    it("is held up when its output is not read, and continues when it is", async () => {
      const mark = join(folder, "done");
      const size = 64 * 1024 * 1024;
      const memoryBefore = process.memoryUsage().rss;
      const child = await startScript(`head -c ${size} /dev/zero; echo > '${mark}'`, {
        env: { PATH: "/usr/bin:/bin" },
      });
      let bytes = 0;
      let chunks = 0;
      const ended = new Promise<void>((resolve) =>
        child.stdout.read((chunk) => {
          bytes += chunk.length;
          if (++chunks === 2) child.stdout.pause();
        }, resolve),
      );
      await waitFor("the second chunk", () => (chunks >= 2 ? true : undefined));
      const paused = bytes;
      for (let n = 0; n < 20; n++) await turn();
      // Node's streams deliver nothing while paused; what was read ahead stays in them.
      assert.equal(bytes, paused);
      // Less than what the process writes: the rest of it is not read.
      assert.ok(process.memoryUsage().rss - memoryBefore < size);
      assert.equal((await import("node:fs")).existsSync(mark), false);
      child.stdout.resume();
      await within("the end of stdout", ended);
      assert.equal(bytes, size);
      assert.deepEqual(await within("the exit", child.exited), { code: 0 });
    });

    it("gets every byte in its place, however slowly it reads", async () => {
      const child = await startCommand(["/bin/cat"]);
      const echoed: Buffer[] = [];
      const ended = new Promise<void>((resolve) =>
        child.stdout.read((chunk) => void echoed.push(Buffer.from(chunk)), resolve),
      );
      const source = { read: () => {}, pause: () => {}, resume: () => {} };
      const pipe = new Pipe(source, child.stdin, 1000, {
        message: () => {},
        oversized: () => {},
        backpressure: () => {},
        ended: () => {},
        failed: (error) => assert.fail(String(error)),
      });
      const sent: string[] = [];
      for (let round = 0; round < 12; round++) {
        // Nobody reads what it says, so it reads no more, until much waits for it.
        child.stdout.pause();
        for (let n = 0; n < 300 || pipe.queued < 100_000; n++) {
          const size = [0, 9, 200, 4000, 20_000, 90_000][(n * 7 + round) % (n % 60 === 0 ? 6 : 3)];
          sent.push(`${round}.${n} `.repeat((size ?? 0) / 6 + 1));
          pipe.send(utf8(sent.at(-1) ?? ""));
          if (n % 3 === 0) await Promise.resolve();
          if (n % 50 === 0) await turn();
        }
        child.stdout.resume();
        while (pipe.queued > (round % 2) * 50_000) await turn();
      }
      await pipe.end();
      await within("the end of stdout", ended);
      assert.ok(Buffer.concat(echoed).toString() === `${sent.join("\n")}\n`);
    });

    it("makes its writer wait while it does not read", async () => {
      const go = join(folder, "go");
      const script = `until [ -e '${go}' ]; do sleep 0.02; done; exec cat >/dev/null`;
      const child = await startScript(script, { env: { PATH: "/usr/bin:/bin" } });
      let full: Promise<void> | undefined;
      for (let n = 0; n < 100 && full === undefined; n++)
        full = child.stdin.write(new Uint8Array(100_000).fill(0x61));
      assert.ok(full instanceof Promise);
      let isFree = false;
      void full.then(() => (isFree = true));
      for (let n = 0; n < 5; n++) await turn();
      assert.ok(!isFree);
      writeFileSync(go, "");
      await within("room in the pipe", full);
      child.stdin.end();
      assert.deepEqual(await within("the exit", child.exited), { code: 0 });
    });

    it("sees the end of its stdin", async () => {
      const child = await startCommand(["/bin/cat"]);
      void child.stdin.write(utf8("last"));
      child.stdin.end();
      assert.equal(await textOf(child.stdout), "last");
      assert.deepEqual(await within("the exit", child.exited), { code: 0 });
    });

    it("that closes its stdin breaks it once, whatever is written, and nothing else", async () => {
      for (const size of [100, 5000, 200_000]) {
        const child = await startScript("exec 0<&-; echo closed; sleep 1000", {
          env: { PATH: "/usr/bin:/bin" },
        });
        await new Promise<void>((resolve) =>
          child.stdout.read(
            () => resolve(),
            () => {},
          ),
        );
        let count = 0;
        void child.stdin.broken.then(() => count++);
        for (let n = 0; n < 20; n++) void child.stdin.write(new Uint8Array(size));
        await within("the broken pipe", child.stdin.broken);
        await turn();
        assert.equal(count, 1);
        assert.equal(child.stdin.write(utf8("swallowed")), undefined);
        child.stdin.end();
        child.stdin.destroy();
        process.kill(-child.pid, "SIGKILL");
        await within("the exit", child.exited);
      }
    });

    it("that closes its stdin after the last write breaks it", async () => {
      const child = await startScript("read -r line; exec 0<&-; sleep 1000", {
        env: { PATH: "/usr/bin:/bin" },
      });
      void child.stdin.write(utf8("line\n"));
      const noticed = within("the broken pipe", child.stdin.broken);
      // A pipe that is written from time to time is noticed at the latest by a later write.
      const timer = setInterval(() => void child.stdin.write(utf8("x")), 20);
      await noticed;
      clearInterval(timer);
      process.kill(-child.pid, "SIGKILL");
      await within("the exit", child.exited);
    });

    it("ends what waits for its pipes when these are destroyed, also if another process holds them", async () => {
      const child = await startScript("sleep 1000 & exit 0", { env: { PATH: "/usr/bin:/bin" } });
      const ends = [child.stdout, child.stderr].map(
        (output) => new Promise<void>((resolve) => output.read(() => {}, resolve)),
      );
      let full: Promise<void> | undefined;
      for (let n = 0; n < 100 && full === undefined; n++)
        full = child.stdin.write(new Uint8Array(100_000));
      await within("the exit", child.exited);
      for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe.destroy();
      await within("the ends", Promise.all([...ends, full, child.stdout.ended]));
      assert.equal(child.stdin.write(utf8("late")), undefined);
      process.kill(-child.pid, "SIGKILL");
    });

    it("that cannot be started rejects with the code of the system", async () => {
      const failures: readonly [readonly [string, ...string[]], string][] = [
        [[join(folder, "nowhere")], "ENOENT"],
        [[file("no-interpreter", "#!/nowhere/at-all\n")], "ENOENT"],
        [[file("forbidden", "#!/bin/sh\n", 0o644)], "EACCES"],
        [["/bin/echo", "x".repeat(3_000_000)], "E2BIG"],
      ];
      for (const [argv, code] of failures)
        await assert.rejects(startCommand(argv), { code }, argv[0].slice(0, 100));
    });
  });
