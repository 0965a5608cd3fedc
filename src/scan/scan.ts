import { escapeInvisible } from "../base/escape.ts";
import { headOf } from "../base/quote.ts";
import type { Check, Finding } from "./checks.ts";
import { decodeMarks, findEncoded, isCommand } from "./encoded-text.ts";
import { findHidden } from "./hidden-characters.ts";
import { findMarkup } from "./markup.ts";
import { findPhrases, isObject, isQuoted, readableText } from "./phrases.ts";
import { isMismatched } from "./capability.ts";
import { findDirectedNames } from "./shadowing.ts";
import { joinSpelledOut } from "./spelled-out.ts";
import { findCollector, findSecret, maskSecrets } from "./tokens.ts";

export { describePlace } from "./checks.ts";
export type { Check, EntryFinding, Finding, ScannedKind } from "./checks.ts";

/** What is known beside the entry. */
export interface ScanContext {
  /**
   * Whether a name is that of a tool of another server, and of no tool of the entry's own server. Names of one word are
   * not asked for: each may be any word of a text.
   */
  readonly isForeignTool?: ((name: string) => boolean) | undefined;
}

/** The result of a scan of an entry, before it is known which tools other servers have. */
export interface ScannedEntry {
  readonly findings: readonly Finding[];
  /** Findings of `shadowing` by the name of the tool that they are about, if it is one of another server. */
  readonly directed: ReadonlyMap<string, Finding>;
}

/** Number of UTF-16 units of all texts of an entry that are scanned. */
export const MAX_SCANNED = 256 * 1024;
const MAX_EXCERPT = 160;
const MAX_WHERE = 120;
/** Number of findings of one entry that are kept. */
const MAX_FINDINGS = 40;
/** Number of names of an entry that are looked up among the tools of other servers. */
const MAX_NAMES = 500;
/** The length of the shortest phrase. Most texts of a schema are names of types. */
const MIN_PHRASE = 12;
/** Names of members are scanned from this length on; shorter ones are names, which may have hidden characters. */
const LONG_KEY = 40;

/**
 * Scans one entry of a listing, or the instructions of a server, for texts that have no place there. No I/O, no state;
 * the time grows with the length of the texts. Where an entry has more than 256 KiB of text, the longest texts are
 * scanned at their beginning and end only.
 * @param entry a tool or prompt as it stands in a list result, parsed; or the instructions, a string
 * @returns for each check and text at most one finding; hard ones first
 */
export function scanEntry(entry: unknown, context: ScanContext = {}): readonly Finding[] {
  return findingsOf(examineEntry(entry), context);
}

/** The findings of an entry, with those that depend on the tools of other servers. */
export function findingsOf(
  { findings, directed }: ScannedEntry,
  { isForeignTool }: ScanContext,
): readonly Finding[] {
  if (isForeignTool === undefined || directed.size === 0) return findings;
  const known = new Set<string>();
  const shadowing = [...directed]
    .filter(([name]) => isForeignTool(name))
    .map(([, finding]) => finding)
    .filter(({ where }) => known.size < known.add(where).size);
  return shadowing.length === 0 ? findings : [...shadowing, ...findings];
}

/** Scans an entry without a look at other servers; see `scanEntry` and `findingsOf`. */
export function examineEntry(entry: unknown): ScannedEntry {
  const steps = examineInSteps(entry);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Scans an entry in steps of a few ms. @returns the result, after the last step */
export function* examineInSteps(entry: unknown): Generator<undefined, ScannedEntry> {
  const findings = new Map<string, Finding>();
  const directed = new Map<string, Finding>();
  const texts = textsOf(entry);
  let size = 0;
  for (const { where, text } of texts.flatMap(inChunks)) {
    size += text.length;
    if (size > CHUNK / 2) {
      yield;
      size = 0;
    }
    for (const { check, hard, start, end, shown, name } of scanText(text)) {
      const makeFinding = (): Finding => {
        return { check, hard, where, excerpt: excerptOf(shown ?? text, start, end) };
      };
      if (name !== undefined) {
        if (directed.size < MAX_NAMES && !directed.has(name)) directed.set(name, makeFinding());
        continue;
      }
      const key = `${check} ${where}`;
      const known = findings.get(key);
      if (known !== undefined && (known.hard || !hard)) continue;
      if (known === undefined && findings.size >= (hard ? 2 * MAX_FINDINGS : MAX_FINDINGS))
        continue;
      findings.set(key, makeFinding());
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
  if (found.length === 0 && directed.size === 0) return NOTHING;
  return { findings: found.sort((a, b) => Number(b.hard) - Number(a.hard)), directed };
}

/** Shared by all entries without findings: nearly all. */
const NOTHING: ScannedEntry = { findings: [], directed: new Map() };

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
      if (value.length > 2 || hasHidden(value)) texts.push({ where, text: value });
    } else if (typeof value === "object" && value !== null) {
      const isArray = Array.isArray(value);
      for (const [key, inner] of Object.entries(value)) {
        // Pictures are no texts.
        if (where === "" && key === "icons") continue;
        if (!isArray && (key.length >= LONG_KEY || hasHidden(key)))
          texts.push({ where: `${where} (name)`, text: key });
        rest.push({ value: inner, where: isArray ? `${where}[${key}]` : memberOf(where, key) });
      }
    }
  }
  return withinMaximum(texts.reverse());
}

function hasHidden(text: string): boolean {
  return findHidden(text)?.hard === true;
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

/** The length of the parts in which a long text is scanned, and how much each has of the one before. */
const CHUNK = 6 * 1024;
const OVERLAP = 1024;

function inChunks(placed: PlacedText): PlacedText[] {
  const { where, text } = placed;
  if (text.length <= CHUNK) return [placed];
  const chunks: PlacedText[] = [];
  for (let at = 0; at < text.length - OVERLAP; at += CHUNK - OVERLAP)
    chunks.push({ where, text: text.slice(at, at + CHUNK) });
  return chunks;
}

interface Found {
  readonly check: Check;
  readonly hard: boolean;
  readonly start: number;
  readonly end: number;
  /** The text that the range is of, if not the scanned one. */
  readonly shown?: string;
  /** The tool that a directive names. */
  readonly name?: string;
}

function* scanText(text: string): Generator<Found> {
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
  yield* findReadable(shown, lower);
  const decoded = decodeMarks(text);
  const again = decoded === text ? undefined : readableText(decoded);
  if (again !== undefined) {
    for (const each of findReadable(again.readable, again.lower)) if (each.hard) yield each;
  }
  const joined = joinSpelledOut(again?.lower ?? lower);
  if (joined !== (again?.lower ?? lower)) {
    for (const each of findPhrases(joined)) if (each.hard) yield { ...each, shown: joined };
  }
  for (const each of findDirectedNames(shown, lower))
    yield { check: "shadowing", hard: true, ...each, shown };
}

/** The phrases and the markup of a readable text. */
function* findReadable(shown: string, lower: string): Generator<Found> {
  for (const phrase of findPhrases(lower)) yield { ...phrase, shown };
  for (const each of findMarkup(shown, lower)) {
    const isSpokenOf = isQuoted(lower, each.start, each.end) || isObject(lower, each.start);
    yield { ...each, hard: each.hard && !isSpokenOf, shown };
    if (each.hard && !isSpokenOf) break;
  }
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
