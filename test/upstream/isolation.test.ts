import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import type { StdioServer } from "../../src/manifest/manifest.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  INITIALIZE_REQUEST,
  initialize,
  Latch,
  listToolNames,
  manifestOf,
  type Peer,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { ALL_CAPABILITIES } from "../fixtures/server-requests.ts";

const SILENCE = (): undefined => undefined;
const HANG = (): Promise<void> => new Promise(() => {});
const OWN = { isolation: "perClient" } as const;

/** A hub with one server, `a`, with these parts of its script, and two clients that have introduced themselves. */
async function begin(script: Partial<ScriptedServer> = {}, entry: Partial<StdioServer> = OWN) {
  const a = Object.assign(new ScriptedServer("x"), script);
  const setup = setUpHubWithClock({ a }, { servers: { a: entry } });
  const { client, hub } = setup;
  const second = setup.connect();
  for (const peer of [client, second]) await initialize(peer);
  return {
    ...setup,
    a,
    second,
    /** How many have been started, and how many run. */
    counts: () => [a.transportCount, a.openCount],
    connections: () => serverStatusOf(hub, "a").connections,
    leave: async (peer = client): Promise<void> => {
      await peer.transport.close();
      await turn();
    },
    reload: async (now: Partial<StdioServer>): Promise<void> => {
      hub.reload(manifestOf({ a: now }));
      await turn();
    },
  };
}

async function assertCallable(...clients: Peer[]): Promise<void> {
  for (const client of clients) assert.ok((await callTool(client, "a__x")).result);
}

describe("a server that each client has for itself", () => {
  it("is one process for each, each call goes to its client's own, and its status says whose it is", async () => {
    const { a, client, second, counts, connections } = await begin();
    assert.deepEqual(counts(), [2, 2]);
    await callTool(client, "a__x", { of: "first" });
    await callTool(second, "a__x", { of: "second" });
    const argumentsOf = a.peers.map(({ messages }) =>
      messages.flatMap(({ params }) => params?.["arguments"] ?? []),
    );
    assert.deepEqual(argumentsOf, [[{ of: "first" }], [{ of: "second" }]]);
    const clients = connections().map((each) => each.client);
    assert.equal(new Set(clients).size, 2);
    assert.ok(clients.every((each) => typeof each === "string"));
  });

  it("shows each client what its own process lists, and one of them to who is nobody in particular", async () => {
    let lists = 0;
    const onList = (): string => `"result":{"tools":[{"name":"t${++lists}"}]}`;
    const { client, hub, second } = await begin({ onList });
    assert.deepEqual(await listToolNames(client), ["a__t1"]);
    assert.deepEqual(await listToolNames(second), ["a__t2"]);
    assert.equal(hub.snapshot().tools, 1);
  });

  it("is another one for the same client if it can do something else now", async () => {
    const a = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ a }, { servers: { a: OWN } });
    for (const capabilities of [{}, { roots: {} }, {}]) {
      await sendModernRequest(client, "tools/list", {}, capabilities);
    }
    assert.equal(a.transportCount, 2);
  });

  it("ends when its client leaves, with the call in flight, which is cancelled, and the others' go on", async () => {
    const { a, client, second, counts, connections, leave } = await begin();
    const { onCall } = a;
    a.onCall = SILENCE;
    client.send(callRequest(1, "a__x"));
    await turn();
    await leave();
    assert.deepEqual(counts(), [2, 1]);
    assert.equal(a.peers[0]?.isClosed, true);
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
    assert.equal(connections().length, 1);
    a.onCall = onCall;
    await assertCallable(second);
  });

  for (const [step, script] of [
    ["made", { onMake: HANG }],
    ["opened", { onOpen: HANG }],
    ["greeted", { onInitialize: SILENCE }],
  ] as const) {
    it(`leaves nothing if its client leaves while it is being ${step}`, async () => {
      const { a, clock, client, second, connections, leave } = await begin(script);
      for (const peer of [client, second]) await leave(peer);
      await clock.advanceAsync(600_000);
      assert.equal(a.openCount, 0);
      assert.ok(a.transportCount <= 2);
      assert.deepEqual([connections(), clock.pendingDelays], [[], []]);
    });
  }

  it("is not started again for a client that has left, whatever happens to the server", async () => {
    const { a, hub, connections, leave, reload } = await begin();
    await leave();
    await reload({ ...OWN, args: ["other"] });
    await hub.stop("a");
    hub.start("a");
    await turn();
    assert.deepEqual([a.openCount, connections().length], [1, 1]);
  });

  it("is stopped, started and reconnected for all its clients at a time", async () => {
    const { a, hub, counts } = await begin();
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    hub.start("a");
    await turn();
    assert.deepEqual(counts(), [4, 2]);
    hub.reconnect("a");
    await turn();
    assert.deepEqual(counts(), [6, 2]);
  });

  it("that dies for one client costs no other anything", async () => {
    const { a, client, second, clock } = await begin();
    a.disconnect();
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await assertCallable(client);
    assert.equal(a.transportCount, 2);
    await assertCallable(second);
    assert.deepEqual([a.transportCount, clock.now()], [3, 0]);
  });
});

