import assert from "node:assert/strict";
import { describe, it } from "node:test";
import plugin from "../../plugins/schema-repair/index.ts";
import type { HubEvent } from "../../src/base/events.ts";
import {
  sendRequest,
  callTool,
  initialize,
  listToolNames,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";

const USE: PluginUse = { plugin };

const FINE =
  '{"name":"fine","inputSchema":{ "type":"object","properties":{"n":{"maximum":1.0e2}} }}';
const BARE = '{"name":"bare"}';
const LOST = '{"name":"lost","inputSchema":{"type":"string"}}';
const CYCLE =
  '{"name":"cycle","inputSchema":{"type":"object","properties":{"node":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}}}';

function serverWith(...tools: string[]): ScriptedServer {
  const script = new ScriptedServer();
  script.tools = tools;
  return script;
}

async function listed(client: Peer): Promise<string> {
  await sendRequest(client, "tools/list");
  return client.received.at(-1) ?? "";
}

function warnings(events: readonly HubEvent[]): string[] {
  return events.flatMap((event) =>
    event.kind === "log" && event.level === "warn" ? [event.text] : [],
  );
}

describe("in a hub, schemas", () => {
  it("are repaired where they have to be, and byte for byte the same where they are fine", async () => {
    const { client, hub } = await setUpPluginHub([USE], { web: serverWith(FINE, BARE, CYCLE) });
    await initialize(client);
    const list = await listed(client);
    assert.ok(
      list.includes('"inputSchema":{ "type":"object","properties":{"n":{"maximum":1.0e2}} }'),
    );
    assert.match(list, /"name":"web__bare","inputSchema":\{"type":"object","properties":\{\}\}/);
    assert.ok(list.includes('{"n":{"type":"object","properties":{"next":{"type":"object"}}}}'));
    await hub.close();
  });

  it("that cannot be repaired hide their tool and no other, and the log names it once", async () => {
    const web = serverWith(FINE, LOST);
    const { client, hub, events } = await setUpPluginHub([USE], { web });
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["web__fine"]);
    web.tools = [FINE, LOST, BARE];
    web.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await client.find(({ method }) => method === "notifications/tools/list_changed");
    assert.deepEqual(await listToolNames(client), ["web__bare", "web__fine"]);
    const lines = warnings(events);
    assert.equal(lines.filter((line) => line.includes('tool "lost"')).length, 1, lines.join("\n"));
    assert.equal(lines.filter((line) => line.includes('tool "bare"')).length, 1, lines.join("\n"));
    await hub.close();
  });

  it("do not stand in the way of a call", async () => {
    const { client, hub } = await setUpPluginHub([USE], { web: serverWith(BARE) });
    await initialize(client);
    await listToolNames(client);
    const { result } = await callTool(client, "web__bare", { any: 1 });
    assert.deepEqual(result?.["echo"], { name: "bare", arguments: { any: 1 } });
    await hub.close();
  });
});
