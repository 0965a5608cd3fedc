import assert from "node:assert/strict";
import { describe } from "node:test";
import { EXIT_LIMIT, it } from "../harness/hub.ts";
import { isAlive, waitUntilExited } from "../harness/processes.ts";
import {
  callPid,
  listChangedCount,
  controlled,
  holdCall,
  listToolNames,
  type ControlledServers,
  withControlledServers,
} from "../harness/controlled-servers.ts";

const LAZY = controlled({ lazy: true });
/** Unused for longer than this, a server is stopped, a quarter of it later at most. */
const IDLE = controlled({ idleStop: "200ms" });

/** Waits until a server has been stopped that often. */
async function stopped(harness: ControlledServers, server: string, times: number): Promise<void> {
  await harness.waitForEvents(
    server,
    (notes) => notes.filter(({ event }) => event === "end")[times - 1],
  );
  await waitUntilExited(harness.startedPids(server).slice(0, times), EXIT_LIMIT);
}

describe("a lazy server", () => {
  it("of which nothing is known is started once to be listed; after that, and in the next hub, not before its first call", () =>
    withControlledServers(
      { hub: { listWait: "60s" }, servers: { a: LAZY, b: controlled() } },
      async (harness) => {
        const left = await harness.serve(async (client) => {
          assert.ok((await client.initializeAndList()).some(({ name }) => name === "a__pid"));
          await stopped(harness, "a", 1);
          assert.ok((await listToolNames(client)).includes("a__pid"));
          assert.deepEqual(
            harness.events("a").map(({ event }) => event),
            ["start", "initialize", "notifications/initialized", "tools/list", "end"],
          );
          // Its first call starts it, and it stays.
          const pid = await callPid(client, "a");
          assert.equal(pid, harness.startedPids("a")[1]);
          assert.equal(await callPid(client, "a"), pid);
        });
        assert.equal(listChangedCount(left), 0);
        assert.equal(left.stderr, "");
        await harness.serve(async (client) => {
          assert.ok((await client.initializeAndList()).some(({ name }) => name === "a__pid"));
          await callPid(client, "b");
          assert.equal(harness.startEvents("a").length, 2);
          // Calls at once start it once.
          const asked = Array.from({ length: 30 }, () => client.sendCall("a__pid"));
          for (const id of asked) {
            const { message } = await client.response(id);
            assert.equal(message.result?.content?.[0]?.text, String(harness.startedPids("a")[2]));
          }
        });
        assert.equal(harness.startEvents("a").length, 3);
      },
    ));

  it("that is killed is not started before its next call", () =>
    withControlledServers({ servers: { a: LAZY, clock: IDLE } }, async (harness) => {
      await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        process.kill(pid, "SIGKILL");
        await waitUntilExited([pid], EXIT_LIMIT);
        // A call that comes before the hub has seen the exit is lost with the process.
        await client.until(EXIT_LIMIT, "the hub's log", () => /SIGKILL/.exec(client.stderr)?.[0]);
        const before = harness.startEvents("a").length;
        await stopped(harness, "clock", 1);
        assert.equal(harness.startEvents("a").length, before);
        assert.ok((await listToolNames(client)).includes("a__pid"));
        assert.notEqual(await callPid(client, "a"), pid);
      });
    }));

  it("that cannot be listed is tried once, and again by a call of a tool that it may have", () =>
    withControlledServers({ servers: { a: controlled({ lazy: true }) } }, async (harness) => {
      harness.setRules("a", { start: "exit" });
      await harness.serve(async (client) => {
        assert.deepEqual(await client.initializeAndList(), []);
        harness.setRules("a", {});
        assert.equal(await callPid(client, "a"), harness.startedPids("a")[1]);
      });
    }));
});

describe("a server that nobody uses", () => {
  it("is stopped after idleStop unless that is 0 or a call runs, stays listed, and is started by the next call", () => {
    const servers = { clock: IDLE, held: IDLE, kept: controlled({ idleStop: 0 }) };
    return withControlledServers({ servers }, async (harness) => {
      const left = await harness.serve(async (client) => {
        await client.initializeAndList();
        const kept = await callPid(client, "kept");
        const call = await holdCall(harness, client, "held");
        const ends = (server: string) =>
          harness.events(server).filter(({ event }) => event === "end").length;
        const before = ends("held");
        for (let times = 1; times <= 3; times += 1) {
          const used = Date.now();
          const pid = await callPid(client, "clock");
          const starts = harness.startEvents("clock").length;
          await stopped(harness, "clock", starts);
          const end = harness.events("clock").findLast(({ event }) => event === "end");
          assert.ok((end?.time ?? 0) >= used + 195, "not before its time");
          assert.equal(isAlive(pid), false);
          assert.equal(harness.startEvents("clock").length, starts);
          assert.ok((await listToolNames(client)).includes("clock__pid"));
        }
        assert.equal(await callPid(client, "kept"), kept);
        assert.equal(ends("held"), before);
        const busy = harness.startedPids("held").at(-1);
        await call.release();
        await stopped(harness, "held", before + 1);
        assert.notEqual(await callPid(client, "held"), busy);
      });
      assert.equal(listChangedCount(left), 0);
      assert.equal(left.stderr, "");
    });
  });
});
