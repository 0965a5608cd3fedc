import assert from "node:assert/strict";
import { describe, it } from "node:test";
import plugin from "../../plugins/cache/index.ts";
import {
  type HubSetupOptions,
  sendRequest,
  callTool,
  initialize,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";

const READ = '{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}';
const WRITE = '{"name":"write","inputSchema":{"type":"object"}}';

/** A server with a read-only tool and a writing one, which answer with the number of calls. */
function counting(): ScriptedServer & { calls: number } {
  const script = Object.assign(new ScriptedServer(), { calls: 0, tools: [READ, WRITE] });
  script.onCall = () => `"result":{"n":1.0,"content":[],"count":${++script.calls}}`;
  return script;
}

async function ready(client: Peer): Promise<Peer> {
  await initialize(client);
  await sendRequest(client, "tools/list");
  return client;
}

/** A hub with the cache over two such servers, and a client that has listed their tools. */
async function open(entry: Partial<PluginUse> = {}, settings: HubSetupOptions = {}) {
  const [files, web] = [counting(), counting()];
  const setup = await setUpPluginHub([{ plugin, ...entry }], { files, web }, settings);
  await ready(setup.client);
  return { ...setup, files };
}

async function count(client: Peer, name: string, args = {}): Promise<unknown> {
  return (await callTool(client, name, args)).result?.["count"];
}

describe("in a hub, the cache", () => {
  it("answers equal calls of all clients itself, byte for byte but for its mark", async () => {
    const { client, hub, connect, files } = await open();
    const other = await ready(connect());
    assert.equal(await count(client, "files__read", { a: 1, b: 2 }), 1);
    assert.equal(await count(other, "files__read", { b: 2, a: 1 }), 1);
    assert.equal(files.calls, 1);
    const marked =
      /"result":\{"n":1\.0,"content":\[\],"count":1,"_meta":\{"toolmux\/cached":"[^"]+"\}\}/;
    assert.match(other.received.at(-1) ?? "", marked);
    assert.doesNotMatch(client.received.at(-1) ?? "", /cached/);
    await hub.close();
  });

  it("asks again after a tool of that server was called that may have changed something", async () => {
    const { client, hub } = await open();
    assert.equal(await count(client, "files__read"), 1);
    assert.equal(await count(client, "web__write"), 1);
    assert.equal(await count(client, "files__read"), 1);
    assert.equal(await count(client, "files__write"), 2);
    assert.equal(await count(client, "files__read"), 3);
    await hub.close();
  });

  it("asks again after such a tool was called that the entry is not for", async () => {
    const { client, hub } = await open({ tools: ["read"] });
    assert.equal(await count(client, "files__read"), 1);
    assert.equal(await count(client, "files__write"), 2);
    assert.equal(await count(client, "files__read"), 3);
    await hub.close();
  });

  it("asks again after the server was started anew", async () => {
    const { client, hub, events, files } = await open();
    assert.equal(await count(client, "files__read"), 1);
    const before = events.length;
    files.disconnect();
    const isBack = (): boolean =>
      events.slice(before).some((event) => event.kind === "state" && event.to === "connected");
    // The uncached call, which changes nothing, restarts the server.
    while (!isBack()) await callTool(client, "files__read", { again: true });
    assert.notEqual(await count(client, "files__read"), 1);
    await hub.close();
  });

  it("keeps the clients of a server apart that has a process for each", async () => {
    const servers = { files: { isolation: "perClient" } } as const;
    const { client, hub, connect } = await open({}, { servers });
    const other = await ready(connect());
    const one = await count(client, "files__read");
    assert.notEqual(await count(other, "files__read"), one);
    await hub.close();
  });

  it("stops caching a tool that is no longer read-only", async () => {
    const { client, hub, files } = await open();
    assert.equal(await count(client, "files__read"), 1);
    files.tools = [READ.replace("true", "false"), WRITE];
    files.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await client.find(({ method }) => method === "notifications/tools/list_changed");
    assert.equal(await count(client, "files__read"), 2);
    assert.equal(await count(client, "files__read"), 3);
    await hub.close();
  });
});
