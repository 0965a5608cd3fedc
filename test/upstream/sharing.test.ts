import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import type { ClientOrigin } from "../../src/manifest/client-values.ts";
import type { ServerListing } from "../../src/catalog/listing.ts";
import type { HubOptions } from "../../src/hub/options.ts";
import { APPROVAL_DEFAULTS, type StdioServer } from "../../src/manifest/manifest.ts";
import { MetaKey } from "../../src/protocol/modern.ts";
import { formatSnapshotKey, type Snapshots } from "../../src/snapshot/snapshots.ts";
import {
  callTool,
  type HubSetupOptions,
  initialize,
  isResponseTo,
  listToolNames,
  manifestOf,
  type Peer,
  ScriptedServer,
  type Servers,
  serverStatusOf,
  setUpHub,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";
import { ALL_MODERN_CAPABILITIES, sendModernRequest } from "../fixtures/modern-requests.ts";
import {
  FORM_ELICITATION,
  inputRequiredResult,
  ModernScriptedServer,
} from "../fixtures/modern-server.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const TOKEN = { env: { KEY: "${env:TOKEN}" } } as const;

/** A client of a shared hub, started with these variables in this folder. */
const originOf = (env: Record<string, string> = {}, cwd = "/home/project"): ClientOrigin => ({
  cwd,
  env,
});

/** A shared hub with scripted servers, which notes what each process was filled in with. */
function share(servers: Record<string, Partial<StdioServer>>, options: HubSetupOptions = {}) {
  const scripts = Object.fromEntries(
    Object.keys(servers).map((name) => [name, new ScriptedServer("x")]),
  );
  const origins: (ClientOrigin | undefined)[] = [];
  const paths: (string | undefined)[] = [];
  const setup = setUpHub(scripts, {
    servers,
    isShared: true,
    openTransport: (spec, _schemes, _cookies, filling) => {
      origins.push(filling?.origin);
      paths.push(filling?.path);
      const script = scripts[spec.name];
      if (script === undefined) throw new HubError("spawnFailed", "no such script");
      return Promise.resolve(script.connect());
    },
    ...options,
  });
  const { hub } = setup;
  return {
    ...setup,
    scripts,
    origins,
    paths,
    join: async (origin: ClientOrigin = originOf(), capabilities: object = {}): Promise<Peer> => {
      const peer = setup.connect("stdio", undefined, origin);
      await initialize(peer, capabilities);
      return peer;
    },
    leave: async (peer: Peer): Promise<void> => {
      await peer.transport.close();
      await turn();
    },
    reload: async (now: Servers): Promise<void> => {
      hub.reload(manifestOf(now));
      await turn();
    },
    /** How many connections there are, over all servers. */
    connectionCount: () => hub.status().flatMap(({ connections }) => connections).length,
    openCount: () => Object.values(scripts).reduce((sum, script) => sum + script.openCount, 0),
    separations: (name: string) =>
      serverStatusOf(hub, name).connections.map(({ separation }) => separation),
  };
}

/** Identifies a server by the client's TOKEN, too. */
const identityByToken: HubOptions["resolveIdentity"] = ({ name }, _schemes, filling) =>
  Promise.resolve({
    command: name,
    args: [],
    cwd: undefined,
    env: { KEY: filling?.origin?.env["TOKEN"] ?? "" },
    url: undefined,
    principal: undefined,
  });

const TEN = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`s${at}`, {}]));
const CLASSES = [{}, { roots: {} }, { sampling: {}, elicitation: {} }] as const;

