import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { applyEdits, joinPieces, textOf } from "../../src/base/bytes.ts";
import { Section } from "../../src/catalog/section.ts";
import { ModernListAnswers } from "../../src/frontend/list-answers.ts";
import { appendMembers, JsonObject, removeMembers, scanObject } from "../../src/base/json.ts";
import {
  addEnvelope,
  formatEnvelope,
  mayBeModern,
  MetaKey,
  prepareEnvelope,
  readEnvelope,
  readResultType,
  removeEnvelope,
  toLegacyResult,
  toModernResult,
} from "../../src/protocol/modern.ts";
import { toLegacyEdits, toModernEdits } from "../../src/protocol/translate.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { joinMessage, withResponseId } from "../../src/jsonrpc/message.ts";

const HUB = { name: "hub", version: "1" };

function rangeOf(bytes: Buffer): { start: number; end: number } {
  return { start: 0, end: bytes.length };
}

function edit(text: string, edits: (bytes: Buffer) => Parameters<typeof applyEdits>[1]): string {
  const bytes = Buffer.from(text);
  return textOf(joinPieces(applyEdits(bytes, edits(bytes))));
}

describe("edits of objects", () => {
  const drop = (text: string, ...keys: string[]): string =>
    edit(text, (bytes) =>
      removeMembers(bytes, rangeOf(bytes), scanObject(bytes, 0)?.items ?? [], (key) =>
        keys.includes(key),
      ),
    );
  const cases: readonly (readonly [string, readonly string[], string])[] = [
    [`{"a":1}`, ["a"], `{}`],
    [`{ "a" : 1 , "b" : 2 }`, ["a"], `{ "b" : 2 }`],
    [`{"a":1,"b":2}`, ["b"], `{"a":1}`],
    [`{"a":1,"b":2,"c":3}`, ["b"], `{"a":1,"c":3}`],
    [`{"a":1,"b":2,"c":3}`, ["a", "b"], `{"c":3}`],
    [`{"a":1,"b":2,"c":3}`, ["b", "c"], `{"a":1}`],
    [`{"a":1,"b":2,"c":3}`, ["a", "c"], `{"b":2}`],
    [`{"a":1,"b":2,"c":3}`, ["a", "b", "c"], `{}`],
    [`{"a":1,"a":{"b":[","]},"c":1.0}`, ["a"], `{"c":1.0}`],
    [`{"c":1e2,"b\\u0061":"}"}`, ["a", "ba"], `{"c":1e2}`],
    [`{}`, ["a"], `{}`],
  ];
  for (const [text, keys, expected] of cases) {
    it(`takes ${keys.join(" and ")} out of ${text}, and leaves the rest as it is spelled`, () => {
      const rest = drop(text, ...keys);
      assert.equal(rest.replaceAll(" ", ""), expected.replaceAll(" ", ""));
      assert.doesNotThrow(() => JSON.parse(rest));
    });
  }

  it("adds members behind all others, to an object without any as well", () => {
    const add = (text: string): string =>
      edit(text, (bytes) => [appendMembers(bytes, rangeOf(bytes), `"z":1`)]);
    assert.equal(add(`{}`), `{"z":1}`);
    assert.equal(add(`{ \t}`), `{ \t"z":1}`);
    assert.equal(add(`{"z":0}`), `{"z":0,"z":1}`);
  });
});

describe("the envelope of a modern request", () => {
  const envelope = formatEnvelope({
    version: "2026-07-28",
    client: HUB,
    capabilities: { elicitation: {} },
    level: "info",
  });
  const paramsOf = (bytes: Buffer) => ({
    bytes,
    params: rangeOf(bytes),
    members: scanObject(bytes, 0)?.items ?? [],
  });

  for (const text of [
    `{}`,
    `{"name":"x"}`,
    `{"_meta":{}}`,
    `{"_meta":{"progressToken":"t","traceparent":"00-1"},"name":"x"}`,
    `{"_meta":null,"name":"x"}`,
  ]) {
    it(`is read as it was added to ${text}, and can be taken out again`, () => {
      const dressed = edit(text, (bytes) =>
        addEnvelope(paramsOf(bytes), prepareEnvelope(envelope)),
      );
      const bytes = Buffer.from(dressed);
      assert.ok(mayBeModern(bytes));
      const read = readEnvelope(JsonObject.of(bytes));
      assert.deepEqual(read, {
        version: "2026-07-28",
        capabilities: { elicitation: { form: {} } },
        declared: { elicitation: {} },
        client: HUB,
        level: "info",
      });
      const bare: unknown = JSON.parse(edit(dressed, (whole) => removeEnvelope(paramsOf(whole))));
      const { _meta, ...before } = JSON.parse(text) as { _meta?: object | null };
      assert.deepEqual(bare, { ...before, _meta: _meta ?? {} });
    });
  }

  it("wins over what a legacy client has put in its place", () => {
    const text = `{"_meta":{"${MetaKey.level}":"debug"}}`;
    const dressed = edit(text, (bytes) => addEnvelope(paramsOf(bytes), prepareEnvelope(envelope)));
    assert.equal(readEnvelope(JsonObject.of(Buffer.from(dressed)))?.level, "info");
  });

  it("is not seen in arguments that only speak of it", () => {
    const bytes = Buffer.from(`{"arguments":{"_meta":{"${MetaKey.version}":"2026-07-28"}}}`);
    assert.ok(mayBeModern(bytes));
    assert.equal(readEnvelope(JsonObject.of(bytes)), undefined);
  });
});

