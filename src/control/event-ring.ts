import { Buffer } from "node:buffer";
import { clearInterval, clearTimeout, setInterval, setTimeout } from "node:timers";
import type { EventKind, EventStamp, HubEvent } from "../base/events.ts";
import type { Hub } from "../hub/hub.ts";
import { recordOfEvent } from "../terminal/log.ts";
import { redactTexts } from "./documents.ts";
import { EventRecords, isPlainCall } from "./event-records.ts";
import type { EventDocument } from "./schemas.ts";

/** Maximum size of one event as JSON, in bytes. A larger event keeps only the beginning of its text. */
const MAX_EVENT = 64 * 1024;
/** Length to which the text of an event larger than `MAX_EVENT` is cut, in UTF-16 units. */
const CUT_TEXT = 1000;
/**
 * Maximum number of bytes that a reader may leave unread, in addition to the kept events that it asked for. A reader that
 * leaves more is disconnected: its stream fails, so that nothing of it is held any more.
 */
const MAX_UNREAD = 1024 * 1024;
/** Maximum size of the pieces in which kept events are handed over, in bytes. The next piece waits until it is wanted. */
const PIECE = 64 * 1024;
/**
 * Events are sent in batches, because sending each event alone would take several times as long. A batch is complete
 * after `delay` ms, or when it has `events` events or about `size` bytes.
 */
const BATCH = { delay: 20, events: 256, size: 64 * 1024 };
/** Interval of comments that keep a connection without events open, in ms. */
const HEARTBEAT = 15_000;
const COMMENT = ":\n\n";

/** The kinds of call events. The hub emits them only while somebody reads them. */
const CALL_KINDS: readonly EventKind[] = ["callStarted", "callFinished", "callCancelled"];
const KEPT_KINDS: readonly EventKind[] = [
  "server",
  "state",
  "log",
  "catalog",
  "alert",
  "approval",
  "client",
  "manifest",
  "mode",
];
export const EVENT_KINDS: readonly EventKind[] = [...KEPT_KINDS, ...CALL_KINDS];

interface Reader {
  readonly kinds: ReadonlySet<EventKind>;
  send(bytes: Uint8Array): void;
}

export interface EventRequest {
  /** The kinds that the reader wants. */
  readonly kinds: readonly EventKind[];
  /** Events up to this number are known to the reader; undefined: only events from now on. */
  readonly after: number | undefined;
  /** Called when the stream has ended. */
  readonly onEnd?: (() => void) | undefined;
  /** Aborted to end the stream. */
  readonly signal: AbortSignal;
}

/**
 * The last events of a hub, and streams of its events. Events of calls are kept only while somebody reads them,
 * because otherwise the hub does not emit them.
 */
export class EventRing {
  readonly #hub: Pick<Hub, "subscribe" | "lastSeq">;
  readonly #redact: (text: string) => string;
  readonly #records: EventRecords;
  /** Number of the events that were sent to the readers, and the size of the next batch in bytes. */
  #sent = 0;
  #batchSize = 0;
  /** The timer that completes the batch; undefined if it has no events, or if there are no readers. */
  #timer: NodeJS.Timeout | undefined;
  readonly #readers = new Set<Reader>();
  readonly #unsubscribe: () => void;
  #unsubscribeCalls: (() => void) | undefined;

  /** @param redact removes secrets from a text */
  constructor(hub: Pick<Hub, "subscribe" | "lastSeq">, redact: (text: string) => string) {
    this.#hub = hub;
    this.#redact = redact;
    this.#records = new EventRecords(hub.lastSeq);
    this.#unsubscribe = hub.subscribe((event, stamp) => this.#add(event, stamp), KEPT_KINDS);
  }

  close(): void {
    this.#unsubscribe();
    this.#unsubscribeCalls?.();
    this.#flush();
  }

