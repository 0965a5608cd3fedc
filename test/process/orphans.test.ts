import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import {
  hasEnded,
  listProcesses,
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

/** Runs a hub that has a server and a process that left the server's group; `mark` is in the environment of all. */
async function withHub(run: (hub: ChildProcess, mark: string) => Promise<void>): Promise<void> {
  const mark = randomUUID();
  const args = "Deno" in globalThis ? ["run", "-A", "--no-check", HUB] : [HUB];
  const hub = spawn(process.execPath, args, {
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], MARK: mark },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(hub, "exit");
  try {
    await once(hub.stdout, "data");
    await poll(
      5000,
      () => "two servers",
      () => servers(mark).length === 2 || undefined,
    );
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
    assert.deepEqual(parseOwnerTag("7/8/b/s/r"), {
      pid: 7,
      started: "8",
      boot: "b",
      pidNamespace: "s",
    });
    const wrong = ["", "7", "7/8/b/s", "7/8/b/s/", "7//b/s/r", "/8/b/s/r", "7/8/b/s/r/x"];
    for (const tag of [...wrong, "0/8/b/s/r", "-1/8/b/s/r", "7a/8/b/s/r"]) {
      assert.equal(parseOwnerTag(tag), undefined, tag);
    }
  });

  it("stands before those that the hub carries itself, which no hub wrote left out", () => {
    assert.equal(ownerVariableOf("1/a/b/s/r"), "1/a/b/s/r");
    assert.equal(
      ownerVariableOf("1/a/b/s/r", "2/a/b/s/r,no,,3/a/b/s/r"),
      "1/a/b/s/r,2/a/b/s/r,3/a/b/s/r",
    );
    const many = Array.from({ length: 100 }, (_, at) => `${at + 1}/a/b/s/r`).join();
    assert.equal(ownerVariableOf("1/a/b/s/r", many).split(",").length, 8);
  });
});

