import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import { HubError } from "../base/errors.ts";
import type { EventKind, EventStamp, HubEvent } from "../base/events.ts";
import type { Hub } from "../hub/hub.ts";
import { recordOfEvent } from "../terminal/log.ts";
import type { EventDocument } from "./schemas.ts";

/** Maximum number and size (bytes) of the events that are kept. */
const RING_LIMITS = { events: 4096, bytes: 1024 * 1024 };
/** Maximum size of one event as JSON, in bytes; of a larger one only its beginning in words is kept. */
const MAX_EVENT = 64 * 1024;
/** Length to which the text of such an event is cut, in UTF-16 units. */
const CUT_TEXT = 1000;
/** A reader that has this many bytes unread is ended. */
const MAX_UNREAD = 1024 * 1024;
/** Interval of comments that keep a connection without events open, in ms. */
const HEARTBEAT = 15_000;

/** The kinds of call events: they are emitted only while somebody reads them. */
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

interface KeptEvent {
  readonly seq: number;
  readonly kind: EventKind;
  /** As a server-sent event. */
  readonly text: string;
}

interface Reader {
  readonly kinds: ReadonlySet<EventKind>;
  send(text: string): void;
}

export interface EventRequest {
  /** The kinds that the reader wants. */
  readonly kinds: readonly EventKind[];
  /** Events up to this number are known to the reader; undefined: only events from now on. */
  readonly after: number | undefined;
  /** Called when the stream has ended. */
  readonly onEnd?: (() => void) | undefined;
  /** Ends the stream. */
  readonly signal: AbortSignal;
}

/**
 * The last events of a hub, and streams of those to come. Events of calls are kept only while somebody reads them,
 * because nobody else makes the hub emit them.
 */
export class EventRing {
  readonly #hub: Pick<Hub, "subscribe">;
  readonly #redact: (text: string) => string;
  /** The kept events begin at `#first`; those before it are removed from time to time, because that moves all others. */
  #kept: KeptEvent[] = [];
  #first = 0;
  readonly #readers = new Set<Reader>();
  readonly #unsubscribe: () => void;
  #bytes = 0;
  /** The number of the last event that is not kept any more. */
  #evicted: number;
  #unsubscribeCalls: (() => void) | undefined;

  /** @param redact removes secrets from a text */
  constructor(hub: Pick<Hub, "subscribe" | "lastSeq">, redact: (text: string) => string) {
    this.#hub = hub;
    this.#redact = redact;
    this.#evicted = hub.lastSeq;
    this.#unsubscribe = hub.subscribe((event, stamp) => this.#add(event, stamp), KEPT_KINDS);
  }

  close(): void {
    this.#unsubscribe();
    this.#unsubscribeCalls?.();
  }

  /** A stream of server-sent events: those kept after `after`, then those to come, until the signal is aborted. */
  open({ kinds, after, signal, onEnd }: EventRequest): ReadableStream<Uint8Array> {
    const wanted = new Set(kinds);
    const missed = after === undefined ? [] : this.#after(after, wanted);
    let end = (): void => {};
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          const heartbeat = setInterval(() => send(":\n\n"), HEARTBEAT);
          let isOver = false;
          end = () => {
            if (isOver) return;
            isOver = true;
            clearInterval(heartbeat);
            signal.removeEventListener("abort", end);
            this.#removeReader(reader);
            onEnd?.();
            try {
              controller.close();
            } catch {
              // The reader has cancelled the stream.
            }
          };
          let pending = "";
          const flush = (): void => {
            if (isOver) return;
            controller.enqueue(Buffer.from(pending));
            pending = "";
            if ((controller.desiredSize ?? 0) <= 0) end();
          };
          // All events of one turn of the event loop are sent together.
          const send = (text: string): void => {
            if (pending === "") setImmediate(flush);
            pending += text;
          };
          const reader: Reader = { kinds: wanted, send };
          // The response's head is sent with the first chunk.
          pending = [":\n\n", ...missed].join("");
          flush();
          this.#addReader(reader);
          signal.addEventListener("abort", end, { once: true });
          if (signal.aborted) end();
        },
        cancel: () => end(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MAX_UNREAD }),
    );
  }

  /** What a reader that knows all events up to `after` has missed; begins with `gap` if some are not kept any more. */
  #after(after: number, wanted: ReadonlySet<EventKind>): readonly string[] {
    const kept = this.#kept.slice(this.#first);
    const missed = kept.filter(({ seq, kind }) => seq > after && wanted.has(kind));
    const texts = missed.map(({ text }) => text);
    if (after >= this.#evicted) return texts;
    const first = kept[0]?.seq ?? this.#evicted + 1;
    return [`event: gap\ndata: {"first":${first}}\n\n`, ...texts];
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
    const { seq } = stamp;
    const isRule = event.kind === "approval" && event.change === "decided" && event.by === "rule";
    const text = `id: ${seq}\nevent: ${kind}\ndata: ${formatEvent(event, stamp, this.#redact)}\n\n`;
    // A remembered approval is used by each call, and calls are not kept either.
    if (!isRule) this.#keep({ seq, kind, text });
    for (const reader of this.#readers) if (reader.kinds.has(kind)) reader.send(text);
  }

  #keep(event: KeptEvent): void {
    this.#kept.push(event);
    this.#bytes += event.text.length;
    this.#evict();
  }

  #evict(): void {
    const kept = this.#kept;
    while (kept.length - this.#first > RING_LIMITS.events || this.#bytes > RING_LIMITS.bytes) {
      const oldest = kept[this.#first++];
      if (oldest === undefined) break;
      this.#bytes -= oldest.text.length;
      this.#evicted = oldest.seq;
    }
    if (this.#first < RING_LIMITS.events) return;
    this.#kept = kept.slice(this.#first);
    this.#first = 0;
  }
}

/** An event as one line of JSON. */
function formatEvent(event: HubEvent, stamp: EventStamp, redact: (text: string) => string): string {
  // The usual event of a call has only names and numbers.
  if (isCallEvent(event) && !("cause" in event)) return JSON.stringify({ ...stamp, ...event });
  const document = eventDocument(event, stamp, redact);
  const json = JSON.stringify(document);
  if (json.length * 3 <= MAX_EVENT || Buffer.byteLength(json) <= MAX_EVENT) return json;
  const { seq, at, kind, level, text = "" } = document;
  return JSON.stringify({ seq, at, kind, level, text: text.slice(0, CUT_TEXT), truncated: true });
}

function isCallEvent({ kind }: HubEvent): boolean {
  return CALL_KINDS.includes(kind);
}

/** An event as a document: its fields, its number and time, and what it says in words. Texts are redacted. */
export function eventDocument(
  event: HubEvent,
  stamp: EventStamp,
  redact: (text: string) => string,
): EventDocument {
  // The words of a call are its fields, and the words of a log line are its text.
  const record = isCallEvent(event) ? undefined : recordOfEvent(event, stamp.at);
  const words = record && { level: record.level, text: record.message };
  return redactTexts({ ...stamp, ...words, ...event }, redact) as EventDocument;
}

/** A copy of a document in which all texts are redacted and errors have their code and message only. */
function redactTexts(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === "string") return redact(value);
  if (value instanceof HubError) return { code: value.code, message: redact(value.message) };
  if (Array.isArray(value)) return value.map((item) => redactTexts(item, redact));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, redactTexts(item, redact)]),
  );
}