  /**
   * A stream of server-sent events: the kept ones after number `after`, then new ones, until the signal is aborted.
   */
  open({ kinds, after, signal, onEnd }: EventRequest): ReadableStream<Uint8Array> {
    const wanted = new Set(kinds);
    this.#flush();
    const missed = after === undefined ? [] : this.#after(after, wanted);
    let end = (failure?: Error): void => void failure;
    let handOver = (): void => {};
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          const heartbeat = setInterval(() => send(Buffer.from(COMMENT)), HEARTBEAT);
          // An open stream must not keep the process alive.
          heartbeat.unref();
          let isOver = false;
          // A comment is sent at once, because the status and headers of the response are sent with its first chunk.
          const kept = Buffer.concat([Buffer.from(COMMENT), ...missed]);
          let waiting = [...piecesOf(kept)];
          // Of the bytes that wait: those of kept events, which come first, and those of later events.
          let keptSize = kept.length;
          let unread = 0;
          const onAbort = (): void => end();
          end = (failure) => {
            if (isOver) return;
            isOver = true;
            clearInterval(heartbeat);
            signal.removeEventListener("abort", onAbort);
            this.#removeReader(reader);
            waiting = [];
            onEnd?.();
            try {
              if (failure === undefined) controller.close();
              else controller.error(failure);
            } catch {
              // The reader has cancelled the stream.
            }
          };
          handOver = () => {
            while (!isOver && (controller.desiredSize ?? 0) > 0) {
              const next = waiting.shift();
              if (next === undefined) return;
              if (keptSize > 0) keptSize -= next.length;
              else unread -= next.length;
              controller.enqueue(next);
            }
          };
          const send = (bytes: Uint8Array): void => {
            if (isOver) return;
            waiting.push(bytes);
            unread += bytes.length;
            handOver();
            if (unread > MAX_UNREAD) end(new Error("The reader does not read."));
          };
          const reader: Reader = { kinds: wanted, send };
          handOver();
          this.#addReader(reader);
          signal.addEventListener("abort", onAbort, { once: true });
          if (signal.aborted) end();
        },
        pull: () => handOver(),
        cancel: () => end(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: PIECE }),
    );
  }

  /** The events after number `after`, as server-sent events. They begin with `gap` if some are no longer kept. */
  #after(after: number, wanted: ReadonlySet<EventKind>): readonly Uint8Array[] {
    // If `after` is greater than the last number of this hub, it comes from an earlier hub, so the reader knows no
    // event of this hub.
    const isOfThisHub = after <= this.#hub.lastSeq;
    const isMissed = (seq: number): boolean => seq > after || !isOfThisHub;
    const records = this.#records;
    const missed = records.format(0, (seq, kind) => isMissed(seq) && wanted.has(kind));
    const events = missed === undefined ? [] : [missed];
    if (isOfThisHub && after >= records.lastEvicted) return events;
    const first = records.firstSeq ?? records.lastEvicted + 1;
    return [Buffer.from(`event: gap\ndata: {"first":${first}}\n\n`), ...events];
  }

  #addReader(reader: Reader): void {
    this.#readers.add(reader);
    if (this.#unsubscribeCalls !== undefined) return;
    if (!CALL_KINDS.some((kind) => reader.kinds.has(kind))) return;
    const listener = (event: HubEvent, stamp: EventStamp): void => this.#add(event, stamp);
    this.#unsubscribeCalls = this.#hub.subscribe(listener, CALL_KINDS);
  }

  #removeReader(reader: Reader): void {
    this.#readers.delete(reader);
    const wantsCalls = [...this.#readers].some(({ kinds }) =>
      CALL_KINDS.some((kind) => kinds.has(kind)),
    );
    if (wantsCalls) return;
    this.#unsubscribeCalls?.();
    this.#unsubscribeCalls = undefined;
  }

  #add(event: HubEvent, stamp: EventStamp): void {
    const { kind } = event;
    // A decision by a rule may occur with every call, so it is kept only while somebody reads this kind of event.
    const isRule = event.kind === "approval" && event.change === "decided" && event.by === "rule";
    if (isRule && ![...this.#readers].some(({ kinds }) => kinds.has(kind))) return;
    const records = this.#records;
    this.#batchSize += isPlainCall(event, stamp)
      ? records.addCall(event, stamp)
      : records.add(kind, stamp.seq, formatEvent(event, stamp, this.#redact));
    if (records.count - this.#sent >= BATCH.events || this.#batchSize > BATCH.size) this.#flush();
    else if (this.#readers.size > 0) this.#timer ??= setTimeout(() => this.#flush(), BATCH.delay);
  }

  /** Sends the events of the batch to the readers. */
  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const sent = this.#sent;
    this.#sent = this.#records.count;
    this.#batchSize = 0;
    for (const reader of this.#readers) {
      const bytes = this.#records.format(sent, (_, kind) => reader.kinds.has(kind));
      if (bytes !== undefined) reader.send(bytes);
    }
  }
}

/** Cuts bytes into pieces of at most `PIECE` bytes. */
function piecesOf(bytes: Uint8Array): readonly Uint8Array[] {
  const count = Math.ceil(bytes.length / PIECE);
  return Array.from({ length: count }, (_, i) => bytes.subarray(i * PIECE, (i + 1) * PIECE));
}

/** An event as one line of JSON. */
function formatEvent(event: HubEvent, stamp: EventStamp, redact: (text: string) => string): string {
  const document = eventDocument(event, stamp, redact);
  const json = JSON.stringify(document);
  if (json.length * 3 <= MAX_EVENT || Buffer.byteLength(json) <= MAX_EVENT) return json;
  const { seq, at, kind, level, text = "" } = document;
  return JSON.stringify({ seq, at, kind, level, text: text.slice(0, CUT_TEXT), truncated: true });
}

function isCallEvent({ kind }: HubEvent): boolean {
  return CALL_KINDS.includes(kind);
}

/** An event as a document: its fields, its number and time, and the event in words. Texts are redacted. */
export function eventDocument(
  event: HubEvent,
  stamp: EventStamp,
  redact: (text: string) => string,
): EventDocument {
  // No text is made for an event of a call. A log line has its own text and level, which override those in `words`.
  const record = isCallEvent(event) ? undefined : recordOfEvent(event, stamp.at);
  const words = record && { level: record.level, text: record.message };
  return redactTexts({ ...stamp, ...words, ...event }, redact) as EventDocument;
}