describe("the clients of a shared hub", () => {
  it("share one process of each server: 20 clients of 10 servers have 10", async () => {
    const { join, connectionCount, openCount } = share(TEN);
    const clients = await Promise.all(
      Array.from({ length: 20 }, (_, at) => join(originOf({ NOT_NAMED: String(at) }, `/${at}`))),
    );
    for (const client of clients) assert.equal((await listToolNames(client)).length, 10);
    assert.deepEqual([connectionCount(), openCount()], [10, 10]);
  });

  it("have at most 30 processes in three classes of capabilities, and 10 if each server is one for everybody", async () => {
    for (const [isolation, count] of [
      ["auto", 30],
      ["one", 10],
    ] as const) {
      const servers = Object.fromEntries(Object.keys(TEN).map((name) => [name, { isolation }]));
      const { join, connectionCount, openCount } = share(servers);
      const clients = await Promise.all(
        Array.from({ length: 20 }, (_, at) => join(originOf(), CLASSES[at % 3])),
      );
      for (const client of clients) assert.equal((await listToolNames(client)).length, 10);
      assert.deepEqual([connectionCount(), openCount()], [count, count]);
    }
  });

  it("have a process for each value of a variable that the entry names, and the reason is said", async () => {
    const { join, leave, scripts, origins, separations } = share({ a: TOKEN, b: {} });
    const first = await join(originOf({ TOKEN: "one", OTHER: "1" }));
    const second = await join(originOf({ TOKEN: "two" }));
    const third = await join(originOf({ TOKEN: "one", OTHER: "2" }, "/elsewhere"));
    const [a, b] = [scripts["a"], scripts["b"]];
    assert.deepEqual([a?.openCount, b?.openCount], [2, 1]);
    for (const client of [first, second, third])
      assert.ok((await callTool(client, "a__x", { token: true })).result);
    const calls = a?.peers.map(
      ({ messages }) => messages.filter(({ method }) => method === "tools/call").length,
    );
    assert.deepEqual(calls, [2, 1]);
    assert.deepEqual(separations("a"), [undefined, { by: "values", names: ["TOKEN"] }]);
    assert.deepEqual(separations("b"), [undefined]);
    const tokens = origins.map((origin) => origin?.env["TOKEN"]);
    assert.deepEqual(tokens, ["one", "one", "two"]);
    // The process of a value goes with the last client that has it.
    await leave(second);
    assert.equal(a?.openCount, 1);
    await leave(first);
    assert.equal(a?.openCount, 1);
    assert.ok((await callTool(third, "a__x")).result);
  });

  it("have a process for each ${workspaceFolder}, if the entry names it", async () => {
    const { join, scripts, origins, separations } = share({ a: { args: ["${workspaceFolder}"] } });
    await join(originOf({}, "/one"));
    await join(originOf({}, "/two"));
    await join(originOf({}, "/two"));
    assert.equal(scripts["a"]?.openCount, 2);
    assert.deepEqual(
      origins.map((origin) => origin?.cwd),
      ["/one", "/two"],
    );
    const names = ["${workspaceFolder}"];
    assert.deepEqual(separations("a"), [undefined, { by: "values", names }]);
  });

  it("do not show their values in keys of connections", async () => {
    const { join, hub } = share({ a: TOKEN });
    await join(originOf({ TOKEN: "very-secret-value" }));
    assert.ok(!JSON.stringify(hub.status()).includes("very-secret-value"));
  });

  it("see what the process with their own values lists", async () => {
    const script = new ScriptedServer();
    let lists = 0;
    script.onList = () => `"result":{"tools":[{"name":"t${++lists}"}]}`;
    const { join } = share(
      { a: TOKEN },
      { openTransport: () => Promise.resolve(script.connect()) },
    );
    const first = await join(originOf({ TOKEN: "one" }));
    assert.deepEqual(await listToolNames(first), ["a__t1"]);
    const second = await join(originOf({ TOKEN: "two" }));
    assert.deepEqual(await listToolNames(second), ["a__t2"]);
    assert.deepEqual(await listToolNames(first), ["a__t1"]);
  });

  it("see what was saved of the process with their own values", async () => {
    const saved = new Map<string, ServerListing>();
    const snapshots: Snapshots = {
      load: (key) => {
        const listing = saved.get(formatSnapshotKey(key));
        return Promise.resolve(listing && { listing, savedAt: Date.now() });
      },
      save: (key, listing) => {
        saved.set(formatSnapshotKey(key), listing);
        return Promise.resolve();
      },
      flush: () => Promise.resolve(),
    };
    const options = { snapshots, resolveIdentity: identityByToken };
    const before = share({ a: TOKEN }, options);
    for (const token of ["one", "two"]) {
      const [a] = Object.values(before.scripts);
      if (a !== undefined) a.tools = [`{"name":"${token}"}`];
      await before.join(originOf({ TOKEN: token }));
      await before.hub.settled();
    }
    await before.hub.close();
    const after = share({ a: TOKEN }, options);
    const [a] = Object.values(after.scripts);
    if (a !== undefined) a.onList = () => undefined;
    for (const token of ["two", "one"]) {
      const client = await after.join(originOf({ TOKEN: token }));
      assert.deepEqual(await listToolNames(client), [`a__${token}`]);
    }
  });

  it("get an approval that counts for good only for the server with their own values", async () => {
    const spec = stdioSpecOf("a", TOKEN);
    const manifest = {
      ...manifestOf({ a: TOKEN }),
      approval: { ...APPROVAL_DEFAULTS, approval: "always" as const },
    };
    const { join, hub } = share(
      { a: spec },
      { manifest, resolveIdentity: identityByToken, isWatchable: true },
    );
    const forms = { elicitation: { form: {} } };
    const [one, two] = [
      await join(originOf({ TOKEN: "one" }), forms),
      await join(originOf({ TOKEN: "two" }), forms),
    ];
    const isForm = ({ method }: { method?: string }): boolean => method === "elicitation/create";
    const called = callTool(one, "a__x");
    await one.find(isForm);
    const [asked] = hub.approvals.prompts;
    assert.equal(hub.approvals.answer(asked?.id ?? "", "always", "terminal"), "accepted");
    assert.ok((await called).result);
    const again = await join(originOf({ TOKEN: "one" }), forms);
    assert.ok((await callTool(again, "a__x")).result);
    const other = callTool(two, "a__x");
    await two.find(isForm);
    assert.equal(
      hub.approvals.answer(hub.approvals.prompts[0]?.id ?? "", "deny", "terminal"),
      "accepted",
    );
    await other;
  });

  it("keep their values apart when a reload changes which of them the entry names", async () => {
    const { join, leave, reload, scripts, separations } = share({ a: {} });
    const [a] = Object.values(scripts);
    const first = await join(originOf({ TOKEN: "one" }));
    const second = await join(originOf({ TOKEN: "two" }));
    assert.equal(a?.openCount, 1);
    await reload({ a: TOKEN });
    for (const client of [first, second]) assert.ok((await callTool(client, "a__x")).result);
    assert.equal(a?.openCount, 2);
    assert.deepEqual(separations("a"), [undefined, { by: "values", names: ["TOKEN"] }]);
    await reload({ a: { env: { KEY: "${env:OTHER}" } } });
    for (const client of [first, second]) assert.ok((await callTool(client, "a__x")).result);
    assert.deepEqual(separations("a"), [undefined]);
    await reload({ a: TOKEN });
    // The client for which the common process was started has left before the next reload.
    await reload({ a: {} });
    await leave(first);
    await reload({ a: TOKEN });
    assert.ok((await callTool(second, "a__x")).result);
    assert.deepEqual([a?.openCount, separations("a")], [1, [undefined]]);
  });

  it("are waited for by a server that takes values from them, if others are started before", async () => {
    const { hub, join, scripts } = share({ a: TOKEN, b: {} });
    hub.startEarly();
    await turn();
    assert.deepEqual([scripts["a"]?.transportCount, scripts["b"]?.transportCount], [0, 1]);
    await join(originOf({ TOKEN: "one" }));
    assert.deepEqual([scripts["a"]?.transportCount, scripts["b"]?.transportCount], [1, 1]);
  });

  it("are looked up the commands of servers in their PATHs, in the order of their arrival", async () => {
    const { join, leave, paths, hub } = share({ a: { isolation: "perClient" } });
    const first = await join({ ...originOf(), path: "/b:relative:/a" });
    await join({ ...originOf(), path: "/c:/b" });
    assert.deepEqual(paths, ["/b:/a", "/b:/a:/c"]);
    await leave(first);
    await join(originOf());
    assert.equal(paths.at(-1), "/c:/b");
    void hub;
  });

  it("speak two eras, and use processes of their own for that, with the reason", async () => {
    const { join, connect, separations } = share({ a: {} });
    await join();
    const modern = connect("stdio", undefined, originOf());
    assert.ok((await sendModernRequest(modern, "tools/list", {})).result);
    assert.deepEqual(separations("a"), [undefined, { by: "era" }]);
  });
});

