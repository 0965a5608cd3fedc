import { Buffer } from "node:buffer";
import type { CallEvent, EventKind, EventStamp, HubEvent } from "../base/events.ts";

/** Maximum number of the events that are kept, and their maximum total size in bytes. */
const LIMITS = { events: 4096, size: 1024 * 1024 };
/** The size of a plain call event while it is kept, in bytes. */
const CALL_SIZE = 100;
/** Memory for formatted events that is kept for later ones, in bytes. */
const WRITER_SIZE = 128 * 1024;
/** Maximum size of a plain call event after its start time, in bytes. */
const MAX_TAIL = 64;
const MAX_INT32 = 0x7fffffff;
/** Times in this range have 13 digits. In ms since the epoch. */
const TIMES = { min: 1e12, max: 1e13 - 1 };
const ZERO = 0x30;
const POINT = 0x2e;

/** The start of a call, or its answer by a server or a plugin. */
type PlainCallEvent = Exclude<CallEvent, { kind: "callCancelled" } | { outcome: "failed" }>;

type CallNames = Pick<CallEvent, "client" | "server" | "tool" | "name">;

/** A kept event. The object is used again for a later event. */
interface EventRecord {
  kind: EventKind;
  seq: number;
  /** The memory that the event needs, in bytes. */
  size: number;
  /** The JSON of the event, or the names in a plain call event, whose other members follow. */
  content: string | CallNames;
  at: number;
  call: number;
  startedAt: number;
  duration: number;
  failed: boolean | undefined;
}

/**
 * The last events of a hub, and their form as server-sent events. Call events are kept as numbers, and are formatted
 * together when they are sent: if objects and strings were created for each of thousands of events, garbage collection
 * would take longer than the formatting.
 */
export class EventRecords {
  /** Event `n`, counted from 0, is at index `n % LIMITS.events`. */
  readonly #records: EventRecord[] = [];
  /** The first event that is kept, and the one after the last. */
  #first = 0;
  #next = 0;
  /** Total size of the events that are kept, in bytes. */
  #size = 0;
  #lastEvicted: number;
  /** The names in the last call event. The next one often has the same names. */
  #names: CallNames | undefined;
  readonly #writer = new EventWriter();

  /** @param lastSeq the number of the hub's last event */
  constructor(lastSeq: number) {
    this.#lastEvicted = lastSeq;
  }

  /** Number of all events that were ever added. */
  get count(): number {
    return this.#next;
  }

  /** The number of the last event that is not kept any more. */
  get lastEvicted(): number {
    return this.#lastEvicted;
  }

  /** The number of the first event that is kept; undefined if there is none. */
  get firstSeq(): number | undefined {
    return this.#first === this.#next ? undefined : this.#recordOf(this.#first).seq;
  }

  /** Adds an event as one line of JSON. @returns its size in bytes */
  add(kind: EventKind, seq: number, json: string): number {
    const size = Buffer.byteLength(json);
    this.#append(kind, seq, json, size);
    return size;
  }

  /** Adds an event for which `isPlainCall` is true. @returns its size in bytes */
  addCall(event: PlainCallEvent, { seq, at }: EventStamp): number {
    const record = this.#append(event.kind, seq, this.#namesOf(event), CALL_SIZE);
    record.at = at;
    record.call = event.call;
    record.startedAt = event.startedAt;
    if (event.kind === "callFinished") {
      record.duration = event.duration;
      record.failed = event.failed;
    }
    return CALL_SIZE;
  }

  /**
   * The kept events that `isWanted` accepts, as server-sent events; undefined if there are none.
   * @param skipped the number of events that were added before the first one that is wanted
   */
  format(
    skipped: number,
    isWanted: (seq: number, kind: EventKind) => boolean,
  ): Uint8Array | undefined {
    const writer = this.#writer;
    for (let n = Math.max(skipped, this.#first); n < this.#next; n++) {
      const record = this.#recordOf(n);
      if (isWanted(record.seq, record.kind)) writer.write(record);
    }
    return writer.take();
  }

  #append(kind: EventKind, seq: number, content: string | CallNames, size: number): EventRecord {
    this.#size += size;
    while (this.#size > LIMITS.size || this.#next - this.#first === LIMITS.events) this.#evict();
    const index = this.#next++ % LIMITS.events;
    const record = (this.#records[index] ??= emptyRecord());
    record.kind = kind;
    record.seq = seq;
    record.size = size;
    record.content = content;
    return record;
  }

  #evict(): void {
    const record = this.#recordOf(this.#first++);
    this.#lastEvicted = record.seq;
    this.#size -= record.size;
    // The record is used again only after many events.
    record.content = "";
  }

  #recordOf(n: number): EventRecord {
    return this.#records[n % LIMITS.events] ?? emptyRecord();
  }

