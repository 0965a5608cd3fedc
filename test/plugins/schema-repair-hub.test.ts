import assert from "node:assert/strict";
import { describe, it } from "node:test";
import plugin from "../../plugins/schema-repair/index.ts";
import type { HubEvent } from "../../src/base/events.ts";
import { sendRequest, initialize, listToolNames, ScriptedServer } from "../fixtures/memory-hub.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";

const FINE =
  '{"name":"fine","inputSchema":{ "type":"object","properties":{"n":{"maximum":1.0e2}} }}';
const BARE = '{"name":"bare"}';
const LOST = '{"name":"lost","inputSchema":{"type":"string"}}';
const CYCLE =
  '{"name":"cycle","inputSchema":{"type":"object","properties":{"node":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}}}';

/** A hub with the plugin over a server with these tools, and an initialized client. */
async function open(...tools: string[]) {
  const web = Object.assign(new ScriptedServer(), { tools });
  const setup = await setUpPluginHub([{ plugin }], { web });
  await initialize(setup.client);
  return { ...setup, web };
}

function warnings(events: readonly HubEvent[]): string[] {
  return events.flatMap((event) =>
    event.kind === "log" && event.level === "warn" ? [event.text] : [],
  );
}

describe("in a hub, schemas", () => {
  it("are repaired where they have to be, and byte for byte the same where they are fine", async () => {
    const { client, hub } = await open(FINE, BARE, CYCLE);
    await sendRequest(client, "tools/list");
    const list = client.received.at(-1) ?? "";
    const fine = '"inputSchema":{ "type":"object","properties":{"n":{"maximum":1.0e2}} }';
    assert.ok(list.includes(fine));
    assert.match(list, /"name":"web__bare","inputSchema":\{"type":"object","properties":\{\}\}/);
    assert.ok(list.includes('{"n":{"type":"object","properties":{"next":{"type":"object"}}}}'));
    await hub.close();
  });

  it("that cannot be repaired hide their tool and no other, and the log names it once", async () => {
    const { client, hub, events, web } = await open(FINE, LOST);
    assert.deepEqual(await listToolNames(client), ["web__fine"]);
    web.tools = [FINE, LOST, BARE];
    web.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await client.find(({ method }) => method === "notifications/tools/list_changed");
    assert.deepEqual(await listToolNames(client), ["web__bare", "web__fine"]);
    for (const name of ["lost", "bare"]) {
      const lines = warnings(events).filter((line) => line.includes(`tool "${name}"`));
      assert.equal(lines.length, 1, lines.join("\n"));
    }
    await hub.close();
  });
});
