/**
 * Hostile JSON and JSON-RPC texts for the property tests. Everything is drawn from one `Choices`, so that a
 * text can be drawn again from its recorded choices, and shrunk by making those smaller.
 */

import { Buffer } from "node:buffer";

/** Where a generator's decisions come from. The smallest choice is always the plainest text. */
export class Choices {
  /** What was chosen so far: given to `replay`, it yields the same text again. */
  readonly taken: number[] = [];
  readonly #next: (below: number) => number;

  constructor(next: (below: number) => number) {
    this.#next = next;
  }

  /** Random choices; the same seed gives the same ones on every runtime. */
  static random(seed: number): Choices {
    let state = seed >>> 0;
    return new Choices((below) => {
      // mulberry32
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
    });
  }

  /** Recorded choices; zeros once they are used up. */
  static replay(script: readonly number[]): Choices {
    let at = 0;
    return new Choices((below) => (script[at++] ?? 0) % below);
  }

  /** An integer from 0 to `limit` - 1. */
  below(limit: number): number {
    const choice = this.#next(limit);
    this.taken.push(choice);
    return choice;
  }

  /** True once in `n` times. */
  once(n: number): boolean {
    return this.below(n) === n - 1;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }
}

/** The smallest choices that still fail, by leaving out and lowering those that did; at most `budget` tries. */
export function shrink(
  choices: readonly number[],
  fails: (script: readonly number[]) => boolean,
  budget = 3000,
): readonly number[] {
  let best = choices;
  let left = budget;
  const attempt = (candidate: readonly number[]): boolean => {
    if (left-- <= 0 || !fails(candidate)) return false;
    best = candidate;
    return true;
  };
  for (let before = -1; before !== left && left > 0;) {
    before = left;
    const start = best;
    for (const size of [32, 8, 4, 2, 1]) {
      for (let at = 0; at < best.length;) {
        if (!attempt(best.toSpliced(at, size))) at += size;
      }
    }
    for (let at = 0; at < best.length; at++) {
      const value = best[at] ?? 0;
      if (value > 0) void (attempt(best.with(at, 0)) || attempt(best.with(at, value >> 1)));
    }
    if (best === start) break;
  }
  return best;
}

/** The words that a relay looks for: as keys and inside strings they are what it may stumble over. */
const WORDS = ["id", "method", "result", "error", "jsonrpc", "params", "name", "_meta"] as const;
const ODD_KEYS = ["__proto__", "constructor", "toString", "ie", "Id", "METHOD", "", "resul\u0000"];

/** JSON spellings of pieces of strings. */
const STRING_PIECES = [
  "plain text",
  "a",
  ...WORDS,
  "é",
  "日本語",
  "😀",
  "\uFEFF",
  "\u2028",
  "\u007f",
  "\\n",
  "\\r\\n",
  "\\\\",
  '\\"',
  "\\/",
  "\\b\\f\\t",
  "\\u0000",
  "\\u001b[31m",
  "\\u00e9",
  "\\ud83d\\ude00",
  "\\uD800",
  "\\udfff",
  "\\u0069",
  "\\u006dethod",
  "\\u006Dethod",
  "\\u004d",
  "{}[],:",
  '\\"id\\":1',
  ',\\"jsonrpc\\":\\"2.0\\",\\"id\\":7}',
  '{\\"jsonrpc\\":\\"2.0\\",\\"id\\":7,\\"method\\":\\"x\\"}',
] as const;

const NUMBERS = [
  "0",
  "1",
  "-1",
  "1.0",
  "-0",
  "0.10",
  "1e3",
  "1E+2",
  "2.5e-7",
  "1234567890123456789",
  "123456789012345678901234567890.5",
  "1e400",
] as const;

/** Ids of requests and answers, the plain ones first. */
const IDS = [
  "0",
  "7",
  "42",
  "999999999999999",
  "1000000000000000",
  "9007199254740992",
  "12345678901234567890",
  "-1",
  "-0",
  "1.0",
  "1.5",
  "1e3",
  "1E2",
  "1e400",
  '"7"',
  '"007"',
  '""',
  '"é\\u0041\\"\\\\"',
  '"\\ud83d\\ude00 id"',
  "null",
  "true",
  "{}",
  '["id"]',
  '{"id":1}',
] as const;

