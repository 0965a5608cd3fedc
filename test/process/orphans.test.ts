import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import {
  hasEnded,
  listYoungerProcesses,
  parsePsOutput,
  type ProcessEntry,
  processTable,
} from "../../src/process/process-table.ts";
import { endProcesses, KILL, TERMINATE } from "../../src/process/process-group.ts";
import {
  newOwnerTag,
  ownerVariableOf,
  parseOwnerTag,
  sweepOrphans,
} from "../../src/process/orphans.ts";
import { poll } from "../harness/wait.ts";
import {
  pidsWithEnv,
  commandLineOf,
  isAlive,
  stateOf,
  waitUntilExited,
} from "../harness/processes.ts";
import { skipWithout } from "../harness/requirements.ts";

const HUB = fileURLToPath(new URL("../fixtures/processes/hub-processes.ts", import.meta.url));

/** Starts a process with an owner tag, which the test ends if nobody else does. */
async function withTagged(
  tag: string,
  run: (pid: number) => Promise<void>,
  args: readonly string[] = ["sleep", "1000"],
  as: { uid?: number } = {},
): Promise<void> {
  const child = spawn("env", args, {
    ...as,
    env: { PATH: process.env["PATH"], NOT_TOOLMUX_OWNER: "no", TOOLMUX_OWNER: tag },
    stdio: "ignore",
  });
  const exited = once(child, "exit");
  await once(child, "spawn");
  try {
    await run(pidOf(child));
  } finally {
    child.kill("SIGKILL");
    await exited;
  }
}

/** The tag of a hub that cannot live: its pid is beyond the system's largest. */
async function deadTag(): Promise<string> {
  const { boot, pidNamespace: space } = await processTable.system();
  return [2 ** 22 + 1, 1, boot, space, randomUUID()].join("/");
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error("it did not start");
  return child.pid;
}

/** Waits until something is true. */
async function until(what: string, isTrue: () => boolean): Promise<void> {
  await poll(
    20_000,
    () => what,
    () => isTrue() || undefined,
  );
}

/** Starts a shell script. @returns its process, when that has ended, and what it has said, from its start */
async function runScript(script: string, tag?: string, detached = false) {
  const env = { PATH: process.env["PATH"], ...(tag && { TOOLMUX_OWNER: tag }) };
  const child = spawn("sh", ["-c", script], { env, detached, stdio: ["ignore", "pipe", "ignore"] });
  const closed = once(child, "close");
  const said: string[] = [];
  child.stdout.setEncoding("utf8").on("data", (text: string) => said.push(text));
  await once(child.stdout, "data");
  return { child, closed, said: () => said.join("") };
}

/** Runs a hub that has a server and a process that left the server's group; `mark` is in the environment of all. */
async function withHub(run: (hub: ChildProcess, mark: string) => Promise<void>): Promise<void> {
  const mark = randomUUID();
  const args = "Deno" in globalThis ? ["run", "-A", "--no-check", HUB] : [HUB];
  const env = { PATH: process.env["PATH"], HOME: process.env["HOME"], MARK: mark };
  const hub = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  const exited = once(hub, "exit");
  try {
    await once(hub.stdout, "data");
    await until("two servers", () => servers(mark).length === 2);
    await run(hub, mark);
  } finally {
    hub.kill("SIGKILL");
    await exited;
    for (const pid of servers(mark)) process.kill(pid, "SIGKILL");
  }
}

function servers(mark: string): number[] {
  return pidsWithEnv(mark).filter((pid) => commandLineOf(pid).includes("sleep"));
}

describe("an owner tag", () => {
  it("names this hub, its start, the boot and the space of pids, and is another every time", async () => {
    const tags = await Promise.all([newOwnerTag(), newOwnerTag()]);
    assert.notEqual(tags[0], tags[1]);
    const self = await processTable.find(process.pid);
    assert.match(self?.started ?? "", /^\d+$/);
    for (const tag of tags) {
      const owner = { pid: process.pid, started: self?.started, ...(await processTable.system()) };
      assert.deepEqual(parseOwnerTag(tag), owner);
    }
  });

  it("is only read if a hub could have written it", () => {
    const owner = { pid: 7, started: "8", boot: "b", pidNamespace: "s" };
    assert.deepEqual(parseOwnerTag("7/8/b/s/r"), owner);
    const wrong = ["", "7", "7/8/b/s", "7/8/b/s/", "7//b/s/r", "/8/b/s/r", "7/8/b/s/r/x"];
    for (const tag of [...wrong, "0/8/b/s/r", "-1/8/b/s/r", "7a/8/b/s/r"]) {
      assert.equal(parseOwnerTag(tag), undefined, tag);
    }
  });

  it("stands before those that the hub carries itself, which no hub wrote left out", () => {
    const [one, two, three] = [1, 2, 3].map((pid) => `${pid}/a/b/s/r`);
    assert.equal(ownerVariableOf(one ?? ""), one);
    const mine = ownerVariableOf(one ?? "", `${two},no,,${three}`);
    assert.equal(mine, `${one},${two},${three}`);
    const many = Array.from({ length: 100 }, (_, at) => `${at + 1}/a/b/s/r`).join();
    assert.equal(ownerVariableOf("1/a/b/s/r", many).split(",").length, 8);
  });
});

