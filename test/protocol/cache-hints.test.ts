import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import {
  type Peer,
  ScriptedServer,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";

type Hint = readonly [ttlMs: unknown, cacheScope: unknown];

function saying(ttlMs: unknown, cacheScope: unknown): ModernScriptedServer {
  const script = new ModernScriptedServer("x");
  script.onList = () => `"result":${JSON.stringify({ tools: [{ name: "x" }], ttlMs, cacheScope })}`;
  return script;
}

async function hintOf(client: Peer, method = "tools/list", params = {}): Promise<Hint> {
  const { result } = await sendModernRequest(client, method, params);
  return [result?.["ttlMs"], result?.["cacheScope"]];
}

const MODERN = { era: "modern" } as const;

async function hint(scripts: Record<string, ScriptedServer>, servers: Servers): Promise<Hint> {
  const { client, hub } = setUpHubWithClock(scripts, { servers });
  await hub.settled();
  return hintOf(client);
}

describe("for how long a list holds", () => {
  it("is what its server says", async () => {
    const one = async (...said: [unknown, unknown]): Promise<Hint> =>
      hint({ s: saying(...said) }, { s: MODERN });
    assert.deepEqual(await one(5000, "public"), [5000, "public"]);
    assert.deepEqual(await one(0, "private"), [0, "private"]);
    assert.deepEqual(await one(1e15, "private"), [24 * 3_600_000, "private"]);
    for (const odd of [-1, "5000", undefined])
      assert.deepEqual(await one(odd, "PUBLIC"), [0, "private"]);
  });

  it("is the least of what its servers say, and for one client if one of them says so", async () => {
    const servers = { a: MODERN, b: MODERN };
    const two = { a: saying(5000, "public"), b: saying(3000, "public") };
    assert.deepEqual(await hint(two, servers), [3000, "public"]);
    const other = { a: saying(1000, "private"), b: saying(3000, "public") };
    assert.deepEqual(await hint(other, servers), [1000, "private"]);
  });

  it("is not known if one of them is of the legacy era, or has yet to list", async () => {
    const legacy = new ScriptedServer("x");
    legacy.onList = saying(5000, "public").onList;
    const mixed = { a: saying(5000, "public"), b: legacy };
    assert.deepEqual(await hint(mixed, { a: MODERN }), [0, "private"]);
    const broken = new ModernScriptedServer("x");
    broken.onList = () => '"error":{"code":-32603,"message":"no"}';
    const late = { a: saying(5000, "public"), b: broken };
    const reconnect = { policy: "none" } as never;
    assert.deepEqual(await hint(late, { a: MODERN, b: { ...MODERN, reconnect } }), [0, "private"]);
  });

  it("is what the page says that says the least", async () => {
    const s = new ModernScriptedServer("x");
    s.onList = ({ params }) =>
      params?.["cursor"] === "2"
        ? '"result":{"tools":[],"ttlMs":9000,"cacheScope":"private"}'
        : '"result":{"tools":[],"nextCursor":"2","ttlMs":4000,"cacheScope":"public"}';
    assert.deepEqual(await hint({ s }, { s: MODERN }), [4000, "private"]);
  });

  it("is of each kind its own, and of none if nobody has it", async () => {
    const s = saying(5000, "public");
    s.handlers["prompts/list"] = () =>
      '"result":{"prompts":[{"name":"p"}],"ttlMs":7000,"cacheScope":"public"}';
    const { client, hub } = setUpHubWithClock({ s }, { servers: { s: MODERN } });
    await hub.settled();
    assert.deepEqual(await hintOf(client), [5000, "public"]);
    assert.deepEqual(await hintOf(client, "prompts/list"), [7000, "public"]);
    assert.deepEqual(await hintOf(client, "resources/list"), [0, "private"]);
    assert.deepEqual(await hintOf(client, "server/discover"), [0, "private"]);
  });

  it("changes with what the server says, though the list is the same", async () => {
    const s = saying(5000, "public");
    const { client, hub } = setUpHubWithClock({ s }, { servers: { s: MODERN } });
    await hub.settled();
    assert.deepEqual(await hintOf(client), [5000, "public"]);
    s.onList = saying(2000, "private").onList;
    const [listening] = s.listenRequests;
    s.notifySubscription(listening?.id, "notifications/tools/list_changed");
    await s.newestPeer?.until(() => s.messagesOf("tools/list").length === 2);
    await client.until(() => true);
    await hub.settled();
    assert.deepEqual(await hintOf(client), [2000, "private"]);
  });

  it("is not known while it is what was kept from an earlier start", async () => {
    const snapshots = memorySnapshots();
    const first = setUpHubWithClock(
      { s: saying(5000, "public") },
      { servers: { s: MODERN }, snapshots },
    );
    await first.hub.settled();
    assert.deepEqual(await hintOf(first.client), [5000, "public"]);
    await first.hub.close();
    const s = saying(5000, "public");
    s.onMake = () => new Promise(() => {});
    const { client } = setUpHubWithClock({ s }, { servers: { s: MODERN }, snapshots });
    assert.deepEqual(await hintOf(client), [0, "private"]);
  });

  it("is said of what is read as its server says it, and not at all by servers of the legacy era", async () => {
    for (const [script, era, expected] of [
      [new ModernScriptedServer("x"), "modern", [5000, "public"]],
      [new ScriptedServer("x"), "legacy", [0, "private"]],
    ] as const) {
      Object.assign(script, { listings: { resources: [{ uri: "u:1", name: "r" }] } });
      script.handlers = {
        ...script.handlers,
        "resources/read": () =>
          '"result":{"contents":[],"ttlMs":5000,"cacheScope":"public","resultType":"complete"}',
      };
      const { client, hub } = setUpHubWithClock({ s: script }, { servers: { s: { era } } });
      await hub.settled();
      assert.deepEqual(await hintOf(client, "resources/read", { uri: "u:1" }), expected);
    }
  });
});