describe("a shared server with many classes of capabilities", () => {
  const FOUR = [
    { roots: {} },
    { sampling: {} },
    { sampling: { tools: {} }, elicitation: {} },
    { elicitation: {} },
  ] as const;

  it("has four; a fifth uses the largest that is contained in its own, and stays with it", async () => {
    const { join, leave, scripts, separations, hub } = share({ a: {} });
    const [a] = Object.values(scripts);
    const clients: Peer[] = [];
    for (const capabilities of FOUR) clients.push(await join(originOf(), capabilities));
    const all = { roots: {}, sampling: { tools: {} }, elicitation: {} };
    const fifth = await join(originOf(), all);
    assert.equal(a?.openCount, 4);
    assert.deepEqual(separations("a"), [
      undefined,
      ...Array.from({ length: 3 }, () => ({ by: "capabilities" })),
    ]);
    await callTool(fifth, "a__x", { of: "fifth" });
    const used = a?.peers.findIndex(({ messages }) =>
      messages.some(({ method }) => method === "tools/call"),
    );
    assert.equal(used, 2);
    // The clients of the lent connection are both of its kinds.
    const third = serverStatusOf(hub, "a").connections[2];
    assert.equal(third?.clients.length, 2);
    assert.deepEqual(third?.canAsk, ["elicitation", "sampling"]);
    for (const client of clients) await leave(client);
    assert.equal(a?.openCount, 1);
    await callTool(fifth, "a__x");
    assert.equal(a?.transportCount, 4);
  });

  it("has a connection without capabilities for those that contain none of the four", async () => {
    const { join, scripts } = share({ a: {} });
    const [a] = Object.values(scripts);
    for (const capabilities of FOUR) await join(originOf(), capabilities);
    const url = { elicitation: { url: {} } };
    // It contains {"roots": {}}, so only the first and the last need the fifth connection.
    for (const capabilities of [url, { ...url, roots: { listChanged: true } }, {}]) {
      assert.ok((await callTool(await join(originOf(), capabilities), "a__x")).result);
      assert.equal(a?.openCount, 5);
    }
    const declared = a?.messagesOf("initialize").map(({ params }) => params?.["capabilities"]);
    assert.equal(a?.openCount, 5);
    assert.deepEqual(declared?.at(-1), {});
  });

  it("counts the classes of clients with other values apart", async () => {
    const { join, scripts } = share({ a: TOKEN });
    for (const TOKEN_VALUE of ["one", "two"])
      for (const capabilities of [...FOUR, { roots: {}, sampling: {}, elicitation: {} }])
        await join(originOf({ TOKEN: TOKEN_VALUE }), capabilities);
    assert.equal(scripts["a"]?.openCount, 8);
  });

  it("gives a class of its own to clients that come when there is room", async () => {
    const { join, leave, scripts } = share({ a: {} });
    const [a] = Object.values(scripts);
    const clients: Peer[] = [];
    for (const capabilities of FOUR) clients.push(await join(originOf(), capabilities));
    const fifth = { roots: {}, sampling: {} };
    await leave(await join(originOf(), fifth));
    const last = clients.at(-1);
    assert.ok(last);
    await leave(last);
    assert.equal(a?.openCount, 3);
    await join(originOf(), fifth);
    assert.deepEqual([a?.openCount, a?.transportCount], [4, 5]);
  });

  it("has its classes again when it is no longer one for everybody", async () => {
    const { join, reload, scripts, separations } = share({ a: {} });
    const clients: Peer[] = [];
    for (const capabilities of [...FOUR.toReversed(), { roots: {}, sampling: {} }])
      clients.push(await join(originOf(), capabilities));
    await reload({ a: { isolation: "one" } });
    assert.deepEqual(separations("a"), [undefined]);
    const [first] = clients;
    await first?.transport.close();
    await reload({ a: {} });
    const others = clients.slice(1);
    for (const client of others) assert.ok((await callTool(client, "a__x")).result);
    assert.deepEqual([scripts["a"]?.openCount, separations("a").length], [4, 4]);
  });

  it("takes up its classes again after a reload", async () => {
    const { join, reload, scripts, connectionCount } = share({ a: {} });
    const clients: Peer[] = [];
    for (const capabilities of [...FOUR, { roots: {}, sampling: {} }])
      clients.push(await join(originOf(), capabilities));
    await reload({ a: { args: ["--changed"] } });
    for (const client of clients) assert.ok((await callTool(client, "a__x")).result);
    assert.deepEqual([connectionCount(), scripts["a"]?.openCount], [4, 4]);
  });
});

