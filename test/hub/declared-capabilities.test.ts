import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { memorySnapshots, type Snapshots } from "../../src/snapshot/snapshots.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  INITIALIZE_REQUEST,
  initialize,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { DISCOVER_RESULT, ModernScriptedServer } from "../fixtures/modern-server.ts";

const UI = "io.modelcontextprotocol/ui";
const TASKS = "io.modelcontextprotocol/tasks";
const LEGACY_TASKS = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

/** A server of the legacy era that declares this. */
function declaring(more: object): ScriptedServer {
  const capabilities = { tools: {}, ...more };
  const serverInfo = { name: "s", version: "1" };
  const result = { protocolVersion: "2025-11-25", capabilities, serverInfo };
  const onInitialize = (): string => `"result":${JSON.stringify(result)}`;
  return Object.assign(new ScriptedServer("x"), { onInitialize });
}

/** One of the modern era. */
function modernDeclaring(capabilities: object): ModernScriptedServer {
  const script = new ModernScriptedServer("x");
  const result = { ...DISCOVER_RESULT, capabilities: { tools: {}, ...capabilities } };
  script.handlers["server/discover"] = () => `"result":${JSON.stringify(result)}`;
  return script;
}

type Scripts = Record<string, ScriptedServer>;
const AUTO = { era: "auto" } as const;

/** A hub over these servers. */
function setUp(scripts: Scripts, snapshots: Snapshots): ReturnType<typeof setUpHubWithClock> {
  const servers = Object.fromEntries(Object.keys(scripts).map((name) => [name, AUTO]));
  return setUpHubWithClock(scripts, { servers, snapshots });
}

type Capabilities = Readonly<Record<string, unknown>>;

/** What a client of each era is told at a start: the first one, or one after servers have been listed. */
async function tell(
  make: () => Scripts,
  start: "first" | "later" = "later",
): Promise<Readonly<Record<"legacy" | "modern", Capabilities>>> {
  const of = async (era: "legacy" | "modern"): Promise<Capabilities> => {
    const snapshots = memorySnapshots();
    const send = era === "modern" ? sendModernRequest : sendRequest;
    const [method, params] =
      era === "modern"
        ? (["server/discover", {}] as const)
        : (["initialize", INITIALIZE_REQUEST.params] as const);
    const report = async (): Promise<Capabilities> => {
      const { client, hub } = setUp(make(), snapshots);
      const { result } = await send(client, method, params);
      await send(client, "tools/list", {});
      await turn();
      await hub.close();
      return result?.["capabilities"] as Capabilities;
    };
    if (start === "later") await report();
    return report();
  };
  return { legacy: await of("legacy"), modern: await of("modern") };
}

const subscribes = ({ resources }: Capabilities): unknown =>
  (resources as { subscribe?: unknown }).subscribe;

describe("what the hub tells clients that its servers can do", () => {
  it("is at a first start all that they may turn out to do", async () => {
    const { legacy, modern } = await tell(() => ({ a: declaring({}) }), "first");
    assert.deepEqual([subscribes(legacy), subscribes(modern)], [true, true]);
    assert.deepEqual(legacy["tasks"], LEGACY_TASKS);
    assert.deepEqual(modern["extensions"], { [TASKS]: {} });
  });

  it("has neither subscriptions nor tasks if no server is known to have them", async () => {
    const servers = () => ({ a: declaring({ resources: {} }), b: modernDeclaring({}) });
    const { legacy, modern } = await tell(servers);
    assert.deepEqual(legacy["resources"], { listChanged: true });
    assert.deepEqual(modern["resources"], { listChanged: true });
    assert.deepEqual(["tasks" in legacy, "extensions" in modern], [false, false]);
  });

  it("has subscriptions if one server is known to have them", async () => {
    const resources = { subscribe: true };
    const { legacy, modern } = await tell(() => ({
      a: declaring({}),
      b: declaring({ resources }),
    }));
    assert.deepEqual([subscribes(legacy), subscribes(modern)], [true, true]);
  });

  it("has the tasks of an era for clients of that era alone", async () => {
    const old = await tell(() => ({ a: declaring({ tasks: LEGACY_TASKS }) }));
    assert.deepEqual(old.legacy["tasks"], LEGACY_TASKS);
    assert.equal("extensions" in old.modern, false);
    const extensions = { [TASKS]: {} };
    const now = await tell(() => ({ a: modernDeclaring({ extensions }) }));
    assert.equal("tasks" in now.legacy || "extensions" in now.legacy, false);
    assert.deepEqual(now.modern["extensions"], extensions);
  });

  it("has every server's extensions and experiments, and of one name the first server's", async () => {
    const a = { extensions: { [UI]: { a: 1.5 } }, experimental: { x: {} } };
    const b = {
      extensions: { [UI]: { b: 2 }, "y.test/z": {}, "no/object": 1 },
      experimental: { y: { deep: { er: [] } } },
    };
    const servers = () => ({ a: declaring(a), b: modernDeclaring(b) });
    const { legacy, modern } = await tell(servers);
    const extensions = { [UI]: { a: 1.5 }, "y.test/z": {} };
    const experimental = { x: {}, y: { deep: { er: [] } } };
    for (const reported of [legacy, modern]) {
      assert.deepEqual(reported["extensions"], extensions);
      assert.deepEqual(reported["experimental"], experimental);
    }
  });
});

