import { Buffer } from "node:buffer";
import { textOf } from "../base/bytes.ts";
import type { LogLevel } from "../base/hub-events.ts";
import { bytesOf, type InvalidMessage } from "../jsonrpc/message.ts";
import { LineReader } from "../jsonrpc/line-reader.ts";
import type { Redactor } from "./redact.ts";

/** Maximum length of a logged line, in characters. */
const MAX_LOG_LINE = 2000;
/** Maximum length of a stderr line in an error, in characters. */
const MAX_ERROR_LINE = 500;
/** Limits of the end of stderr that is kept for errors. */
const STDERR_TAIL = { lines: 1000, bytes: 128 * 1024 };
/** Maximum number of lines that are logged in one second. Further lines are skipped, to limit the cost. */
const MAX_LINES_PER_SECOND = 1000;
const LF = 0x0a;

type WriteLogLine = (level: LogLevel, source: "stderr" | "stdout", text: string) => void;

/**
 * The log of one server process: its stderr, and lines on stdout that are not messages. Lines are redacted, truncated
 * and rate-limited; the end of stderr is kept for errors. Memory is bounded, whatever the server writes.
 */
export class ServerLog {
  readonly #log: WriteLogLine;
  readonly #redactor: Redactor;
  readonly #now: () => number;
  readonly #stderrTail = new RingBuffer(STDERR_TAIL.bytes);
  #lineReader: LineReader | undefined;
  #second = 0;
  #loggedThisSecond = 0;
  /** Number of bytes that were skipped since the last logged line. */
  #skippedBytes = 0;
  /** Whether the skipped bytes ended inside a stderr line. If so, the next bytes may begin inside a secret. */
  #skippedPartialLine = false;

  /** @param now returns monotonic time, in ms */
  constructor(redactor: Redactor, log: WriteLogLine, now: () => number = () => performance.now()) {
    this.#redactor = redactor;
    this.#log = log;
    this.#now = now;
  }

  /** Adds a chunk of stderr, which may begin and end inside a line. */
  stderr(chunk: Buffer): void {
    this.#stderrTail.push(chunk);
    const start = this.#skippedPartialLine ? chunk.indexOf(LF) + 1 : 0;
    if (!this.#isBelowRateLimit() || (this.#skippedPartialLine && start === 0)) {
      this.#lineReader = undefined;
      this.#skippedBytes += chunk.length;
      this.#skippedPartialLine = chunk.at(-1) !== LF;
      return;
    }
    this.#skippedPartialLine = false;
    this.#skippedBytes += start;
    this.#logSkipped();
    this.#lineReader ??= this.#makeLineReader();
    this.#lineReader.push(chunk.subarray(start));
  }

  /**
   * Logs a line of stdout that is not a message, at level `debug`; the caller counts and reports such lines.
   * @returns the redacted line; undefined above the rate limit
   */
  strayOutput(message: InvalidMessage): string | undefined {
    if (!this.#isBelowRateLimit()) return undefined;
    const text = this.#redactedText(bytesOf(message));
    const isNotJson = message.code === "parseError";
    this.#write("debug", "stdout", isNotJson ? text : `Not a message (${message.reason}): ${text}`);
    return text;
  }

  /** Logs an unfinished last line, when both streams have ended. */
  end(): void {
    this.#lineReader?.end();
    this.#logSkipped();
  }

  /** The last non-empty lines of stderr, oldest first, redacted. At most 1,000 are kept. */
  tail(count: number): string[] {
    const { bytes, isComplete } = this.#stderrTail.read();
    const text = textOf(bytes);
    const start = isComplete ? 0 : text.indexOf("\n") + 1;
    const startsInsideLine = !isComplete && start === 0;
    const redacted = startsInsideLine
      ? this.#redactor.applyToFragment(text)
      : this.#redactor.apply(text.slice(start));
    const lines = redacted.split(/\r?\n/);
    return lines
      .filter((line) => line.trim() !== "")
      .slice(-Math.min(count, STDERR_TAIL.lines))
      .map((line) => line.slice(0, MAX_ERROR_LINE));
  }

  #makeLineReader(): LineReader {
    return new LineReader(4 * MAX_LOG_LINE + this.#redactor.maxEncodedLength, {
      line: (bytes) => this.#write("info", "stderr", this.#redactedText(bytes)),
      oversized: (head, _tail, size) => {
        const text = this.#redactor.apply(textOf(head)).slice(0, MAX_LOG_LINE);
        // The text may end inside a secret, so its last `maxEncodedLength` characters are left out.
        const safe = text.slice(0, Math.max(0, text.length - this.#redactor.maxEncodedLength));
        this.#write("info", "stderr", `${safe}… (a line of ${size} bytes)`);
      },
    });
  }

  #redactedText(bytes: Buffer): string {
    // Decodes no more bytes than needed: a UTF-8 character has at most four.
    const bounded = bytes.subarray(0, 4 * (MAX_LOG_LINE + this.#redactor.maxEncodedLength));
    return this.#redactor.applyTruncated(textOf(bounded), MAX_LOG_LINE);
  }

  #write(level: LogLevel, source: "stderr" | "stdout", text: string): void {
    this.#loggedThisSecond++;
    this.#log(level, source, text);
  }

  #isBelowRateLimit(): boolean {
    const second = Math.floor(this.#now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#loggedThisSecond = 0;
    }
    return this.#loggedThisSecond < MAX_LINES_PER_SECOND;
  }

  #logSkipped(): void {
    if (this.#skippedBytes === 0) return;
    const text = `(${this.#skippedBytes} bytes came too fast and were not logged)`;
    this.#skippedBytes = 0;
    this.#write("warn", "stderr", text);
  }
}

/**
 * Keeps the last bytes of a stream. The buffer is allocated with the first byte, because most servers write nothing.
 */
class RingBuffer {
  readonly #capacity: number;
  #buffer: Buffer | undefined;
  /** Number of bytes received; modulo the capacity, the next write position. */
  #total = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  push(chunk: Buffer): void {
    this.#buffer ??= Buffer.allocUnsafeSlow(this.#capacity);
    this.#total += Math.max(0, chunk.length - this.#capacity);
    const kept = chunk.subarray(-this.#capacity);
    const at = this.#total % this.#capacity;
    const copied = kept.copy(this.#buffer, at);
    kept.copy(this.#buffer, 0, copied);
    this.#total += kept.length;
  }

  /** Returns the kept bytes, oldest first. `isComplete`: nothing was overwritten. */
  read(): { bytes: Buffer; isComplete: boolean } {
    const buffer = this.#buffer ?? Buffer.alloc(0);
    const at = this.#total % this.#capacity;
    const isComplete = this.#total <= this.#capacity;
    if (isComplete) return { bytes: buffer.subarray(0, this.#total), isComplete };
    return { bytes: Buffer.concat([buffer.subarray(at), buffer.subarray(0, at)]), isComplete };
  }
}
