import { Buffer } from "node:buffer";
import { enterStage } from "../../base/fault-injection.ts";
import { type TruncatedMessage, BoundedBuffer, isTruncated } from "../../jsonrpc/bounded-buffer.ts";

export interface EventParserEvents {
  /** Receives an event with data; `type` is `message` if the event names none. */
  event(type: string, data: Buffer): void;
  /** Called if an event above the size limit was dropped. */
  oversized(truncated: TruncatedMessage): void;
}

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const LINE_BREAK = Buffer.from("\n");
/** Limits, in bytes, of a field's name and of the value of a field other than `data`. Longer fields are ignored. */
const MAX_FIELD_LENGTH = { value: 4096, name: 16 };
/** Maximum reconnection time that a server may set, in ms. */
const MAX_RETRY = 300_000;

type Field = "data" | "event" | "id" | "retry" | "other";
const KNOWN_FIELDS: ReadonlyMap<string, Field> = new Map(
  (["data", "event", "id", "retry"] as const).map((name) => [name, name]),
);

/**
 * Parses server-sent events from bytes (HTML standard, 9.2.6): lines end with CR, LF or CRLF, and chunk boundaries may
 * be anywhere. An incomplete event at the end of the stream is discarded.
 */
export class EventParser {
  lastId: string | undefined;
  /** The reconnection time that the server has sent in `retry`, in ms. */
  retry: number | undefined;
  readonly #events: EventParserEvents;
  readonly #data: BoundedBuffer;
  #type = "";
  #id: string | undefined;
  #hasData = false;
  /** The field of the current line; undefined until its name is complete. */
  #field: Field | undefined;
  #name = "";
  #value = "";
  #isEmpty = true;
  #skipsSpace = false;
  #isAfterCr = false;
  #isFirstLine = true;

  /** @param limit maximum size of an event's data, in bytes */
  constructor(limit: number, events: EventParserEvents) {
    this.#events = events;
    this.#data = new BoundedBuffer(limit);
  }

  /** Parses the next chunk, and keeps parts of it without copying them: see `ByteSlice`. */
  push(chunk: Buffer): void {
    let position = 0;
    let cr = chunk.indexOf(CR);
    while (position < chunk.length) {
      if (this.#isAfterCr) {
        this.#isAfterCr = false;
        if (chunk[position] === LF) {
          position++;
          continue;
        }
      }
      if (cr >= 0 && cr < position) cr = chunk.indexOf(CR, position);
      const lf = chunk.indexOf(LF, position);
      const end = cr >= 0 && (lf < 0 || cr < lf) ? cr : lf;
      if (end < 0) {
        this.#append(chunk, position, chunk.length);
        return;
      }
      if (end > position) this.#append(chunk, position, end);
      this.#isAfterCr = end === cr;
      position = end + 1;
      this.#endLine();
    }
  }

  #append(chunk: Buffer, start: number, end: number): void {
    this.#isEmpty = false;
    let position = start;
    if (this.#field === undefined) {
      const colon = chunk.indexOf(COLON, position);
      const stop = colon < 0 || colon >= end ? end : colon;
      if (this.#name.length <= MAX_FIELD_LENGTH.name) {
        this.#name += chunk.toString(
          "latin1",
          position,
          Math.min(stop, position + MAX_FIELD_LENGTH.name + 1),
        );
      }
      if (stop === end) return;
      this.#endFieldName();
      position = stop + 1;
    }
    if (this.#skipsSpace && position < end) {
      this.#skipsSpace = false;
      if (chunk[position] === SPACE) position++;
    }
    if (position === end || this.#field === "other") return;
    if (this.#field === "data") {
      this.#data.add(
        position === 0 && end === chunk.length ? chunk : chunk.subarray(position, end),
      );
    } else if (this.#value.length <= MAX_FIELD_LENGTH.value) {
      this.#value += chunk.toString(
        "latin1",
        position,
        Math.min(end, position + MAX_FIELD_LENGTH.value + 1),
      );
    }
  }

  #endFieldName(): void {
    // A stream may begin with a UTF-8 byte order mark.
    const name = this.#isFirstLine ? this.#name.replace(/^\xef\xbb\xbf/, "") : this.#name;
    this.#field = KNOWN_FIELDS.get(name) ?? "other";
    this.#skipsSpace = true;
    if (this.#field !== "data") return;
    if (this.#hasData) this.#data.add(LINE_BREAK);
    this.#hasData = true;
  }

  #endLine(): void {
    if (this.#isEmpty) {
      this.#dispatch();
      return;
    }
    if (this.#field === undefined) this.#endFieldName();
    const value = this.#value;
    if (value.length <= MAX_FIELD_LENGTH.value) {
      if (this.#field === "event") this.#type = value;
      else if (this.#field === "id" && !value.includes("\0")) this.#id = value;
      else if (this.#field === "retry" && /^\d{1,9}$/.test(value)) {
        this.retry = Math.min(Number(value), MAX_RETRY);
      }
    }
    this.#isFirstLine = false;
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
    enterStage("event");
    this.#hasData = false;
    const { size } = this.#data;
    const data = this.#data.take();
    if (isTruncated(data)) this.#events.oversized(data);
    else if (size > 0) this.#events.event(type, data);
  }
}
