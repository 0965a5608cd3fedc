import { Buffer } from "node:buffer";
import { isTurnOver } from "../base/turns.ts";
import {
  type Finding,
  findingsOf,
  examineEntry,
  examineInSteps,
  type ScanContext,
  type ScannedEntry,
} from "./scan.ts";

/** Number of entries whose results are kept. Most have no findings, and take about 100 bytes. */
const MAX_KEPT = 50_000;

/** Makes the digest of bytes as text. */
export type Digest = (bytes: Uint8Array) => string;

/** What is scanned as one: a tool or a prompt as JSON, or the instructions of a server. */
export interface ScannedSource {
  /** The JSON of an entry, or the text of instructions. */
  readonly bytes: Uint8Array;
  readonly isText?: true;
}

/** Scans entries, and keeps the results by the digest of the entry, so that an unchanged one is scanned once. */
export class Scanner {
  readonly #digest: Digest;
  readonly #kept = new Map<string, ScannedEntry>();
  /** The results of the very same bytes, for which no digest is made. */
  readonly #ofBytes = new WeakMap<Uint8Array, ScannedEntry>();

  constructor(digest: Digest) {
    this.#digest = digest;
  }

  /** The findings of an entry. */
  scan(source: ScannedSource, context: ScanContext = {}): readonly Finding[] {
    return findingsOf(this.examine(source), context);
  }

  /** What an earlier scan has found in an entry; undefined: it was not scanned. */
  examined(source: ScannedSource): ScannedEntry | undefined {
    const found = this.#find(source);
    return typeof found === "string" ? undefined : found;
  }

  /** Scans an entry, if that was not done before. */
  examine(source: ScannedSource): ScannedEntry {
    const found = this.#find(source);
    return typeof found === "string"
      ? this.#keep(source, found, examineEntry(valueOf(source)))
      : found;
  }

  /**
   * Scans entries in turns of a few ms, between which other work goes on.
   * @param pause waits for a later turn of the event loop
   * @param isOver whether nobody wants the results any more
   * @returns the entries that may have findings, which also depends on the tools of other servers
   */
  async examineAll<Source extends ScannedSource>(
    sources: readonly Source[],
    pause: () => Promise<void>,
    isOver: () => boolean,
  ): Promise<readonly Source[]> {
    const suspects: Source[] = [];
    for (const source of sources) {
      const found = this.#find(source);
      let scanned = typeof found === "string" ? undefined : found;
      const steps = scanned === undefined ? examineInSteps(valueOf(source)) : undefined;
      do {
        const step = steps?.next();
        if (step?.done === true && typeof found === "string")
          scanned = this.#keep(source, found, step.value);
        if (isTurnOver()) {
          await pause();
          if (isOver()) return suspects;
        }
      } while (scanned === undefined);
      if (scanned.findings.length > 0 || scanned.directed.size > 0) suspects.push(source);
    }
    return suspects;
  }

  #keyOf({ bytes, isText }: ScannedSource): string {
    return `${isText === true ? "text " : ""}${this.#digest(bytes)}`;
  }

  /** What an earlier scan has found in an entry, or the key under which that is to be kept. */
  #find(source: ScannedSource): ScannedEntry | string {
    const same = this.#ofBytes.get(source.bytes);
    if (same !== undefined) return same;
    const key = this.#keyOf(source);
    const kept = this.#kept.get(key);
    return kept === undefined ? key : this.#keep(source, key, kept);
  }

  #keep(source: ScannedSource, key: string, scanned: ScannedEntry): ScannedEntry {
    if (this.#kept.size >= MAX_KEPT && !this.#kept.has(key)) {
      const [oldest] = this.#kept.keys();
      if (oldest !== undefined) this.#kept.delete(oldest);
    }
    this.#kept.set(key, scanned);
    this.#ofBytes.set(source.bytes, scanned);
    return scanned;
  }
}

function valueOf({ bytes, isText }: ScannedSource): unknown {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString();
  return isText === true ? text : parsed(text);
}

/** An entry as a value; one that is no JSON is scanned as a text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
