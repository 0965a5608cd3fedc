import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync, copyFileSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type ProcessExit, RawClient } from "../harness/raw-client.ts";
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
import {
  pidsWithEnv,
  commandLineOf,
  descendants,
  environmentOf,
  waitForTrees,
  isAlive,
  stateOf,
  waitUntilExited,
  withProcessTree,
} from "../harness/processes.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";

/** How long after the next start anything of a dead hub may still run, in ms. */
const GRACE = 5000;

const SERVERS = {
  polite: withProcessTree(scripted()),
  stubborn: withProcessTree(scripted("--ignore-term")),
};
const MANIFEST = { hub: { listWait: "10s" }, servers: SERVERS };

/** Starts a command on the stage's manifest. */
function start(setup: TestFolder, args: readonly string[]): RawClient {
  return new RawClient(executable(), [...args, "--config", setup.config], setup.dir, setup.env);
}

/** Serves a client until all servers and their families run; returns the pids of all. */
async function serve(
  setup: TestFolder,
  servers: number,
): Promise<{ hub: RawClient; pids: number[] }> {
  const hub = start(setup, ["serve"]);
  await hub.initializeAndList();
  return { hub, pids: await waitForTrees(setup.dir, servers) };
}

async function kill(hub: RawClient): Promise<void> {
  hub.signal("SIGKILL");
  await hub.waitForExit(EXIT_LIMIT);
}

/** Starts a hub on a stage that has nothing to serve, for its sweep alone. */
function sweep(): Promise<ProcessExit> {
  return withTestFolder({ servers: {} }, (setup) => start(setup, ["list"]).waitForExit(EXIT_LIMIT));
}

/** Has a hub killed with all that its servers have started, and then something done on another stage. */
function afterDeath(
  next: (other: TestFolder, left: readonly number[]) => Promise<void>,
): Promise<void> {
  return withTestFolder(MANIFEST, async (setup) => {
    const { hub, pids } = await serve(setup, 2);
    await kill(hub);
    const left = pids.filter(isAlive);
    assert.ok(left.length > 6, "its servers' families outlive a hub");
    await withTestFolder({ servers: { a: scripted() } }, (other) => next(other, left));
  });
}

describe("what a hub that was killed has left is ended", () => {
  it("by the next call, before that is over", () =>
    afterDeath(async (other, left) => {
      const call = start(other, ["call", "a__echo", "text=x"]);
      assert.equal((await call.waitForExit(EXIT_LIMIT)).code, 0);
      assert.deepEqual(left.filter(isAlive).map(commandLineOf), []);
    }));

  it("by the next serve, before that is over, however early its client leaves", () =>
    afterDeath(async (other, left) => {
      const next = start(other, ["serve"]);
      await next.initialize();
      next.end();
      await next.waitForExit(EXIT_LIMIT);
      assert.deepEqual(left.filter(isAlive).map(commandLineOf), []);
    }));

  it("by the next serve, in time, while that serves on", () =>
    afterDeath(async (other, left) => {
      const next = start(other, ["serve"]);
      await next.initialize();
      await waitUntilExited(left, GRACE);
      await next.request("ping");
      next.end();
      await next.waitForExit(EXIT_LIMIT);
    }));

  it("also where the servers themselves are gone", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { hub, pids } = await serve(setup, 2);
      const servers = pids.filter((pid) => commandLineOf(pid).includes("scripted.mjs"));
      assert.equal(servers.length, 2);
      hub.signal("SIGSTOP");
      for (const pid of servers) process.kill(pid, "SIGKILL");
      await kill(hub);
      await waitUntilExited(servers, GRACE);
      await sweep();
      assert.deepEqual(pidsWithEnv(setup.dir).map(commandLineOf), []);
    }));

  it("wherever in its start it was killed", () =>
    withTestFolder(MANIFEST, async (setup) => {
      // How many processes there are when it is killed.
      const moments = [0, 0, 1, 2, 4, 8];
      const killWhen = async (count: number): Promise<void> => {
        const hub = start(setup, ["serve"]);
        await hub.initialize();
        await poll(
          EXIT_LIMIT,
          () => `${count} processes`,
          () => descendants(hub.pid).length >= count || undefined,
        );
        await kill(hub);
      };
      await Promise.all(moments.map(killWhen));
      await sweep();
      assert.deepEqual(pidsWithEnv(setup.dir).map(commandLineOf), []);
    }));

  it("without holding up what a command prints", () =>
    withTagged(tagOf({ pid: NOBODY }), "trap '' TERM; while :; do sleep 0.1; done", (orphan) =>
      withTestFolder({ servers: {} }, async (setup) => {
        const list = start(setup, ["list"]);
        await list.until(EXIT_LIMIT, "its output", () => list.lines.length > 0 || undefined);
        assert.ok(isAlive(orphan), "what cannot be asked to end takes longer than the list");
        await list.waitForExit(EXIT_LIMIT);
        assert.ok(!isAlive(orphan));
      }),
    ));
});

