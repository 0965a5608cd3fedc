import { Buffer } from "node:buffer";
import type { CallEvent, EventKind, EventStamp } from "../base/events.ts";

/** Initial size of a writer's memory, in bytes. */
const INITIAL_SIZE = 64 * 1024;
/** Maximum size of a call event without its names, in bytes. */
const MAX_CALL = 512;
const MAX_INT32 = 0x7fffffff;
const ZERO = 0x30;
const POINT = 0x2e;

/**
 * Consecutive events as server-sent events. They are kept as bytes and numbers. If an object and strings were kept for
 * each of thousands of events, garbage collection would take longer than formatting them.
 */
export class EventBatch {
  readonly #kinds: readonly EventKind[];
  readonly #seqs: readonly number[];
  /** The offset at which each event ends in the bytes. */
  readonly #ends: readonly number[];
  readonly #bytes: Uint8Array;
  /** Number of events at the beginning that are no longer kept. */
  #evicted = 0;

  constructor(
    kinds: readonly EventKind[],
    seqs: readonly number[],
    ends: readonly number[],
    bytes: Uint8Array,
  ) {
    this.#kinds = kinds;
    this.#seqs = seqs;
    this.#ends = ends;
    this.#bytes = bytes;
  }

  /** Number of events that are kept. */
  get count(): number {
    return this.#kinds.length - this.#evicted;
  }

  /** Size of the events that are kept, in bytes. */
  get size(): number {
    return this.#bytes.length - this.#startOf(this.#evicted);
  }

  /** The number of the first event that is kept. */
  get firstSeq(): number {
    return this.#seqs[this.#evicted] ?? Number.NaN;
  }