describe("the _meta of a list", () => {
  const listing = (meta: object | undefined): ScriptedServer => {
    const script = new ScriptedServer("x");
    const [tool] = script.tools;
    script.onList = () =>
      `"result":{"tools":[${tool}]${meta === undefined ? "" : `,"_meta":${JSON.stringify(meta)}`}}`;
    return script;
  };
  const listed = async (scripts: Scripts, snapshots: Snapshots): Promise<unknown[]> => {
    const { client, hub } = setUp(scripts, snapshots);
    client.send(INITIALIZE_REQUEST);
    const old = await sendRequest(client, "tools/list");
    const now = await sendModernRequest(client, "tools/list");
    await hub.close();
    return [old.result?.["_meta"], now.result?.["_meta"]];
  };

  it("is there as its server has it if one server alone has one, also at the next start", async () => {
    const snapshots = memorySnapshots();
    const meta = { "x.test/a": [1.5, "b"] };
    const scripts = (): Scripts => ({ a: listing(undefined), b: listing(meta) });
    for (let start = 0; start < 2; start++) {
      const [old, now] = await listed(scripts(), snapshots);
      assert.deepEqual(old, meta);
      assert.deepEqual((now as typeof meta)["x.test/a"], meta["x.test/a"]);
    }
  });

  it("is left out if several have one, as it is about one of them", async () => {
    const scripts = { a: listing({ a: 1 }), b: listing({ b: 2 }) };
    const [old] = await listed(scripts, memorySnapshots());
    assert.equal(old, undefined);
  });
});

/** What a client declares, of which tasks are the hub's own affair. */
const DECLARED = {
  sampling: {},
  extensions: { [UI]: { mimeTypes: ["text/html"] }, [TASKS]: {}, "y.test/z": { a: 1.5 } },
  experimental: { x: { deep: [1] } },
};
const CARRIED = { [UI]: { mimeTypes: ["text/html"] }, "y.test/z": { a: 1.5 } };

/** What each process of a server was told in its handshake. */
const reportedOf = (script: ScriptedServer): unknown[] =>
  script.messagesOf("initialize").map(({ params }) => params?.["capabilities"]);

describe("the extensions and experiments of a client", () => {
  for (const isolation of ["shared", "perClient"] as const) {
    for (const era of ["legacy", "modern"]) {
      it(`of the ${era} era reach a legacy server that is ${isolation}${isolation === "shared" ? ", experiments apart" : ""}`, async () => {
        const a = new ScriptedServer("x");
        const { client } = setUpHubWithClock({ a }, { servers: { a: { isolation } } });
        if (era === "legacy") await initialize(client, DECLARED);
        else await sendModernRequest(client, "tools/list", {}, DECLARED);
        const { sampling, experimental } = DECLARED;
        const own = isolation === "shared" ? {} : { experimental };
        assert.deepEqual(reportedOf(a), [{ sampling, extensions: CARRIED, ...own }]);
      });
    }
  }

  it("reach a modern server with each request, those of the legacy era but for tasks", async () => {
    for (const era of ["legacy", "modern"]) {
      const a = new ModernScriptedServer("x");
      const { client } = setUpHubWithClock({ a }, { servers: { a: AUTO } });
      if (era === "legacy") await initialize(client, DECLARED);
      if (era === "legacy") await callTool(client, "a__x");
      else await sendModernRequest(client, "tools/call", { name: "a__x" }, DECLARED);
      const meta = a.messagesOf("tools/call")[0]?.params?.["_meta"] as Record<string, unknown>;
      const expected = era === "legacy" ? { ...DECLARED, extensions: CARRIED } : DECLARED;
      assert.deepEqual(meta[MetaKey.capabilities], expected);
    }
  });

  it("are no reason for another process if no server has declared them", async () => {
    const a = new ScriptedServer("x");
    const { client, connect } = setUpHubWithClock({ a });
    await initialize(client);
    for (const extensions of [{ [UI]: {} }, { "y.test/z": {} }]) {
      const other = connect();
      await initialize(other, { extensions, experimental: { x: {} } });
      assert.ok((await callTool(other, "a__x")).result);
    }
    assert.equal(a.transportCount, 1);
  });

  it("are told to a process of their own if a server has declared them", async () => {
    const extensions = { [UI]: {} };
    const a = declaring({ extensions });
    const { client, connect } = setUpHubWithClock({ a });
    await initialize(client);
    const other = connect();
    await initialize(other, { extensions: { [UI]: { a: 1 }, "y.test/z": {} } });
    const same = connect();
    await initialize(same, { extensions: { [UI]: { b: 2 } } });
    assert.ok((await callTool(same, "a__x")).result);
    assert.deepEqual(reportedOf(a), [{}, { extensions: { [UI]: { a: 1 }, "y.test/z": {} } }]);
  });

  it("are told to a process of their own as long as it is not known what servers declare", async () => {
    const a = new ScriptedServer("x");
    const { client, connect } = setUpHubWithClock({ a });
    await initialize(client, { extensions: { [UI]: {} } });
    const other = connect();
    await initialize(other);
    await callTool(other, "a__x");
    assert.deepEqual(reportedOf(a), [{ extensions: { [UI]: {} } }, {}]);
  });
});
