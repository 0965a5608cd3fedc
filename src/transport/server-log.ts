import { Buffer } from "node:buffer";
import { textOf } from "../base/bytes.ts";
import type { LogLevel } from "../base/events.ts";
import { type Invalid, bytesOf } from "../jsonrpc/message.ts";
import { Splitter } from "../jsonrpc/line-reader.ts";
import type { Redactor } from "./redact.ts";

/** The longest logged line, in characters. */
const LINE = 2000;
/** The longest stderr line in an error, in characters. */
const ERROR_LINE = 500;
/** How much of the end of stderr is kept. */
const MEMORY = { lines: 1000, bytes: 128 * 1024 };
/** The most lines logged per second; further ones are skipped, to bound the cost. */
const LINES_PER_SECOND = 1000;
const LF = 0x0a;

type Log = (level: LogLevel, source: "stderr" | "stdout", text: string) => void;

/**
 * The log of one server process: its stderr, and lines on stdout that are no messages. They are logged line by line,
 * redacted, truncated and rate-limited; the end of stderr is kept for errors. Memory is bounded, whatever the server
 * writes, and what is not logged is not decoded.
 */
export class Noise {
  readonly #log: Log;
  readonly #redactor: Redactor;
  readonly #now: () => number;
  readonly #memory = new Ring(MEMORY.bytes);
  #splitter: Splitter | undefined;
  #second = 0;
  #logged = 0;
  /** Bytes skipped since the last logged line. */
  #missed = 0;
  /** The skipped bytes ended inside a stderr line, whose rest could be the rest of a secret. */
  #torn = false;

  /** @param now a clock, in ms */
  constructor(redactor: Redactor, log: Log, now: () => number = () => performance.now()) {
    this.#redactor = redactor;
    this.#log = log;
    this.#now = now;
  }

  /** A chunk of stderr; it may begin and end inside a line. */
  stderr(chunk: Buffer): void {
    this.#memory.push(chunk);
    const start = this.#torn ? chunk.indexOf(LF) + 1 : 0;
    if (!this.#mayLog() || (this.#torn && start === 0)) {
      this.#splitter = undefined;
      this.#missed += chunk.length;
      this.#torn = chunk.at(-1) !== LF;
      return;
    }
    this.#torn = false;
    this.#missed += start;
    this.#tellMissed();
    this.#splitter ??= this.#split();
    this.#splitter.push(chunk.subarray(start));
  }

  /**
   * A line of stdout that is no message. It is logged at level `debug`; whoever counts such lines reports them.
   * @returns the redacted line; undefined above the rate limit
   */
  stray(frame: Invalid): string | undefined {
    if (!this.#mayLog()) return undefined;
    const text = this.#text(bytesOf(frame));
    const plain = frame.code === "parseError";
    this.#write("debug", "stdout", plain ? text : `Not a message (${frame.reason}): ${text}`);
    return text;
  }

  /** Both streams have ended: logs an unfinished last line. */
  end(): void {
    this.#splitter?.end();
    this.#tellMissed();
  }

  /** The last non-empty lines of stderr, oldest first, redacted. At most 1,000 are kept. */
  tail(count: number): string[] {
    const { bytes, whole } = this.#memory.read();
    const text = textOf(bytes);
    const start = whole ? 0 : text.indexOf("\n") + 1;
    const isCut = !whole && start === 0;
    const shown = isCut ? this.#redactor.rest(text) : this.#redactor.apply(text.slice(start));
    const lines = shown.split(/\r?\n/);
    return lines
      .filter((line) => line.trim() !== "")
      .slice(-Math.min(count, MEMORY.lines))
      .map((line) => line.slice(0, ERROR_LINE));
  }

  #split(): Splitter {
    return new Splitter(4 * LINE + this.#redactor.longest, {
      line: (bytes) => this.#write("info", "stderr", this.#text(bytes)),
      oversized: (head, _tail, size) => {
        const text = this.#redactor.apply(textOf(head)).slice(0, LINE);
        // The head may end inside a secret.
        const safe = text.slice(0, Math.max(0, text.length - this.#redactor.longest));
        this.#write("info", "stderr", `${safe}… (a line of ${size} bytes)`);
      },
    });
  }

  #text(bytes: Buffer): string {
    // UTF-8 uses at most four bytes per character.
    const enough = bytes.subarray(0, 4 * (LINE + this.#redactor.longest));
    return this.#redactor.cut(textOf(enough), LINE);
  }

  #write(level: LogLevel, source: "stderr" | "stdout", text: string): void {
    this.#logged++;
    this.#log(level, source, text);
  }

  #mayLog(): boolean {
    const second = Math.floor(this.#now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#logged = 0;
    }
    return this.#logged < LINES_PER_SECOND;
  }

  #tellMissed(): void {
    if (this.#missed === 0) return;
    const text = `(${this.#missed} bytes came too fast and were not logged)`;
    this.#missed = 0;
    this.#write("warn", "stderr", text);
  }
}

/** The last bytes of a stream. The buffer is allocated with the first byte, since most servers write nothing. */
class Ring {
  readonly #size: number;
  #memory: Buffer | undefined;
  /** Bytes received in total; modulo the size it is the next write position. */
  #total = 0;

  constructor(size: number) {
    this.#size = size;
  }

  push(chunk: Buffer): void {
    this.#memory ??= Buffer.allocUnsafeSlow(this.#size);
    this.#total += Math.max(0, chunk.length - this.#size);
    const kept = chunk.subarray(-this.#size);
    const at = this.#total % this.#size;
    const first = kept.copy(this.#memory, at);
    kept.copy(this.#memory, 0, first);
    this.#total += kept.length;
  }

  /** The kept bytes, oldest first. `isComplete`: nothing was overwritten. */
  read(): { bytes: Buffer; whole: boolean } {
    const memory = this.#memory ?? Buffer.alloc(0);
    const at = this.#total % this.#size;
    const whole = this.#total <= this.#size;
    if (whole) return { bytes: memory.subarray(0, this.#total), whole };
    return { bytes: Buffer.concat([memory.subarray(at), memory.subarray(0, at)]), whole };
  }
}
