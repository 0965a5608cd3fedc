import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { textOf } from "../../src/base/bytes.ts";
import { readItem } from "../../src/catalog/listing.ts";
import { JsonObject } from "../../src/base/json.ts";
import { wrapOutputSchema, wrapStructuredContent } from "../../src/protocol/translate.ts";
import {
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const wrapped = (schema: string): string => {
  const [before, after] = ['{"name":"x", "outputSchema": ', ' ,"mine":1.0}'];
  const text = textOf(wrapOutputSchema(Buffer.from(`${before}${schema}${after}`)));
  assert.ok(text.startsWith(before) && text.endsWith(after), text);
  return text.slice(before.length, text.length - after.length);
};
const around = (schema: string, more = ""): string =>
  `{${more}"type":"object","properties":{"result":${schema}},"required":["result"]}`;

describe("the schema of what a tool puts out", () => {
  it("stays as it is if it is one of an object, or none", () => {
    for (const schema of [`{ "type":"object", "$ref":"#/x"}`, `true`, `[1]`, `null`]) {
      assert.equal(wrapped(schema), schema);
    }
    for (const tool of [`{"name":"x"}`, `[]`, `{"outputSchema":{"type":"array"}`]) {
      const bytes = Buffer.from(tool);
      assert.equal(wrapOutputSchema(bytes), bytes);
    }
  });

  it("is put into one of an object, as it is spelled", () => {
    for (const schema of [
      `{"type": "array","items":{"type":"number","maximum":1.0}}`,
      `{"type":["object","null"]}`,
      `{"anyOf":[{"type":"object"}]}`,
      `{}`,
    ]) {
      assert.equal(wrapped(schema), around(schema));
    }
  });

  it("keeps its dialect at the top", () => {
    const schema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"array"}`;
    const dialect = `"$schema":"https://json-schema.org/draft/2020-12/schema",`;
    assert.equal(wrapped(schema), around(schema, dialect));
    assert.equal(wrapped(`{"$schema":1}`), around(`{"$schema":1}`));
  });

  it("points to where its parts have gone", () => {
    const of = (to: string): string =>
      `{"anyOf":[{"$ref":"${to}"}],"properties":{"$ref":{"$dynamicRef":"${to}"},"const":{"$ref":"${to}"}}}`;
    assert.equal(wrapped(of("#")), around(of("#/properties/result")));
    assert.equal(wrapped(of("#/$defs/a")), around(of("#/properties/result/$defs/a")));
    for (const other of ["#a", "other.json#/x", "/x"]) {
      assert.equal(wrapped(of(other)), around(of(other)));
    }
  });

  it("points elsewhere as before: in data, and from where the root is another", () => {
    for (const schema of [
      `{"const":{"$ref":"#"},"default":[{"$ref":"#"}],"enum":[{"$ref":"#"}]}`,
      `{"$id":"https://example.com/a","items":{"$ref":"#"}}`,
      `{"items":{"$id":"b","items":{"$ref":"#"}}}`,
      `{"$ref":{"$comment":"#"},"type":"#"}`,
    ]) {
      assert.equal(wrapped(schema), around(schema));
    }
    const anchored = (to: string): string => `{"$id":"#a","items":{"$ref":"${to}"}}`;
    assert.equal(wrapped(anchored("#")), around(anchored("#/properties/result")));
  });

  it("may be nested without end", () => {
    const schema = `{"items":`.repeat(1500) + `{"$ref":"#"}` + "}".repeat(1500);
    assert.equal(wrapped(schema), around(schema));
  });
});

describe("what a tool puts out", () => {
  const put = (result: string, tool: string): string => {
    const item = readItem(Buffer.from(tool), "tools");
    const edits = wrapStructuredContent(JsonObject.of(Buffer.from(result)), item);
    return edits.reduceRight(
      (text, { start, end, replacement: by }) =>
        text.slice(0, start) + String(by) + text.slice(end),
      result,
    );
  };
  const OBJECT = `{"name":"x","outputSchema":{"type":"object"}}`;
  const OTHER = `{"name":"x","outputSchema":{}}`;

  it("is an object if it was, and was said to be", () => {
    for (const result of [`{"structuredContent":{"a":1.0}}`, `{"content":[]}`]) {
      assert.equal(put(result, OBJECT), result);
      assert.equal(put(result, `{"name":"x"}`), result);
    }
  });

  it("is put into an object, as it is spelled, if it was not or was not said to be", () => {
    assert.equal(
      put(`{"structuredContent":[1.0] }`, OBJECT),
      `{"structuredContent":{"result":[1.0]} }`,
    );
    assert.equal(put(`{"structuredContent":null}`, OTHER), `{"structuredContent":{"result":null}}`);
    assert.equal(put(`{"structuredContent":{}}`, OTHER), `{"structuredContent":{"result":{}}}`);
  });
});

const TOOL = '{"name":"x", "inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}';
const RESULT = '{"content":[],"structuredContent": [1.0],"resultType":"complete"}';

function fill<S extends ScriptedServer>(script: S): S {
  script.tools = [TOOL];
  script.onCall = () => `"result":${RESULT}`;
  return script;
}

describe("a tool that may put out anything", () => {
  const servers = { m: { era: "modern" }, l: { era: "legacy" } } as const;
  const scripts = (): Record<string, ScriptedServer> => ({
    m: fill(new ModernScriptedServer()),
    l: fill(new ScriptedServer()),
  });

  it("puts out objects for clients of the legacy era, if its server is of the modern one", async () => {
    const { client } = setUpHub(scripts(), { servers });
    await initialize(client);
    client.send({ jsonrpc: "2.0", id: "list", method: "tools/list" });
    await client.find(isResponseTo("list"));
    const list = client.received.find((text) => text.includes('"tools":[')) ?? "";
    assert.ok(
      list.includes('{"name":"l__x", "inputSchema":{"type":"object"}}'),
      `a legacy server's schema that legacy clients cannot read is left out: ${list}`,
    );
    assert.ok(
      list.includes(
        `"m__x", "inputSchema":{"type":"object"},"outputSchema":${around('{"type":"array"}')}`,
      ),
      list,
    );
    client.send(callRequest("m", "m__x"));
    client.send(callRequest("l", "l__x"));
    await client.find(isResponseTo("m"));
    await client.find(isResponseTo("l"));
    const outputs = client.received.flatMap(
      (text) => /"structuredContent":.*?\]\}?/.exec(text) ?? [],
    );
    assert.deepEqual(outputs.toSorted(), [
      '"structuredContent": [1.0]',
      '"structuredContent": {"result":[1.0]}',
    ]);
  });

  it("is the same for clients of the modern era", async () => {
    const { client } = setUpHub(scripts(), { servers });
    const { result } = await sendModernRequest(client, "tools/list");
    const tools = result?.["tools"] as { outputSchema: object }[];
    assert.deepEqual(
      tools.map(({ outputSchema }) => outputSchema),
      [{ type: "array" }, { type: "array" }],
    );
    for (const name of ["m__x", "l__x"]) {
      const answer = await sendModernRequest(client, "tools/call", { name });
      assert.deepEqual(answer.result?.["structuredContent"], [1]);
    }
  });

  it("is seen by plugins as its server has it, whoever calls", async () => {
    const seen: string[] = [];
    const watch = callPlugin("watch", async (given, next) => {
      const answer = await next(given);
      seen.push(answer.json);
      return answer;
    });
    const { client } = await setUpPluginHub([watch], scripts(), { servers });
    await initialize(client);
    const output = async (name: string): Promise<unknown> =>
      (await callTool(client, name)).result?.["structuredContent"];
    assert.deepEqual([await output("m__x"), await output("l__x")], [{ result: [1] }, [1]]);
    const { result } = await sendModernRequest(client, "tools/call", { name: "m__x" });
    assert.deepEqual(result?.["structuredContent"], [1]);
    assert.deepEqual(
      seen.map((json) => (JSON.parse(json) as { structuredContent: unknown }).structuredContent),
      [[1], [1], [1]],
    );
  });
});