describe("nothing is ended that belongs to a living hub", () => {
  it("when another hub of the same user starts, is killed, and is swept away", () =>
    withTestFolder(MANIFEST, (setup) =>
      withTestFolder(MANIFEST, async (other) => {
        const [one, two] = await Promise.all([serve(setup, 2), serve(other, 2)]);
        await kill(two.hub);
        await sweep();
        assert.deepEqual(pidsWithEnv(other.dir).map(commandLineOf), []);
        assert.deepEqual(
          one.pids.filter((pid) => !isAlive(pid)),
          [],
        );
        const { message } = await one.hub.call("polite__echo", { text: "still here" });
        assert.equal(message.error, undefined);
        one.hub.end();
        await one.hub.waitForExit(EXIT_LIMIT);
      }),
    ));

  it("when that hub stands still", () =>
    withTestFolder({ servers: { a: withProcessTree(scripted()) } }, async (setup) => {
      const { hub, pids } = await serve(setup, 1);
      hub.signal("SIGSTOP");
      await sweep();
      assert.deepEqual(
        pids.filter((pid) => !isAlive(pid)),
        [],
      );
      hub.signal("SIGCONT");
      hub.end();
      await hub.waitForExit(EXIT_LIMIT);
    }));
});

/** No process has this pid: it is beyond the largest that Linux gives. */
const NOBODY = 2 ** 22 + 1;

interface Owner {
  readonly pid: number;
  readonly started: string;
  readonly boot: string;
  readonly space: string;
}

/** A tag as a hub would write it that was this process, but for `changes`. */
function tagOf(changes: Partial<Owner>): string {
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  const space = readlinkSync("/proc/self/ns/pid").replace(/\D/g, "");
  const owner = { pid: process.pid, started: startOf(process.pid), boot, space, ...changes };
  return [owner.pid, owner.started, owner.boot, owner.space, randomUUID()].join("/");
}