  #namesOf({ client, server, tool, name }: CallNames): CallNames {
    const last = this.#names;
    const isSame =
      last?.name === name && last.server === server && last.tool === tool && last.client === client;
    return isSame ? last : (this.#names = { client, server, tool, name });
  }
}

function emptyRecord(): EventRecord {
  return {
    kind: "log",
    seq: 0,
    size: 0,
    content: "",
    at: 0,
    call: 0,
    startedAt: 0,
    duration: 0,
    failed: undefined,
  };
}

/**
 * Whether an event is the start of a call or an answer to it, has neither a parent call nor a principal, and only
 * numbers of the usual size.
 */
export function isPlainCall(event: HubEvent, { seq, at }: EventStamp): event is PlainCallEvent {
  if (event.kind !== "callStarted") {
    if (event.kind !== "callFinished" || event.outcome !== "answered") return false;
    if (!(event.duration >= 0 && event.duration < MAX_INT32)) return false;
  }
  const { call, startedAt } = event;
  if (seq > MAX_INT32 || call > MAX_INT32 || !isTime(at) || !isTime(startedAt)) return false;
  return !("parentCall" in event || "principal" in event);
}

function isTime(time: number): boolean {
  return time >= TIMES.min && time <= TIMES.max;
}

const UNCHECKED = Buffer.from("}\n\n");
const SUCCEEDED = Buffer.from(',"failed":false}\n\n');
const FAILED = Buffer.from(',"failed":true}\n\n');

/** Writes events as server-sent events, one after the other. */
class EventWriter {
  #bytes: Uint8Array = new Uint8Array(0);
  #length = 0;
  readonly #started = new CallTemplate("callStarted");
  readonly #finished = new CallTemplate("callFinished");

  write(record: EventRecord): void {
    const { content } = record;
    if (typeof content === "string") this.#writeJson(record, content);
    else this.#writeCall(record, content);
  }

  /** Takes what was written; undefined if that is nothing. */
  take(): Uint8Array | undefined {
    const length = this.#length;
    if (length === 0) return undefined;
    const taken = this.#bytes.slice(0, length);
    this.#length = 0;
    if (this.#bytes.length > WRITER_SIZE) this.#bytes = new Uint8Array(0);
    return taken;
  }

  #writeJson({ kind, seq }: EventRecord, json: string): void {
    const text = Buffer.from(`id: ${seq}\nevent: ${kind}\ndata: ${json}\n\n`);
    this.#reserve(text.length);
    this.#put(text);
  }

  #writeCall(record: EventRecord, names: CallNames): void {
    const isStart = record.kind === "callStarted";
    const head = (isStart ? this.#started : this.#finished).fill(record, names);
    this.#reserve(head.length + MAX_TAIL);
    this.#put(head);
    if (!isStart) this.#putDuration(record.duration);
    if (isStart || record.failed === undefined) this.#put(UNCHECKED);
    else this.#put(record.failed ? FAILED : SUCCEEDED);
  }

  /** Makes sure that there is memory for `size` more bytes. */
  #reserve(size: number): void {
    const needed = this.#length + size;
    if (needed <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(WRITER_SIZE, 2 * needed));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }

  #put(bytes: Uint8Array): void {
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  /** Writes a time in ms with three decimals. */
  #putDuration(duration: number): void {
    const micros = Math.round(duration * 1000);
    const whole = Math.floor(micros / 1000);
    const point = this.#length + widthOf(whole);
    putDigits(this.#bytes, point, whole, point - this.#length);
    this.#bytes[point] = POINT;
    this.#length = point + 4;
    putDigits(this.#bytes, this.#length, micros - whole * 1000, 3);
  }
}

/**
 * A call event up to its start time or its duration. Most often, only digits differ from one event to the next, so the
 * bytes are changed in place.
 */