describe("listYoungerProcesses", () => {
  it("leaves zombies out", async () => {
    const { child, closed, said } = await runScript("sleep 0 & echo $!; exec sleep 1000");
    const zombie = Number(said());
    await until("its end", () => !isAlive(zombie));
    const pids = (await listYoungerProcesses()).map(({ pid }) => pid);
    child.kill("SIGKILL");
    await closed;
    assert.ok(pids.includes(process.pid) && pids.includes(pidOf(child)));
    assert.ok(!pids.includes(zombie));
  });

  it("shows a process that started before it was asked, also if another listing runs already", async () => {
    for (let turns = 0; turns < 15; turns++) {
      const early = listYoungerProcesses();
      for (let n = 0; n < turns; n++) await new Promise((resolve) => setImmediate(resolve));
      const child = spawn("sleep", ["1000"], { stdio: "ignore" });
      const exited = once(child, "exit");
      const lists = await Promise.all([listYoungerProcesses(), listYoungerProcesses()]);
      child.kill("SIGKILL");
      await Promise.all([early, exited]);
      for (const list of lists) assert.ok(list.some(({ pid }) => pid === pidOf(child)));
    }
  });
});

it("a listing that waits for nothing shows the same processes with the same tags", async () => {
  const tag = await newOwnerTag();
  await withTagged(tag, async (pid) => {
    const now = [...processTable.listSync("younger")].find((entry) => entry.pid === pid);
    assert.deepEqual(now?.tags, [tag]);
    const idle = { memory: 0, cpu: 0 };
    const shown = (await listYoungerProcesses()).find((entry) => entry.pid === pid);
    assert.deepEqual({ ...now, ...idle }, { ...shown, ...idle });
  });
});

it("a process has ended whose pid nobody or another process has, and none that runs", async () => {
  const { pid } = process;
  const started = (await processTable.find(pid))?.started ?? "";
  assert.equal(await hasEnded({ pid, started }), false);
  assert.equal(await hasEnded({ pid, started: `${started}0` }), true);
  assert.equal(await hasEnded({ pid: 2 ** 22 + 1, started }), true);
});

