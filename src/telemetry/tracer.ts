/**
 * telemetry/: traces and metrics of a hub. Traces: `Tracer`, below, makes spans of requests (`request-span.ts`), of
 * servers (`lifecycle.ts`) and of agents; `exporter.ts` sends them, `otlp.ts` encodes them. Metrics: `hub-metrics.ts`.
 * Nothing here is on the path of a call while no endpoint is set.
 */
import { textOf, utf8 } from "../base/bytes.ts";
import type { Propagation } from "../manifest/telemetry.ts";
import type { AttemptTarget, RequestFailure } from "./request-attributes.ts";
import type { Attributes, AttributeValue, EndedSpan, Span, SpanKind } from "./span.ts";
import {
  formatTraceparent,
  isInShare,
  newSpanId,
  newTraceId,
  type RemoteContext,
  type SpanContext,
} from "./trace-context.ts";

export interface TracerSettings {
  /** The share of traces without a parent that is recorded, from 0 to 1. */
  readonly sample: number;
  /** Whether the flag of a parent decides; if not, `sample` holds for all. */
  readonly isParentBased: boolean;
  readonly propagate: Propagation;
  /** Whether spans have the arguments and results of tools. */
  readonly keepsContent: boolean;
}

export interface TracerOptions extends TracerSettings {
  /** Monotonic time, in ms. */
  now(): number;
  /** Removes secrets from a text. */
  redact(text: string): string;
  /** Receives each span that has ended. */
  record(span: EndedSpan): void;
}

/** One of the hub's own requests to a server that has ended. */
export interface OwnRequest extends AttemptTarget {
  /** The id of the request. */
  readonly id: number;
  /** Undefined: it was answered without an error. */
  readonly failure: RequestFailure | undefined;
  /** The time from its sending to its end, in ms. */
  readonly duration: number;
}

/** Where a span stands in its trace. */
export interface TracePosition {
  readonly traceId: string;
  /** Undefined for the first span of a trace. */
  readonly parentSpanId: string | undefined;
  readonly isParentRemote: boolean;
  readonly traceState: string | undefined;
}

/** Makes the spans of a hub. */
export class Tracer {
  /** Receives the hub's own requests to servers that have ended, such as lists; see `OwnRequest`. */
  onOwnRequest: ((request: OwnRequest) => void) | undefined;
  readonly #options: TracerOptions;

  constructor(options: TracerOptions) {
    this.#options = options;
  }

  get settings(): TracerSettings {
    return this.#options;
  }

  now(): number {
    return this.#options.now();
  }

  redact(text: string): string {
    return this.#options.redact(text);
  }

  record(span: EndedSpan): void {
    this.#options.record(span);
  }

  /** Decides whether a new trace is in the sample. An id costs more than a number, and most traces need none. */
  samplesNew(): boolean {
    const { sample } = this.#options;
    return sample >= 1 || Math.random() < sample;
  }

  /** The position at the start of a trace that is in the sample. */
  newPosition(): TracePosition {
    const traceId = newTraceId();
    return { traceId, parentSpanId: undefined, isParentRemote: false, traceState: undefined };
  }

  /**
   * The position of a new span below a parent, or at the start of a trace.
   * @returns undefined if the span is not recorded
   */
  position(parent: RemoteContext | undefined): TracePosition | undefined {
    if (parent === undefined) return this.samplesNew() ? this.newPosition() : undefined;
    const { sample, isParentBased } = this.#options;
    const { traceId, spanId: parentSpanId, traceState } = parent;
    const isSampled = isParentBased ? parent.isSampled : isInShare(traceId, sample);
    return isSampled ? { traceId, parentSpanId, isParentRemote: true, traceState } : undefined;
  }

  /**
   * Begins a span below a span of a request or of the hub; without one, it begins a trace, if that is in the sample.
   * @param startedAt undefined: now
   * @returns undefined if the span is not recorded
   */
  startBelow(
    name: string,
    kind: SpanKind,
    attributes: Attributes,
    parent: SpanContext | undefined,
    startedAt?: number,
  ): LiveSpan | undefined {
    const position = this.position(parent);
    if (position === undefined) return undefined;
    return new LiveSpan(this, name, kind, attributes, parent, position.traceId, startedAt);
  }

