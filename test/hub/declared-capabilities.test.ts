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
  isResponseTo,
  type Json,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { DISCOVER_RESULT, ModernScriptedServer } from "../fixtures/modern-server.ts";

const UI = "io.modelcontextprotocol/ui";
const TASKS = "io.modelcontextprotocol/tasks";
const LEGACY_TASKS = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

/** A server of the legacy era that declares this. */
function declaring(capabilities: object): ScriptedServer {
  const script = new ScriptedServer("x");
  script.onInitialize = () =>
    `"result":${JSON.stringify({
      protocolVersion: "2025-11-25",
      capabilities: { tools: {}, ...capabilities },
      serverInfo: { name: "s", version: "1" },
    })}`;
  return script;
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

/** What a client of each era is told at a start: the first one, or one after servers have been listed. */
async function tell(
  make: () => Scripts,
  start: "first" | "later",
): Promise<Readonly<Record<"legacy" | "modern", Readonly<Record<string, unknown>>>>> {
  const reported = async (era: "legacy" | "modern", snapshots: Snapshots): Promise<Json> => {
    const { client, hub } = setUp(make(), snapshots);
    const answer =
      era === "modern"
        ? await sendModernRequest(client, "server/discover")
        : (client.send(INITIALIZE_REQUEST), await client.find(isResponseTo(INITIALIZE_REQUEST.id)));
    await (era === "modern"
      ? sendModernRequest(client, "tools/list")
      : sendRequest(client, "tools/list"));
    await turn();
    await hub.close();
    return answer;
  };
  const of = async (era: "legacy" | "modern"): Promise<Readonly<Record<string, unknown>>> => {
    const snapshots = memorySnapshots();
    if (start === "later") await reported(era, snapshots);
    const { result } = await reported(era, snapshots);
    return result?.["capabilities"] as Readonly<Record<string, unknown>>;
  };
  return { legacy: await of("legacy"), modern: await of("modern") };
}

const subscribes = ({ resources }: Readonly<Record<string, unknown>>): unknown =>
  (resources as { subscribe?: unknown }).subscribe;

describe("what the hub tells clients that its servers can do", () => {
  it("is at a first start all that they may turn out to do", async () => {
    const { legacy, modern } = await tell(() => ({ a: declaring({}) }), "first");
    assert.deepEqual([subscribes(legacy), subscribes(modern)], [true, true]);
    assert.deepEqual(legacy["tasks"], LEGACY_TASKS);
    assert.deepEqual(modern["extensions"], { [TASKS]: {} });
  });

  it("has neither subscriptions nor tasks if no server is known to have them", async () => {
    const { legacy, modern } = await tell(
      () => ({ a: declaring({ resources: {} }), b: modernDeclaring({}) }),
      "later",
    );
    assert.deepEqual(legacy["resources"], { listChanged: true });
    assert.deepEqual(modern["resources"], { listChanged: true });
    assert.deepEqual(["tasks" in legacy, "extensions" in modern], [false, false]);
  });

  it("has subscriptions if one server is known to have them", async () => {
    const { legacy, modern } = await tell(
      () => ({ a: declaring({}), b: declaring({ resources: { subscribe: true } }) }),
      "later",
    );
    assert.deepEqual([subscribes(legacy), subscribes(modern)], [true, true]);
  });

  it("has the tasks of an era for clients of that era alone", async () => {
    const old = await tell(() => ({ a: declaring({ tasks: LEGACY_TASKS }) }), "later");
    assert.deepEqual(old.legacy["tasks"], LEGACY_TASKS);
    assert.equal("extensions" in old.modern, false);
    const extensions = { [TASKS]: {} };
    const now = await tell(() => ({ a: modernDeclaring({ extensions }) }), "later");
    assert.equal("tasks" in now.legacy || "extensions" in now.legacy, false);
    assert.deepEqual(now.modern["extensions"], extensions);
  });

  it("has every server's extensions and experiments, and of one name the first server's", async () => {
    const { legacy, modern } = await tell(
      () => ({
        a: declaring({ extensions: { [UI]: { a: 1.5 } }, experimental: { x: {} } }),
        b: modernDeclaring({
          extensions: { [UI]: { b: 2 }, "y.test/z": {}, "no/object": 1 },
          experimental: { y: { deep: { er: [] } } },
        }),
      }),
      "later",
    );
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
  for (const [isolation, experimental] of [
    ["shared", undefined],
    ["perClient", DECLARED.experimental],
  ] as const) {
    it(`of the legacy era reach a legacy server that is ${isolation}${experimental === undefined ? ", experiments apart" : ""}`, async () => {
      const a = new ScriptedServer("x");
      const { client } = setUpHubWithClock({ a }, { servers: { a: { isolation } } });
      await initialize(client, DECLARED);
      const own = { ...(experimental && { experimental }) };
      assert.deepEqual(reportedOf(a), [{ sampling: {}, extensions: CARRIED, ...own }]);
    });

    it(`of the modern era reach a legacy server that is ${isolation}${experimental === undefined ? ", experiments apart" : ""}`, async () => {
      const a = new ScriptedServer("x");
      const { client } = setUpHubWithClock({ a }, { servers: { a: { isolation } } });
      await sendModernRequest(client, "tools/list", {}, DECLARED);
      const own = { ...(experimental && { experimental }) };
      assert.deepEqual(reportedOf(a), [{ sampling: {}, extensions: CARRIED, ...own }]);
    });
  }

  it("of the legacy era reach a modern server with each request, but for tasks", async () => {
    const a = new ModernScriptedServer("x");
    const { client } = setUpHubWithClock({ a }, { servers: { a: AUTO } });
    await initialize(client, DECLARED);
    await callTool(client, "a__x");
    const [sent] = a.messagesOf("tools/call");
    const meta = sent?.params?.["_meta"] as Record<string, unknown>;
    const { sampling, experimental } = DECLARED;
    const expected = { sampling, extensions: CARRIED, experimental };
    assert.deepEqual(meta[MetaKey.capabilities], expected);
  });

  it("of the modern era reach a modern server as they are", async () => {
    const a = new ModernScriptedServer("x");
    const { client } = setUpHubWithClock({ a }, { servers: { a: AUTO } });
    await sendModernRequest(client, "tools/call", { name: "a__x" }, DECLARED);
    const [sent] = a.messagesOf("tools/call");
    const meta = sent?.params?.["_meta"] as Record<string, unknown>;
    assert.deepEqual(meta[MetaKey.capabilities], DECLARED);
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