describe("endProcesses", () => {
  const groups = (): number[] => [];
  const tagged = (tag: string) => async (): Promise<readonly ProcessEntry[]> =>
    (await listYoungerProcesses()).filter(({ tags }) => tags.includes(tag));

  it("signals no process that has got the pid of another one", async () => {
    await withTagged(await newOwnerTag(), async (pid) => {
      const stale = (await listYoungerProcesses()).filter((entry) => entry.pid === pid);
      assert.equal(stale.length, 1);
      const find = async (): Promise<ProcessEntry[]> =>
        stale.map((entry) => ({ ...entry, started: "1" }));
      await endProcesses({ find, groups }, [{ ...KILL, grace: 50 }]);
      assert.equal(stateOf(pid), "S");
    });
  });

  it("asks each process once to end", async () => {
    const tag = await newOwnerTag();
    const script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.02; done";
    const { child, closed, said } = await runScript(script, tag);
    const find = async (): Promise<readonly ProcessEntry[]> =>
      (await tagged(tag)()).filter(({ pid }) => pid === child.pid);
    await endProcesses({ find, groups }, [TERMINATE, KILL]);
    await closed;
    assert.equal(said(), "ready\nasked\n");
  });

  it("lets a stopped process hear that it has to end", async () => {
    const tag = await newOwnerTag();
    const script =
      "trap 'echo heard; exit' TERM; echo ready; kill -STOP $$; while :; do sleep 0.02; done";
    const { child, closed, said } = await runScript(script, tag);
    await until("its stop", () => stateOf(pidOf(child)) === "T");
    const patient = { ...TERMINATE, grace: 10_000 };
    await endProcesses({ find: tagged(tag), groups }, [patient, KILL]);
    await closed;
    assert.equal(said(), "ready\nheard\n");
  });

  it("ends also what appears only when the rest has been killed", async () => {
    const tag = await newOwnerTag();
    await withTagged(tag, (first) =>
      withTagged(tag, async (second) => {
        const find = async (): Promise<readonly ProcessEntry[]> => {
          const entries = await tagged(tag)();
          const seen = entries.filter(({ pid }) => pid === first);
          return seen.length > 0 ? seen : entries;
        };
        await endProcesses({ find, groups }, [KILL]);
        await until("the end of both", () => ![first, second].some(isAlive));
      }),
    );
  });

  it("lets nobody see another one's death and do something about it", async () => {
    const tag = await newOwnerTag();
    const { child, closed, said } = await runScript("sleep 1000 & echo $!; wait; echo again", tag);
    // So many others between the two that the guard has time, if it is left any.
    const others = Array.from({ length: 500 }, () => ({ pid: process.pid, started: "1" }));
    const find = async (): Promise<readonly ProcessEntry[]> => {
      const entries = await tagged(tag)();
      const [some] = entries;
      if (some === undefined) return [];
      const guard = entries.filter(({ pid }) => pid === child.pid);
      const rest = entries.filter(({ pid }) => pid !== child.pid);
      return [...rest, ...others.map((other) => ({ ...some, ...other })), ...guard];
    };
    await endProcesses({ find, groups }, [{ ...KILL, grace: 100 }]);
    await closed;
    assert.match(said(), /^\d+\n$/);
  });

  it("ends processes that start each other again", async () => {
    const tag = await newOwnerTag();
    const script = new URL("../fixtures/processes/respawning-processes.sh", import.meta.url);
    const ring = fileURLToPath(script);
    const run = async (): Promise<void> => {
      const links = new Set<number>();
      await until("a ring of four", () => {
        for (const pid of pidsWithEnv(tag)) if (commandLineOf(pid).includes(ring)) links.add(pid);
        return links.size >= 4;
      });
      process.kill([...links][0] ?? 0, "SIGKILL");
      // What is killed alone comes back.
      await until("another one", () => pidsWithEnv(tag).some((pid) => !links.has(pid)));
      await endProcesses({ find: tagged(tag), groups }, [{ ...KILL, grace: 10_000 }]);
      assert.deepEqual(await tagged(tag)(), []);
    };
    await withTagged(tag, run, ["sh", ring, "4"]);
    await until("the end of the ring", () => pidsWithEnv(tag).length === 0);
  });

  it("signals the groups and comes to an end where nothing can be seen", async () => {
    const child = spawn("sleep", ["1000"], { detached: true, stdio: "ignore" });
    const exited = once(child, "exit");
    const find = () => Promise.reject(new Error("too many open files"));
    const prey = { find, groups: () => [pidOf(child)] };
    await endProcesses(prey, [{ ...KILL, grace: 20 }]);
    assert.deepEqual(await exited, [null, "SIGKILL"]);
  });
});

