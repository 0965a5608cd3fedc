import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { newTag, parseTag, processesWithTag, sweepOrphans } from "../src/wire/owner.ts";
import { findProcess, listProcesses, parsePs, readSystem } from "../src/wire/processes.ts";
import { poll } from "./harness/clock.ts";
import { carrying, command, isAlive, waitUntilGone } from "./harness/processes.ts";

const HUB = fileURLToPath(new URL("fixtures/processes/hub.ts", import.meta.url));

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
  const system = await readSystem();
  if (system === undefined) throw new Error("the system does not say which it is");
  return [2 ** 22 + 1, 1, system.boot, system.space, randomUUID()].join("/");
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
  return carrying(mark).filter((pid) => command(pid).includes("sleep"));
}

describe("an owner tag", () => {
  it("names this hub, its start, the boot and the space of pids, and is another every time", async () => {
    const tags = await Promise.all([newTag(), newTag()]);
    assert.notEqual(tags[0], tags[1]);
    const self = await findProcess(process.pid);
    assert.match(self?.started ?? "", /^\d+$/);
    for (const tag of tags) {
      const owner = { pid: process.pid, started: self?.started, ...(await readSystem()) };
      assert.deepEqual(parseTag(tag), owner);
    }
  });

  it("is only read if a hub could have written it", () => {
    assert.deepEqual(parseTag("7/8/b/s/r"), { pid: 7, started: "8", boot: "b", space: "s" });
    const wrong = ["", "7", "7/8/b/s", "7/8/b/s/", "7//b/s/r", "/8/b/s/r", "7/8/b/s/r/x"];
    for (const tag of [...wrong, "0/8/b/s/r", "-1/8/b/s/r", "7a/8/b/s/r"]) {
      assert.equal(parseTag(tag), undefined, tag);
    }
  });

  it("finds exactly the processes that carry it", async () => {
    const [tag, other] = [await newTag(), await newTag()];
    await withTagged(tag, (pid) =>
      withTagged(other, async () => {
        assert.deepEqual(await processesWithTag(tag), [pid]);
        assert.deepEqual(await processesWithTag(tag.slice(0, -1)), []);
      }),
    );
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
    const self = parseTag(await newTag());
    if (self === undefined) throw new Error("no tag");
    const tag = (changes: Partial<typeof self>): string => {
      const { pid, started, boot, space } = { ...self, ...changes };
      return [pid, started, boot, space, randomUUID()].join("/");
    };
    const dead = [tag({ started: "1" }), tag({ boot: "another" }), tag({ pid: 2 ** 22 + 1 })];
    const alive = [
      tag({}),
      tag({ space: "1", pid: 2 ** 22 + 1 }),
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

  it("leaves other users' processes alone", { skip: process.getuid?.() !== 0 }, async () => {
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
        await waitUntilGone([pid], 1000);
      },
      ["sh", "-c", script],
    );
  });
});

describe("parsePs", () => {
  it("reads pid, group, user, start and tag, and leaves zombies and other lines out", () => {
    const text = `
  301   300   501 S    Fri Nov 21 07:40:11 2026     /usr/local/bin/node server.js A=1 TOOLMUX_OWNER=9/Fri_Nov_21_07:40:00_2026/B-1/mac/r HOME=/Users/x
    1     1     0 Ss   Mon Nov  3 17:00:00 2026     /sbin/launchd
  302   300    -2 Z    Fri Nov 21 07:40:11 2026     (node)
  303   303    -2 R+   Fri Nov 21 07:40:12 2026     ps -axEww NOT_TOOLMUX_OWNER=no
 garbage
`;
    assert.deepEqual(parsePs(text), [
      {
        pid: 301,
        group: 300,
        uid: 501,
        started: "Fri_Nov_21_07:40:11_2026",
        tag: "9/Fri_Nov_21_07:40:00_2026/B-1/mac/r",
      },
      { pid: 1, group: 1, uid: 0, started: "Mon_Nov_3_17:00:00_2026", tag: undefined },
      { pid: 303, group: 303, uid: -2, started: "Fri_Nov_21_07:40:12_2026", tag: undefined },
    ]);
  });
});
