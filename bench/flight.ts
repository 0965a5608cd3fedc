import { Buffer } from "node:buffer";
import { answerSize, answerText } from "./answer.ts";
import type { Peer } from "./peer.ts";

const LF = 10;
const ZERO = 48;
/**
 * The id of the first call. Ids, which are also the keys of calls, always have eight digits, so that all lines of a
 * run have the same length.
 */
const FIRST_ID = 10_000_001;
const DIGITS = 8;
/** One in this many answers is kept, and checked completely at the end. */
const SAMPLE_EVERY = 100;
/**
 * Number of calls whose ids and start times are stored. It is far larger than the number in flight, because a call
 * may be overtaken by many others.
 */
const SLOTS = 4096;

/**
 * The calls of one run: writes the requests and checks the answers, and touches as few bytes as possible.
 * The arguments of a call contain its id as a key, which the text of the answer must repeat. The positions of id and
 * key are determined from one answer, and expected in the following ones. An answer that looks different is parsed.
 */
export class Flight {
  readonly #lines: number;
  readonly #width: number;
  /** One request for each tool; all have the same length. */
  readonly #requests: readonly Buffer[];
  readonly #requestDigits: readonly [number, number];
  readonly #output: Buffer;
  readonly #input: Buffer;
  readonly #ids = new Uint32Array(SLOTS);
  readonly #starts = new Float64Array(SLOTS);
  readonly #samples: { id: number; line: Buffer }[] = [];
  /** The unprocessed bytes of the input are between `#from` and `#to`. There is no line end before `#searched`. */
  #from = 0;
  #to = 0;
  #searched = 0;
  #next = FIRST_ID;
  #answered = 0;
  #layout: { length: number; first: number; second: number } | undefined;
  #latencies = new Float64Array(1 << 16);
  #count = 0;
  #recording = false;

  /**
   * @param tools the tools to call in turn; their names have the same length
   * @param lines lines of text in each answer
   * @param width maximum number of calls in flight
   * @param more additional params of each call
   * @param pad padding in the arguments of each call, in bytes
   */
  constructor(
    tools: readonly [string, ...string[]],
    lines: number,
    width: number,
    more: object = {},
    pad = 0,
  ) {
    this.#lines = lines;
    this.#width = width;
    const digits = String(FIRST_ID);
    const load = pad > 0 ? { pad: "x".repeat(pad) } : {};
    const texts = tools.map((name) => {
      const params = { name, arguments: { key: digits, lines, ...load }, ...more };
      return `{"jsonrpc":"2.0","id":${digits},"method":"tools/call","params":${JSON.stringify(params)}}\n`;
    });
    const [text = ""] = texts;
    if (texts.some(({ length }) => length !== text.length)) {
      throw new Error(`not of one length: ${tools.join(" ")}`);
    }
    this.#requests = texts.map((each) => Buffer.from(each));
    this.#requestDigits = [text.indexOf(digits), text.lastIndexOf(digits)];
    this.#output = Buffer.alloc(text.length * width);
    this.#input = Buffer.alloc(Math.max(1 << 20, 4 * answerSize(lines)));
  }

