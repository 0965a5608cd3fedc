import { Buffer } from "node:buffer";
import { clearTimeout, setTimeout } from "node:timers";

export interface Sink {
  /** The file's path, for log messages. */
  readonly path: string;
  /**
   * Appends lines.
   * @returns how many lines, from the first one on, are written durably; at least one
   * @throws if none could be written
   */
  append(lines: readonly string[]): Promise<number>;
}

export interface LineQueueOptions {
  readonly log: (level: "info" | "warn", text: string) => void;
  /** Maximum size of the queue in bytes; beyond it, the oldest lines are dropped. */
  readonly maxSize?: number;
  /** Retry delays in ms after failed writes: the first, and the maximum. */
  readonly retryDelays?: { readonly first: number; readonly max: number };
}

type Timer = ReturnType<typeof setTimeout>;

const MAX_QUEUE_SIZE = 8 * 1024 * 1024;
const RETRY_DELAYS = { first: 250, max: 30_000 };
/**
 * The time during which lines are collected for one write, in ms. If the hub is killed, at most the lines of this
 * time are lost.
 */
const COLLECT_DELAY = 20;
/** Maximum size of one write, in bytes. */
const MAX_BATCH_SIZE = 256 * 1024;

/** A bounded queue of lines with one background writer. Tool calls never wait for it, even if the disk hangs. */
export class LineQueue {
  readonly #sink: Sink;
  readonly #log: LineQueueOptions["log"];
  readonly #maxSize: number;
  readonly #retryDelays: NonNullable<LineQueueOptions["retryDelays"]>;
  /** The queued lines, oldest first. */
  #lines: string[] = [];
  /** The total size of the queued lines, in bytes. */
  #size = 0;
  /** Number of dropped lines that have not been reported in the file yet. */
  #dropped = 0;
  #failures = 0;
  #timer: Timer | undefined;
  /** The write in progress, which never rejects; undefined if there is none. */
  #writing: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  #isClosed = false;

  constructor(
    sink: Sink,
    { log, maxSize = MAX_QUEUE_SIZE, retryDelays = RETRY_DELAYS }: LineQueueOptions,
  ) {
    this.#sink = sink;
    this.#log = log;
    this.#maxSize = maxSize;
    this.#retryDelays = retryDelays;
  }

  /** Queues a line without its line end. After `close`, the line is dropped. */
  add(line: string): void {
    if (this.#closing !== undefined) return;
    this.#lines.push(line);
    this.#size += sizeOf(line);
    this.#trim();
    this.#scheduleWrite(COLLECT_DELAY);
  }

  /** Tries to write the queued lines at once. Never rejects. */
  async flush(): Promise<void> {
    await this.#writing;
    if (this.#lines.length === 0 || this.#closing !== undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#startWrite();
    await this.#writing;
  }

  /**
   * Writes the queued lines, for at most `timeout` ms, and stops. Never rejects; repeated calls return the first call's
   * promise.
   */
  close(timeout: number): Promise<void> {
    this.#closing ??= this.#close(timeout);
    return this.#closing;
  }

  async #close(timeout: number): Promise<void> {
    clearTimeout(this.#timer);
    let timer: Timer | undefined;
    const timedOut = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, timeout);
    });
    await Promise.race([this.#writeAll(), timedOut]);
    clearTimeout(timer);
    this.#isClosed = true;
    const lost = this.#lines.length + this.#dropped;
    if (lost > 0)
      this.#log("warn", `${countLines(lost)} could not be written to ${this.#sink.path}`);
  }

  async #writeAll(): Promise<void> {
    await this.#writing;
    try {
      while (this.#lines.length > 0 && !this.#isClosed) await this.#writeBatch();
    } catch (error) {
      this.#onWriteError(error);
    }
  }

  #scheduleWrite(ms: number): void {
    const isKnown = this.#timer !== undefined || this.#writing !== undefined;
    if (isKnown || this.#lines.length === 0 || this.#closing !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#startWrite();
    }, ms);
    this.#timer.unref();
  }

  #startWrite(): void {
    this.#writing ??= this.#write().then((pause) => {
      this.#writing = undefined;
      this.#scheduleWrite(pause);
    });
  }

  /**
   * Writes a batch of lines. Never rejects.
   * @returns the delay until the next write, in ms
   */
  async #write(): Promise<number> {
    try {
      do await this.#writeBatch();
      while (this.#size > MAX_BATCH_SIZE);
      return COLLECT_DELAY;
    } catch (error) {
      return this.#onWriteError(error);
    }
  }

  async #writeBatch(): Promise<void> {
    const missing = this.#dropped;
    const gap = missing > 0 ? [JSON.stringify({ time: new Date().toISOString(), missing })] : [];
    const batch = this.#takeBatch();
    let written = 0;
    try {
      written = await this.#sink.append([...gap, ...batch]);
    } finally {
      if (written > 0) this.#dropped -= missing;
      this.#requeue(batch.slice(Math.max(0, written - gap.length)));
    }
    if (this.#failures === 0) return;
    this.#failures = 0;
    const loss = missing > 0 ? `; what is missing: ${countLines(missing)}` : "";
    this.#log("info", `${this.#sink.path} is writable again${loss}`);
  }

  /** Counts and logs a failed write. @returns the delay until the next retry, in ms */
  #onWriteError(error: unknown): number {
    this.#failures++;
    if (this.#failures === 1) {
      const reason = error instanceof Error ? error.message : String(error);
      const text = `${this.#sink.path} cannot be written: ${reason}; calls continue, and writing is retried`;
      this.#log("warn", text);
    }
    return Math.min(this.#retryDelays.first * 2 ** (this.#failures - 1), this.#retryDelays.max);
  }

  /** Removes the oldest lines from the queue, up to `MAX_BATCH_SIZE` bytes. */
  #takeBatch(): string[] {
    let size = 0;
    let count = 0;
    for (const line of this.#lines) {
      size += sizeOf(line);
      if (size > MAX_BATCH_SIZE && count > 0) break;
      count++;
    }
    const batch = this.#lines.splice(0, count);
    for (const line of batch) this.#size -= sizeOf(line);
    return batch;
  }

  #requeue(batch: readonly string[]): void {
    if (batch.length === 0) return;
    this.#lines = [...batch, ...this.#lines];
    for (const line of batch) this.#size += sizeOf(line);
    this.#trim();
  }

  #trim(): void {
    while (this.#size > this.#maxSize) {
      this.#size -= sizeOf(this.#lines.shift() ?? "");
      this.#dropped++;
    }
  }
}

function countLines(lines: number): string {
  return lines === 1 ? "1 line" : `${lines} lines`;
}

/** The size of a line in bytes, including its line end. */
function sizeOf(line: string): number {
  return Buffer.byteLength(line) + 1;
}