describe("listProcesses", () => {
  it("leaves zombies out", async () => {
    const child = spawn("sh", ["-c", "sleep 0 & echo $!; exec sleep 1000"], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    const exited = once(child, "exit");
    const [line] = (await once(child.stdout, "data")) as [Buffer];
    const zombie = Number(line.toString());
    await poll(
      5000,
      () => "its end",
      () => !isAlive(zombie) || undefined,
    );
    const pids = (await listProcesses()).map(({ pid }) => pid);
    child.kill("SIGKILL");
    await exited;
    assert.ok(pids.includes(process.pid) && pids.includes(pidOf(child)));
    assert.ok(!pids.includes(zombie));
  });

  it("shows a process that started before it was asked, also if another listing runs already", async () => {
    for (let turns = 0; turns < 15; turns++) {
      const early = listProcesses();
      for (let n = 0; n < turns; n++) await new Promise((resolve) => setImmediate(resolve));
      const child = spawn("sleep", ["1000"], { stdio: "ignore" });
      const exited = once(child, "exit");
      const lists = await Promise.all([listProcesses(), listProcesses()]);
      child.kill("SIGKILL");
      await Promise.all([early, exited]);
      for (const list of lists) assert.ok(list.some(({ pid }) => pid === pidOf(child)));
    }
  });
});

describe("a listing that waits for nothing", () => {
  it("shows the same processes with the same tags", async () => {
    const tag = await newOwnerTag();
    await withTagged(tag, async (pid) => {
      const shown = async (): Promise<ProcessEntry | undefined> =>
        (await listProcesses()).find((entry) => entry.pid === pid);
      const now = [...processTable.listSync()].find((entry) => entry.pid === pid);
      assert.deepEqual(now?.tags, [tag]);
      const idle = { memory: 0, cpu: 0 };
      assert.deepEqual({ ...now, ...idle }, { ...(await shown()), ...idle });
    });
  });
});

describe("hasEnded", () => {
  it("is said of a pid that nobody has, or that another process has by now, and of nothing that runs", async () => {
    const { pid } = process;
    const started = (await processTable.find(pid))?.started ?? "";
    assert.equal(await hasEnded({ pid, started }), false);
    assert.equal(await hasEnded({ pid, started: `${started}0` }), true);
    assert.equal(await hasEnded({ pid: 2 ** 22 + 1, started }), true);
  });
});

describe("endProcesses", () => {
  const groups = (): number[] => [];
  const tagged = (tag: string) => async (): Promise<readonly ProcessEntry[]> =>
    (await listProcesses()).filter(({ tags }) => tags.includes(tag));

  it("signals no process that has got the pid of another one", async () => {
    await withTagged(await newOwnerTag(), async (pid) => {
      const entries = await listProcesses();
      const stale = entries.filter((entry) => entry.pid === pid);
      assert.equal(stale.length, 1);
      const find = (): Promise<ProcessEntry[]> =>
        Promise.resolve(stale.map((entry) => ({ ...entry, started: "1" })));
      await endProcesses({ find, groups }, [{ ...KILL, grace: 50 }]);
      assert.equal(stateOf(pid), "S");
    });
  });

  it("asks each process once to end", async () => {
    const tag = await newOwnerTag();
    const script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.02; done";
    const env = { PATH: process.env["PATH"], TOOLMUX_OWNER: tag };
    const child = spawn("sh", ["-c", script], { env, stdio: ["ignore", "pipe", "ignore"] });
    const said: string[] = [];
    child.stdout.setEncoding("utf8").on("data", (text: string) => said.push(text));
    const closed = once(child, "close");
    await poll(
      5000,
      () => "its start",
      () => said.length > 0 || undefined,
    );
    const find = async (): Promise<readonly ProcessEntry[]> =>
      (await tagged(tag)()).filter(({ pid }) => pid === child.pid);
    await endProcesses({ find, groups }, [TERMINATE, KILL]);
    await closed;
    assert.equal(said.join(""), "ready\nasked\n");
  });

  it("lets a stopped process hear that it has to end", async () => {
    const tag = await newOwnerTag();
    const args = ["sh", "-c", "trap 'exit 7' TERM; kill -STOP $$; while :; do sleep 0.02; done"];
    await withTagged(
      tag,
      async (pid) => {
        await poll(
          5000,
          () => "its stop",
          () => stateOf(pid) === "T" || undefined,
        );
        const began = performance.now();
        await endProcesses({ find: tagged(tag), groups }, [TERMINATE, KILL]);
        assert.ok(performance.now() - began < TERMINATE.grace, "it was not killed");
        assert.ok(!isAlive(pid));
      },
      args,
    );
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
        assert.deepEqual([first, second].filter(isAlive), []);
      }),
    );
  });

  it("lets nobody see another one's death and do something about it", async () => {
    const script = "sleep 1000 & echo $!; wait; echo again";
    const env = { PATH: process.env["PATH"], TOOLMUX_OWNER: await newOwnerTag() };
    const guard = spawn("sh", ["-c", script], { env, stdio: ["ignore", "pipe", "ignore"] });
    const closed = once(guard, "close");
    const said: string[] = [];
    guard.stdout.setEncoding("utf8").on("data", (text: string) => said.push(text));
    await poll(
      5000,
      () => "its start",
      () => said.length > 0 || undefined,
    );
    // So many others between the two that the guard has time, if it is left any.
    const others = Array.from({ length: 500 }, () => ({ pid: process.pid, started: "1" }));
    const find = async (): Promise<readonly ProcessEntry[]> => {
      const entries = await tagged(env.TOOLMUX_OWNER)();
      const isGuard = ({ pid }: ProcessEntry): boolean => pid === guard.pid;
      const [some] = entries;
      if (some === undefined) return [];
      const between = others.map((other) => ({ ...some, ...other }));
      return [
        ...entries.filter((entry) => !isGuard(entry)),
        ...between,
        ...entries.filter(isGuard),
      ];
    };
    await endProcesses({ find, groups }, [{ ...KILL, grace: 100 }]);
    await closed;
    assert.match(said.join(""), /^\d+\n$/);
  });

  it("ends processes that start each other again", async () => {
    const tag = await newOwnerTag();
    const ring = fileURLToPath(
      new URL("../fixtures/processes/respawning-processes.sh", import.meta.url),
    );
    await withTagged(tag, async () => {
      const find = tagged(tag);
      const links = new Set<number>();
      await poll(
        5000,
        () => "a ring of four",
        () => {
          for (const pid of pidsWithEnv(tag)) if (commandLineOf(pid).includes(ring)) links.add(pid);
          return links.size >= 4 || undefined;
        },
      );
      process.kill([...links][0] ?? 0, "SIGKILL");
      const before = links.size;
      await poll(
        5000,
        () => "another one",
        () => pidsWithEnv(tag).some((pid) => !links.has(pid) && links.add(pid)) || undefined,
      );
      assert.ok(links.size > before, "what is killed alone comes back");
      await endProcesses({ find, groups }, [KILL]);
      assert.deepEqual(await find(), []);
    }, ["sh", ring, "4"]);
    await poll(
      1000,
      () => "the end of the ring",
      () => pidsWithEnv(tag).length === 0 || undefined,
    );
  });

  it("signals the groups and comes to an end where nothing can be seen", async () => {
    const child = spawn("sleep", ["1000"], { detached: true, stdio: "ignore" });
    const exited = once(child, "exit");
    const prey = {
      find: () => Promise.reject(new Error("too many open files")),
      groups: () => [pidOf(child)],
    };
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
    const alive = [
      tag({}),
      tag({ pidNamespace: "1", pid: 2 ** 22 + 1 }),
      tag({ started: "?" }),
      "7/8",
      "?",
    ];
    const left: string[] = [];
    const nest = (tags: readonly string[]): Promise<void> => {
      const [first, ...rest] = tags;
      if (first !== undefined) {
        return withTagged(first, async (pid) => {
          await nest(rest);
          if (isAlive(pid)) left.push(first);
        });
      }
      return sweepOrphans().then(() => undefined);
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
    const env = { PATH: process.env["PATH"], TOOLMUX_OWNER: await deadTag() };
    const leader = spawn("sh", ["-c", script], {
      env,
      detached: true,
      stdio: ["ignore", "pipe", "ignore"],
    });
    const exited = once(leader, "exit");
    const [line] = (await once(leader.stdout, "data")) as [Buffer];
    const member = Number(line.toString());
    await poll(
      5000,
      () => "its start",
      () => commandLineOf(member) === "sleep 1001" || undefined,
    );
    await sweepOrphans();
    await exited;
    assert.ok(!isAlive(member));
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
    const script = "trap '' TERM; while :; do sleep 0.05; done";
    await withTagged(
      await deadTag(),
      async (pid) => {
        await sweepOrphans();
        await waitUntilExited([pid], 1000);
      },
      ["sh", "-c", script],
    );
  });
});

