import { Buffer } from "node:buffer";
import { clearInterval, clearTimeout, setInterval, setTimeout } from "node:timers";
import {
  CALL_KINDS,
  type CallTotals,
  type DeliveredEvent,
  type EventKind,
  type EventListener,
  type EventStamp,
  type HubEvent,
  OTHER_KINDS,
} from "../base/hub-events.ts";
import type { Hub } from "../hub/hub.ts";
import { recordOfEvent } from "../terminal/log.ts";
import { redactTexts } from "./documents.ts";
import type { CallDetail, EventDocument } from "./schemas.ts";

/** Maximum number of the events that are kept, and their maximum total size in bytes. */
const KEPT = { events: 4096, size: 1024 * 1024 };
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
/**
 * More calls per second than a person can read are told as numbers: the hub then emits no event for a call that is
 * answered without an error, and `calls` in every `interval` ms. It ends after `quiet` intervals with fewer calls.
 */
const COUNTING = { callsPerSecond: 50, interval: 500, quiet: 2 };
const SECOND = 1000;

/** The kinds of call events that are told one by one even if calls are counted, if they are notable. */
const NOTABLE_KINDS: readonly EventKind[] = ["callFinished", "callCancelled", "calls"];

interface Reader {
  readonly kinds: ReadonlySet<EventKind>;
  readonly calls: CallDetail;
  send(bytes: Uint8Array): void;
}

/** An event that is kept. `only`: the readers that get it; undefined: all that want its kind. */
interface KeptEvent {
  readonly kind: EventKind;
  readonly seq: number;
  readonly only: CallDetail | undefined;
  /** The event as a server-sent event. */
  readonly text: string;
}

/** The time in which calls are counted: `before` are the totals at the last event `calls`, which was at `since` (ms). */
interface Counting {
  before: CallTotals;
  since: number;
  quiet: number;
  readonly timer: NodeJS.Timeout;
}

export interface EventRequest {
  /** The kinds that the reader wants. */
  readonly kinds: readonly EventKind[];
  readonly calls: CallDetail;
  /** Events up to this number are known to the reader; undefined: only events from now on. */
  readonly after: number | undefined;
  /** Called when the stream has ended. */
  readonly onEnd?: (() => void) | undefined;
  /** Aborted to end the stream. */
  readonly signal: AbortSignal;
}

type EventSource = Pick<Hub, "subscribe" | "lastSeq" | "usage" | "reportCalls">;

/**
 * The last events of a hub, and streams of its events. Events of calls are kept only while somebody reads them,
 * because otherwise the hub does not emit them.
 */
export class EventRing {
  readonly #hub: EventSource;
  readonly #redact: (text: string) => string;
  /** A ring buffer: event `n`, counted from 0, is at index `n % KEPT.events`. */
  readonly #kept: KeptEvent[] = [];
  /** The first event that is kept, and the one after the last. */
  #first = 0;
  #next = 0;
  /** Total size of the events that are kept, in UTF-16 units. */
  #size = 0;
  /** The number of the last event that is not kept any more. */
  #lastEvicted: number;
  /** Number of the events that were sent to the readers, and the size of the next batch in UTF-16 units. */
  #sent = 0;
  #batchSize = 0;
  /** The timer that completes the batch; undefined if it has no events, or if there are no readers. */
  #timer: NodeJS.Timeout | undefined;
  readonly #readers = new Set<Reader>();
  readonly #unsubscribe: () => void;
  /** How the ring listens to calls, and the function that ends it; undefined: nobody reads events of calls. */
  #listening: { readonly detail: CallDetail; readonly end: () => void } | undefined;
  /** The calls that were told one by one in the present second, and its beginning, in ms since the epoch. */
  #told = { calls: 0, since: 0 };
  /** Undefined: calls are told one by one. */
  #counting: Counting | undefined;

  /**
   * @param redact removes secrets from a text
   * @param takeEarlier takes the last events before this one listens, the oldest first
   */
  constructor(
    hub: EventSource,
    redact: (text: string) => string,
    takeEarlier: () => readonly DeliveredEvent[] = () => [],
  ) {
    this.#hub = hub;
    this.#redact = redact;
    this.#unsubscribe = hub.subscribe((...emitted) => this.#add(...emitted), OTHER_KINDS);
    const earlier = takeEarlier();
    const first = earlier[0]?.[1].seq;
    this.#lastEvicted = first === undefined ? hub.lastSeq : first - 1;
    for (const emitted of earlier) this.#add(...emitted);
  }

  close(): void {
    this.#unsubscribe();
    this.#listening?.end();
    this.#stopCounting();
    this.#flush();
  }

  /**
   * A stream of server-sent events: the kept ones after number `after`, then new ones, until the signal is aborted.
   */
  open({ kinds, calls, after, signal, onEnd }: EventRequest): ReadableStream<Uint8Array> {
    const wanted = new Set(kinds);
    this.#flush();
    const missed = after === undefined ? [] : this.#after(after, { kinds: wanted, calls });
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
          const reader: Reader = { kinds: wanted, calls, send };
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
  #after(after: number, reader: Pick<Reader, "kinds" | "calls">): readonly Uint8Array[] {
    // If `after` is greater than the last number of this hub, it comes from an earlier hub, so the reader knows no
    // event of this hub.
    const isOfThisHub = after <= this.#hub.lastSeq;
    const missed = this.#format(0, reader, isOfThisHub ? after : -1);
    const events = missed === undefined ? [] : [missed];
    if (isOfThisHub && after >= this.#lastEvicted) return events;
    const firstKept = this.#first === this.#next ? undefined : this.#at(this.#first)?.seq;
    const first = firstKept ?? this.#lastEvicted + 1;
    return [Buffer.from(`event: gap\ndata: {"first":${first}}\n\n`), ...events];
  }

  /**
   * The kept events that a reader wants; undefined if there are none.
   * @param skipped the number of events that were added before the first one that is wanted
   * @param after the number of the last event that the reader knows
   */
  #format(
    skipped: number,
    { kinds, calls }: Pick<Reader, "kinds" | "calls">,
    after = -1,
  ): Uint8Array | undefined {
    const texts: string[] = [];
    for (let n = Math.max(skipped, this.#first); n < this.#next; n++) {
      const event = this.#at(n);
      if (event === undefined || event.seq <= after || !kinds.has(event.kind)) continue;
      if (event.only === undefined || event.only === calls) texts.push(event.text);
    }
    return texts.length === 0 ? undefined : Buffer.from(texts.join(""));
  }

  #at(n: number): KeptEvent | undefined {
    return this.#kept[n % KEPT.events];
  }

