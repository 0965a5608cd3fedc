import { escapeInvisible, headOf } from "../base/quote.ts";
import type { Check, Finding } from "./checks.ts";
import { findEncoded, isCommand } from "./encoded-text.ts";
import { findHidden } from "./hidden-characters.ts";
import { findMarkup } from "./markup.ts";
import { findPhrases, isObject, isQuoted, readableText } from "./phrases.ts";
import { isMismatched } from "./capability.ts";
import { findShadowing } from "./shadowing.ts";
import { findCollector, findSecret, maskSecrets } from "./tokens.ts";

export type { Check, Finding } from "./checks.ts";

/** What is known beside the entry. */
export interface ScanContext {
  /**
   * Names of tools of other servers, without those that the entry's own server has, too. A name of one word is ignored:
   * it may be any word of a text.
   */
  readonly foreignTools?: ReadonlySet<string> | undefined;
}

/** Number of UTF-16 units of all texts of an entry that are scanned. */
export const MAX_SCANNED = 256 * 1024;
const MAX_EXCERPT = 160;
const MAX_WHERE = 120;
/** Number of findings of one entry that are kept. */
const MAX_FINDINGS = 40;
/** The length of the shortest phrase. Most texts of a schema are names of types. */
const MIN_PHRASE = 12;
/** Names of members are scanned from this length on; shorter ones are names. */
const LONG_KEY = 40;

/**
 * Scans one entry of a listing, or the instructions of a server, for texts that have no place there. No I/O, no state;
 * the time grows with the length of the texts. Where an entry has more than 256 KiB of text, the longest texts are
 * scanned at their beginning and end only.
 * @param entry a tool or prompt as it stands in a list result, parsed; or the instructions, a string
 * @returns for each check and text at most one finding; hard ones first
 */
export function scanEntry(entry: unknown, context: ScanContext = {}): Finding[] {
  const findings = new Map<string, Finding>();
  const texts = textsOf(entry);
  for (const { where, text } of texts) {
    for (const { check, hard, start, end, shown } of scanText(text, context)) {
      const key = `${check} ${where}`;
      const known = findings.get(key);
      if (known !== undefined && (known.hard || !hard)) continue;
      if (known === undefined && findings.size >= MAX_FINDINGS) continue;
      findings.set(key, { check, hard, where, excerpt: excerptOf(shown ?? text, start, end) });
    }
  }
  const found = [...findings.values()];
  const mismatch = texts.find(({ where }) => where === "description");
  if (mismatch !== undefined && isMismatched(entry, mismatch.text)) {
    const { text, where } = mismatch;
    found.push({
      check: "capability",
      hard: false,
      where,
      excerpt: excerptOf(text, 0, text.length),
    });
  }
  return found.sort((a, b) => Number(b.hard) - Number(a.hard));
}

interface PlacedText {
  readonly where: string;
  readonly text: string;
}

/** All texts of an entry, those that would exceed the maximum shortened. */
function textsOf(entry: unknown): PlacedText[] {
  const texts: PlacedText[] = [];
  const rest: { readonly value: unknown; readonly where: string }[] = [
    { value: entry, where: typeof entry === "string" ? "instructions" : "" },
  ];
  for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
    const { value, where } = next;
    if (typeof value === "string") {
      if (value.length > 2) texts.push({ where, text: value });
    } else if (typeof value === "object" && value !== null) {
      const isArray = Array.isArray(value);
      for (const [key, inner] of Object.entries(value)) {
        // Pictures are no texts.
        if (where === "" && key === "icons") continue;
        if (!isArray && key.length >= LONG_KEY) texts.push({ where: `${where} (name)`, text: key });
        rest.push({ value: inner, where: isArray ? `${where}[${key}]` : memberOf(where, key) });
      }
    }
  }
  return withinMaximum(texts.reverse());
}

function memberOf(where: string, key: string): string {
  if (where === "") return key;
  const path = `${where}.${key}`;
  return path.length <= MAX_WHERE ? path : `${headOf(path, MAX_WHERE - 1)}…`;
}

function withinMaximum(texts: PlacedText[]): PlacedText[] {
  let sum = 0;
  for (const { text } of texts) sum += text.length;
  if (sum <= MAX_SCANNED) return texts;
  // The shortest first: a long text leaves none of them out.
  const kept: PlacedText[] = [];
  let left = MAX_SCANNED;
  for (const { where, text } of texts.toSorted((a, b) => a.text.length - b.text.length)) {
    if (left < 64) break;
    if (text.length <= left) {
      kept.push({ where, text });
      left -= text.length;
    } else {
      const head = Math.floor(left * 0.75);
      kept.push({ where, text: text.slice(0, head) }, { where, text: text.slice(head - left) });
      left = 0;
    }
  }
  return kept;
}

interface Found {
  readonly check: Check;
  readonly hard: boolean;
  readonly start: number;
  readonly end: number;
  /** The text that the range is of, if not the scanned one. */
  readonly shown?: string;
}

function* scanText(text: string, context: ScanContext): Generator<Found> {
  const hidden = findHidden(text);
  if (hidden !== undefined) yield { check: "hidden-character", ...hidden };
  if (text.length < MIN_PHRASE) return;
  for (const { start, end, decoded } of findEncoded(text)) {
    if (!isCommand(decoded) && !hasHardPhrase(decoded)) continue;
    const hard = !isObject(text.slice(Math.max(0, start - 100), start).toLowerCase(), 100);
    yield { check: "decoded-payload", hard, start, end };
    if (hard) break;
  }
  const secret = findSecret(text);
  if (secret !== undefined) yield { check: "secret", hard: false, ...secret };
  const collector = findCollector(text);
  if (collector !== undefined) yield { check: "exfil-url", hard: false, ...collector };
  const { readable: shown, lower } = readableText(text);
  for (const phrase of findPhrases(lower)) yield { ...phrase, shown };
  for (const each of findMarkup(shown, lower)) {
    const isSpokenOf = isQuoted(lower, each.start, each.end) || isObject(lower, each.start);
    yield { ...each, hard: each.hard && !isSpokenOf, shown };
    if (each.hard && !isSpokenOf) break;
  }
  for (const phrase of findShadowing(shown, lower, context.foreignTools))
    yield { ...phrase, shown };
}

function hasHardPhrase(decoded: string): boolean {
  const { readable, lower } = readableText(decoded);
  if (findPhrases(lower).some(({ hard }) => hard)) return true;
  if (!findMarkup(readable, lower).next().done) return true;
  for (const inner of findEncoded(decoded)) if (isCommand(inner.decoded)) return true;
  return false;
}

/** A place of a text in one line, with some of the text around it. */
function excerptOf(text: string, start: number, end: number): string {
  const from = Math.max(0, start - 30);
  const masked = maskSecrets(text.slice(from, Math.min(end, start + MAX_EXCERPT) + 40));
  const line = masked.replace(/[ \t\r\n]+/g, " ").trim();
  let shown = from > 0 ? "…" : "";
  for (const character of line) {
    const escaped = escapeInvisible(character).replace(PRIVATE_USE, escapeCode);
    if (shown.length + escaped.length > MAX_EXCERPT - 1) return `${shown}…`;
    shown += escaped;
  }
  return shown;
}

const PRIVATE_USE = /[\p{Co}\p{Mn}\p{Me}]/gu;

function escapeCode(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}