  /**
   * Begins a span of the hub itself.
   * @param parent undefined: the span begins a trace, which is recorded whatever share of requests is
   */
  start(
    name: string,
    kind: SpanKind,
    attributes: Attributes,
    parent: SpanContext | undefined,
  ): LiveSpan {
    return new LiveSpan(this, name, kind, attributes, parent);
  }
}

/** A span of the hub itself that may not have ended. */
export class LiveSpan implements EndedSpan, SpanContext {
  readonly traceId: string;
  readonly spanId = newSpanId();
  readonly isSampled = true;
  readonly contentSize = 0;
  readonly #tracer: Tracer;
  readonly #name: string;
  readonly #kind: SpanKind;
  readonly #attributes: Attributes;
  readonly #parentSpanId: string | undefined;
  readonly #startedAt: number;
  #endedAt: number | undefined;
  #error: string | undefined;

  constructor(
    tracer: Tracer,
    name: string,
    kind: SpanKind,
    attributes: Attributes,
    parent: SpanContext | undefined,
    traceId = parent?.traceId ?? newTraceId(),
    startedAt = tracer.now(),
  ) {
    this.#tracer = tracer;
    this.#name = name;
    this.#kind = kind;
    this.#attributes = attributes;
    this.#startedAt = startedAt;
    this.traceId = traceId;
    this.#parentSpanId = parent?.spanId;
  }

  /** The `traceparent` with which other processes name this span as their parent. */
  get traceparent(): string {
    return formatTraceparent(this);
  }

  get isOver(): boolean {
    return this.#endedAt !== undefined;
  }

  set(name: string, value: AttributeValue | undefined): void {
    if (value !== undefined) this.#attributes[name] = value;
  }

  /** Ends the span; only the first call counts. @param error the kind of the error, and its message */
  end(error?: { readonly type: string; readonly message: string }): void {
    if (this.isOver) return;
    this.#endedAt = this.#tracer.now();
    if (error !== undefined) {
      this.#attributes["error.type"] = error.type;
      const message = keptText(this.#tracer, error.message, MAX_ERROR_TEXT);
      this.#error = this.#tracer.redact(message);
    }
    this.#tracer.record(this);
  }

  toSpan(): Span {
    return {
      traceId: this.traceId,
      spanId: this.spanId,
      parentSpanId: this.#parentSpanId,
      isParentRemote: false,
      traceState: undefined,
      name: this.#name,
      kind: this.#kind,
      startedAt: this.#startedAt,
      endedAt: this.#endedAt ?? this.#startedAt,
      attributes: redactAttributes(this.#attributes, (text) => this.#tracer.redact(text)),
      links: [],
      error: this.#error,
    };
  }
}

/** Maximum length of an attribute's text other than arguments and results, in characters. */
export const MAX_VALUE = 1024;
/** Maximum length of the message of an error in a span, in characters. */
export const MAX_ERROR_TEXT = 500;
/** Longer texts are left out, in characters or bytes: secrets are looked for in the whole text. */
export const MAX_SEARCHED = 256 * 1024;

/**
 * A text as a span keeps it until it is sent. Peers choose how long it is: of a long one, secrets are removed before it is
 * cut, so that no part of one is left, and the rest of it is not held in memory.
 * @param length the maximum, in characters
 */
export function keptText(tracer: Pick<Tracer, "redact">, text: string, length: number): string {
  if (text.length <= length) return text;
  if (text.length > MAX_SEARCHED) return `[${text.length} characters]`;
  return copyOf(tracer.redact(text).slice(0, length));
}

/** A copy of a part of a text: the part itself would keep the whole text in memory. */
export function copyOf(part: string): string {
  return textOf(utf8(part.toWellFormed()));
}

/** The attributes without secrets, none of them too long. */
export function redactAttributes(
  attributes: Readonly<Attributes>,
  redact: (text: string) => string,
): Attributes {
  const clean = (text: string): string => redact(text).slice(0, MAX_VALUE).toWellFormed();
  const shown: Attributes = {};
  for (const [name, value] of Object.entries(attributes))
    shown[name] =
      typeof value === "string"
        ? clean(value)
        : typeof value === "object"
          ? value.map(clean)
          : value;
  return shown;
}