  /** The bytes of the kept events that `isWanted` accepts; adjacent events form one piece. */
  select(isWanted: (seq: number, kind: EventKind) => boolean): readonly Uint8Array[] {
    const pieces: Uint8Array[] = [];
    const kinds = this.#kinds;
    let start = this.#evicted;
    for (let at = start; at <= kinds.length; at++) {
      const kind = kinds[at];
      if (kind !== undefined && isWanted(this.#seqs[at] ?? 0, kind)) continue;
      if (start < at) pieces.push(this.#bytes.subarray(this.#startOf(start), this.#startOf(at)));
      start = at + 1;
    }
    return pieces;
  }

  /** Stops keeping the first event. @returns its size in bytes */
  evictFirst(): number {
    const { size } = this;
    this.#evicted++;
    return size - this.size;
  }

  #startOf(at: number): number {
    return this.#ends[at - 1] ?? 0;
  }
}

/** The start of a call, or its answer by a server or a plugin. */
export type PlainCallEvent = Exclude<CallEvent, { kind: "callCancelled" } | { outcome: "failed" }>;

type CallNames = Pick<CallEvent, "client" | "server" | "tool" | "name">;

const ID = Buffer.from("id: ");
const STARTED = Buffer.from('\nevent: callStarted\ndata: {"kind":"callStarted","seq":');
const FINISHED = Buffer.from(
  '\nevent: callFinished\ndata: {"kind":"callFinished","outcome":"answered","seq":',
);
const AT = Buffer.from(',"at":');
const CALL = Buffer.from(',"call":');
const DURATION = Buffer.from(',"duration":');
const FAILED = Buffer.from(',"failed":true');
const NOT_FAILED = Buffer.from(',"failed":false');
const END = Buffer.from("}\n\n");

/**
 * Formats events as server-sent events, and collects them for a batch. Call events are written as bytes into memory
 * that is reused for later batches: creating strings for each of them would produce so much garbage that collecting it
 * would take several times as long as the formatting.
 */
export class EventWriter {
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #length = 0;
  #kinds: EventKind[] = [];
  #seqs: number[] = [];
  #ends: number[] = [];
  /**
   * The names in the last call event, and their encoding as JSON members. Both are kept for reuse, because the next call
   * often has the same names.
   */
  #names: CallNames | undefined;
  #namesBytes: Uint8Array = new Uint8Array(0);
  readonly #eventTime = new CachedDigits();
  readonly #startTime = new CachedDigits();

  /** Number of events since the last batch was taken. */
  get count(): number {
    return this.#kinds.length;
  }

  /** Size of the events since the last batch was taken, in bytes. */
  get size(): number {
    return this.#length;
  }

  /** Adds an event that is formatted as one line of JSON. */
  add(kind: EventKind, seq: number, json: string): void {
    const text = `id: ${seq}\nevent: ${kind}\ndata: ${json}\n\n`;
    this.#reserve(text.length * 3);
    this.#putText(text);
    this.#endEvent(kind, seq);
  }

  /** Adds an event of a call. It must have no parent call and no principal. */
  addCall(event: PlainCallEvent, { seq, at }: EventStamp): void {
    const names = this.#formatNames(event);
    this.#reserve(names.length + MAX_CALL);
    this.#put(ID);
    this.#putInteger(seq);
    this.#put(event.kind === "callStarted" ? STARTED : FINISHED);
    this.#putInteger(seq);
    this.#put(AT);
    this.#put(this.#eventTime.of(at));
    this.#put(CALL);
    this.#putInteger(event.call);
    this.#put(names);
    this.#put(this.#startTime.of(event.startedAt));
    if (event.kind === "callFinished") {
      this.#put(DURATION);
      this.#putDuration(event.duration);
      if (event.failed !== undefined) this.#put(event.failed ? FAILED : NOT_FAILED);
    }
    this.#put(END);
    this.#endEvent(event.kind, seq);
  }

  /** Takes the events since the last batch. @returns undefined if there are none */
  takeBatch(): EventBatch | undefined {
    if (this.#kinds.length === 0) return undefined;
    const bytes = this.#bytes.slice(0, this.#length);
    const batch = new EventBatch(this.#kinds, this.#seqs, this.#ends, bytes);
    this.#kinds = [];
    this.#seqs = [];
    this.#ends = [];
    this.#length = 0;
    return batch;
  }

  #endEvent(kind: EventKind, seq: number): void {
    this.#kinds.push(kind);
    this.#seqs.push(seq);
    this.#ends.push(this.#length);
  }

  /** Makes sure that there is memory for `size` more bytes. */
  #reserve(size: number): void {
    const needed = this.#length + size;
    if (needed <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(INITIAL_SIZE, 2 * needed));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }

  #formatNames({ client, server, tool, name }: CallNames): Uint8Array {
    const last = this.#names;
    const isSame =
      last?.name === name && last.server === server && last.tool === tool && last.client === client;
    if (!isSame) {
      this.#names = { client, server, tool, name };
      const members = JSON.stringify(this.#names).slice(1, -1);
      this.#namesBytes = Buffer.from(`,${members},"startedAt":`);
    }
    return this.#namesBytes;
  }

  #put(bytes: Uint8Array): void {
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #putText(text: string): void {
    const { buffer, byteOffset, length } = this.#bytes;
    this.#length += Buffer.from(buffer, byteOffset, length).write(text, this.#length);
  }

  /** Writes an integer. */
  #putInteger(value: number): void {
    if (value < 0 || value > MAX_INT32) {
      this.#putText(String(value));
      return;
    }
    let width = 1;
    for (let limit = 10; limit <= value; limit *= 10) width++;
    this.#putDigits(value, width);
  }

  /** Writes a time in ms with three decimals. */
  #putDuration(duration: number): void {
    const micros = Math.round(duration * 1000);
    const whole = Math.floor(micros / 1000);
    this.#putInteger(whole);
    this.#bytes[this.#length++] = POINT;
    this.#putDigits(micros - whole * 1000, 3);
  }

  #putDigits(value: number, width: number): void {
    const bytes = this.#bytes;
    let rest = value | 0;
    for (let at = this.#length + width; at > this.#length;) {
      const quotient = (rest / 10) | 0;
      bytes[--at] = ZERO + rest - quotient * 10;
      rest = quotient;
    }
    this.#length += width;
  }
}

/** Keeps the digits of the last number, because consecutive events often have the same time. */
class CachedDigits {
  #value = Number.NaN;
  #digits: Uint8Array = new Uint8Array(0);

  of(value: number): Uint8Array {
    if (value !== this.#value) {
      this.#value = value;
      this.#digits = Buffer.from(String(value));
    }
    return this.#digits;
  }
}
