import assert from "node:assert/strict";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import type { Received } from "../harness/message.ts";
import { closeClient, it, sharedHub, withTestFolder } from "../harness/hub.ts";
import { type ServerEntry, scripted } from "../harness/manifest.ts";
import { elements, members, slice } from "../fixtures/servers/json-slices.mjs";

const ARGUMENTS =
  '{"n":1.0,"big":1234567890123456789,"z":1,"a":2,"10":[1e2,-0,1E+400],"text":"\\u0061\\/\\ud83d\\ude00é","":null, "spaced" : [ ] }';

/** The text of every tool in a server's listing, by name, asked without a hub in between. */
async function listDirectly(server: ServerEntry): Promise<Map<string, string>> {
  return withTestFolder({ servers: {} }, async (setup) => {
    const client = new RawClient(server.command, server.args ?? [], setup.dir, setup.env);
    await client.initializeAndList();
    const tools = toolTexts(await client.request("tools/list"));
    await closeClient(client);
    return tools;
  });
}

function toolTexts(answer: Received): Map<string, string> {
  const tools = elements(slice(answer.text, "result", "tools") ?? "[]");
  return new Map(tools.map((tool) => [JSON.parse(slice(tool, "name") ?? "null") as string, tool]));
}

const hub = sharedHub({ servers: { a: scripted(), b: scripted() } });

describe("what passes through the hub", () => {
  const shapes = ["echo", "tail", "parsed"];
  for (const tool of shapes) {
    it(`arguments arrive and come back byte for byte from a server that answers as ${tool} does`, async () => {
      const { client, log } = hub();
      const variants = tool === "parsed" ? [0, 1, 2, 3, 4, 5] : [0];
      for (const shape of variants) {
        const sent = ARGUMENTS.replace('"z":1', `"z":1,"shape":${shape}`);
        const answer = await client.call(`a__${tool}`, sent);
        assert.equal(slice(answer.text, "result", "structuredContent"), sent);
        assert.equal(log("a").findLast(({ event }) => event === "call")?.arguments, sent);
      }
    });
  }

  it("members of a call's params that the hub does not know reach the server, byte for byte", async () => {
    const { client, waitForEvent: logged } = hub();
    const meta = '{"vendor/x":1.0,"traceparent":"00-\\u0061","nested":{"z":1,"a":1e-7}}';
    client.sendRequest(
      "tools/call",
      `{"_meta":${meta},"name":"a__echo","x-unknown":1.50,"arguments":{}}`,
    );
    const call = await logged("a", ({ meta: sent }) => sent?.includes("vendor/x") === true);
    assert.equal(call.meta, meta);
  });

  it("a request is understood whatever the order and the spelling of its members, and look-alikes inside it are left alone", async () => {
    const { client, log } = hub();
    const args =
      '{"id":1,"method":"tools/list","jsonrpc":"1.0","name":"a__raw","params":{"name":"b"},"_meta":{"progressToken":1}}';
    const params = `{"id":7,"arguments":${args},"method":"ping","n\\u0061me":"a__echo"}`;
    const requests = [
      `{"params":${params},"method":"tools/call","jsonrpc":"2.0","id":1101}`,
      `{"id":1102,"params":${params},"jsonrpc":"2.0","method":"tools/call"}`,
      ` { "m\\u0065thod" : "tools\\/call" , "jsonrpc" : "2.0" , "\\u0069d" : 1103 , "params" : ${params} } `,
      `{"jsonrpc":"2.0","method":"tools/call","x":{"id":1,"method":"ping"},"params":${params},"y":[{"id":2}],"id":1104}`,
    ];
    const before = log("a").length;
    for (const request of requests) client.send(request);
    for (const id of [1101, 1102, 1103, 1104]) {
      assert.equal(slice((await client.response(id)).text, "result", "structuredContent"), args);
    }
    const calls = log("a").slice(before);
    assert.deepEqual(new Set(calls.map((call) => call.arguments)), new Set([args]));
  });

  for (const [kind, args] of [
    ["plain", "{}"],
    ["escaped", '{"escaped":true}'],
  ] as const) {
    it(`a result keeps numbers, key order, escapes and unknown members (${kind})`, async () => {
      const { client } = hub();
      const through = await client.call("a__raw", args);
      const direct = await withTestFolder({ servers: {} }, async (setup) => {
        const { command, args: options = [] } = scripted();
        const server = new RawClient(command, options, setup.dir, setup.env);
        await server.initialize();
        const answer = await server.call("raw", args);
        await closeClient(server);
        return answer;
      });
      assert.equal(slice(through.text, "result"), slice(direct.text, "result"));
    });
  }

  it("an error answer of the server keeps its code, message, data and unknown members", async () => {
    const { client } = hub();
    const { text } = await client.call("a__error");
    assert.equal(
      slice(text, "error"),
      '{"code":-32050,"message":"caf\\u00e9 is closed","data":{"n":1.0,"big":12345678901234567890},"x":1.0}',
    );
  });

  it("every listed tool is the server's own text but for its name", async () => {
    const direct = await listDirectly(scripted());
    const { client } = hub();
    const listed = toolTexts(await client.request("tools/list"));
    assert.deepEqual(
      [...listed.keys()].filter((name) => name.startsWith("a__")),
      [...direct.keys()].map((name) => `a__${name}`).toSorted(),
    );
    for (const [name, text] of direct) {
      const through = members(listed.get(`a__${name}`) ?? "{}");
      const original = members(text);
      assert.deepEqual(without(through, "name"), without(original, "name"), name);
    }
  });

  it("a progress notification keeps its token's spelling and all its other members", async () => {
    const { client } = hub();
    for (const token of ['"caf\\u00e9 \\"1\\""', "12345678901234567890", "1", '"1"', '""', "-0"]) {
      const from = client.lines.length;
      const id = client.sendRequest(
        "tools/call",
        `{"name":"a__progress","arguments":{"steps":2},"_meta":{"progressToken":${token}}}`,
      );
      await client.response(id);
      const progress = client.lines
        .slice(from)
        .filter((line) => line.text.includes("notifications/progress"))
        .map((line) => slice(line.text, "params") ?? "");
      assert.deepEqual(progress.map(sameToken(token)), [
        `{"progress":1.0,"x-big":1234567890123456789,"progressToken":TOKEN,"total":2,"message":"step 1 caf\\u00e9"}`,
        `{"progress":2.0,"x-big":1234567890123456789,"progressToken":TOKEN,"total":2,"message":"step 2 caf\\u00e9"}`,
      ]);
    }
  });
});

