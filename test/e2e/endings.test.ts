import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { RawClient } from "../harness/client.ts";
import { poll } from "../harness/clock.ts";
import {
  END,
  LIMIT,
  type Stage,
  assertProtocolOnly,
  executable,
  withHub,
  withStage,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { carrying, environment, isAlive, waitUntilGone } from "../harness/processes.ts";

/** Starts the hub without the checks of `withHub`. */
function open(stage: Stage, env = stage.env): RawClient {
  return new RawClient(executable(), ["--config", stage.config], stage.dir, env);
}

const SERVERS = {
  polite: scripted(),
  stubborn: scripted("--ignore-term"),
  parent: scripted(),
};

/** Starts every server, a call that hangs and a process that left its group; returns the pids of all. */
async function populate(client: RawClient, dir: string): Promise<number[]> {
  await client.open();
  const grandchild = await spawnGrandchild(client, "parent", dir);
  client.askCall("stubborn__hang");
  const pids = carrying(dir);
  assert.ok(pids.includes(grandchild), "the process that left the group runs");
  assert.ok(pids.length >= 5, `the hub, three servers and one more process run: ${pids.length}`);
  return pids;
}

/** Lets a server start a process that leaves its group; returns its pid. */
async function spawnGrandchild(client: RawClient, server: string, dir: string): Promise<number> {
  const { message } = await client.call(`${server}__grandchild`);
  const pid = Number(message.result?.content?.[0]?.text);
  // For a moment after its birth a process shows no environment.
  await poll(
    5000,
    () => `the environment of ${pid}`,
    () => carrying(dir).includes(pid) || undefined,
  );
  return pid;
}

describe("when the hub ends, nothing of it is left, whatever its servers do", () => {
  const ends: Record<string, (client: RawClient) => void> = {
    "the client closes stdin": (client) => client.end(),
    SIGTERM: (client) => client.signal("SIGTERM"),
    SIGINT: (client) => client.signal("SIGINT"),
    SIGHUP: (client) => client.signal("SIGHUP"),
  };

  // A server that ignores everything takes the whole grace period, so all endings run side by side.
  let runs: Record<string, Promise<void>> = {};
  before(() => {
    runs = Object.fromEntries(Object.entries(ends).map(([name, stop]) => [name, run(stop)]));
    for (const one of Object.values(runs)) one.catch(() => undefined);
  });
  after(() => Promise.allSettled(Object.values(runs)));

  function run(stop: (client: RawClient) => void): Promise<void> {
    const mute = scripted("--never-answer-initialize --ignore-term");
    const manifest = { hub: { listWait: "2s" }, servers: { ...SERVERS, mute } };
    return withHub(manifest, async ({ client, dir }) => {
      const pids = await populate(client, dir);
      stop(client);
      await client.ended(END);
      await waitUntilGone(pids, 1000);
    });
  }

  for (const name of Object.keys(ends)) it(`after: ${name}`, LIMIT, () => runs[name]);
});

it("a second signal ends the hub at once, and nothing of it is left either", LIMIT, () =>
  withHub({ servers: SERVERS }, async ({ client, dir, logged }) => {
    const pids = [...(await populate(client, dir)), await spawnGrandchild(client, "stubborn", dir)];
    client.signal("SIGTERM");
    await logged("stubborn", ({ event }) => event === "eof");
    const began = performance.now();
    client.signal("SIGTERM");
    await client.ended(END);
    assert.ok(performance.now() - began < 1000, "the hub does not wait for the stubborn server");
    await waitUntilGone(pids, 1000);
  }),
);

describe("a client that goes away", () => {
  it("in the middle of a call takes everything with it, and the server learns of it", LIMIT, () =>
    withHub({ servers: { a: scripted() } }, async ({ client, dir, logged }) => {
      await client.open();
      client.askCall("a__hang");
      await logged("a", ({ tool }) => tool === "hang");
      const pids = carrying(dir);
      client.end();
      await logged("a", ({ event }) => event === "cancelled" || event === "eof");
      await client.ended(END);
      await waitUntilGone(pids, 1000);
    }),
  );

  it("before it said anything leaves nothing behind", LIMIT, () =>
    withHub({ servers: { a: scripted("--start-delay 60000") } }, async ({ client }) => {
      client.end();
      await client.ended(END);
    }),
  );

  it("by kill -9 takes everything with it, in the middle of a call", LIMIT, () =>
    whenTheClientIsKilled("relay"),
  );

  it("by kill -9 takes everything with it although somebody else holds stdin open", LIMIT, () =>
    whenTheClientIsKilled("inherit"),
  );

  it("while a big answer is on its way that it does not read is no reason to stay", LIMIT, () =>
    withStage({ servers: { a: scripted() } }, async (stage) => {
      const client = open(stage);
      await client.open();
      client.pause();
      client.askCall("a__big", { bytes: 8_000_000 });
      await stage.logged("a", ({ tool }) => tool === "big");
      const pids = carrying(stage.dir);
      client.end();
      await waitUntilGone(pids, END);
      client.resume();
    }),
  );
});

/** A client process starts the hub, with pipes of its own or with those that this process holds, and is killed. */
function whenTheClientIsKilled(mode: "relay" | "inherit"): Promise<void> {
  return withStage({ servers: { a: scripted(), b: scripted("--ignore-term") } }, async (stage) => {
    const victim = fileURLToPath(new URL("../harness/victim.mjs", import.meta.url));
    const args = [victim, mode, executable(), "--config", stage.config];
    const client = new RawClient(process.execPath, args, stage.dir, stage.env);
    await client.open();
    client.askCall("a__hang");
    await stage.logged("a", ({ tool }) => tool === "hang");
    const pids = carrying(stage.dir);
    assert.ok(pids.length >= 4, "the client, the hub and both servers run");
    client.signal("SIGKILL");
    await waitUntilGone(pids, END);
  });
}

describe("the hub's own death", () => {
  it("by SIGKILL leaves nothing that the next start does not sweep away", LIMIT, () =>
    withStage({ servers: SERVERS }, async (stage) => {
      const { client, pids } = await start(stage);
      client.signal("SIGKILL");
      await client.ended(END);
      const next = await start(stage);
      await waitUntilGone(pids, END);
      next.client.end();
      await next.client.ended(END);
      assertProtocolOnly(next.client);
    }),
  );

  async function start(stage: Stage): Promise<{ client: RawClient; pids: number[] }> {
    const client = open(stage);
    return { client, pids: await populate(client, stage.dir) };
  }
});

describe("the processes of servers", () => {
  it("carry the hub's tag, also those that left their parent's process group", LIMIT, () =>
    withHub({ servers: { a: scripted() } }, async ({ client, dir }) => {
      await client.open();
      const server = Number((await client.call("a__pid")).message.result?.content?.[0]?.text);
      const grandchild = await spawnGrandchild(client, "a", dir);
      const tags = [server, grandchild].map((pid) =>
        environment(pid).find((pair) => pair.startsWith("TOOLMUX_OWNER=")),
      );
      assert.ok(tags[0]?.includes(String(client.pid)));
      assert.equal(tags[1], tags[0]);
    }),
  );

  it(
    "of a server that died are swept with it: a process that it left behind does not outlive its next start",
    LIMIT,
    () =>
      withHub({ servers: { a: scripted() } }, async ({ client, dir }) => {
        await client.open();
        const grandchild = await spawnGrandchild(client, "a", dir);
        await client.call("a__die");
        await client.call("a__echo");
        await poll(
          END,
          () => `the end of ${grandchild}`,
          () => (isAlive(grandchild) ? undefined : true),
        );
      }),
  );

  it(
    "see a small environment, their own settings and their own folder, and no secret of the hub's",
    LIMIT,
    () =>
      withStage(
        {
          servers: {
            a: scripted("", { env: { OWN: "value" }, inheritEnv: ["WANTED"], cwd: "state" }),
          },
        },
        async (stage) => {
          const env = {
            ...stage.env,
            SECRET_TOKEN: "hidden",
            WANTED: "yes",
            BUN_OPTIONS: "",
            BUN_INSTALL: "/nowhere",
            LC_ALL: "C",
          };
          const client = new RawClient(executable(), ["--config", stage.config], stage.dir, env);
          await client.open();
          const text =
            (await client.call("a__surroundings")).message.result?.content?.[0]?.text ?? "{}";
          const seen = JSON.parse(text) as { cwd: string; env: Record<string, string> };
          assert.equal(seen.cwd, `${stage.dir}/state`);
          assert.equal(seen.env["OWN"], "value");
          assert.equal(seen.env["WANTED"], "yes");
          assert.equal(seen.env["LC_ALL"], "C");
          assert.equal(seen.env["HOME"], stage.dir);
          assert.equal(seen.env["SECRET_TOKEN"], undefined);
          assert.deepEqual(
            Object.keys(seen.env).filter((key) => key.startsWith("BUN_")),
            [],
          );
          client.end();
          await client.ended(END);
          assertProtocolOnly(client);
        },
      ),
  );
});
