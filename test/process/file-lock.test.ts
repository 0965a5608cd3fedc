import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { withFileLock } from "../../src/process/file-lock.ts";
import { processTable } from "../../src/process/process-table.ts";
import { withDeadline } from "../harness/wait.ts";

const HOLDER = fileURLToPath(new URL("../fixtures/processes/lock-holder.ts", import.meta.url));
const LIMIT = { timeout: 30_000 };
const NEVER = new AbortController().signal;

async function withFolder(run: (path: string, folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-lock-"));
  try {
    await run(join(folder, "a.lock"), folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** A process that takes the lock. */
class Holder {
  output = "";
  readonly child: ChildProcess;
  readonly exited: Promise<unknown>;
  #wake = (): void => {};

  constructor(path: string, times: number, ms: number) {
    const own = [HOLDER, path, String(times), String(ms)];
    const args = "Deno" in globalThis ? ["run", "-A", "--no-check", ...own] : own;
    this.child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.exited = once(this.child, "close");
    this.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.output += text;
      this.#wake();
    });
  }

  says(word: string): Promise<void> {
    return withDeadline(
      20_000,
      () => `"${word}" of a process that said ${this.output}`,
      (resolve) => {
        this.#wake = () => this.output.includes(word) && resolve();
        this.#wake();
      },
    );
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.exited;
  }
}

describe("a lock", () => {
  it("is held by one at a time in one process, in the order of asking, and leaves nothing", () =>
    withFolder(async (path, folder) => {
      const seen: string[] = [];
      const enter = (name: string) =>
        withFileLock(path, NEVER, async () => {
          seen.push(`${name} in`);
          await stat(path);
          seen.push(`${name} out`);
          return name;
        });
      assert.deepEqual(await Promise.all([enter("a"), enter("b"), enter("c")]), ["a", "b", "c"]);
      assert.deepEqual(seen, ["a in", "a out", "b in", "b out", "c in", "c out"]);
      assert.deepEqual(await readdir(folder), []);
    }));

  it("is free again when the work has failed", () =>
    withFolder(async (path) => {
      const failing = withFileLock(path, NEVER, () => Promise.reject(new Error("no")));
      await assert.rejects(failing, /no/);
      assert.equal(await withFileLock(path, NEVER, () => Promise.resolve(1)), 1);
    }));

  it("is waited for as long as is wanted in one process too, and whoever gives up lets nobody pass", () =>
    withFolder(async (path, folder) => {
      const [held, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const seen: string[] = [];
      const first = withFileLock(path, NEVER, async () => {
        held.resolve();
        await released.promise;
        seen.push("first");
      });
      await held.promise;
      for (const waitTimeout of [0, 50]) {
        const work = (): Promise<never> => assert.fail("It must not run.");
        await assert.rejects(withFileLock(path, NEVER, work, { waitTimeout }), {
          code: "storeBusy",
        });
      }
      const last = withFileLock(path, NEVER, async () => void seen.push("last"));
      released.resolve();
      await Promise.all([first, last]);
      assert.deepEqual(seen, ["first", "last"]);
      // A caller that does not wait gets a lock that nobody has any more.
      const now = await withFileLock(path, NEVER, () => Promise.resolve(1), { waitTimeout: 0 });
      assert.equal(now, 1);
      assert.deepEqual(await readdir(folder), []);
    }));

  it(
    "is waited for while its holder lives, as long as is wanted, and taken over once it was killed",
    LIMIT,
    () =>
      withFolder(async (path, folder) => {
        const holder = new Holder(path, 1, 60_000);
        await holder.says("held");
        const limited = withFileLock(path, NEVER, () => Promise.resolve(), { waitTimeout: 200 });
        await assert.rejects(limited, { code: "storeBusy" });
        const reason = new Error("enough");
        const abort = new AbortController();
        const waiting = withFileLock(path, abort.signal, () => Promise.resolve());
        abort.abort(reason);
        await assert.rejects(waiting, reason);
        await holder.kill();
        assert.ok((await readdir(folder)).includes("a.lock"));
        const began = performance.now();
        assert.equal(await withFileLock(path, NEVER, () => Promise.resolve("mine")), "mine");
        assert.ok(performance.now() - began < 10_000);
        assert.deepEqual(await readdir(folder), ["a.lock.witness"]);
      }),
  );

  it("is never held by two of many processes, some of which are killed", LIMIT, () =>
    withFolder(async (path) => {
      const holders = Array.from({ length: 6 }, () => new Holder(path, 20, 4));
      // Each of these dies holding it, and all others are waiting by then.
      for (const victim of holders.slice(0, 3)) {
        await victim.says("held");
        await victim.kill();
      }
      await Promise.all(holders.map(({ exited }) => exited));
      for (const { output } of holders) assert.ok(!output.includes("clash"), output);
      for (const { output } of holders.slice(3)) {
        assert.equal(output.match(/held/g)?.length, 20);
        assert.match(output, /done/);
      }
    }),
  );

  it("of a process that cannot be seen is taken over when that has shown nothing for long", () =>
    withFolder(async (path) => {
      const { boot } = await processTable.system();
      await writeFile(path, `1/1/${boot}/elsewhere/some-id`);
      const began = performance.now();
      const options = { heartbeatTimeout: 300 };
      const text = await withFileLock(path, NEVER, () => readFile(path, "utf8"), options);
      assert.ok(performance.now() - began >= 300);
      assert.ok(text.startsWith(`${process.pid}/`));
    }));

  it("that was left before the system started again is taken over at once", () =>
    withFolder(async (path) => {
      const { pidNamespace: space } = await processTable.system();
      await writeFile(path, `${process.pid}/1/another-boot/${space}/some-id`);
      assert.equal(await withFileLock(path, NEVER, () => Promise.resolve(3)), 3);
    }));

  it("lies in a folder that only its owner can look into", () =>
    withFolder(async (_, folder) => {
      const path = join(folder, "deep", "b.lock");
      await withFileLock(path, NEVER, async () => {
        assert.equal((await stat(path)).mode & 0o777, 0o600);
      });
      assert.equal((await stat(join(folder, "deep"))).mode & 0o777, 0o700);
    }));
});