describe("parsePs", () => {
  it("reads pid, group, user, memory, start and tags, and leaves zombies and other lines out", () => {
    const text = `
  301   300   501  2048   0:01.25 S    Fri Nov 21 07:40:11 2026     /usr/local/bin/node server.js A=1 TOOLMUX_OWNER=9/Fri_Nov_21_07:40:00_2026/B-1/mac/r,8/t/B-1/mac/r HOME=/Users/x
    1     1     0   512 1-02:03:04 Ss   Mon Nov  3 17:00:00 2026     /sbin/launchd
  302   300    -2     0   0:00.00 Z    Fri Nov 21 07:40:11 2026     (node)
  303   303    -2    16   0:00.00 R+   Fri Nov 21 07:40:12 2026     ps -axEww NOT_TOOLMUX_OWNER=no
 garbage
`;
    assert.deepEqual(parsePsOutput(text), [
      {
        pid: 301,
        group: 300,
        uid: 501,
        started: "Fri_Nov_21_07:40:11_2026",
        memory: 2 * 1024 * 1024,
        cpu: 1250,
        tags: ["9/Fri_Nov_21_07:40:00_2026/B-1/mac/r", "8/t/B-1/mac/r"],
      },
      {
        pid: 1,
        group: 1,
        uid: 0,
        started: "Mon_Nov_3_17:00:00_2026",
        memory: 512 * 1024,
        cpu: 93_784_000,
        tags: [],
      },
      {
        pid: 303,
        group: 303,
        uid: -2,
        started: "Fri_Nov_21_07:40:12_2026",
        memory: 16 * 1024,
        cpu: 0,
        tags: [],
      },
    ]);
  });
});
