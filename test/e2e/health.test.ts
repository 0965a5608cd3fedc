import assert from "node:assert/strict";
import { describe } from "node:test";
import { setTimeout as stall } from "node:timers/promises";
import { itTogether } from "../harness/hub.ts";
import { waitUntilExited } from "../harness/processes.ts";
import {
  callPid,
  listChangedCount,
  controlled,
  holdCall,
  type ControlledServers,
  withControlledServers,
} from "../harness/controlled-servers.ts";

const SOON = { base: "10ms", jitter: 0 };
/** In ms. A server has to be silent for three of these until it is given up. */
const INTERVAL = 1000;
/** Looked after often. */
const WATCHED = { healthInterval: `${INTERVAL}ms`, reconnect: SOON };

/** So many pings, each an interval after the other, are more than any server may miss. */
const MANY = 4;

/** Waits until a server has been pinged that often from now on. */
async function pinged(harness: ControlledServers, server: string, times = MANY): Promise<void> {
  const count = (): number => harness.events(server).filter(({ event }) => event === "ping").length;
  const before = count();
  await harness.waitForEvents(server, () => (count() >= before + times ? true : undefined));
}

describe("a server that lives but does not answer", () => {
  const test = itTogether();

  test("because it is stopped or ignores pings is replaced by a new process, and its tools stay listed", () =>
    withControlledServers(
      { servers: { a: controlled(WATCHED), b: controlled(WATCHED) } },
      async (harness) => {
        harness.setRules("b", { pings: "ignore" });
        const left = await harness.serve(async (client) => {
          await client.initializeAndList();
          const pids = [await callPid(client, "a"), await callPid(client, "b")] as const;
          process.kill(pids[0], "SIGSTOP");
          for (const server of ["a", "b"])
            await harness.waitForEvents(server, () => harness.startEvents(server)[1]);
          await waitUntilExited(pids, 1000);
          assert.notEqual(await callPid(client, "a"), pids[0]);
          assert.notEqual(await callPid(client, "b"), pids[1]);
          assert.deepEqual(harness.startEvents("a")[1]?.others, []);
        });
        assert.equal(listChangedCount(left), 0);
        assert.match(left.stderr, /^toolmux: warn a: Server "a" gave no sign of life for 3 s/m);
        const [first] = harness.startEvents("b");
        const pings = harness
          .events("b")
          .filter((note) => note.event === "ping" && note.pid === first?.pid);
        assert.equal(pings.length, 2);
      },
    ));

  test("is left alone while a call is in flight on it, and answers that when it wakes", () =>
    withControlledServers(
      { servers: { a: controlled(WATCHED), b: controlled(WATCHED) } },
      async (harness) => {
        await harness.serve(async (client) => {
          await client.initializeAndList();
          const pid = await callPid(client, "a");
          const call = await holdCall(harness, client, "a");
          process.kill(pid, "SIGSTOP");
          await pinged(harness, "b");
          process.kill(pid, "SIGCONT");
          await call.release();
          await pinged(harness, "a", 2);
          assert.equal(await callPid(client, "a"), pid);
        });
        assert.equal(harness.startEvents("a").length, 1);
      },
    ));

  test("is replaced once the call that was in flight on it has been given up", () =>
    withControlledServers({ servers: { a: controlled(WATCHED) } }, async (harness) => {
      await harness.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        const id = client.sendCall("a__hang");
        await harness.waitForEvents("a", (notes) => notes.find(({ tool }) => tool === "hang"));
        harness.setRules("a", { pings: "ignore" });
        const pings = (): number =>
          harness.events("a").filter((note) => note.event === "ping").length;
        await harness.waitForEvents("a", () => (pings() >= MANY ? true : undefined));
        assert.equal(harness.startEvents("a").length, 1);
        const params = { requestId: id };
        client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
        await harness.waitForEvents("a", () => harness.startEvents("a")[1]);
        assert.notEqual(await callPid(client, "a"), pid);
      });
    }));
});

describe("a server is healthy", () => {
  const test = itTogether();

  test("that answers pings, refuses or ignores them but says something, or is not to be asked; who is heard without that is not asked", () => {
    const servers = {
      refusing: controlled(WATCHED),
      // Says something now and then.
      talking: controlled(WATCHED),
      // Reports the progress of a call.
      working: controlled(WATCHED),
      unwatched: controlled({ healthInterval: 0 }),
      plain: controlled(WATCHED),
    };
    return withControlledServers({ servers }, async (harness) => {
      harness.setRules("refusing", { pings: "refuse" });
      harness.setRules("talking", { pings: "ignore", chatter: 50 });
      harness.setRules("working", { pings: "ignore" });
      const { stderr } = await harness.serve(async (client) => {
        await client.initializeAndList();
        const call = await holdCall(harness, client, "working", { steps: true });
        await Promise.all([pinged(harness, "plain"), pinged(harness, "refusing")]);
        await call.release();
        for (const server of Object.keys(servers))
          assert.equal(await callPid(client, server), harness.startedPids(server)[0]);
      });
      assert.equal(stderr, "");
      for (const server of Object.keys(servers))
        assert.equal(harness.startEvents(server).length, 1, server);
      const most = { talking: MANY / 2 - 1, working: MANY / 2 - 1, unwatched: 0 };
      for (const [server, count] of Object.entries(most)) {
        const pings = harness.events(server).filter(({ event }) => event === "ping");
        assert.ok(pings.length <= count, `${server}: ${pings.length} pings`);
      }
    });
  });

  test("whatever the hub, which was stopped for long, did not hear meanwhile", () =>
    withControlledServers(
      { servers: { a: controlled(WATCHED), b: controlled(WATCHED) } },
      async (harness) => {
        harness.setRules("b", { chatter: 20 });
        const left = await harness.serve(async (client) => {
          await client.initializeAndList();
          for (let at = 0; at < 2; at += 1) {
            // It is stopped while it waits for an answer, or shortly after that.
            await pinged(harness, "a", 1);
            client.signal("SIGSTOP");
            await stall(4 * INTERVAL);
            client.signal("SIGCONT");
            await callPid(client, "b");
          }
          await pinged(harness, "a", 2);
          for (const server of ["a", "b"])
            assert.equal(await callPid(client, server), harness.startedPids(server)[0]);
        });
        assert.equal(left.stderr, "");
      },
    ));
});