describe("an answer for a client of another era", () => {
  const cross = (line: string, from: "legacy" | "modern", to: "legacy" | "modern"): unknown => {
    const frame = parseMessage(Buffer.from(line));
    assert.equal(frame.kind, "response");
    if (frame.kind !== "response") return undefined;
    const edits =
      to === "modern"
        ? toModernEdits(frame, from, HUB)
        : toLegacyEdits(frame, JsonObject.at(frame.bytes, frame.body));
    const message = withResponseId(frame, "9", from === to ? [] : edits);
    const text = textOf(joinMessage(message));
    return JSON.parse(text);
  };
  const lines = (body: string, outcome = "result"): readonly string[] => [
    `{"jsonrpc":"2.0","id":1,"${outcome}":${body}}`,
    `{"${outcome}":${body},"jsonrpc":"2.0","id":1}`,
    `{"id":1,"jsonrpc":"2.0", "${outcome}" : ${body} }`,
  ];
  const expectAll = (
    body: string,
    to: "legacy" | "modern",
    expected: unknown,
    outcome = "result",
  ): void => {
    const from = to === "modern" ? "legacy" : "modern";
    for (const line of lines(body, outcome)) {
      assert.deepEqual(cross(line, from, to), { jsonrpc: "2.0", id: 9, [outcome]: expected });
    }
  };
  const identity = { [MetaKey.server]: HUB };

  it("is stamped as complete, whatever a legacy server has under that key", () => {
    expectAll(`{}`, "modern", { _meta: identity, resultType: "complete" });
    expectAll(`{"content":[],"resultType":"input_required"}`, "modern", {
      content: [],
      resultType: "complete",
      _meta: identity,
    });
    expectAll(`{"_meta":{"a":1},"x":{"_meta":2}}`, "modern", {
      _meta: { a: 1, ...identity },
      x: { _meta: 2 },
      resultType: "complete",
    });
    expectAll(`{"content":[{"_meta":{}}]}`, "modern", {
      content: [{ _meta: {} }],
      _meta: identity,
      resultType: "complete",
    });
  });

  it("loses what a legacy client has no word for", () => {
    const meta = JSON.stringify({ ...identity, a: 1 });
    expectAll(`{"resultType":"complete","ttlMs":1,"content":[1.0],"_meta":${meta}}`, "legacy", {
      content: [1],
      _meta: { a: 1 },
    });
    expectAll(`{"content":{"resultType":"x"},"cacheScope":"public"}`, "legacy", {
      content: { resultType: "x" },
    });
  });

  it("is an error whose code means the same to its client, with the original as data where there is none", () => {
    const error = (code: number, data = ""): string => `{"code":${code},"message":"m"${data}}`;
    const missing = { code: -32602, message: "m" };
    expectAll(error(-32002), "modern", missing, "error");
    const known = { code: -32603, message: "m", data: { code: -32050 } };
    expectAll(error(-32050), "modern", known, "error");
    const more = { code: -32603, message: "m", data: { code: -32022, data: { supported: [] } } };
    expectAll(error(-32022, `,"data":{"supported":[]}`), "legacy", more, "error");
    expectAll(error(-1, `,"data":1`), "modern", { code: -1, message: "m", data: 1 }, "error");
    expectAll(error(-32002), "legacy", { code: -32002, message: "m" }, "error");
  });

  it("says of what kind it is only at its top", () => {
    const kind = (text: string): string => readResultType(JsonObject.of(Buffer.from(text)));
    assert.equal(kind(`{"content":[{"resultType":"task"}]}`), "complete");
    assert.equal(kind(`{"resultType":"input_required"}`), "input_required");
    assert.equal(kind(`{"resultType":"a","resultType":"b"}`), "b");
  });

  it("is left alone if it is no object", () => {
    const bytes = Buffer.from(`[1]`);
    assert.deepEqual(toModernResult(bytes, rangeOf(bytes), HUB), []);
    assert.deepEqual(toLegacyResult(rangeOf(bytes), JsonObject.of(bytes)), []);
  });
});

describe("the ready lists of modern clients", () => {
  it("are made once for each list, and again when the hub has another name", () => {
    const editions = new ModernListAnswers();
    const section = new Section("prompts", new Map());
    const first = editions.firstPage(section, HUB);
    assert.equal(editions.firstPage(section, { ...HUB }), first);
    assert.match(textOf(editions.firstPage(section, { ...HUB, name: "other" })), /"name":"other"/);
  });
});