describe("sweepOrphans", () => {
  it("ends all that a killed hub left, in its groups and outside of them", () =>
    withHub(async (hub, mark) => {
      hub.kill("SIGKILL");
      await once(hub, "exit");
      await sweepOrphans();
      assert.deepEqual(servers(mark), []);
    }));

  it("leaves the children of a living hub alone", () =>
    withHub(async (_hub, mark) => {
      const before = servers(mark);
      await sweepOrphans();
      assert.equal(before.length, 2);
      assert.deepEqual(servers(mark), before);
    }));

  it("tells a dead hub from a process that got its pid, and from one of another boot", async () => {
    const self = parseOwnerTag(await newOwnerTag());
    if (self === undefined) throw new Error("no tag");
    const tag = (changes: Partial<typeof self>): string => {
      const { pid, started, boot, pidNamespace: space } = { ...self, ...changes };
      return [pid, started, boot, space, randomUUID()].join("/");
    };
    const dead = [tag({ started: "1" }), tag({ boot: "another" }), tag({ pid: 2 ** 22 + 1 })];
    const far = tag({ pidNamespace: "1", pid: 2 ** 22 + 1 });
    const alive = [tag({}), far, tag({ started: "?" }), "7/8", "?"];
    const left: string[] = [];
    const nest = async ([first, ...rest]: readonly string[]): Promise<void> => {
      if (first === undefined) return void (await sweepOrphans());
      await withTagged(first, async (pid) => {
        await nest(rest);
        if (isAlive(pid)) left.push(first);
      });
    };
    await nest([...dead, ...alive]);
    assert.deepEqual(left.toSorted(), alive.toSorted());
  });

  it("does nothing to the process whose pid a dead hub had", async () => {
    const { boot, pidNamespace: space } = await processTable.system();
    await withTagged("no tag", async (stranger) => {
      const tag = [stranger, 1, boot, space, randomUUID()].join("/");
      await withTagged(tag, async (orphan) => {
        await sweepOrphans();
        assert.ok(!isAlive(orphan));
      });
      assert.equal(stateOf(stranger), "S");
    });
  });

  it("ends what is in the group of an orphan, whatever its environment is", async () => {
    const script = "env -i sleep 1001 & echo $!; exec sleep 1000";
    const { child, said } = await runScript(script, await deadTag(), true);
    const exited = once(child, "exit");
    const member = Number(said());
    await until("its start", () => commandLineOf(member) === "sleep 1001");
    await sweepOrphans();
    await exited;
    await until("the end of the member", () => !isAlive(member));
  });

  it("ends what belongs to a dead hub inside or outside of a living one, but for its own children", async () => {
    const [own, dead] = [await newOwnerTag(), await deadTag()];
    const other = own.replace(/[^/]+$/, randomUUID());
    const left = async (tag: string): Promise<boolean> => {
      let alive = false;
      await withTagged(tag, async (pid) => {
        await sweepOrphans();
        alive = isAlive(pid);
      });
      return alive;
    };
    assert.equal(await left(other), true);
    assert.equal(await left(`${other},${dead}`), false);
    assert.equal(await left(`${dead},${other}`), false);
    // To any other hub on this machine such a process is an orphan, so one that sweeps just then ends it.
    let isLeft = false;
    for (let n = 0; n < 10 && !isLeft; n++) isLeft = await left(`${own},${dead}`);
    assert.ok(isLeft);
  });

  const skip = skipWithout({
    isMet: process.getuid?.() === 0,
    tests: "other users' processes in a sweep",
    remedy: "only root can be two users (run as root)",
  });

  it("leaves other users' processes alone", { skip }, async () => {
    const run = async (pid: number): Promise<void> => {
      await sweepOrphans();
      assert.ok(isAlive(pid));
    };
    await withTagged(await deadTag(), run, undefined, { uid: 65534 });
  });

  it("kills what ignores SIGTERM", async () => {
    const run = async (pid: number): Promise<void> => {
      await sweepOrphans();
      await waitUntilExited([pid], 1000);
    };
    const script = "trap '' TERM; while :; do sleep 0.05; done";
    await withTagged(await deadTag(), run, ["sh", "-c", script]);
  });
});

it("what ps prints has pid, group, user, memory, start and tags; zombies are left out", () => {
  const text = `
  301   300   501  2048   0:01.25 S    Fri Nov 21 07:40:11 2026     /usr/local/bin/node server.js A=1 TOOLMUX_OWNER=9/Fri_Nov_21_07:40:00_2026/B-1/mac/r,8/t/B-1/mac/r HOME=/Users/x
    1     1     0   512 1-02:03:04 Ss   Mon Nov  3 17:00:00 2026     /sbin/launchd
  302   300    -2     0   0:00.00 Z    Fri Nov 21 07:40:11 2026     (node)
  303   303    -2    16   0:00.00 R+   Fri Nov 21 07:40:12 2026     ps -axEww NOT_TOOLMUX_OWNER=no
 garbage
`;
  const tags = ["9/Fri_Nov_21_07:40:00_2026/B-1/mac/r", "8/t/B-1/mac/r"];
  const keys = ["pid", "group", "uid", "started", "memory", "cpu", "tags"] as const;
  const found = parsePsOutput(text).map((entry) => keys.map((key) => entry[key]));
  assert.deepEqual(found, [
    [301, 300, 501, "Fri_Nov_21_07:40:11_2026", 2 * 1024 * 1024, 1250, tags],
    [1, 1, 0, "Mon_Nov_3_17:00:00_2026", 512 * 1024, 93_784_000, []],
    [303, 303, -2, "Fri_Nov_21_07:40:12_2026", 16 * 1024, 0, []],
  ]);
});