/** When a process started, as /proc has it. */
function startOf(pid: number): string {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

/** Starts `sh -c script` with an owner tag; afterwards it is killed. */
async function withTagged<Value>(
  tag: string | undefined,
  script: string,
  run: (pid: number) => Promise<Value>,
  user?: number,
): Promise<Value> {
  const env = { PATH: process.env["PATH"], ...(tag !== undefined && { TOOLMUX_OWNER: tag }) };
  const as = user === undefined ? {} : { uid: user, gid: user };
  const child = spawn("sh", ["-c", script], { env, stdio: "ignore", ...as });
  const exited = once(child, "exit");
  await once(child, "spawn");
  try {
    return await run(pidOf(child));
  } finally {
    child.kill("SIGKILL");
    await exited;
  }
}

function pidOf({ pid }: ChildProcess): number {
  if (pid === undefined) throw new Error("it did not start");
  return pid;
}

const SLEEP = "exec sleep 1000";

describe("a tag names a dead hub", () => {
  const cases: Readonly<Record<string, { tag: (stranger: number) => string; isEnded: boolean }>> = {
    "if nobody has its pid": { tag: () => tagOf({ pid: NOBODY }), isEnded: true },
    "if its pid is a stranger's by now": {
      tag: (pid) => tagOf({ pid, started: "1" }),
      isEnded: true,
    },
    "if the machine was started again since": {
      tag: () => tagOf({ boot: randomUUID() }),
      isEnded: true,
    },
    "but not if that process runs": {
      tag: (pid) => tagOf({ pid, started: startOf(pid) }),
      isEnded: false,
    },
    "but not if its pid means nothing here": {
      tag: () => tagOf({ space: "1", pid: NOBODY }),
      isEnded: false,
    },
    "but not if the tag is none": { tag: () => `${NOBODY}/1/2`, isEnded: false },
  };

  // One sweep decides all.
  const verdicts = new Map<string, boolean>();
  it("which costs no stranger anything", () =>
    withTagged(undefined, SLEEP, async (stranger) => {
      await decide(stranger, Object.entries(cases));
      assert.equal(stateOf(stranger), "S");
    }));

  async function decide(
    stranger: number,
    [first, ...rest]: readonly (readonly [string, (typeof cases)[string]])[],
  ): Promise<void> {
    if (first === undefined) {
      await sweep();
      return;
    }
    const [name, { tag }] = first;
    await withTagged(tag(stranger), SLEEP, async (pid) => {
      await decide(stranger, rest);
      verdicts.set(name, !isAlive(pid));
    });
  }

  for (const [name, { isEnded }] of Object.entries(cases)) {
    it(name, () => assert.equal(verdicts.get(name), isEnded));
  }
});

/** The user `nobody`. */
const OTHER = 65_534;
const skip = skipWithout({
  isMet: process.getuid?.() === 0 && missingPrograms(["setpriv"]).length === 0,
  tests: "processes of other users",
  remedy: "they need root and setpriv (run as root; apt-get install util-linux)",
});
const test = itWith({ skip });

describe("another user", () => {
  /** A stage for nobody, with the executable in it. */
  async function withOther(run: (other: Other) => Promise<void>): Promise<void> {
    await withTestFolder({ servers: {} }, async (setup) => {
      const file = join(setup.dir, "toolmux");
      copyFileSync(executable(), file);
      for (const path of [setup.dir, file]) chmodSync(path, 0o755);
      chmodSync(setup.config, 0o644);
      // Whoever may not read a program's file may not look into its processes either.
      const hidden = join(setup.dir, "hidden");
      copyFileSync("/bin/sleep", hidden);
      chmodSync(hidden, 0o711);
      await run({ setup, file, hidden });
    });
  }
  interface Other {
    readonly setup: TestFolder;
    readonly file: string;
    readonly hidden: string;
  }
  function startAs({ setup, file }: Other, args: readonly string[]): RawClient {
    const ids = [`--reuid=${OTHER}`, `--regid=${OTHER}`, "--clear-groups"];
    const all = [...ids, file, ...args, "--config", setup.config];
    return new RawClient("setpriv", all, setup.dir, setup.env);
  }

  test("is done no harm by a sweep, be it of root", () =>
    withOther((other) => {
      const tag = tagOf({ pid: NOBODY });
      return withTagged(
        tag,
        SLEEP,
        (plain) =>
          withTagged(
            tag,
            `exec ${other.hidden} 1000`,
            async (hidden) => {
              await sweep();
              assert.deepEqual([plain, hidden].map(stateOf), ["S", "S"]);
              await startAs(other, ["list"]).waitForExit(EXIT_LIMIT);
              assert.equal(isAlive(plain), false, "its own sweep ends it");
            },
            OTHER,
          ),
        OTHER,
      );
    }));

  test("ends its own servers, also one whose environment nobody can read", () =>
    withOther(async (other) => {
      const { setup, hidden } = other;
      writeFileSync(
        setup.config,
        `[servers.a]\ncommand = "sh"\nargs = ["-c", "trap '' TERM; ${hidden} 1000; ${hidden} 1001"]\n`,
      );
      const hub = startAs(other, ["serve"]);
      await hub.initialize();
      const pid = await poll(
        EXIT_LIMIT,
        () => "the hidden process",
        () => descendants(hub.pid).find((one) => commandLineOf(one) === `${hidden} 1000`),
      );
      assert.deepEqual(environmentOf(pid).length > 0, true, "root can");
      hub.end();
      await hub.waitForExit(EXIT_LIMIT);
      assert.deepEqual(pidsWithEnv(setup.dir).map(commandLineOf), []);
    }));
});
