/*
 * JSON as text: what is compared or kept is never parsed and written again, so that it keeps its spelling.
 */

/**
 * The one spelling of a JSON text that does not depend on white space, escapes and the order of keys. Numbers stay as they
 * are written, and of members with the same key each stays, in their order: texts that a server could read differently
 * never become the same.
 * @returns undefined if the text is malformed, or nested too deep
 */
export function canonical(json: string): string | undefined {
  try {
    const reader = new Reader(json);
    const text = reader.canonical(0);
    return reader.isAtEnd() ? text : undefined;
  } catch {
    return undefined;
  }
}

/** The member of a result's `_meta` that says when the tool gave it, if that was not just now. */
const CACHED_KEY = "toolmux/cached";

/**
 * A result that says that it was kept; every other byte of it stays.
 * @returns undefined if it may not be kept: it links to what may be gone by then, or is not the end of its call
 */
export function mark(json: string, at: Date): string | undefined {
  if (json.includes('"resource_link"')) return undefined;
  const member = `"${CACHED_KEY}":"${at.toISOString()}"`;
  try {
    const reader = new Reader(json);
    const members = reader.members();
    let meta: Member | undefined;
    for (const part of members) {
      const text = json.slice(part.start, part.end);
      if (part.key === "task" || (part.key === "resultType" && text !== '"complete"'))
        return undefined;
      if (part.key === "_meta") meta = part;
    }
    if (meta === undefined)
      return insert(json, reader.at - 1, `"_meta":{${member}}`, members.length);
    // A `_meta` that is no object cannot take it.
    if (json[meta.start] !== "{") return json;
    const isEmpty = /^\{\s*\}$/.test(json.slice(meta.start, meta.end));
    return insert(json, meta.end - 1, member, isEmpty ? 0 : 1);
  } catch {
    return undefined;
  }
}

/** @param before how many members there are in front of it */
function insert(text: string, at: number, member: string, before: number): string {
  return text.slice(0, at) + (before > 0 ? "," : "") + member + text.slice(at);
}

/** A member of an object: its key, decoded, and where its value is, `[start, end)`. */
interface Member {
  readonly key: string;
  readonly start: number;
  readonly end: number;
}

/** No real arguments need more, and each level is a call of a function. */
const MAX_DEPTH = 500;

const SPACE = /[\t\n\r ]*/y;
/** What neither opens nor closes anything. */
const PLAIN = /[^"[\]{}]*/y;
const SCALAR = /[^\s",:[\]{}]+/y;

/** Reads a JSON text from its start. @throws {SyntaxError} where it makes no sense */
class Reader {
  readonly #text: string;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  isAtEnd(): boolean {
    return this.#next() === undefined;
  }

  /** The members of the object that comes next, duplicates included; afterwards `at` is behind it. */
  members(): Member[] {
    return this.#list("{", "}", () => {
      const key = JSON.parse(this.#key()) as string;
      this.#next();
      const start = this.at;
      this.#skip();
      return { key, start, end: this.at };
    });
  }

  /** The value that comes next, as `canonical` has it. */
  canonical(depth: number): string {
    if (depth > MAX_DEPTH) throw new SyntaxError("nested too deep");
    switch (this.#next()) {
      case "{": {
        const members = this.#list("{", "}", () => {
          const key = plain(this.#key());
          return { key, text: `${key}:${this.canonical(depth + 1)}` };
        });
        // Stable: equal keys stay in their order.
        members.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
        return `{${members.map(({ text }) => text).join(",")}}`;
      }
      case "[":
        return `[${this.#list("[", "]", () => this.canonical(depth + 1)).join(",")}]`;
      case '"':
        return plain(this.#string());
      default:
        return this.#scalar();
    }
  }

  /** The character that comes next, white space aside. */
  #next(): string | undefined {
    this.#match(SPACE);
    return this.#text[this.at];
  }

  #take(character: string): void {
    if (this.#next() !== character) throw new SyntaxError(`expected ${character}`);
    this.at++;
  }

  /** What stands between two brackets, each item read by a function. */
  #list<T>(open: string, close: string, read: () => T): T[] {
    const items: T[] = [];
    this.#take(open);
    while (this.#next() !== close) {
      if (items.length > 0) this.#take(",");
      items.push(read());
    }
    this.at++;
    return items;
  }

  /** A key as it is written, with its quotes; afterwards `at` is behind its colon. */
  #key(): string {
    this.#next();
    const key = this.#string();
    this.#take(":");
    return key;
  }

  #string(): string {
    const start = this.at;
    if (this.#text[start] !== '"') throw new SyntaxError("expected a string");
    let end = start;
    do {
      end = this.#text.indexOf('"', end + 1);
      if (end === -1) throw new SyntaxError("expected the end of a string");
    } while (this.#isEscaped(end));
    this.at = end + 1;
    return this.#text.slice(start, end + 1);
  }

  #isEscaped(at: number): boolean {
    let from = at;
    while (this.#text[from - 1] === "\\") from--;
    return (at - from) % 2 === 1;
  }

  #scalar(): string {
    const start = this.at;
    if (!this.#match(SCALAR)) throw new SyntaxError("expected a value");
    return this.#text.slice(start, this.at);
  }

  #match(pattern: RegExp): boolean {
    pattern.lastIndex = this.at;
    if (!pattern.test(this.#text)) return false;
    this.at = pattern.lastIndex;
    return true;
  }

  /** Passes a value by. Of what is in it only brackets are counted. */
  #skip(): void {
    let depth = 0;
    do {
      const character = this.#text[this.at];
      if (character === '"') {
        this.#string();
      } else if (character === "{" || character === "[") {
        depth++;
        this.at++;
      } else if (character === "}" || character === "]") {
        depth--;
        this.at++;
      } else {
        this.#scalar();
      }
      if (depth > 0) this.#match(PLAIN);
    } while (depth > 0);
  }
}

/** A string without escapes that it does not need. */
function plain(text: string): string {
  return text.includes("\\") ? JSON.stringify(JSON.parse(text)) : text;
}
