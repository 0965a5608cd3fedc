import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import type { HubOptions } from "../../src/hub/options.ts";
import { summaryStateOf } from "../../src/upstream/status.ts";
import { subsetOf } from "../../src/upstream/profile.ts";
import {
  callRequest,
  type HubSetupOptions,
  initialize,
  isResponseTo,
  Latch,
  listToolNames,
  manifestOf,
  Peer,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import { respond } from "../fixtures/peer-messages.ts";
import { ALL_CAPABILITIES } from "../fixtures/server-requests.ts";
import { remoteManifest } from "../fixtures/streamed-transport.ts";
import { turn } from "../fixtures/virtual-clock.ts";

/** A hub whose servers are connected, and no client is there. */
async function beginEarly<Name extends string>(
  scripts: Record<Name, ScriptedServer>,
  options: HubSetupOptions = {},
) {
  const setup = setUpHubWithClock(scripts, options);
  setup.hub.startEarly();
  await turn();
  const stateOf = (name: Name): string => summaryStateOf(serverStatusOf(setup.hub, name));
  return { ...setup, stateOf };
}

describe("before the first client is there", () => {
  it("the servers that should be up and are shared are connected, as for a client without capabilities", async () => {
    const scripts = {
      a: new ScriptedServer("x"),
      lazy: new ScriptedServer("x"),
      off: new ScriptedServer("x"),
      own: new ScriptedServer("x"),
    };
    const { hub, stateOf } = await beginEarly(scripts, {
      servers: { lazy: { lazy: true }, off: { enabled: false }, own: { isolation: "perClient" } },
    });
    const names = ["a", "lazy", "off", "own"] as const;
    assert.deepEqual(names.map(stateOf), ["connected", "idle", "disabled", "notStarted"]);
    const [greeting] = scripts.a.messagesOf("initialize");
    assert.deepEqual(greeting?.params?.["capabilities"], {});
    assert.equal(hub.snapshot().clients.length, 1);
  });

  it("at most `parallelStarts` servers start at the same time", async () => {
    const latch = new Latch();
    const names = ["a", "b", "c"] as const;
    const scripts = Object.fromEntries(
      names.map((name) => [name, Object.assign(new ScriptedServer("x"), { onOpen: latch.wait })]),
    ) as Record<"a" | "b" | "c", ScriptedServer>;
    const { stateOf } = await beginEarly(scripts, { hub: { parallelStarts: 2 } });
    assert.deepEqual(
      names.map((name) => scripts[name].transportCount),
      [1, 1, 0],
    );
    latch.open();
    await turn();
    assert.deepEqual(names.map(stateOf), ["connected", "connected", "connected"]);
  });

  it("a server that a reload adds is connected, and a server outside the hub's servers is not", async () => {
    const scripts = {
      a: new ScriptedServer("x"),
      b: new ScriptedServer("x"),
      c: new ScriptedServer("x"),
    };
    const setup = setUpHubWithClock(scripts, { manifest: manifestOf({ a: {}, c: {} }) });
    setup.hub.startEarly(subsetOf(["a", "b"]));
    setup.hub.reload(manifestOf({ a: {}, b: {}, c: {} }));
    await turn();
    const states = setup.hub.status().map(summaryStateOf);
    assert.deepEqual(states, ["connected", "connected", "notStarted"]);
  });

  it("a server that nobody uses is stopped after its `idleStop`", async () => {
    const a = new ScriptedServer("x");
    const { clock, stateOf } = await beginEarly({ a }, { servers: { a: { idleStop: 10_000 } } });
    await clock.advanceAsync(11_000);
    assert.deepEqual([stateOf("a"), a.openCount], ["idle", 0]);
  });
});

describe("a server that was connected early", () => {
  it("goes on for a client without capabilities", async () => {
    const a = new ScriptedServer("x");
    const { client } = await beginEarly({ a });
    await initialize(client);
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
  });

  it("ends before it is started for a client of another kind, which does not touch other servers", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("x")];
    const { hub } = await beginEarly({ a, b });
    const [ours, theirs] = chunkedTransportPair();
    void hub.accept(ours, new AbortController().signal, { subset: subsetOf(["a"]) });
    await initialize(new Peer(theirs), ALL_CAPABILITIES);
    assert.deepEqual([a.transportCount, a.maxOpenCount, a.openCount], [2, 1, 1]);
    assert.deepEqual([b.transportCount, b.openCount], [1, 1]);
    await hub.close();
  });

  it("and is started anew for a client of another kind is in that client's first list", async () => {
    const latch = new Latch();
    const a = Object.assign(new ScriptedServer("x"), { onOpen: latch.wait });
    const { client } = await beginEarly({ a });
    await initialize(client, ALL_CAPABILITIES);
    const names = listToolNames(client);
    await turn();
    latch.open();
    assert.deepEqual(await names, ["a__x"]);
  });

  it("that works at calls stays until they are answered, and no client of another kind waits for it", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { hub, clock, connect } = await beginEarly({ a });
    const operator = connect("control");
    await initialize(operator);
    operator.send(callRequest(1, "a__x"));
    await turn();
    const first = a.newestPeer;
    assert.ok(first);
    await initialize(connect(), ALL_CAPABILITIES);
    assert.deepEqual([a.transportCount, a.openCount], [2, 2]);
    await clock.advanceAsync(30_000);
    assert.equal(a.openCount, 2);
    const call = first.messages.find(({ method }) => method === "tools/call");
    respond(first, call?.id, { content: [] });
    assert.ok((await operator.find(isResponseTo(1))).result);
    await turn();
    assert.equal(a.openCount, 1);
    await hub.close();
    assert.equal(a.openCount, 0);
  });

  /** A server that wants an authorization, and the logins that began for it. */
  async function beginProtected() {
    const a = new ScriptedServer("x");
    let isAuthorized = false;
    a.onOpen = () =>
      isAuthorized ? Promise.resolve() : Promise.reject(new HubError("unauthorized", "No."));
    let logins = 0;
    const authorize: NonNullable<HubOptions["authorize"]> = async () => {
      logins++;
      isAuthorized = true;
    };
    const manifest = remoteManifest({ a: { era: "legacy" } });
    const setup = await beginEarly({ a }, { manifest, authorize });
    await setup.clock.advanceAsync(1_000_000);
    assert.deepEqual([setup.stateOf("a"), logins], ["authenticating", 0]);
    return { ...setup, logins: () => logins };
  }

  const wishes: Record<string, (setup: Awaited<ReturnType<typeof beginProtected>>) => unknown> = {
    "a client without capabilities": ({ client }) => initialize(client),
    "a client of another kind": ({ client }) => initialize(client, ALL_CAPABILITIES),
    "the operator's start": ({ hub }) => hub.start("a"),
    "the operator's reconnect": ({ hub }) => hub.reconnect("a"),
  };
  for (const [who, wish] of Object.entries(wishes)) {
    it(`and wants an authorization waits for ${who} before a login begins`, async () => {
      const setup = await beginProtected();
      await wish(setup);
      await setup.clock.advanceAsync(1000);
      assert.deepEqual([setup.stateOf("a"), setup.logins()], ["connected", 1]);
    });
  }
});
