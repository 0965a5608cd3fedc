import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import * as v from "valibot";
import plugin from "../../plugins/result-limit/index.ts";
import { HubError } from "../../src/base/errors.ts";
import { OwnAnswer } from "../../src/plugin/answer.ts";
import type { Answer, Schema, Tool } from "../../src/plugin/plugin.ts";
import { errorAnswer, toolCall, toolInfo } from "./plugin-host.ts";
import { libraryHost, type Reader, readerOf } from "./result-limit-reader.ts";

const MAX = 4000;
const DEFAULTS = { max: MAX, maxMedia: 5_000_000, keep: 1 << 26, ttl: 60_000 };
const MORE = "results__read_more";

interface Item {
  readonly type: string;
  readonly text?: string;
  readonly [key: string]: unknown;
}

interface Result {
  readonly content: readonly Item[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
  readonly _meta?: unknown;
}

async function setUp(options: Partial<typeof DEFAULTS> = {}) {
  const host = libraryHost(MORE);
  const parts = await plugin.setup({ ...DEFAULTS, ...options }, host);
  /** The plugin's answer for this answer of the server. */
  const limit = async (answer: Answer, definition?: Omit<Tool, "name">): Promise<Answer> => {
    const tool = toolInfo("files", "read", definition);
    const next = parts.call?.(() => Promise.resolve(answer), tool) ?? assert.fail();
    return next(toolCall(tool, "{}"));
  };
  /** The same for a result, parsed. */
  const cut = async (result: object | string, definition?: Omit<Tool, "name">): Promise<Result> =>
    (await limit(new OwnAnswer(result), definition)).value as Result;
  /** What is read on of a truncated result. */
  const rest = async (result: Result): Promise<string> => {
    const client = await readerOf(parts);
    const pages = await readAll(result, client);
    await client.close();
    return pages.join("");
  };
  return { host, parts, limit, cut, rest, reader: () => readerOf(parts) };
}

const text = (value: string): Item => ({ type: "text", text: value });
const image = (size: number): Item => ({
  type: "image",
  data: "A".repeat(size),
  mimeType: "image/png",
});
const lines = (count: number): string =>
  Array.from({ length: count }, (_, i) => `line ${i}\n`).join("");

/** The last line of a truncated result: its text, and the call that it names. */
function readNotice(result: Result): { notice: string; id?: string; page?: number } {
  const notice = result.content.at(-1)?.text ?? assert.fail("nothing at the end");
  const args = /with (\{.*?\})/.exec(notice)?.[1];
  return { notice, ...(args !== undefined && (JSON.parse(args) as { id: string; page: number })) };
}

/** The text of a truncated result and of all further pages. */
async function readAll(result: Result, reader: Reader): Promise<string[]> {
  const pages: string[] = [];
  let next = readNotice(result);
  while (next.id !== undefined && next.page !== undefined) {
    const page = await reader.call("read_more", { id: next.id, page: next.page });
    assert.equal(page.content.length, 2);
    pages.push(page.content[0]?.text ?? assert.fail());
    next = readNotice(page);
  }
  return pages;
}

/** Size of all text that a model would see, in bytes. */
function textSizeOf({ content }: Result): number {
  return content.reduce((sum, item) => sum + Buffer.byteLength(item.text ?? ""), 0);
}

describe("a result", () => {
  it("within the limit is the same answer, and is not looked at", async () => {
    const { limit } = await setUp();
    const unseen = { get: () => assert.fail() };
    const answer = { kind: "result", size: MAX, isError: false } as Answer;
    Object.defineProperties(answer, { json: unseen, value: unseen });
    assert.equal(await limit(answer), answer);
  });

  it("is measured in text and not in how that is escaped", async () => {
    const { limit } = await setUp();
    const answer = new OwnAnswer({ content: [text("\u0000".repeat(MAX))] });
    assert.equal(await limit(answer), answer);
  });

  it("over the limit is cut, and says how much is shown and how to read on", async () => {
    const { cut } = await setUp();
    const result = await cut({ content: [text(lines(1000))] });
    assert.equal(result.content.length, 2);
    assert.ok(lines(1000).startsWith(result.content[0]?.text ?? assert.fail()));
    const { notice, id, page } = readNotice(result);
    assert.equal(page, 2);
    assert.match(id ?? "", /^[0-9a-f]{32}$/);
    assert.equal(
      notice,
      `[The result is too long: only the first 3.5 KB of 8.9 KB are shown, page 1 of 3. For page 2 call the tool results__read_more with {"id":"${id}","page":2}, or ask for less.]`,
    );
  });

  it("and its pages are all of its texts, none over the limit, with no half character", async () => {
    const { cut, reader } = await setUp();
    const client = await reader();
    const part = fc.oneof(
      fc.string({ unit: "binary", maxLength: 200 }),
      fc.nat(3000).map((count) => "x".repeat(count)),
      fc.nat(200).map((count) => "👨‍👩‍👧‍👦 \ud83d\n".repeat(count)),
      fc.nat(300).map(lines),
    );
    const texts = fc.array(
      fc.array(part, { maxLength: 6 }).map((parts) => parts.join("")),
      { maxLength: 12, size: "max" },
    );
    let cuts = 0;
    const holds = async (all: string[]): Promise<void> => {
      const result = await cut({ content: all.map(text) });
      const whole = all.join("\n\n");
      if (Buffer.byteLength(whole) <= MAX) return assert.deepEqual(result.content, all.map(text));
      cuts++;
      assert.ok(textSizeOf(result) <= MAX);
      const written = JSON.stringify(result);
      assert.ok(written.isWellFormed() && !/\\ud[89a-f]/.test(written));
      const shown = result.content.slice(0, -1).map((item) => item.text);
      const pages = await readAll(result, client);
      for (const page of pages) assert.ok(Buffer.byteLength(page) <= MAX - 200);
      const rest = pages.join("");
      // A page may end between two entries: then their separator, or half of it, belongs to the first page.
      const wholes = ["", "\n", "\n\n"].map((gap) => shown.join("\n\n") + gap + rest);
      assert.ok(wholes.includes(whole.toWellFormed()), "a part is lost");
    };
    await fc.assert(fc.asyncProperty(texts, holds), { numRuns: 40 });
    assert.ok(cuts > 5);
    await client.close();
  });

  it("keeps the spelling of all that is not cut", async () => {
    const { limit } = await setUp();
    const first = '{"text" : "a\\u00e9", "x":1.0, "type":"text"}';
    const long = JSON.stringify("y".repeat(9000));
    const json = `{ "_meta":{"n":12345678901234567890}, "content":[${first}, {"type":"text","annotations":{"priority":1.0},"text":${long}}], "extra": 1e2 }`;
    const { json: made } = await limit(new OwnAnswer(json));
    assert.ok(made.startsWith(`{"_meta":{"n":12345678901234567890},"content":[${first},`));
    assert.match(made, /\{"type":"text","annotations":\{"priority":1\.0\},"text":"y+"\},/);
    assert.ok(made.endsWith('],"extra":1e2}'));
  });

  it("that is a JSON-RPC error is left alone, and so is a call without an answer", async () => {
    const { limit, parts } = await setUp();
    const { json } = new OwnAnswer({ content: [text(lines(1000))] });
    const error: Answer = {
      ...errorAnswer({ code: -32000, message: "no" }),
      json,
      size: json.length,
    };
    assert.equal(await limit(error), error);
    const tool = toolInfo("files", "read");
    const lost = new HubError("connectionLost", "gone");
    const next = parts.call?.(() => Promise.reject(lost), tool) ?? assert.fail();
    await assert.rejects(next(toolCall(tool, "{}")), lost);
  });

  const long = "x".repeat(9000);
  for (const json of [
    `{"content":"${long}"}`,
    `{"task":{"id":"${long}"}}`,
    `{"contents":[{"type":"text","text":"${long}"}]}`,
    // That is no JSON.
    `{"content":[{"type":"text","text":"${long}",}]}`,
  ]) {
    it(`of another form is left alone: ${json.slice(0, 20)}…${json.slice(-4)}`, async () => {
      const { limit } = await setUp();
      const answer = { kind: "result", size: json.length, json, isError: false } as Answer;
      Object.defineProperty(answer, "value", { get: () => JSON.parse(json) as unknown });
      assert.equal(await limit(answer), answer);
    });
  }

  it("of many entries shows those that have room, and the beginning of the next", async () => {
    const { cut, rest } = await setUp();
    const all = ["a".repeat(500), "b".repeat(500), "c".repeat(5000), "d"];
    const result = await cut({ content: all.map(text) });
    assert.deepEqual(result.content.slice(0, 2), all.slice(0, 2).map(text));
    assert.equal(`${result.content[2]?.text}${await rest(result)}`, `${all[2]}\n\n${all[3]}`);
  });

  it("of many entries is cut between two where there is no better place, and stays an error", async () => {
    const { cut, rest } = await setUp();
    const all = ["a", "b", "c", "d"].map((letter) => letter.repeat(1000));
    const result = await cut({ content: all.map(text), isError: true });
    assert.deepEqual(result.content.slice(0, -1), all.slice(0, 3).map(text));
    assert.equal(await rest(result), all[3]);
    assert.equal(result.isError, true);
  });

  it("shows the beginning of an embedded text as a text, under its address", async () => {
    const { cut } = await setUp();
    const resource = { uri: "file:///a.txt", mimeType: "text/plain", text: lines(1000) };
    const result = await cut({ content: [{ type: "resource", resource }] });
    const [first] = result.content;
    assert.equal(first?.type, "text");
    assert.ok(first.text?.startsWith("file:///a.txt\nline 0\nline 1\n"));
  });

  it("shows an embedded text, a link and what it does not know as they are where they have room", async () => {
    const { cut } = await setUp();
    const resource = { uri: "file:///a.txt", text: "short" };
    const link = { type: "resource_link", uri: "file:///b.txt", name: "b" };
    const known = [{ type: "resource", resource }, link, { type: "hologram", x: 1 }];
    const result = await cut({ content: [...known, text(lines(1000)), link] });
    assert.deepEqual(result.content.slice(0, 3), known);
    assert.equal(result.content.length, 5);
  });
});

describe("a picture", () => {
  it("does not count as text, and stays where it is", async () => {
    const { limit, cut } = await setUp();
    const answer = new OwnAnswer({ content: [image(5_000_000), text("a picture")] });
    assert.equal(await limit(answer), answer);
    const { content } = await cut({ content: [text(lines(1000)), image(100_000)] });
    assert.equal(content.map(({ type }) => type).join(), "text,image,text");
    assert.deepEqual(content[1], image(100_000));
  });

  it("over its own limit is replaced by a line, and can be read as a resource", async () => {
    const { cut, reader } = await setUp({ maxMedia: 10_000 });
    const big = image(12_344);
    const { content } = await cut({ content: [text("before"), big, text("after")] });
    const line = content[1]?.text ?? assert.fail();
    const uri = /toolmux-result:\/\/[0-9a-f]{32}/.exec(line)?.[0] ?? assert.fail();
    assert.equal(
      line,
      `[An image (image/png, 12.3 KB in base64) was left out, as it is over the limit of 10 KB. It can be read as the resource ${uri}.]`,
    );
    assert.deepEqual([content[0], content[2]], [text("before"), text("after")]);
    const client = await reader();
    assert.deepEqual(await client.read(uri), [{ uri, mimeType: "image/png", blob: big["data"] }]);
    const reported = await client.call("read_more", { id: uri.slice(-32) });
    assert.equal(reported.isError, true);
    assert.ok(reported.content[0]?.text?.includes(uri));
    await client.close();
  });

  it("is limited also if its own limit is the lower one", async () => {
    const { cut } = await setUp({ maxMedia: 1000 });
    assert.equal((await cut({ content: [image(1004)] })).content[0]?.type, "text");
  });

  it("that has no room on the shelf is said to be gone", async () => {
    const { cut } = await setUp({ maxMedia: 10_000, keep: 5000 });
    const blob = { type: "resource", resource: { uri: "file:///z", blob: "A".repeat(20_000) } };
    const result = await cut({ content: [blob, { ...image(20_000), type: "audio" }] });
    assert.match(result.content[0]?.text ?? "", /^\[The resource file:\/\/\/z .*was not kept\.\]$/);
    assert.match(result.content[1]?.text ?? "", /^\[A sound .*was not kept\.\]$/);
  });
});

describe("structured content", () => {
  const rows = Array.from({ length: 400 }, (_, id) => ({ id, name: `row ${id}` }));
  const big = { rows };

  it("is hidden from what clients are told of tools, and nothing else of them is", async () => {
    const { parts } = await setUp();
    const plain = { name: "a", inputSchema: { type: "object" } };
    const tools = [plain, { ...plain, name: "b", outputSchema: { type: "object" } }];
    const shown = parts.list?.(tools, "files") ?? assert.fail();
    assert.equal(shown[0], plain);
    assert.deepEqual(shown[1], { ...plain, name: "b" });
    assert.equal(parts.list?.(tools, "results"), tools);
  });

  it("within the limit stays beside a text that is cut", async () => {
    const { cut } = await setUp();
    const result = await cut({ content: [text(lines(1000))], structuredContent: { count: 1000 } });
    assert.deepEqual(result.structuredContent, { count: 1000 });
    assert.ok(textSizeOf(result) <= MAX);
  });

  it("over the limit goes, and nothing is said of it where the text says the same", async () => {
    const { cut, rest } = await setUp();
    const whole = JSON.stringify(big, null, 1);
    const result = await cut({ content: [text(whole)], structuredContent: big });
    assert.equal("structuredContent" in result, false);
    assert.equal(`${result.content[0]?.text}${await rest(result)}`, whole);
  });

  it("over the limit is read as text, as it was spelled, where the text does not say it", async () => {
    const { cut, rest } = await setUp();
    const structured = `{"n":1.0,"id":12345678901234567890,"rows":${JSON.stringify(rows)}}`;
    const json = `{"content":[{"type":"text","text":"400 rows"}],"structuredContent":${structured}}`;
    const result = await cut(json);
    assert.equal("structuredContent" in result, false);
    assert.equal(result.content[0]?.text, "400 rows");
    assert.equal(`${result.content[1]?.text}${await rest(result)}`, structured);
  });

  /** A text within the limit, with equal structured content that exceeds it. */
  const quotes = '"'.repeat(MAX - 1000);
  const same: [string, Item[], object][] = [
    ["wrapped in an object", [text(quotes)], { content: quotes }],
    ["one entry for each element", [text(quotes), text("2")], { result: [quotes, 2] }],
    ["one after the other", [text(quotes), text("b")], [quotes, "b"]],
    ["the same entry", [image(2 * MAX)], { content: [image(2 * MAX)] }],
    ["what a picture is made of", [image(2 * MAX), text("b")], [image(2 * MAX)["data"], "b"]],
  ];
  for (const [how, content, structuredContent] of same) {
    it(`is known to be what the text says: ${how}`, async () => {
      const { cut } = await setUp();
      assert.deepEqual(await cut({ content, structuredContent }), { content });
    });
  }

  it("is not taken for what the text says if that is less", async () => {
    const { cut } = await setUp();
    for (const structuredContent of [
      { result: [quotes, 2, 3] },
      { result: quotes, more: 1 },
      { a: quotes, b: 1 },
    ]) {
      const texts = "a" in structuredContent ? [text(quotes)] : [text(quotes), text("2")];
      const { content } = await cut({ content: texts, structuredContent });
      assert.match(content.at(-1)?.text ?? "", /too long/);
    }
  });

  it("that is all there is becomes text", async () => {
    const { cut } = await setUp();
    const result = await cut({ structuredContent: big });
    assert.equal("structuredContent" in result, false);
    assert.ok(result.content[0]?.text?.startsWith('{"rows":[{"id":0,'));
  });

  it("stays whole where clients were told how it looks, as they would refuse the result", async () => {
    const { cut } = await setUp();
    const definition = { outputSchema: { type: "object" } };
    const given = { content: [text(JSON.stringify(big))], structuredContent: big };
    const result = await cut(given, definition);
    assert.deepEqual(result.structuredContent, big);
    assert.ok(textSizeOf(result) <= MAX);
  });
});

describe("the plugin", () => {
  const schema = plugin.options as Schema<unknown> & v.GenericSchema;
  const check = (options: object): unknown => v.safeParse(schema, options).issues?.[0].message;

  it("has defaults for all options, and says what it expects of them", () => {
    const defaults = { max: 64_000, maxMedia: 5_000_000, keep: 1 << 26, ttl: 1_800_000 };
    assert.deepEqual(v.parse(schema, {}), defaults);
    assert.equal(check({ max: "1KB" }), "a size of at least 2KB");
    assert.match(String(check({ max: "big" })), /^a size such as/);
    assert.match(String(check({ ttl: 0 })), /^a duration/);
    assert.notEqual(check({ other: 1 }), undefined);
  });

  it("leaves its own server alone", async () => {
    const { parts } = await setUp();
    const next = (): Promise<Answer> => assert.fail();
    assert.equal(parts.call?.(next, toolInfo("results", "read_more")), next);
  });

  it("says that nothing is kept where clients have no tool to read it, or there is no room", async () => {
    const unreadable = await setUp();
    unreadable.host.readMore = undefined;
    for (const { cut } of [unreadable, await setUp({ keep: 5000 })]) {
      const result = await cut({ content: [text(lines(1000))] });
      assert.match(readNotice(result).notice, /The rest was not kept: ask for less\.\]$/);
    }
  });

  it("has room for the longest name of a tool", async () => {
    const { cut, host } = await setUp({ max: 2000 });
    for (const length of [64, 128, 129, 5000]) {
      host.readMore = "n".repeat(length);
      assert.ok(textSizeOf(await cut({ content: [text("x".repeat(150_000))] })) <= 2000);
    }
  });

  it("leaves nothing behind", async () => {
    for (const end of ["dispose", "signal"] as const) {
      const { parts, host, cut, reader } = await setUp();
      const client = await reader();
      const { id } = readNotice(await cut({ content: [text(lines(1000))] }));
      assert.ok(id);
      if (end === "dispose") await parts.dispose?.();
      else host.end.abort();
      await client.closed;
      assert.match(readNotice(await cut({ content: [text(lines(1000))] })).notice, /not kept/);
      const again = await reader();
      assert.equal((await again.call("read_more", { id })).isError, true);
      await again.close();
    }
  });
});
