import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubTools, McpToolbox, readResult, type Toolbox } from "../../src/agent/toolbox.ts";
import { HubClient } from "../../src/frontend/hub-client.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { toolboxContract } from "../contract/toolbox.ts";
import {
  callRequest,
  initialize,
  ScriptedServer,
  setUpHub,
  type Peer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { pluginWithHost } from "../plugins/plugin-hub.ts";
import type { Host, ToolCall } from "../../src/plugin/plugin.ts";

toolboxContract("over MCP", async (servers, run) => {
  const { hub } = setUpHub(servers);
  const controller = new AbortController();
  const { serverInfo } = hub;
  const accept = (transport: Transport, signal: AbortSignal): Promise<void> =>
    hub.accept(transport, signal, { kind: "control" });
  const client = await HubClient.connect({ serverInfo, accept }, controller.signal);
  await hub.settled();
  const origins = () => {
    const { entries } = hub.catalog.tools;
    return Promise.resolve(
      new Map(entries.map(({ name, server, remoteName: tool }) => [name, { server, tool }])),
    );
  };
  try {
    await run(new McpToolbox(client, origins));
  } finally {
    await client.close();
    await hub.close();
  }
});

/** A client's call that stays open while a toolbox for it is used. */
async function openCall(client: Peer, called: Promise<ToolCall>): Promise<ToolCall> {
  client.send(callRequest("outer", "host__outer"));
  return called;
}

toolboxContract("in the hub, for a client's call", async (servers, run) => {
  const called = Promise.withResolvers<ToolCall>();
  const done = Promise.withResolvers<void>();
  const hosts: Host[] = [];
  const plugin = pluginWithHost("agents", (host) => {
    hosts.push(host);
    return {
      call: (next, { server }) =>
        server === "host"
          ? async (call) => {
              called.resolve(call);
              await done.promise;
              return call.answer({ content: [] });
            }
          : next,
    };
  });
  const all = { ...servers, host: new ScriptedServer("outer") };
  const { hub, client } = await setUpPluginHub([plugin], all);
  await initialize(client);
  await hub.settled();
  const call = await openCall(client, called.promise);
  const [host] = hosts;
  try {
    if (host === undefined) throw new Error("The plugin was not set up.");
    const toolbox: Toolbox = new HubTools(host).for(call);
    await run(toolbox);
  } finally {
    done.resolve();
    await hub.close();
  }
});

/** Returns the content that a model gets of a result with these texts and this structured content, as JSON text. */
function shownOf(texts: readonly string[], structured: string): readonly string[] {
  const content = JSON.stringify(texts.map((text) => ({ type: "text", text })));
  const bytes = Buffer.from(`{"content":${content},"structuredContent":${structured}}`);
  const result = readResult(bytes, { start: 0, end: bytes.length });
  return result.content.map((block) => (block.type === "text" ? block.text : block.type));
}

describe("texts and structured content of a result", () => {
  const rows = Array.from({ length: 60_000 }, (_, at) => ({ at, name: `row ${at}` }));
  const reversed = rows.map(({ at, name }) => ({ name, at }));
  const large = JSON.stringify({ rows });
  assert.ok(large.length > 1_000_000);

  for (const [what, texts, structured] of [
    ["the same bytes", ['{"a":1}'], '{"a":1}'],
    ["another layout", ['{\n  "a": [\n    1\n  ]\n}\n'], '{"a":[1]}'],
    ["another order of members", ['{"b":{"d":1,"c":2},"a":1}'], '{"a":1,"b":{"c":2,"d":1}}'],
    ["other forms of numbers", ['{"a":1.0,"b":1e2,"c":-0}'], '{"a":1,"b":100,"c":0}'],
    ["other escapes", ['{"a":"\\u00e9/"}'], '{"a":"é\\/"}'],
    ["a string in a wrapper", ["hello"], '{"result":"hello"}'],
    ["a string in a wrapper, with a line end", ["hello\n"], '{"content":"hello"}'],
    ["a string that looks like JSON in a wrapper", ['{"a":1}'], '{"result":"{\\"a\\":1}"}'],
    ["a number in a wrapper", ["5.0"], '{"result":5}'],
    ["a boolean in a wrapper", ["true"], '{"result":true}'],
    ["an object in a wrapper", ['{ "b": 1, "a": 2 }'], '{"result":{"a":2,"b":1}}'],
    ["an array in a wrapper", ["[1, 2]"], '{"result":[1,2]}'],
    ["the items of an array in a wrapper", ["x", '{ "a": 1 }'], '{"result":["x",{"a":1}]}'],
    ["one of several texts", ["Found:", '{"a": 1}'], '{"a":1}'],
    ["more than 1 MB in another layout", [JSON.stringify({ rows: reversed }, null, 2)], large],
    ["more than 1 MB in a wrapper", [JSON.stringify(reversed)], large],
  ] as const)
    it(`are sent once if a text has ${what}`, () => {
      assert.deepEqual(shownOf(texts, structured), texts);
    });

  for (const [what, texts, structured] of [
    ["another value", ['{"a":1}'], '{"a":2}'],
    ["a member more", ['{"a":1}'], '{"a":1,"b":null}'],
    ["a member less", ['{"a":1,"b":null}'], '{"a":1}'],
    ["another type", ['{"a":"1"}'], '{"a":1}'],
    ["other items", ["x"], '{"result":["x","y"]}'],
    ["items in another order", ["[2,1]"], '{"result":[1,2]}'],
    ["a summary", ["Found 2."], '{"result":["a","b"]}'],
    ["one of several members", ["hello"], '{"result":"hello","id":7}'],
    ["an inherited member", ['{"a":1}'], '{"__proto__":1}'],
    ["no JSON", ['{"a":1'], '{"a":1}'],
    ["nothing", [], '{"a":1}'],
    ["almost the same 1 MB", [large.replace("row 59999", "row 5999X")], large],
  ] as const)
    it(`are both sent if a text has ${what}`, () => {
      assert.deepEqual(shownOf(texts, structured), [...texts, structured]);
    });
});
