import { Buffer } from "node:buffer";
import { clearTimeout, setTimeout } from "node:timers";

/** Where the lines go to. */
export interface Sink {
  /** What people call it. */
  readonly path: string;
  /** @returns how many of them are written for good, from the first one on; one at least. @throws if none could be. */
  append(lines: readonly string[]): Promise<number>;
}

export interface BacklogParts {
  readonly log: (level: "info" | "warn", text: string) => void;
  /** The most that waits, in bytes; beyond it the oldest lines are dropped. */
  readonly limit?: number;
  /** ms between tries while lines cannot be written: after the first failure, and at most. */
  readonly pauses?: { readonly first: number; readonly most: number };
}

type Timer = ReturnType<typeof setTimeout>;

const LIMIT = 8 * 1024 * 1024;
const PAUSES = { first: 250, most: 30_000 };
/** In ms: what comes within it is written together, and at most so much is lost with a hub that is killed. */
const GATHERING = 20;
/** What is written at a time, in bytes. */
const BATCH = 256 * 1024;

/** Lines that wait to be written, by one writer in the background. Nobody waits for it, whatever happens to the disk. */
export class Backlog {
  readonly #sink: Sink;
  readonly #log: BacklogParts["log"];
  readonly #limit: number;
  readonly #pauses: NonNullable<BacklogParts["pauses"]>;
  /** Oldest first. */
  #lines: string[] = [];
  /** Of all lines, in bytes. */
  #size = 0;
  /** How many older lines were dropped and not told of in the file yet. */
  #missing = 0;
  /** How many tries in a row have failed. */
  #failures = 0;
  #timer: Timer | undefined;
  /** Never rejects; there while a write is under way. */
  #writing: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  #isOver = false;

  constructor(sink: Sink, { log, limit = LIMIT, pauses = PAUSES }: BacklogParts) {
    this.#sink = sink;
    this.#log = log;
    this.#limit = limit;
    this.#pauses = pauses;
  }

  /** Takes a line, given without line end. After `close` it is dropped. */
  add(line: string): void {
    if (this.#closing !== undefined) return;
    this.#lines.push(line);
    this.#size += sizeOf(line);
    this.#trim();
    this.#writeAfter(GATHERING);
  }

  /** Writes what waits, for `limit` ms at most; then nothing goes on any more. Never rejects; repeated calls join the first. */
  close(limit: number): Promise<void> {
    this.#closing ??= this.#close(limit);
    return this.#closing;
  }

  async #close(limit: number): Promise<void> {
    clearTimeout(this.#timer);
    let timer: Timer | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, limit);
    });
    await Promise.race([this.#finish(), late]);
    clearTimeout(timer);
    this.#isOver = true;
    const lost = this.#lines.length + this.#missing;
    if (lost > 0) this.#log("warn", `${print(lost)} could not be written to ${this.#sink.path}`);
  }

  async #finish(): Promise<void> {
    await this.#writing;
    try {
      while (this.#lines.length > 0 && !this.#isOver) await this.#writeBatch();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Unless it is known already when it will be written next. */
  #writeAfter(ms: number): void {
    const isKnown = this.#timer !== undefined || this.#writing !== undefined;
    if (isKnown || this.#lines.length === 0 || this.#closing !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#writing = this.#write().then((pause) => {
        this.#writing = undefined;
        this.#writeAfter(pause);
      });
    }, ms);
    this.#timer.unref();
  }

  /** Never rejects. @returns how long to wait until the next time, in ms. */
  async #write(): Promise<number> {
    try {
      do await this.#writeBatch();
      while (this.#size > BATCH);
      return GATHERING;
    } catch (error) {
      return this.#fail(error);
    }
  }

  async #writeBatch(): Promise<void> {
    const missing = this.#missing;
    const gap = missing > 0 ? [JSON.stringify({ time: new Date().toISOString(), missing })] : [];
    const batch = this.#take();
    let written = 0;
    try {
      written = await this.#sink.append([...gap, ...batch]);
    } finally {
      if (written > 0) this.#missing -= missing;
      this.#giveBack(batch.slice(Math.max(0, written - gap.length)));
    }
    if (this.#failures === 0) return;
    this.#failures = 0;
    const loss = missing > 0 ? `; what is missing: ${print(missing)}` : "";
    this.#log("info", `${this.#sink.path} can be written to again${loss}`);
  }

  /** @returns how long to wait until the next try, in ms. */
  #fail(error: unknown): number {
    this.#failures++;
    if (this.#failures === 1) {
      const why = error instanceof Error ? error.message : String(error);
      const text = `${this.#sink.path} cannot be written to: ${why}; calls go on, and it is tried again`;
      this.#log("warn", text);
    }
    return Math.min(this.#pauses.first * 2 ** (this.#failures - 1), this.#pauses.most);
  }

  /** The oldest lines, which no longer wait then. */
  #take(): string[] {
    let size = 0;
    let count = 0;
    for (const line of this.#lines) {
      size += sizeOf(line);
      if (size > BATCH && count > 0) break;
      count++;
    }
    const batch = this.#lines.splice(0, count);
    for (const line of batch) this.#size -= sizeOf(line);
    return batch;
  }

  #giveBack(batch: readonly string[]): void {
    if (batch.length === 0) return;
    this.#lines = [...batch, ...this.#lines];
    for (const line of batch) this.#size += sizeOf(line);
    this.#trim();
  }

  #trim(): void {
    while (this.#size > this.#limit) {
      this.#size -= sizeOf(this.#lines.shift() ?? "");
      this.#missing++;
    }
  }
}

function print(lines: number): string {
  return lines === 1 ? "1 line" : `${lines} lines`;
}

/** In the file, with its line end. */
function sizeOf(line: string): number {
  return Buffer.byteLength(line) + 1;
}
