import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as stall } from "node:timers/promises";
import { TEST_OPTIONS } from "../harness/hub.ts";
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
async function pinged(realm: ControlledServers, server: string, times = MANY): Promise<void> {
  const count = (): number => realm.events(server).filter(({ event }) => event === "ping").length;
  const before = count();
  await realm.waitForEvents(server, () => (count() >= before + times ? true : undefined));
}

describe("a server that lives but does not answer", () => {
  it(
    "because it is stopped is replaced by a new process, and its tools stay listed",
    TEST_OPTIONS,
    () =>
      withControlledServers({ servers: { a: controlled(WATCHED) } }, async (realm) => {
        const left = await realm.serve(async (client) => {
          await client.initializeAndList();
          const pid = await callPid(client, "a");
          process.kill(pid, "SIGSTOP");
          await realm.waitForEvents("a", () => realm.startEvents("a")[1]);
          await waitUntilExited([pid], 1000);
          assert.notEqual(await callPid(client, "a"), pid);
          assert.deepEqual(realm.startEvents("a")[1]?.others, []);
        });
        assert.equal(listChangedCount(left), 0);
        assert.match(left.stderr, /^toolmux: warn a: Server "a" gave no sign of life for 3000 ms/);
      }),
  );

  it("because it ignores pings is replaced by a new process", TEST_OPTIONS, () =>
    withControlledServers({ servers: { a: controlled(WATCHED) } }, async (realm) => {
      realm.setRules("a", { pings: "ignore" });
      await realm.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        await realm.waitForEvents("a", () => realm.startEvents("a")[1]);
        assert.notEqual(await callPid(client, "a"), pid);
      });
      const [first] = realm.startEvents("a");
      const pings = realm
        .events("a")
        .filter((note) => note.event === "ping" && note.pid === first?.pid);
      assert.equal(pings.length, 2);
    }),
  );

  it(
    "is left alone while a call is in flight on it, and answers that when it wakes",
    TEST_OPTIONS,
    () =>
      withControlledServers(
        { servers: { a: controlled(WATCHED), b: controlled(WATCHED) } },
        async (realm) => {
          await realm.serve(async (client) => {
            await client.initializeAndList();
            const pid = await callPid(client, "a");
            const call = await holdCall(realm, client, "a");
            process.kill(pid, "SIGSTOP");
            await pinged(realm, "b");
            process.kill(pid, "SIGCONT");
            await call.release();
            await pinged(realm, "a", 2);
            assert.equal(await callPid(client, "a"), pid);
          });
          assert.equal(realm.startEvents("a").length, 1);
        },
      ),
  );

  it("is replaced once the call that was in flight on it has been given up", TEST_OPTIONS, () =>
    withControlledServers({ servers: { a: controlled(WATCHED) } }, async (realm) => {
      await realm.serve(async (client) => {
        await client.initializeAndList();
        const pid = await callPid(client, "a");
        const id = client.sendCall("a__hang");
        await realm.waitForEvents("a", (notes) => notes.find(({ tool }) => tool === "hang"));
        realm.setRules("a", { pings: "ignore" });
        const pings = (): number =>
          realm.events("a").filter((note) => note.event === "ping").length;
        await realm.waitForEvents("a", () => (pings() >= MANY ? true : undefined));
        assert.equal(realm.startEvents("a").length, 1);
        const params = { requestId: id };
        client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
        await realm.waitForEvents("a", () => realm.startEvents("a")[1]);
        assert.notEqual(await callPid(client, "a"), pid);
      });
    }),
  );
});

/** What servers noted while a hub ran for many intervals, and its stderr. */
interface Season {
  readonly stderr: string;
  starts(server: string): number;
  pings(server: string): number;
}

let season: Promise<Season> | undefined;

/** One run for all servers that are healthy in their own way; the calls in it have been answered. */
function live(): Promise<Season> {
  const servers = {
    refusing: controlled(WATCHED),
    talking: controlled(WATCHED),
    working: controlled(WATCHED),
    unwatched: controlled({ healthInterval: 0 }),
    plain: controlled(WATCHED),
  };
  return withControlledServers({ servers }, async (realm) => {
    realm.setRules("refusing", { pings: "refuse" });
    realm.setRules("talking", { pings: "ignore", chatter: 50 });
    realm.setRules("working", { pings: "ignore" });
    const { stderr } = await realm.serve(async (client) => {
      await client.initializeAndList();
      const call = await holdCall(realm, client, "working", { steps: true });
      await Promise.all([pinged(realm, "plain"), pinged(realm, "refusing")]);
      await call.release();
      for (const server of Object.keys(servers))
        assert.equal(await callPid(client, server), realm.startedPids(server)[0]);
    });
    const notes = new Map(Object.keys(servers).map((server) => [server, realm.events(server)]));
    const count = (server: string, event: string): number =>
      notes.get(server)?.filter((note) => note.event === event).length ?? 0;
    return {
      stderr,
      starts: (server) => count(server, "start"),
      pings: (server) => count(server, "ping"),
    };
  });
}

describe("a server is healthy", () => {
  const WAYS = {
    "that does not know pings, but says so": "refusing",
    "that ignores pings, but says something now and then": "talking",
    "that ignores pings, but reports the progress of a call": "working",
    "that answers its pings": "plain",
    "that nobody asks, because healthInterval is 0": "unwatched",
  };
  for (const [how, server] of Object.entries(WAYS)) {
    it(how, TEST_OPTIONS, async () => {
      const { starts, stderr } = await (season ??= live());
      assert.equal(starts(server), 1);
      assert.equal(stderr, "");
    });
  }

  it("and is not asked, as long as it is heard without that", TEST_OPTIONS, async () => {
    const { pings } = await (season ??= live());
    for (const server of ["talking", "working"]) {
      assert.ok(pings(server) < MANY / 2, `${server}: ${pings(server)} pings`);
    }
    assert.equal(pings("unwatched"), 0);
  });

  it("whatever the hub, which was stopped for long, did not hear meanwhile", TEST_OPTIONS, () =>
    withControlledServers(
      { servers: { a: controlled(WATCHED), b: controlled(WATCHED) } },
      async (realm) => {
        realm.setRules("b", { chatter: 20 });
        const left = await realm.serve(async (client) => {
          await client.initializeAndList();
          for (let at = 0; at < 2; at += 1) {
            // It is stopped while it waits for an answer, or shortly after that.
            await pinged(realm, "a", 1);
            client.signal("SIGSTOP");
            await stall(4 * INTERVAL);
            client.signal("SIGCONT");
            await callPid(client, "b");
          }
          await pinged(realm, "a", 2);
          for (const server of ["a", "b"])
            assert.equal(await callPid(client, server), realm.startedPids(server)[0]);
        });
        assert.equal(left.stderr, "");
      },
    ),
  );
});