class CallTemplate {
  readonly #kind: PlainCallEvent["kind"];
  #bytes: Uint8Array = new Uint8Array(0);
  /** The values in the bytes. */
  #names: CallNames | undefined;
  #seq = 0;
  #at = 0;
  #call = 0;
  #startedAt = 0;
  /** The offsets at which the values end. The number of the event occurs twice. */
  #idEnd = 0;
  #seqEnd = 0;
  #atEnd = 0;
  #callEnd = 0;
  #startedAtEnd = 0;
  /** The numbers from which on the event and the call have more digits, and the number below which the call has fewer. */
  #seqLimit = 0;
  #callLimit = 0;
  #callMinimum = 0;

  constructor(kind: PlainCallEvent["kind"]) {
    this.#kind = kind;
  }

  /** Writes the values of an event into the bytes. @returns the bytes, which the next event changes */
  fill(record: EventRecord, names: CallNames): Uint8Array {
    const { seq, at, call, startedAt } = record;
    const hasWidths =
      seq < this.#seqLimit &&
      call < this.#callLimit &&
      call >= this.#callMinimum &&
      seq > this.#seq;
    if (names === this.#names && hasWidths) {
      const bytes = this.#bytes;
      changeDigits(bytes, this.#idEnd, this.#seq, seq);
      changeDigits(bytes, this.#seqEnd, this.#seq, seq);
      changeDigits(bytes, this.#callEnd, this.#call, call);
      if (at !== this.#at) changeTime(bytes, this.#atEnd, this.#at, at);
      if (startedAt !== this.#startedAt)
        changeTime(bytes, this.#startedAtEnd, this.#startedAt, startedAt);
    } else {
      this.#names = names;
      this.#format(record, names);
    }
    this.#seq = seq;
    this.#at = at;
    this.#call = call;
    this.#startedAt = startedAt;
    return this.#bytes;
  }

  #format({ seq, at, call, startedAt }: EventRecord, names: CallNames): void {
    const kind = this.#kind;
    const isStart = kind === "callStarted";
    const id = `id: ${seq}`;
    const toSeq = `${id}\nevent: ${kind}\ndata: {"kind":"${kind}",${isStart ? "" : '"outcome":"answered",'}"seq":${seq}`;
    const toAt = `${toSeq},"at":${at}`;
    const toCall = `${toAt},"call":${call}`;
    const toStart = `${toCall},${JSON.stringify(names).slice(1, -1)},"startedAt":${startedAt}`;
    this.#idEnd = id.length;
    this.#seqEnd = toSeq.length;
    this.#atEnd = toAt.length;
    this.#callEnd = toCall.length;
    this.#startedAtEnd = Buffer.byteLength(toStart);
    this.#bytes = Buffer.from(isStart ? toStart : `${toStart},"duration":`);
    this.#seqLimit = 10 ** widthOf(seq);
    this.#callLimit = 10 ** widthOf(call);
    this.#callMinimum = this.#callLimit / 10;
  }
}

function widthOf(value: number): number {
  let width = 1;
  for (let limit = 10; limit <= value; limit *= 10) width++;
  return width;
}

/** Replaces a time of 13 digits, which ends before the offset `end`. */
function changeTime(bytes: Uint8Array, end: number, from: number, to: number): void {
  const [fromHigh, toHigh] = [Math.floor(from / 1e6), Math.floor(to / 1e6)];
  changeDigits(bytes, end - 6, fromHigh, toHigh);
  changeDigits(bytes, end, from - fromHigh * 1e6, to - toHigh * 1e6);
}

/** Replaces an integer by one of the same width. Both have at most 31 bits and end before the offset `end`. */
function changeDigits(bytes: Uint8Array, end: number, from: number, to: number): void {
  let previous = from | 0;
  let rest = to | 0;
  for (let at = end - 1; rest !== previous; at--) {
    const quotient = (rest / 10) | 0;
    bytes[at] = ZERO + rest - quotient * 10;
    rest = quotient;
    previous = (previous / 10) | 0;
  }
}

/** Writes an integer of at most 31 bits, which ends before the offset `end`. */
function putDigits(bytes: Uint8Array, end: number, value: number, width: number): void {
  let rest = value | 0;
  for (let at = end; at > end - width;) {
    const quotient = (rest / 10) | 0;
    bytes[--at] = ZERO + rest - quotient * 10;
    rest = quotient;
  }
}
