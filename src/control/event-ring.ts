import { Buffer } from "node:buffer";
import { clearInterval, clearTimeout, setInterval, setTimeout } from "node:timers";
import type { EventKind, EventStamp, HubEvent } from "../base/events.ts";
import type { Hub } from "../hub/hub.ts";
import { recordOfEvent } from "../terminal/log.ts";
import { redactTexts } from "./documents.ts";
import type { EventDocument } from "./schemas.ts";

/** Maximum number and size (UTF-16 units) of the events that are kept. */
const RING_LIMITS = { events: 4096, size: 1024 * 1024 };
/** Maximum size of one event as JSON, in bytes. A larger event keeps only the beginning of its text. */
const MAX_EVENT = 64 * 1024;
/** Length to which the text of an event larger than `MAX_EVENT` is cut, in UTF-16 units. */
const CUT_TEXT = 1000;
/** Maximum number of bytes that a reader may leave unread; then its stream ends. */
const MAX_UNREAD = 1024 * 1024;
/**
 * Events are formatted and sent in batches, because both cost several times as much for single events between calls.
 * A batch is complete after `delay` ms, or when it has this many events or this many UTF-16 units of log lines.
 */
const COLLECTED = { delay: 20, events: 256, length: 64 * 1024 };
/** Interval of comments that keep a connection without events open, in ms. */
const HEARTBEAT = 15_000;
const COMMENT = ":\n\n";

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

interface Emitted {
  readonly event: HubEvent;
  readonly stamp: EventStamp;
}

/**
 * Consecutive events that share one string: a string for each of thousands of kept events would cost more for the
 * garbage collector than for making it.
 */
interface Batch {
  readonly events: readonly BatchedEvent[];
  /** The events as server-sent events. */
  readonly text: string;
  /** Number of events at the beginning of the batch that are no longer kept. */
  evicted: number;
}

interface BatchedEvent {
  readonly seq: number;
  readonly kind: EventKind;
  /** The offset at which the event ends in the text of the batch. */
  readonly end: number;
}

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
  /** Ends the stream. */
  readonly signal: AbortSignal;
}

/**
 * The last events of a hub, and streams of its events. Events of calls are kept only while somebody reads them,
 * because otherwise the hub does not emit them.
 */
