import { Buffer } from "node:buffer";
import { clearTimeout, setTimeout } from "node:timers";

/** Where the lines are written. */
export interface Sink {
  /** Shown in log messages. */
  readonly path: string;
  /**
   * @returns how many lines, from the first one on, are written durably; at least one
   * @throws if none could be written
   */
  append(lines: readonly string[]): Promise<number>;
}

export interface BacklogParts {
  readonly log: (level: "info" | "warn", text: string) => void;
  /** Maximum size of the queue in bytes; beyond it, the oldest lines are dropped. */
  readonly limit?: number;
  /** Retry delays in ms after failed writes: the first, and the maximum. */
  readonly pauses?: { readonly first: number; readonly most: number };
}

type Timer = ReturnType<typeof setTimeout>;

const LIMIT = 8 * 1024 * 1024;
const PAUSES = { first: 250, most: 30_000 };
/** Delay in ms in which lines are collected for one write; a killed hub loses at most these. */
const GATHERING = 20;
/** Maximum size of one write, in bytes. */
const BATCH = 256 * 1024;

/** A bounded queue of lines with one background writer. Calls never wait for it, whatever happens to the disk. */
export class Backlog {
  readonly #sink: Sink;
  readonly #log: BacklogParts["log"];
  readonly #limit: number;
  readonly #pauses: NonNullable<BacklogParts["pauses"]>;
  /** Oldest first. */
  #lines: string[] = [];
  /** Size of all lines, in bytes. */
  #size = 0;
  /** Number of dropped lines that are not yet recorded in the file. */
  #missing = 0;
  /** Number of consecutive failed writes. */
  #failures = 0;
  #timer: Timer | undefined;
  /** Never rejects; undefined while nothing is being written. */
  #writing: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  #isOver = false;

  constructor(sink: Sink, { log, limit = LIMIT, pauses = PAUSES }: BacklogParts) {
    this.#sink = sink;
    this.#log = log;
    this.#limit = limit;
    this.#pauses = pauses;
  }

  /** Queues a line without its line end. After `close`, the line is dropped. */
  add(line: string): void {
    if (this.#closing !== undefined) return;
    this.#lines.push(line);
    this.#size += sizeOf(line);
    this.#trim();
    this.#writeAfter(GATHERING);
  }

  /** Writes the queued lines, for at most `timeout` ms, and stops. Never rejects; repeated calls join the first. */
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

  /** Schedules the next write, unless one is scheduled or running. */
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

  /**
   * Never rejects.
   * @returns the delay until the next write, in ms
   */
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

  /** @returns the delay until the next retry, in ms */
  #fail(error: unknown): number {
    this.#failures++;
    if (this.#failures === 1) {
      const why = error instanceof Error ? error.message : String(error);
      const text = `${this.#sink.path} cannot be written to: ${why}; calls go on, and it is tried again`;
      this.#log("warn", text);
    }
    return Math.min(this.#pauses.first * 2 ** (this.#failures - 1), this.#pauses.most);
  }

  /** Removes the oldest lines from the queue, up to `MAX_BATCH_SIZE` bytes. */
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

/** In bytes, with the line end. */
function sizeOf(line: string): number {
  return Buffer.byteLength(line) + 1;
}
