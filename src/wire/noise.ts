import { Buffer } from "node:buffer";
import { textOf } from "../bytes.ts";
import type { LogLevel } from "../events.ts";
import { type Invalid, bytesOf } from "./jsonrpc.ts";
import { Splitter } from "./lines.ts";
import type { Redactor } from "./redact.ts";

/** The longest line that a log gets, in characters. */
const LINE = 2000;
/** The longest line inside an error, in characters. */
const ERROR_LINE = 500;
/** What is remembered of stderr: so many lines, in so many bytes. */
const MEMORY = { lines: 1000, bytes: 128 * 1024 };
/** So many lines a second reach the log; more are of no use to a reader and cost the hub its time. */
const LINES_PER_SECOND = 1000;
const LF = 0x0a;

type Log = (level: LogLevel, source: "stderr" | "stdout", text: string) => void;

/**
 * What a server says beside the protocol: stderr, and lines on stdout that are no messages. The log gets them
 * line by line, redacted, cut and limited in number; the end of stderr is remembered for errors. Neither a flood
 * nor a line without an end makes it grow, and what is not logged is not even looked at.
 */
export class Noise {
  readonly #log: Log;
  readonly #redactor: Redactor;
  readonly #now: () => number;
  readonly #memory = new Ring(MEMORY.bytes);
  #splitter: Splitter | undefined;
  #second = 0;
  #logged = 0;
  /** Bytes that were not logged since the last line that was. */
  #missed = 0;
  /** What was left out ended in the middle of a line of stderr: the rest of it could be the rest of a secret. */
  #torn = false;

  /** @param now a clock, in ms. */
  constructor(redactor: Redactor, log: Log, now: () => number = () => performance.now()) {
    this.#redactor = redactor;
    this.#log = log;
    this.#now = now;
  }

  /** A chunk of stderr, cut wherever the pipe cut it. */
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
   * A line of stdout that is no message. The log gets it at level `debug`: whoever counts such lines explains them.
   * @returns the line as it may be shown; undefined if too many came in this second to look at each
   */
  stray(frame: Invalid): string | undefined {
    if (!this.#mayLog()) return undefined;
    const text = this.#text(bytesOf(frame));
    const plain = frame.code === "parseError";
    this.#write("debug", "stdout", plain ? text : `Not a message (${frame.reason}): ${text}`);
    return text;
  }

  /** Both streams have ended: an unfinished last line is logged. */
  end(): void {
    this.#splitter?.end();
    this.#tellMissed();
  }

  /** The last lines of stderr, oldest first, redacted and without empty ones. At most 1,000 are remembered. */
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
        // The head may end in the middle of a secret.
        const safe = text.slice(0, Math.max(0, text.length - this.#redactor.longest));
        this.#write("info", "stderr", `${safe}… (a line of ${size} bytes)`);
      },
    });
  }

  #text(bytes: Buffer): string {
    // A character takes at most four bytes.
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

/** The last bytes of a stream. Its memory is taken with the first byte, since most servers are silent. */
class Ring {
  readonly #size: number;
  #memory: Buffer | undefined;
  /** Bytes that ever came; modulo the size it is where the next one goes. */
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

  /** What is kept, oldest byte first; `whole` if that is all that ever came. */
  read(): { bytes: Buffer; whole: boolean } {
    const memory = this.#memory ?? Buffer.alloc(0);
    const at = this.#total % this.#size;
    const whole = this.#total <= this.#size;
    if (whole) return { bytes: memory.subarray(0, this.#total), whole };
    return { bytes: Buffer.concat([memory.subarray(at), memory.subarray(0, at)]), whole };
  }
}