describe("a server that is to be shared otherwise than before", () => {
  for (const [what, before, now, during, after] of [
    ["each client's own only when nothing of the one for all is left", {}, OWN, [1, 1], [3, 2]],
    ["one for all only when nothing of any client's own is left", OWN, {}, [2, 2], [3, 1]],
  ] as const) {
    it(`is ${what}, and found by a call that comes meanwhile`, async () => {
      const latch = new Latch();
      const { a, hub, client, second, counts, reload } = await begin(
        { onClose: latch.wait },
        before,
      );
      await reload(now);
      const answer = callTool(client, "a__x");
      await turn();
      assert.deepEqual(counts(), during);
      latch.open();
      assert.ok((await answer).result);
      assert.deepEqual(counts(), after);
      assert.deepEqual(await listToolNames(client), ["a__x"]);
      await assertCallable(client, second);
      await hub.close();
      assert.equal(a.openCount, 0);
    });
  }

  it("is nobody's whose client has left", async () => {
    const { counts, leave, reload } = await begin({}, {});
    await leave();
    await reload(OWN);
    assert.deepEqual(counts(), [2, 1]);
  });
});

describe("clients of several kinds that come and go while it changes who shares a server", () => {
  it("each have what is theirs in the end, and nothing of those that left is left", async () => {
    const kinds: readonly object[] = [{}, { sampling: {} }, ALL_CAPABILITIES];
    const act = fc.oneof(
      fc.tuple(fc.constantFrom("come", "come", "early", "again", "leave", "call"), fc.nat(8)),
      fc.tuple(fc.constantFrom("own", "share", "die", "stop", "start"), fc.nat(8)),
      fc.tuple(fc.constantFrom("reconnect", "change", "remove"), fc.nat(8)),
      fc.tuple(fc.constant("wait"), fc.nat(400)),
    );
    const run = async (acts: readonly (readonly [string, number])[], isOwn: boolean) => {
      const a = new ScriptedServer("x");
      const { hub, client, connect, clock } = setUpHubWithClock({ a });
      const wait = (): Promise<void> => new Promise((resolve) => void clock.after(100, resolve));
      Object.assign(a, { onOpen: wait, onClose: wait });
      const clients: { peer: Peer; kind: object }[] = [];
      const come = (n: number, peer = connect()): void => {
        const kind = kinds[n % kinds.length] ?? {};
        clients.push({ peer, kind });
        const params = { ...INITIALIZE_REQUEST.params, capabilities: kind };
        peer.send({ ...INITIALIZE_REQUEST, params });
      };
      const take = (n: number): Peer | undefined => clients.splice(n % clients.length, 1)[0]?.peer;
      let calls = 0;
      const isThere = (): boolean => hub.status().length > 0;
      const does: Readonly<Record<string, (n: number) => unknown>> = {
        come: (n) => come(n),
        early: (n) => {
          const late = connect();
          late.send(callRequest("early", "a__x"));
          come(n, late);
        },
        again: (n) => come(n + 1, take(n)),
        leave: (n) => take(n)?.transport.close(),
        call: (n) => clients.at(n % clients.length)?.peer.send(callRequest(++calls, "a__x")),
        own: () => hub.add(stdioSpecOf("a", OWN)),
        share: () => hub.add(stdioSpecOf("a")),
        change: (n) => hub.add(stdioSpecOf("a", { args: [String(n)] })),
        die: () => a.disconnect(),
        stop: () => isThere() && hub.stop("a"),
        start: () => isThere() && hub.start("a"),
        reconnect: () => isThere() && hub.reconnect("a"),
        remove: () => hub.remove("a"),
      };
      come(1, client);
      for (const [what, n] of acts) {
        if (what === "wait") await clock.advanceAsync(n);
        else does[what]?.(n);
      }
      come(acts.length);
      hub.add(stdioSpecOf("a", isOwn ? OWN : {}));
      hub.start("a");
      await clock.advanceAsync(100_000);
      const kindCount = new Set(clients.map(({ kind }) => kind)).size;
      assert.equal(a.openCount, isOwn ? clients.length : kindCount);
      assert.equal(serverStatusOf(hub, "a").connections.length, a.openCount);
      for (const { peer } of clients) assert.ok((await callTool(peer, "a__x")).result);
      a.onClose = undefined;
      await hub.close();
      assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
    };
    const property = fc.asyncProperty(fc.array(act, { maxLength: 25 }), fc.boolean(), run);
    await fc.assert(property, { numRuns: 100 });
  });
});
