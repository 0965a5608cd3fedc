import { Buffer } from "node:buffer";

/** Shorter values, in characters, are not redacted: they would match in most texts, and are no secrets. */
const SHORTEST = 4;
/**
 * Secrets of at least this size, in bytes, are also redacted inside longer Base64, such as a password behind a name.
 */
const SHORTEST_CODED = 6;
const MASK = "[redacted]";
/** Some runtimes reject longer patterns with an error that contains them; in characters. */
const LONGEST_PATTERN = 30_000;

/** Replaces secrets in text for people by `[redacted]`, also where they are encoded as JSON, in URLs or in Base64. */
export class Redactor {
  /**
   * The length of the longest encoded secret, in characters. Truncated text needs this much of context to be redacted.
   */
  readonly longest: number;
  /** Searched for one by one, longest first, as they do not fit into the pattern. */
  readonly #long: readonly string[];
  /** Matches all others. */
  readonly #pattern: RegExp | undefined;

  constructor(secrets: readonly string[]) {
    const spellings = [...new Set(secrets.flatMap(spell))].sort((a, b) => b.length - a.length);
    this.longest = spellings[0]?.length ?? 0;
    const escaped = spellings.map(escape);
    let room = LONGEST_PATTERN;
    const at =
      spellings.length - escaped.toReversed().findIndex((it) => (room -= it.length + 1) < 0);
    const from = room < 0 ? at : 0;
    this.#long = spellings.slice(0, from);
    if (from < spellings.length) this.#pattern = new RegExp(escaped.slice(from).join("|"), "g");
  }

  apply(text: string): string {
    let shown = text;
    for (const spelling of this.#long) shown = shown.replaceAll(spelling, MASK);
    return this.#pattern === undefined ? shown : shown.replace(this.#pattern, MASK);
  }

  /** The first `length` characters of what `apply` returns; a secret that the cut would split is left out. */
  cut(text: string, length: number): string {
    if (text.length <= length + this.longest) return this.apply(text).slice(0, length);
    const shown = this.apply(text.slice(0, length + this.longest));
    const end = Math.max(shown.lastIndexOf(MASK) + MASK.length, shown.length - this.longest);
    return shown.slice(0, Math.min(end, length));
  }

  /** Like `apply`, for text that may begin inside a secret: leaves out what may be the rest of that secret. */
  rest(text: string): string {
    const shown = this.apply(text);
    const first = shown.indexOf(MASK);
    return shown.slice(first < 0 ? this.longest : Math.min(first, this.longest));
  }
}

/** A secret, each of its lines (logs are read by lines), and their encodings in JSON, URLs, forms and Base64. */
function spell(secret: string): string[] {
  // A secret that is URL-encoded may be shown decoded.
  const plain = decode(secret);
  const parts = [...new Set([secret, plain, ...secret.split(/\r?\n/)])];
  return parts
    .filter((part) => part.length >= SHORTEST)
    .flatMap((part) => {
      const coded = encodeURIComponent(part.toWellFormed());
      const form = new URLSearchParams([["", part.toWellFormed()]]).toString().slice(1);
      return [
        part,
        JSON.stringify(part).slice(1, -1),
        coded,
        coded.replace(/%[0-9A-F]{2}/g, (it) => it.toLowerCase()),
        form,
        ...spellCoded(part),
      ];
    });
}

function decode(secret: string): string {
  try {
    return decodeURIComponent(secret);
  } catch {
    return secret;
  }
}

/**
 * Base64 and base64url of a text, at each of the three alignments that it can have inside longer data, as a password in
 * `user:password`: the characters that do not depend on the bytes around it.
 */
function spellCoded(text: string): string[] {
  const bytes = Buffer.from(text);
  if (bytes.length < SHORTEST_CODED) return [];
  const whole = bytes.toString("base64");
  const parts = [0, 1, 2].map((before) => {
    const coded = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    const first = Math.ceil((before * 8) / 6);
    return coded.slice(first, Math.floor(((before + bytes.length) * 8) / 6));
  });
  return [whole, whole.replace(/=+$/, ""), ...parts].flatMap((part) => [
    part,
    part.replaceAll("+", "-").replaceAll("/", "_"),
  ]);
}

function escape(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
