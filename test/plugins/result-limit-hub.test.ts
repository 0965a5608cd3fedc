import assert from "node:assert/strict";
import { describe, it } from "node:test";
import plugin from "../../plugins/result-limit/index.ts";
import {
  type HubSetupOptions,
  sendRequest,
  callTool,
  initialize,
  type Json,
  type Peer,
  ScriptedServer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub, type PluginUse } from "../fixtures/plugin-hub.ts";

const LONG = Array.from({ length: 1000 }, (_, i) => `line ${i}`).join("\n");

/** A server with one tool, which has an output schema and answers with a long result. */
function longServer(): ScriptedServer {
  const script = new ScriptedServer();
  const schema = '{"type":"object"}';
  script.tools = [`{"name":"read","inputSchema":${schema},"outputSchema":${schema}}`];
  script.onCall = () => `"result":${JSON.stringify({ content: [{ type: "text", text: LONG }] })}`;
  return script;
}

async function ready(client: Peer): Promise<Json> {
  await initialize(client);
  return sendRequest(client, "tools/list");
}

/** A hub over such a server, and what a client lists. */
async function open(entry: Partial<PluginUse> = {}, settings: HubSetupOptions = {}) {
  const use = { plugin, options: { max: "4KB" }, ...entry };
  const setup = await setUpPluginHub([use], { files: longServer() }, settings);
  return { ...setup, list: await ready(setup.client) };
}

async function textsOf(client: Peer, name: string, args = {}): Promise<string[]> {
  const { result } = await callTool(client, name, args);
  return (result?.["content"] as { text: string }[]).map(({ text }) => text);
}

/** The call that the last line of a result names. */
function nextOf(notice = ""): { name: string; args: object } | undefined {
  const [, name = "", args] = /call the tool (\S+) with (\{.*?\})/.exec(notice) ?? [];
  return args === undefined ? undefined : { name, args: JSON.parse(args) as object };
}

describe("in a hub, a result that is too long", () => {
  it("is read to its end by doing what its last line says", async () => {
    const { client, hub, list } = await open();
    const names = (list.result?.["tools"] as { name: string }[]).map(({ name }) => name);
    assert.deepEqual(names, ["files__read", "results__read_more"]);
    assert.equal(JSON.stringify(list).includes("outputSchema"), false);
    let whole = "";
    let calls = 0;
    for (let next = nextOf(`call the tool files__read with {}`); next !== undefined; calls++) {
      const [page, notice] = await textsOf(client, next.name, next.args);
      whole += page;
      next = nextOf(notice);
    }
    assert.equal(whole, LONG);
    assert.equal(calls, 3);
    await hub.close();
  });

  it("is read on under the name that clients see", async () => {
    const { client, hub } = await open({}, { hub: { separator: "-" } });
    const [, notice] = await textsOf(client, "files-read");
    assert.equal(nextOf(notice)?.name, "results-read_more");
    await hub.close();
  });

  it("is left alone where the entry is not for it", async () => {
    const { client, hub, list } = await open({ servers: ["other"] });
    assert.equal(JSON.stringify(list).includes("outputSchema"), true);
    assert.deepEqual(await textsOf(client, "files__read"), [LONG]);
    await hub.close();
  });

  it("is read on by any client that was told its id", async () => {
    const { client, hub, connect } = await open();
    const [first, notice] = await textsOf(client, "files__read");
    const other = connect();
    await ready(other);
    const { name, args } = nextOf(notice) ?? assert.fail();
    const [second] = await textsOf(other, name, args);
    assert.ok(LONG.startsWith(`${first}${second}`));
    const guess = { ...args, id: "0".repeat(32) };
    assert.equal((await callTool(other, name, guess)).result?.["isError"], true);
    await hub.close();
  });
});