  #addReader(reader: Reader): void {
    this.#readers.add(reader);
    this.#listen();
  }

  #removeReader(reader: Reader): void {
    this.#readers.delete(reader);
    this.#listen();
  }

  /** Listens to the events of calls that the readers want at present. */
  #listen(): void {
    const readers = [...this.#readers].filter(({ kinds }) =>
      CALL_KINDS.some((kind) => kinds.has(kind)),
    );
    if (readers.length === 0) this.#stopCounting();
    const isEach = this.#counting === undefined || readers.some(({ calls }) => calls === "all");
    const detail = readers.length === 0 ? undefined : isEach ? "all" : "counted";
    if (detail === this.#listening?.detail) return;
    this.#listening?.end();
    this.#listening = undefined;
    if (detail === undefined) return;
    const add: EventListener = (...emitted) => this.#add(...emitted);
    const end =
      detail === "all"
        ? this.#hub.subscribe(add, CALL_KINDS)
        : this.#hub.subscribe(add, NOTABLE_KINDS, "notable");
    this.#listening = { detail, end };
  }

  #add(...[event, stamp, detail]: Parameters<EventListener>): void {
    const { kind } = event;
    // A decision by a rule may occur with every call, so it is kept only while somebody reads this kind of event.
    const isRule = event.kind === "approval" && event.change === "decided" && event.by === "rule";
    if (isRule && ![...this.#readers].some(({ kinds }) => kinds.has(kind))) return;
    const isPlain = kind === "callStarted" || detail === "all";
    const only = kind === "calls" ? "counted" : isPlain && this.#counting ? "all" : undefined;
    const json = formatEvent(event, stamp, this.#redact);
    const text = `id: ${stamp.seq}\nevent: ${kind}\ndata: ${json}\n\n`;
    this.#keep({ kind, seq: stamp.seq, only, text });
    this.#batchSize += text.length;
    if (isPlain && this.#counting === undefined) this.#countToward(stamp.at);
    if (this.#next - this.#sent >= BATCH.events || this.#batchSize > BATCH.size) this.#flush();
    else if (this.#readers.size > 0) this.#timer ??= setTimeout(() => this.#flush(), BATCH.delay);
  }

  #keep(event: KeptEvent): void {
    this.#size += event.text.length;
    while (this.#size > KEPT.size || this.#next - this.#first === KEPT.events) {
      const evicted = this.#at(this.#first++);
      this.#lastEvicted = evicted?.seq ?? this.#lastEvicted;
      this.#size -= evicted?.text.length ?? 0;
    }
    this.#kept[this.#next++ % KEPT.events] = event;
  }

  /** Counts the event of a call. Begins to count calls, in place of telling each, if there are too many in a second. */
  #countToward(at: number): void {
    if (at - this.#told.since >= SECOND) this.#told = { calls: 0, since: at };
    // A call has two events.
    this.#told.calls += 0.5;
    if (this.#told.calls <= COUNTING.callsPerSecond) return;
    const timer = setInterval(() => this.#report(), COUNTING.interval);
    timer.unref();
    this.#counting = { before: this.#hub.usage.totals, since: at, quiet: 0, timer };
    this.#listen();
  }

  #report(): void {
    const counting = this.#counting;
    if (counting === undefined) return;
    const now = Date.now();
    const duration = Math.max(1, now - counting.since);
    const totals = this.#hub.reportCalls(counting.before, duration);
    const calls = totals.ended - counting.before.ended;
    counting.before = totals;
    counting.since = now;
    counting.quiet = calls * SECOND > COUNTING.callsPerSecond * duration ? 0 : counting.quiet + 1;
    if (counting.quiet < COUNTING.quiet) return;
    this.#stopCounting();
    this.#listen();
  }

  #stopCounting(): void {
    clearInterval(this.#counting?.timer);
    this.#counting = undefined;
  }

  /** Sends the events of the batch to the readers. */
  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const sent = this.#sent;
    this.#sent = this.#next;
    this.#batchSize = 0;
    for (const reader of this.#readers) {
      const bytes = this.#format(sent, reader);
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
  return CALL_KINDS.some((one) => one === kind);
}

/** An event as a document: its fields, its number and time, and the event in words. Texts are redacted. */
function eventDocument(
  event: HubEvent,
  stamp: EventStamp,
  redact: (text: string) => string,
): EventDocument {
  // No text is made for an event of a call. A log line has its own text and level, which override those in `words`.
  const record = isCallEvent(event) ? undefined : recordOfEvent(event, stamp.at);
  const words = record && { level: record.level, text: record.message };
  return redactTexts({ ...stamp, ...words, ...event }, redact) as EventDocument;
}