describe("a server that is one for everybody", () => {
  const ONE = { isolation: "one" } as const;

  it("is told no capabilities, and may ask no client", async () => {
    const { join, scripts, hub } = share({ a: ONE });
    await join(originOf(), { roots: {}, sampling: {}, elicitation: {} });
    const [a] = Object.values(scripts);
    assert.deepEqual(a?.messagesOf("initialize")[0]?.params?.["capabilities"], {});
    for (const method of ["roots/list", "sampling/createMessage", "elicitation/create"]) {
      a?.newestPeer?.send({ jsonrpc: "2.0", id: method, method, params: { messages: [] } });
      const refused = await a?.newestPeer?.find(isResponseTo(method));
      assert.match(refused?.error?.message ?? "", /isolation = "one"/);
    }
    assert.deepEqual(serverStatusOf(hub, "a").connections[0]?.canAsk, []);
  });

  it("is told no capabilities with requests of the modern era, and may not ask by its results", async () => {
    const a = new ModernScriptedServer("x");
    const { connect } = setUpHub({ a }, { servers: { a: { ...ONE, era: "modern" } } });
    const can = { roots: {}, sampling: {}, elicitation: {} };
    const clients = [connect("stdio"), connect("stdio")] as const;
    await initialize(clients[0], can);
    const called = { name: "a__x", arguments: {} };
    const call = (at: 0 | 1) =>
      at === 0
        ? callTool(clients[0], "a__x")
        : sendModernRequest(clients[1], "tools/call", called, ALL_MODERN_CAPABILITIES);
    for (const at of [0, 1] as const) assert.ok((await call(at)).result);
    const declared = a
      .messagesOf("tools/call")
      .map(({ params }) => (params?.["_meta"] as Record<string, unknown>)[MetaKey.capabilities]);
    assert.deepEqual(declared, [{}, {}]);
    assert.equal(a.openCount, 1);
    a.onCall = () => inputRequiredResult({ q: FORM_ELICITATION }, "s");
    for (const at of [0, 1] as const)
      assert.match(JSON.stringify(await call(at)), /isolation = \\"one\\"/);
  });

  it("serves clients of both eras, and is another one only for other values", async () => {
    const { join, connect, scripts, separations } = share({ a: { ...ONE, ...TOKEN } });
    const env = { TOKEN: "one" };
    const legacy = await join(originOf(env), { roots: {} });
    const modern = connect("stdio", undefined, originOf(env));
    const called = await sendModernRequest(modern, "tools/call", { name: "a__x", arguments: {} });
    assert.ok(called.result);
    assert.ok((await callTool(legacy, "a__x")).result);
    assert.equal(scripts["a"]?.openCount, 1);
    await join(originOf({ TOKEN: "two" }));
    assert.deepEqual(separations("a"), [undefined, { by: "values", names: ["TOKEN"] }]);
  });
});

describe("isolation that is decided by toolmux", () => {
  const BROWSER = {
    isolation: "auto",
    command: "npx",
    args: ["-y", "@playwright/mcp@latest"],
  } as const;

  it("is one process per client in a shared hub for a server that keeps a client's state", async () => {
    const { join, scripts, separations, reload } = share({ browser: BROWSER, other: {} });
    for (let count = 0; count < 3; count++) await join();
    assert.deepEqual([scripts["browser"]?.openCount, scripts["other"]?.openCount], [3, 1]);
    assert.deepEqual(separations("browser").slice(1), [{ by: "client" }, { by: "client" }]);
    await reload({ browser: { ...BROWSER, isolation: "shared" }, other: {} });
    assert.deepEqual(separations("browser"), [undefined]);
    await reload({ browser: { ...BROWSER, callTimeout: 1000 }, other: {} });
    assert.equal(separations("browser").length, 3);
  });

  it("is a shared process in hubs to which no process attaches its client, whatever hub.shared says", async () => {
    const hub = { shared: true };
    const { scripts, client, connect } = share({ browser: BROWSER }, { isShared: false, hub });
    for (const peer of [client, connect()]) await initialize(peer);
    assert.equal(scripts["browser"]?.openCount, 1);
  });
});