/** Puts TOKEN where a progress notification carries exactly that token, wherever the hub wrote it. */
function sameToken(token: string): (params: string) => string {
  return (params) => params.replace(`"progressToken":${token}`, '"progressToken":TOKEN');
}

function without(tool: Map<string, string>, key: string): [string, string][] {
  return [...tool].filter(([name]) => name !== key);
}

describe("ids", () => {
  const IDS = [
    "0",
    "-1",
    "1",
    '"1"',
    "2.0",
    "3e0",
    "12345678901234567890",
    "9007199254740993",
    '"abc"',
    '""',
    '"\\u00e9 \\"q\\""',
    '"é"',
    '"\\u006eull"',
    '"a\\\\"',
  ];

  it("ids of any kind come back exactly as written, all in flight at the same time", async () => {
    const { client } = hub();
    const from = client.lines.length;
    IDS.forEach((id, at) => {
      const tool = ["a__sleep", "b__tail", "a__parsed", "b__echo"][at % 4];
      client.send(
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${tool}","arguments":{"at":${at},"ms":20,"shape":${at}}}}`,
      );
    });
    await client.until(10_000, "all answers", () =>
      client.lines.length >= from + IDS.length ? true : undefined,
    );
    const answers = client.lines.slice(from).map(({ text }) => text);
    assert.equal(answers.length, IDS.length);
    IDS.forEach((id, at) => {
      const own = answers.filter((text) => slice(text, "id") === id);
      assert.deepEqual(
        own.map((text) => slice(text, "result", "structuredContent", "at")),
        [String(at)],
        id,
      );
    });
  });

  it("ids of any kind come back exactly on what the hub answers itself, errors included", async () => {
    const { client } = hub();
    for (const id of IDS) {
      for (const method of ["ping", "tools/list", "no/such"]) {
        const from = client.lines.length;
        client.send(`{"jsonrpc":"2.0","id":${id},"method":"${method}"}`);
        await client.until(5000, `${method} ${id}`, () => client.lines[from]);
        assert.equal(slice(client.lines[from]?.text ?? "{}", "id"), id, method);
      }
    }
  });
});