export class EventRing {
  readonly #hub: Pick<Hub, "subscribe" | "lastSeq">;
  readonly #redact: (text: string) => string;
  /** The kept events, oldest first. */
  readonly #kept: Batch[] = [];
  /** Events that are not formatted yet, and the length of the log lines among them, in UTF-16 units. */
  #collected: Emitted[] = [];
  #collectedLength = 0;
  /** The timer that flushes the collected events; undefined if there are none, or no reader. */
  #timer: NodeJS.Timeout | undefined;
  readonly #readers = new Set<Reader>();
  readonly #unsubscribe: () => void;
  /** Number and size of the kept events. */
  #count = 0;
  #size = 0;
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
    this.#flush();
  }

  /**
   * A stream of server-sent events: the kept ones after number `after`, then new ones, until the signal is aborted.
   */
  open({ kinds, after, signal, onEnd }: EventRequest): ReadableStream<Uint8Array> {
    const wanted = new Set(kinds);
    this.#flush();
    const missed = after === undefined ? [] : this.#after(after, wanted);
    let end = (): void => {};
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          const heartbeat = setInterval(() => send(Buffer.from(COMMENT)), HEARTBEAT);
          // A reader that stays does not keep the process alive.
          heartbeat.unref();
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
          const send = (bytes: Uint8Array): void => {
            if (isOver) return;
            controller.enqueue(bytes);
            if ((controller.desiredSize ?? 0) <= 0) end();
          };
          const reader: Reader = { kinds: wanted, send };
          // The response's head is sent with the first chunk.
          send(Buffer.from([COMMENT, ...missed].join("")));
          this.#addReader(reader);
          signal.addEventListener("abort", end, { once: true });
          if (signal.aborted) end();
        },
        cancel: () => end(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MAX_UNREAD }),
    );
  }

  /** The events after number `after`, as server-sent events. They begin with `gap` if some are no longer kept. */
  #after(after: number, wanted: ReadonlySet<EventKind>): readonly string[] {
    // A number above the last one of this hub comes from an earlier hub: the reader knows no event of this hub.
    const isOfThisHub = after <= this.#hub.lastSeq;
    const texts = this.#kept.flatMap((batch) =>
      textsOf(batch, ({ seq, kind }) => (seq > after || !isOfThisHub) && wanted.has(kind)),
    );
    if (isOfThisHub && after >= this.#evicted) return texts;
    const [oldest] = this.#kept;
    const first = oldest?.events[oldest.evicted]?.seq ?? this.#evicted + 1;
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
    // Every call may use a remembered approval: like events of calls, this one is kept only while somebody reads.
    const isRule = event.kind === "approval" && event.change === "decided" && event.by === "rule";
    if (isRule && ![...this.#readers].some(({ kinds }) => kinds.has(kind))) return;
    this.#collected.push({ event, stamp });
    if (event.kind === "log") this.#collectedLength += event.text.length;
    if (this.#collected.length >= COLLECTED.events || this.#collectedLength > COLLECTED.length)
      this.#flush();
    else if (this.#readers.size > 0)
      this.#timer ??= setTimeout(() => this.#flush(), COLLECTED.delay);
  }

  /** Formats what is collected, sends it to the readers and keeps it. */
  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#collected.length === 0) return;
    const batch = formatBatch(this.#collected, this.#redact);
    const { events, text } = batch;
    this.#collected = [];
    this.#collectedLength = 0;
    let whole: Buffer | undefined;
    for (const reader of this.#readers) {
      const { kinds } = reader;
      if (events.every(({ kind }) => kinds.has(kind))) reader.send((whole ??= Buffer.from(text)));
      else {
        const texts = textsOf(batch, ({ kind }) => kinds.has(kind));
        if (texts.length > 0) reader.send(Buffer.from(texts.join("")));
      }
    }
    this.#kept.push(batch);
    this.#count += events.length;
    this.#size += text.length;
    this.#evict();
  }

  #evict(): void {
    const kept = this.#kept;
    while (this.#count > RING_LIMITS.events || this.#size > RING_LIMITS.size) {
      const [oldest] = kept;
      const event = oldest?.events[oldest.evicted];
      if (oldest === undefined || event === undefined) break;
      this.#size -= event.end - (oldest.events[oldest.evicted - 1]?.end ?? 0);
      this.#count--;
      this.#evicted = event.seq;
      oldest.evicted++;
      if (oldest.evicted === oldest.events.length) kept.shift();
    }
  }
}

function formatBatch(emitted: readonly Emitted[], redact: (text: string) => string): Batch {
  let text = "";
  const events = emitted.map(({ event, stamp }): BatchedEvent => {
    const { kind } = event;
    const { seq } = stamp;
    text += `id: ${seq}\nevent: ${kind}\ndata: ${formatEvent(event, stamp, redact)}\n\n`;
    return { seq, kind, end: text.length };
  });
  return { events, text, evicted: 0 };
}

/** The texts of those events of a batch that are kept and wanted. */
function textsOf(
  { events, text, evicted }: Batch,
  isWanted: (event: BatchedEvent) => boolean,
): readonly string[] {
  return events.flatMap((event, at) => {
    if (at < evicted || !isWanted(event)) return [];
    return [text.slice(events[at - 1]?.end ?? 0, event.end)];
  });
}

/** An event as one line of JSON. */
function formatEvent(event: HubEvent, stamp: EventStamp, redact: (text: string) => string): string {
  // The usual event of a call has only names and numbers: nothing to redact. Copying it to add the stamp would cost
  // twice as much as this string.
  if (isCallEvent(event) && !("cause" in event))
    return `{"seq":${stamp.seq},"at":${stamp.at},${JSON.stringify(event).slice(1)}`;
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
  // An event of a call has no text beside its fields. For a log line, the event's own text and level are used.
  const record = isCallEvent(event) ? undefined : recordOfEvent(event, stamp.at);
  const words = record && { level: record.level, text: record.message };
  return redactTexts({ ...stamp, ...words, ...event }, redact) as EventDocument;
}