  /** The free space for the next bytes from the peer: `[offset, offset + length)` of `bytes`. */
  room(): { bytes: Buffer; offset: number; length: number } {
    const bytes = this.#input;
    if (this.#from === this.#to) {
      this.#from = this.#to = this.#searched = 0;
    } else if (bytes.length - this.#to < bytes.length / 2) {
      bytes.copyWithin(0, this.#from, this.#to);
      this.#to -= this.#from;
      this.#searched -= this.#from;
      this.#from = 0;
    }
    return { bytes, offset: this.#to, length: bytes.length - this.#to };
  }

  /**
   * The requests of as many new calls as may be made now (`free`). The bytes are valid until the next `take`.
   * @param now the time at which the requests are written, in ms
   */
  take(now: number): Buffer {
    const count = this.free;
    const out = this.#output;
    const requests = this.#requests;
    const length = out.length / this.#width;
    for (let k = 0, at = 0; k < count; k++, at += length) {
      const id = this.#next++;
      const slot = id % SLOTS;
      if (this.#ids[slot] !== 0) throw new Error(`call ${this.#ids[slot]} was never answered`);
      this.#ids[slot] = id;
      this.#starts[slot] = now;
      requests[id % requests.length]?.copy(out, at);
      for (const offset of this.#requestDigits) writeDigits(out, at + offset, id);
    }
    return out.subarray(0, count * length);
  }

  /**
   * Processes bytes from the peer.
   * @param read number of bytes that were written to the space from `room`
   * @param now the time at which they were read, in ms
   * @throws if a line is not the answer to a call that is in flight
   */
  accept(read: number, now: number): void {
    this.#to += read;
    for (;;) {
      const end = this.#lineEnd();
      if (end < 0) return;
      const id = this.#peek(this.#from, end) ?? this.#parse(this.#from, end);
      if (id !== undefined) this.#settle(id, end, now);
      this.#from = this.#searched = end + 1;
    }
  }

  /** Sends new calls until the maximum number is in flight. */
  send(peer: Peer): void {
    if (this.free > 0) peer.write(this.take(performance.now()));
  }

  /** Reads once from the peer. @returns the time of the read, in ms */
  receive(peer: Peer): number {
    const { bytes, offset, length } = this.room();
    const read = peer.read(bytes, offset, length);
    const now = performance.now();
    this.accept(read, now);
    return now;
  }

  /** Waits for the calls that are in flight. */
  finish(peer: Peer): void {
    while (this.free < this.#width) this.receive(peer);
  }

  /** Starts to record latencies, and discards those recorded so far. */
  record(): void {
    this.#count = 0;
    this.#recording = true;
  }

  /** Number of calls that were answered since the beginning. */
  get answered(): number {
    return this.#answered;
  }

  /** Number of calls that may be made now: the maximum number in flight minus the number in flight. */
  get free(): number {
    return this.#width - (this.#next - FIRST_ID - this.#answered);
  }

  /** Latencies in µs, ascending. */
  latencies(): Float64Array {
    return this.#latencies.slice(0, this.#count).sort();
  }

  /** Checks the sampled answers completely. @throws if one is wrong */
  verify(): void {
    for (const { id, line } of this.#samples) {
      if (this.#read(line) !== id) throw new Error(`a wrong answer to call ${id}`);
    }
  }

  #lineEnd(): number {
    const expected = this.#from + (this.#layout?.length ?? Infinity);
    if (expected < this.#to && this.#input[expected] === LF) return expected;
    const found = this.#input.subarray(this.#searched, this.#to).indexOf(LF);
    if (found >= 0) return this.#searched + found;
    this.#searched = this.#to;
    return -1;
  }

  /** The id of an answer that has the same layout as the previous ones; undefined for any other line. */
  #peek(start: number, end: number): number | undefined {
    const layout = this.#layout;
    if (layout === undefined || end - start !== layout.length) return undefined;
    const id = readDigits(this.#input, start + layout.first);
    if (id !== readDigits(this.#input, start + layout.second)) return undefined;
    return this.#ids[id % SLOTS] === id ? id : undefined;
  }

  #parse(start: number, end: number): number | undefined {
    const line = this.#input.subarray(start, end);
    const id = this.#read(line);
    if (id === undefined) return undefined;
    const first = line.indexOf(String(id));
    const second = line.indexOf(String(id), first + DIGITS);
    this.#layout = { length: end - start, first, second };
    return id;
  }

  /** Parses a whole line. @returns the id of the call that it answers; undefined for a notification */
  #read(line: Buffer): number | undefined {
    const message = JSON.parse(line.toString()) as {
      id?: number;
      result?: { content?: { text?: string }[] };
    };
    const { id } = message;
    if (id === undefined && "method" in message) return undefined;
    const text = message.result?.content?.[0]?.text;
    if (id !== undefined && text === answerText(id, this.#lines)) return id;
    throw new Error(`not the answer that was asked for: ${line.toString().slice(0, 300)}`);
  }

  #settle(id: number, end: number, now: number): void {
    const slot = id % SLOTS;
    if (this.#ids[slot] !== id) throw new Error(`call ${id} was answered twice`);
    this.#ids[slot] = 0;
    if (this.#answered++ % SAMPLE_EVERY === 0) {
      this.#samples.push({ id, line: Buffer.from(this.#input.subarray(this.#from, end)) });
    }
    if (!this.#recording) return;
    if (this.#count === this.#latencies.length) {
      const more = new Float64Array(this.#count * 2);
      more.set(this.#latencies);
      this.#latencies = more;
    }
    this.#latencies[this.#count++] = (now - (this.#starts[slot] ?? 0)) * 1000;
  }
}

function writeDigits(bytes: Buffer, at: number, value: number): void {
  let rest = value;
  for (let i = at + DIGITS - 1; i >= at; i--) {
    const digit = rest % 10;
    bytes[i] = ZERO + digit;
    rest = (rest - digit) / 10;
  }
}

/** Reads a number of eight digits. If the bytes are not digits, the result is a number that is no id. */
function readDigits(bytes: Buffer, at: number): number {
  let value = 0;
  for (let i = at; i < at + DIGITS; i++) value = value * 10 + (bytes[i] ?? 0) - ZERO;
  return value;
}
