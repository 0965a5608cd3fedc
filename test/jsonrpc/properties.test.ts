import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { joinPieces, pieceSize, utf8 } from "../../src/base/bytes.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import {
  joinMessage,
  type Message,
  type Request,
  type Response,
  withRequestId,
  withResponseId,
} from "../../src/jsonrpc/message.ts";
import { LineReader } from "../../src/jsonrpc/line-reader.ts";
import { Choices, messageBytes, shrink } from "../generate.ts";

/** Set TOOLMUX_TEST_SEED to repeat a run, and TOOLMUX_TEST_RUNS for a longer one. */
const SEED = Number(process.env["TOOLMUX_TEST_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const RUNS = Number(process.env["TOOLMUX_TEST_RUNS"] ?? 8000);

/** ms; for long runs and busy machines, as 80,000 messages take 4 s. */
const TIME_LIMIT = 60_000 + RUNS;

const CLIENT_IDS = ['"c-é\\"\\u0041"', "12345678901234567890", "-1"].map(utf8);

/** How often each kind of message was met: a run that never meets one proves nothing about it. */
const KINDS = [
  "head",
  "tail",
  "scanned",
  "malformed but spliced",
  "request",
  "notification",
  "batch",
  "not JSON",
  "no message",
  "more than one id",
  "line break",
  "not UTF-8",
] as const;
type Kind = (typeof KINDS)[number];

describe("any message", () => {
  const name = `is read as JSON.parse reads it, and keeps its bytes under another id (seed ${SEED})`;
  it(name, { timeout: TIME_LIMIT }, () => {
    const met = new Map<Kind, number>(KINDS.map((kind) => [kind, 0]));
    const count = (kind: Kind): void => void met.set(kind, (met.get(kind) ?? 0) + 1);
    for (let i = 0; i < RUNS; i++) {
      const choices = Choices.random(SEED + i);
      const bytes = messageBytes(choices);
      const problem = problemOf(bytes, count);
      if (problem !== undefined) fail(SEED + i, choices.taken, problem);
    }
    for (const [kind, times] of met) {
      assert.ok(times >= RUNS / 2000, `only ${times} of ${RUNS} messages were of kind "${kind}"`);
    }
  });
});

function fail(seed: number, taken: readonly number[], problem: string): never {
  const fails = (script: readonly number[]): boolean =>
    problemOf(messageBytes(Choices.replay(script))) !== undefined;
  const smallest = messageBytes(Choices.replay(shrink(taken, fails)));
  assert.fail(
    `TOOLMUX_TEST_SEED=${seed}: ${problem}\nsmallest message: ${JSON.stringify(smallest.toString())}` +
      `\n  ${problemOf(smallest)}\n  hex ${smallest.toString("hex")}`,
  );
}

function problemOf(bytes: Buffer, count: (kind: Kind) => void = () => {}): string | undefined {
  try {
    checkMessage(bytes, count);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Cheaper than an assertion that builds its message each time. */
function expect(holds: boolean, say: () => string): asserts holds {
  if (!holds) throw new Error(say());
}

function expectEqual(found: unknown, wanted: unknown, what: string): void {
  expect(
    Object.is(found, wanted),
    () => `${what} is ${String(found)} instead of ${String(wanted)}`,
  );
}

type Json = { readonly [key: string]: unknown };
type Parsed = { value: unknown } | undefined;

function parse(bytes: Uint8Array): Parsed {
  try {
    return { value: JSON.parse(textOf(bytes)) };
  } catch {
    return undefined;
  }
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

function textOf(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

function checkMessage(bytes: Buffer, count: (kind: Kind) => void): void {
  const before = Buffer.from(bytes);
  const frame = parseMessage(bytes);
  expect(bytes.equals(before), () => "the bytes that came in were changed");
  if (textOf(bytes).includes("\uFFFD")) count("not UTF-8");
  if (bytes.includes(0x0d) || bytes.includes(0x0a)) count("line break");
  // One byte order mark is no part of the message.
  const message = bytes.indexOf("\uFEFF") === 0 ? bytes.subarray(3) : bytes;
  checkFrame(frame, message, parse(message), count);
}

/** @param raw the bytes that the frame was read from. */
function checkFrame(
  frame: Message,
  raw: Buffer,
  parsed: Parsed,
  count: (kind: Kind) => void,
): void {
  const shape = shapeOf(textOf(raw));
  if (shape !== undefined) {
    checkSpliced(frame, raw, shape, parsed, count);
    return;
  }
  if (parsed === undefined) {
    count("not JSON");
    expect(frame.kind === "invalid", () => `malformed JSON was taken for a ${frame.kind}`);
    expectEqual(frame.code, "parseError", "the code");
    return;
  }
  const { value } = parsed;
  const wanted = kindOf(value, raw);
  expectEqual(frame.kind, wanted, "the kind");
  const clean = oneLine(raw);
  switch (frame.kind) {
    case "invalid":
      count("no message");
      expectEqual(frame.code, "invalidRequest", "the code");
      expectEqual(frame.id !== undefined, mayBeRefusedById(value), "whether it has an id");
      return;
    case "batch":
      count("batch");
      checkBatch(frame.items, value as readonly unknown[]);
      return;
    case "notification":
      count("notification");
      expect(frame.bytes.equals(clean), () => "a notification's bytes were changed");
      expectEqual(frame.method, (value as Json)["method"], "the method");
      checkRange(clean, frame.params, (value as Json)["params"], "params");
      return;
    case "request":
      count("request");
      checkRequest(frame, clean, value as Json, count);
      return;
    case "response":
      count("scanned");
      checkScanned(frame, clean, value as Json);
  }
}

const EXACT = new Set(["method", "params"]);

/** A reference for what a message is, after JSON.parse: the last of several equal keys wins, but for methods and params. */
function kindOf(value: unknown, raw: Uint8Array): Message["kind"] {
  if (Array.isArray(value)) return value.length === 0 ? "invalid" : "batch";
  if (!isObject(value) || value["jsonrpc"] !== "2.0") return "invalid";
  const answers = Object.hasOwn(value, "result") || Object.hasOwn(value, "error");
  if (!Object.hasOwn(value, "method")) return answers ? "response" : "invalid";
  if (typeof value["method"] !== "string" || answers) return "invalid";
  const keys = topLevelKeys(raw).filter((key) => /^(?:id|method|params)$/iu.test(key));
  if (keys.some((key, i) => key !== "id" && (!EXACT.has(key) || keys.indexOf(key) !== i)))
    return "invalid";
  if (!Object.hasOwn(value, "id")) return "notification";
  return hasUsableId(value) ? "request" : "invalid";
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function hasUsableId(value: Json): boolean {
  return typeof value["id"] === "string" || typeof value["id"] === "number";
}

/** Only what asks something is answered: an error sent to an answer's id would hit another request. */
function mayBeRefusedById(value: unknown): boolean {
  if (!isObject(value) || !hasUsableId(value)) return false;
  const answers = Object.hasOwn(value, "result") || Object.hasOwn(value, "error");
  return Object.hasOwn(value, "method") && !answers;
}

const HEAD = /^\{"jsonrpc":"2\.0","id":(0|[1-9]\d{0,14}),"(result|error)":([^]+)\}$/;
const TAIL = /^\{"(result|error)":([^]+),"jsonrpc":"2\.0","id":(0|[1-9]\d{0,14})\}$/;

interface Shape {
  readonly at: "head" | "tail";
  readonly id: string;
  readonly outcome: string;
  readonly body: string;
}

/** A reference for when a response is spliced, over its text instead of its bytes. */
function shapeOf(text: string): Shape | undefined {
  const head = HEAD.exec(text);
  const tail = head === null ? TAIL.exec(text) : null;
  const found: Shape | undefined =
    head !== null
      ? { at: "head", id: head[1] ?? "", outcome: head[2] ?? "", body: head[3] ?? "" }
      : tail !== null
        ? { at: "tail", id: tail[3] ?? "", outcome: tail[1] ?? "", body: tail[2] ?? "" }
        : undefined;
  if (found === undefined || /\r|\n|"method"|\\u00[67]/.test(text)) return undefined;
  // A body that may hold a second member, which is null, is scanned.
  if (/^null,|,"(?:error|result)":null$/.test(found.body)) return undefined;
  return /^[ \t]|[ \t]$|"jsonrpc"/.test(found.body) ? undefined : found;
}

function checkSpliced(
  frame: Message,
  raw: Buffer,
  shape: Shape,
  parsed: Parsed,
  count: (kind: Kind) => void,
): void {
  count(parsed === undefined ? "malformed but spliced" : shape.at);
  expect(frame.kind === "response", () => `a response was taken for a ${frame.kind}`);
  expectEqual(frame.shape.kind, shape.at, "the shape");
  expectEqual(frame.id, Number(shape.id), "the id");
  expectEqual(frame.outcome, shape.outcome, "the outcome");
  expect(frame.bytes.equals(raw), () => "a spliced response's bytes were changed");
  const body = raw.subarray(frame.body.start, frame.body.end);
  expectEqual(textOf(body), shape.body, "the body");
  const value = parsed?.value;
  if (parsed !== undefined) {
    expect(isObject(value) && !Object.hasOwn(value, "method"), () => "a request was spliced");
    expect(Object.hasOwn(value, shape.outcome), () => "the outcome is not in the message");
    // A second id can only be the server's own lie about its own answer, and at the tail not even that.
    const ids = countKeys(raw, "id");
    if (ids > 1) count("more than one id");
    if (ids === 1 || shape.at === "tail") expectEqual(frame.id, value["id"], "the last id");
  }
  for (const id of CLIENT_IDS) {
    const out = joinMessage(withResponseId(frame, id));
    const end = `,"id":${textOf(id)}}`;
    expect(textOf(out).endsWith(end), () => `the client's id is not last: ${textOf(out)}`);
    checkReaddressed(out, body, value, id);
  }
}

/** Whether a message has a result and an error of which one is null, so that it is written again without that one. */
function isRewritten(value: unknown): boolean {
  if (!isObject(value) || Object.hasOwn(value, "method")) return false;
  const { result, error } = value;
  return result !== undefined && error !== undefined && (result === null || error === null);
}

function checkScanned(frame: Response, clean: Buffer, value: Json): void {
  expectEqual(frame.shape.kind, "scanned", "the shape");
  expectEqual(frame.id, ownId(value["id"]), "the id");
  if (isRewritten(value)) {
    const outcome = value["error"] === null ? "result" : "error";
    const written = JSON.parse(frame.bytes.toString()) as Record<string, Json>;
    expectEqual(frame.outcome, outcome, "the outcome");
    expectEqual(Object.keys(written).join(), `jsonrpc,${outcome},id`, "the members");
    expectEqual(JSON.stringify(written[outcome]), JSON.stringify(value[outcome]), "the body");
    return;
  }
  expectEqual(frame.outcome, Object.hasOwn(value, "result") ? "result" : "error", "the outcome");
  expect(frame.bytes.equals(clean), () => "more than line breaks was changed");
  checkRange(clean, frame.body, value[frame.outcome], frame.outcome);
  const body = clean.subarray(frame.body.start, frame.body.end);
  for (const id of CLIENT_IDS) {
    const out = joinMessage(withResponseId(frame, id));
    checkReaddressed(out, body, Object.hasOwn(value, "id") ? value : undefined, id, /^id$/i);
  }
}

/** A reference for an id of the hub's own as it comes back: plain digits, or what a lax peer makes of them. */
function ownId(id: unknown): number | undefined {
  const number = typeof id === "string" && /^\d{1,15}$/.test(id) ? Number(id) : id;
  if (typeof number !== "number" || !Number.isSafeInteger(number)) return undefined;
  return number >= 0 ? number : undefined;
}

function checkRequest(
  frame: Request,
  clean: Buffer,
  value: Json,
  count: (kind: Kind) => void,
): void {
  expect(frame.bytes.equals(clean), () => "a request's bytes were changed");
  expectEqual(frame.method, value["method"], "the method");
  checkRange(clean, frame.params, value["params"], "params");
  const own = joinPieces([frame.id]);
  const spelled = textOf(own);
  expectEqual(JSON.parse(spelled), value["id"], "the id");
  expect(clean.includes(own), () => "the id is not spelled as it came");
  const id = value["id"];
  const number = Number.isSafeInteger(id) ? id : spelled;
  expectEqual(frame.id.key, typeof id === "string" ? `"${id}` : number, "the id's key");
  if (countKeys(clean, "id") > 1) count("more than one id");
  const params = frame.params && clean.subarray(frame.params.start, frame.params.end);
  for (const newId of CLIENT_IDS) {
    const out = joinMessage(withRequestId(frame, newId, [], []));
    checkReaddressed(out, params ?? new Uint8Array(), value, newId);
    const again = parseMessage(out);
    expect(again.kind === "request", () => `a readdressed request became a ${again.kind}`);
    expect(pieceSize(again.id) === newId.length, () => "a readdressed request has another id");
  }
}

function checkBatch(items: readonly Message[], values: readonly unknown[]): void {
  expectEqual(items.length, values.length, "the number of messages");
  for (const [i, item] of items.entries()) {
    expect(item.kind !== "batch", () => "a batch holds a batch");
    const value = values[i];
    const isSame = isRewritten(value) || sameValue(parse(item.bytes)?.value, value);
    expect(isSame, () => `item ${i} is another value`);
    if (Array.isArray(value)) expectEqual(item.kind, "invalid", `item ${i}, an array,`);
    else checkFrame(item, item.bytes, { value }, () => {});
  }
}

/** @param value what was said before, where that was well-formed; `ids` are the keys that have the new id. */
function checkReaddressed(
  out: Buffer,
  body: Uint8Array,
  value: unknown,
  id: Uint8Array,
  ids = /^id$/,
): void {
  expect(!out.includes(0x0d) && !out.includes(0x0a), () => "a line break goes out");
  expect(out.includes(body), () => "the body was changed");
  const again = parse(out);
  if (!isObject(value)) {
    expect(!isObject(again?.value) || !("method" in again.value), () => "it became a request");
    return;
  }
  expect(again !== undefined, () => `it became malformed: ${textOf(out)}`);
  const wanted: Record<string, unknown> = { ...value, id: undefined };
  for (const key of Object.keys(wanted)) {
    if (ids.test(key)) wanted[key] = JSON.parse(textOf(id)) as unknown;
  }
  expect(sameValue(again.value, wanted), () => `it became another message: ${textOf(out)}`);
}

function checkRange(
  bytes: Buffer,
  range: { start: number; end: number } | undefined,
  value: unknown,
  what: string,
): void {
  const slice = range && parse(bytes.subarray(range.start, range.end));
  expect(sameValue(slice?.value, value), () => `${what} is another value`);
}

/** Whether two values are equal, but for the order of the keys of the outermost object. */
function sameValue(a: unknown, b: unknown): boolean {
  if (!isObject(a) || !isObject(b)) return JSON.stringify(a) === JSON.stringify(b);
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every(
    (key) => Object.hasOwn(b, key) && JSON.stringify(a[key]) === JSON.stringify(b[key]),
  );
}

/** How many keys anywhere in a well-formed text are that word, escaped or not. */
function countKeys(bytes: Uint8Array, key: string): number {
  return keysOf(bytes).filter((one) => one.key === key).length;
}

function topLevelKeys(bytes: Uint8Array): readonly string[] {
  return keysOf(bytes).flatMap(({ key, depth }) => (depth === 1 ? [key] : []));
}

function keysOf(bytes: Uint8Array): readonly { readonly key: string; readonly depth: number }[] {
  const keys: { key: string; depth: number }[] = [];
  let depth = 0;
  for (const [token] of textOf(bytes).matchAll(
    /"(?:[^"\\]|\\.)*"[ \t\r\n]*:|"(?:[^"\\]|\\.)*"|[^"]+/g,
  )) {
    if (!token.startsWith('"'))
      for (const one of token) depth += Number(/[[{]/.test(one)) - Number(/[\]}]/.test(one));
    else if (token.endsWith(":")) {
      const key = JSON.parse(token.slice(0, token.lastIndexOf('"') + 1)) as string;
      keys.push({ key, depth });
    }
  }
  return keys;
}

function oneLine(bytes: Buffer): Buffer {
  return Buffer.from(bytes.map((byte) => (byte === 0x0d || byte === 0x0a ? 0x20 : byte)));
}

/** A line as it was given out, or what was said of one that was too long. */
type Found = { line: string } | { head: string; tail: string; size: number };

const LIMIT = 5000;
const EDGE = 4096;

function split(chunks: readonly Buffer[]): Found[] {
  const found: Found[] = [];
  const splitter = new LineReader(LIMIT, {
    line: (bytes) => found.push({ line: bytes.toString("latin1") }),
    oversized: (head, tail, size) =>
      found.push({ head: head.toString("latin1"), tail: tail.toString("latin1"), size }),
  });
  for (const chunk of chunks) splitter.push(Buffer.from(chunk));
  splitter.end();
  return found;
}

/** What a splitter has to find, from the whole stream at once. */
function linesOf(stream: Buffer): Found[] {
  const found: Found[] = [];
  let first = true;
  for (const raw of stream.toString("latin1").split("\n")) {
    if (raw.length > LIMIT) {
      found.push({ head: raw.slice(0, EDGE), tail: raw.slice(-EDGE), size: raw.length });
    } else if (raw !== "") {
      const line = first && raw.startsWith(BOM) ? raw.slice(BOM.length) : raw;
      first = false;
      if (!/^\r?$/.test(line)) found.push({ line: line.replace(/\r$/, "") });
    }
  }
  return found;
}
const BOM = Buffer.from("\uFEFF").toString("latin1");

const long = (size: number): string => "0123456789abcdef".repeat(size / 16 + 1).slice(0, size);

const STREAMS: Readonly<Record<string, string>> = {
  "LF, an end without a line end": '{"id":1}\n{"id":2}\n{"id":3}',
  "CRLF, and a CR that is no line end": '{"id":1}\r\n{\r"id":2}\r\n\r\r\n',
  "lines of spaces": '\uFEFF{"a":"ü🧶"}\r\n  \n \r\n{"c":"\\n"}\n\uFEFFd\nlast',
  "empty lines": '\n\n\r\n{"id":1}\n\n\n\r\n{"id":2}\n\n',
  "a byte order mark": '\uFEFF{"id":1}\n\uFEFF{"id":2}\n',
  "a byte order mark and nothing else": '\uFEFF\n\uFEFF{"id":2}\r\n',
  "characters of several bytes": '{"é":"日本語"}\n"😀\u2028"\r\n"\u0000"\n',
  "a line of the longest size, and of one byte more": `${long(LIMIT)}\n${long(LIMIT + 1)}\n"next"\n`,
  "an oversized line between others": `"a"\n${long(9001)}日本\r\n"b"\r\n${long(LIMIT - 1)}\r\n`,
  "an oversized line at the end": `"a"\n${long(8192)}`,
};

describe("a stream that is cut", () => {
  for (const [name, text] of Object.entries(STREAMS)) {
    const stream = Buffer.from(text);
    const wanted = linesOf(stream);

    it(`at any one byte yields the same lines: ${name}`, () => {
      for (let at = 0; at <= stream.length; at++) {
        assert.deepEqual(split([stream.subarray(0, at), stream.subarray(at)]), wanted, `at ${at}`);
      }
    });

    it(`after every byte yields the same lines: ${name}`, () => {
      const chunks = Array.from(stream, (_, at) => stream.subarray(at, at + 1));
      assert.deepEqual(split(chunks), wanted);
    });
  }

  it(`at random places yields the same lines (seed ${SEED})`, { timeout: TIME_LIMIT }, () => {
    const choices = Choices.random(SEED);
    for (let run = 0; run < 250; run++) {
      const parts: string[] = [];
      for (let n = choices.below(6); n >= 0; n--) {
        parts.push(choices.pick(Object.values(STREAMS)), choices.pick(["", "\n", "\r", "\r\n"]));
      }
      const stream = Buffer.from(parts.join(""));
      const chunks: Buffer[] = [];
      const longest = choices.pick([3, 100, 3000, 70_000]);
      for (let at = 0; at < stream.length;) {
        const size = 1 + choices.below(longest);
        chunks.push(stream.subarray(at, at + size));
        at += size;
      }
      assert.deepEqual(split(chunks), linesOf(stream), `TOOLMUX_TEST_SEED=${SEED}, run ${run}`);
    }
  });
});