/** What may stand between two tokens. */
const SPACES = [" ", "\t", "\n", "\r", "\r\n", "  "] as const;

/** One text in one style: white space wherever it may be, in a few places, or nowhere. */
class Writer {
  readonly #choices: Choices;
  readonly #spaceOnce: number;

  constructor(choices: Choices, spaceOnce: number) {
    this.#choices = choices;
    this.#spaceOnce = spaceOnce;
  }

  space(): string {
    if (this.#spaceOnce === 0 || !this.#choices.once(this.#spaceOnce)) return "";
    return this.#choices.pick(SPACES);
  }

  string(): string {
    let text = "";
    for (let n = this.#choices.below(4); n > 0; n--) text += this.#choices.pick(STRING_PIECES);
    return `"${text}"`;
  }

  /** A key, quoted; sometimes some of its letters are escaped, in lower or upper hex. */
  key(key: string): string {
    const c = this.#choices;
    if (!c.once(12)) return JSON.stringify(key);
    let text = "";
    for (const letter of key) {
      const hex = (letter.codePointAt(0) ?? 0).toString(16).padStart(4, "0");
      const escaped = c.pick([hex, hex.toUpperCase()]);
      const plain = JSON.stringify(letter).slice(1, -1);
      text += hex.length === 4 && c.once(2) ? `\\u${escaped}` : plain;
    }
    return `"${text}"`;
  }

  value(depth: number): string {
    const c = this.#choices;
    switch (c.below(depth <= 0 ? 4 : 7)) {
      case 0:
        return c.pick(NUMBERS);
      case 1:
        return c.pick(["null", "true", "false"]);
      case 2:
      case 3:
        return this.string();
      case 4:
        return this.list("[", "]", () => this.value(depth - 1));
      case 5:
        return this.list("{", "}", () => this.member(this.anyKey(), this.value(depth - 1)));
      default:
        return c.once(300) ? nested(c.below(2000)) : this.lookAlike();
    }
  }

  anyKey(): string {
    const c = this.#choices;
    return c.once(4)
      ? c.pick(ODD_KEYS)
      : c.pick(["a", "content", "text", "type", "uri", "isError", ...WORDS]);
  }

  member(key: string, value: string): string {
    return `${this.key(key)}${this.space()}:${this.space()}${value}`;
  }

  list(open: string, close: string, item: () => string): string {
    const items: string[] = [];
    for (let n = this.#choices.below(4); n > 0; n--) items.push(item());
    return this.join(open, close, items);
  }

  join(open: string, close: string, items: readonly string[]): string {
    const spaced = items.map((item) => this.space() + item + this.space());
    return open + (spaced.length === 0 ? this.space() : spaced.join(",")) + close;
  }

  /** A whole message as a value. */
  lookAlike(): string {
    const id = this.#choices.pick(IDS);
    return this.#choices.pick([
      `{"jsonrpc":"2.0","id":${id},"result":{}}`,
      `{"result":{},"jsonrpc":"2.0","id":${id}}`,
      `{"jsonrpc":"2.0","id":${id},"method":"ping"}`,
    ]);
  }
}

/** Lists and objects in each other, `depth` deep. */
export function nested(depth: number): string {
  return depth % 2 === 0
    ? "[".repeat(depth) + "]".repeat(depth)
    : '{"id":'.repeat(depth) + "1" + "}".repeat(depth);
}

/** Any JSON text. */
export function jsonText(choices: Choices): string {
  const writer = new Writer(choices, choices.pick([0, 8, 2]));
  return writer.space() + writer.value(4) + writer.space();
}

/** One message as it may come in, in most cases well-formed. */
export function messageBytes(choices: Choices): Buffer {
  const text = messageText(choices);
  const bytes = Buffer.from(choices.once(4) ? mutated(choices, text) : text);
  // Bytes that are no UTF-8 at all.
  if (choices.once(50) && bytes.length > 0) {
    bytes[choices.below(bytes.length)] = 0x80 + choices.below(0x80);
  }
  return bytes;
}

function messageText(choices: Choices): string {
  const writer = new Writer(choices, choices.pick([0, 0, 0, 0, 0, 20, 4]));
  if (choices.once(20)) {
    const batch = writer.list("[", "]", () => objectText(choices, writer));
    return writer.space() + batch + writer.space();
  }
  if (choices.once(100)) return writer.value(2);
  return writer.space() + objectText(choices, writer) + writer.space();
}

function objectText(c: Choices, writer: Writer): string {
  // The keys of the two shapes that are spliced are mostly written plainly, or they would be hit too seldom.
  const plain = !c.once(4);
  const member = (key: string, value: string): string =>
    plain ? `"${key}":${value}` : writer.member(key, value);
  const version = member("jsonrpc", c.once(40) ? c.pick(['"1.0"', "2", "null"]) : '"2.0"');
  const id = member("id", c.once(3) ? c.pick(IDS) : String(c.below(1000)));
  const method = (): string =>
    member("method", c.once(60) ? c.pick(["7", "null", "{}"]) : writer.string());
  const params = (): string => member("params", writer.value(3));
  // What is malformed inside a frame that looks right.
  const body = (): string => (c.once(25) ? mutated(c, writer.value(2)) : writer.value(3));
  const outcome = (): string => member(c.pick(["result", "error"]), body());
  const shapes: readonly (() => string[])[] = [
    () => [version, id, outcome()],
    () => [outcome(), version, id],
    () => [version, id, outcome()],
    () => [outcome(), version, id],
    () => [version, id, outcome()],
    () => [outcome(), version, id],
    () => [version, id, method(), params()],
    () => [method(), params(), version, id],
    () => [version, method(), params()],
    () => shuffled(c, [outcome(), version, id, params()].slice(c.below(2))),
  ];
  const members = c.pick(shapes)();
  for (let n = c.once(3) ? 1 + c.below(3) : 0; n > 0; n--) {
    members.splice(c.below(members.length + 1), 0, twist(c, writer));
  }
  return writer.join("{", "}", members);
}

/** One more member, made to mislead. */
function twist(c: Choices, writer: Writer): string {
  switch (c.below(8)) {
    case 0:
      return writer.member("id", c.pick(IDS));
    case 1:
      return writer.member("method", c.pick(['"sampling/createMessage"', '"ping"', "null"]));
    case 2:
      return writer.member("result", writer.value(1));
    case 3:
      return writer.member("error", writer.value(1));
    case 4:
      return writer.member("jsonrpc", c.pick(['"2.0"', '"1.0"']));
    case 5:
      return writer.member("nested", writer.lookAlike());
    default:
      return writer.member(writer.anyKey(), writer.value(2));
  }
}

function shuffled(c: Choices, items: readonly string[]): string[] {
  const rest = [...items];
  const mixed: string[] = [];
  while (rest.length > 0) mixed.push(...rest.splice(c.below(rest.length), 1));
  return mixed;
}

/** What breaks a text, or only seems to. */
const INTRUDERS = [
  "\r",
  "\n",
  "\0",
  "\uFEFF",
  " ",
  ",",
  ":",
  '"',
  "\\",
  "{",
  "}",
  "[",
  "]",
  "0",
  "-",
  ".",
  "e",
  "1",
  "garbage",
  "\\u006",
  "}{",
  ',"id":9',
  ',"method":"x"',
  "//",
  "\u00a0",
  "\u001f",
] as const;

/** The text with one to three changes, after which it is mostly, but not always, malformed. */
export function mutated(c: Choices, text: string): string {
  let result = text;
  for (let n = 1 + c.below(3); n > 0; n--) {
    const at = c.below(result.length + 1);
    const end = at + c.below(4);
    switch (c.below(5)) {
      case 0:
        result = result.slice(0, at) + c.pick(INTRUDERS) + result.slice(at);
        break;
      case 1:
        result = result.slice(0, at) + result.slice(end);
        break;
      case 2:
        result = result.slice(0, at) + c.pick(INTRUDERS) + result.slice(at + 1);
        break;
      case 3:
        result = result.slice(0, end) + result.slice(at);
        break;
      default:
        result = c.pick([
          result.slice(0, at),
          result.slice(at),
          "garbage" + result,
          result + result,
        ]);
    }
  }
  return result;
}
