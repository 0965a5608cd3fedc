import { Buffer } from "node:buffer";

/** Shorter values are not searched for: they would blacken half of every text and are no secrets. */
const SHORTEST = 4;
/** Of longer ones, in bytes, also what is left of them in Base64 behind something else, as a name before a password. */
const SHORTEST_CODED = 6;
const MASK = "[redacted]";
/** A longer pattern is refused by some runtimes, in an error that shows it; in characters. */
const LONGEST_PATTERN = 30_000;

/** Takes secrets' values out of text for people, also where a log spells them as JSON, in a URL, or in Base64. */
export class Redactor {
  /** The length of the longest spelling that is searched for, in characters: text that is cut must be redacted with so much to spare. */
  readonly longest: number;
  /** Searched for one by one, longest first. */
  readonly #long: readonly string[];
  /** All others. */
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

  /** The first `length` characters of what `apply` yields; a secret that the cut would split is not in it. */
  cut(text: string, length: number): string {
    if (text.length <= length + this.longest) return this.apply(text).slice(0, length);
    const shown = this.apply(text.slice(0, length + this.longest));
    const end = Math.max(shown.lastIndexOf(MASK) + MASK.length, shown.length - this.longest);
    return shown.slice(0, Math.min(end, length));
  }

  /** What `apply` yields of a text that may begin in the middle of a secret, without what may be the rest of that. */
  rest(text: string): string {
    const shown = this.apply(text);
    const first = shown.indexOf(MASK);
    return shown.slice(first < 0 ? this.longest : Math.min(first, this.longest));
  }
}

/** A secret as it is, each of its lines (logs are read by lines), and what JSON, URLs and Base64 make of it. */
function spell(secret: string): string[] {
  // What was put into a URL may come back as it was before.
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
 * What Base64 makes of it wherever it begins within what is coded, as a password does in `user:password`: the characters that
 * depend on nothing before and behind it. Of both alphabets.
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
