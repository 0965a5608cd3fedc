import { Buffer } from "node:buffer";
import { type Truncated, BoundedBuffer, isTruncated } from "../../jsonrpc/bounded-buffer.ts";

/** Callbacks of an event parser. */
export interface EventParserEvents {
  /** An event with data; `type` is `message` if the event names none. */
  event(type: string, data: Buffer): void;
  /** An event over the size limit was dropped. */
  oversized(excess: Truncated): void;
}

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const BREAK = Buffer.from("\n");
/** Maximum length of a field name, and of a value other than data, in bytes; longer ones are ignored. */
const SHORT = { value: 4096, name: 16 };
/** Maximum reconnection time that a server may set, in ms. */
const LONGEST_RETRY = 300_000;

type Field = "data" | "event" | "id" | "retry" | "other";
const FIELDS: ReadonlyMap<string, Field> = new Map(
  (["data", "event", "id", "retry"] as const).map((name) => [name, name]),
);

/**
 * Parses server-sent events from bytes (HTML standard, 9.2.6): lines end with CR, LF or CRLF, and chunk boundaries may
 * be anywhere. An incomplete event at the end of the stream is discarded.
 */
export class EventParser {
  /** The last event id that the server has sent. */
  lastId: string | undefined;
  /** The reconnection time that the server has sent in `retry`, in ms. */
  retry: number | undefined;
  readonly #sink: EventParserEvents;
  readonly #data: BoundedBuffer;
  #type = "";
  #id: string | undefined;
  #hasData = false;
  /** The field of the current line; undefined until its name is complete. */
  #field: Field | undefined;
  #name = "";
  #value = "";
  #isEmpty = true;
  #mayPad = false;
  #isAfterCr = false;
  #isFirst = true;

  /** @param limit maximum size of an event's data, in bytes */
  constructor(limit: number, sink: EventParserEvents) {
    this.#sink = sink;
    this.#data = new BoundedBuffer(limit);
  }

  /** Takes ownership of the chunk. */
  push(chunk: Buffer): void {
    let at = 0;
    let cr = chunk.indexOf(CR);
    while (at < chunk.length) {
      if (this.#isAfterCr) {
        this.#isAfterCr = false;
        if (chunk[at] === LF) {
          at++;
          continue;
        }
      }
      if (cr >= 0 && cr < at) cr = chunk.indexOf(CR, at);
      const lf = chunk.indexOf(LF, at);
      const end = cr >= 0 && (lf < 0 || cr < lf) ? cr : lf;
      if (end < 0) {
        this.#take(chunk, at, chunk.length);
        return;
      }
      if (end > at) this.#take(chunk, at, end);
      this.#isAfterCr = end === cr;
      at = end + 1;
      this.#endLine();
    }
  }

  #take(chunk: Buffer, start: number, end: number): void {
    this.#isEmpty = false;
    let from = start;
    if (this.#field === undefined) {
      const colon = chunk.indexOf(COLON, from);
      const stop = colon < 0 || colon >= end ? end : colon;
      if (this.#name.length <= SHORT.name) {
        this.#name += chunk.toString("latin1", from, Math.min(stop, from + SHORT.name + 1));
      }
      if (stop === end) return;
      this.#begin();
      from = stop + 1;
    }
    if (this.#mayPad && from < end) {
      this.#mayPad = false;
      if (chunk[from] === SPACE) from++;
    }
    if (from === end || this.#field === "other") return;
    if (this.#field === "data") {
      this.#data.add(from === 0 && end === chunk.length ? chunk : chunk.subarray(from, end));
    } else if (this.#value.length <= SHORT.value) {
      this.#value += chunk.toString("latin1", from, Math.min(end, from + SHORT.value + 1));
    }
  }

  /** The field name is complete. */
  #begin(): void {
    // A stream may begin with a UTF-8 byte order mark.
    const name = this.#isFirst ? this.#name.replace(/^\xef\xbb\xbf/, "") : this.#name;
    this.#field = FIELDS.get(name) ?? "other";
    this.#mayPad = true;
    if (this.#field !== "data") return;
    if (this.#hasData) this.#data.add(BREAK);
    this.#hasData = true;
  }

  #endLine(): void {
    if (this.#isEmpty) {
      this.#dispatch();
      return;
    }
    if (this.#field === undefined) this.#begin();
    const value = this.#value;
    if (value.length <= SHORT.value) {
      if (this.#field === "event") this.#type = value;
      else if (this.#field === "id" && !value.includes("\0")) this.#id = value;
      else if (this.#field === "retry" && /^\d{1,9}$/.test(value)) {
        this.retry = Math.min(Number(value), LONGEST_RETRY);
      }
    }
    this.#isFirst = false;
    this.#isEmpty = true;
    this.#field = undefined;
    this.#name = "";
    this.#value = "";
  }

  #dispatch(): void {
    const type = this.#type === "" ? "message" : this.#type;
    this.#type = "";
    if (this.#id !== undefined) this.lastId = this.#id === "" ? undefined : this.#id;
    if (!this.#hasData) return;
    this.#hasData = false;
    const { size } = this.#data;
    const data = this.#data.take();
    if (isTruncated(data)) this.#sink.oversized(data);
    else if (size > 0) this.#sink.event(type, data);
  }
}
