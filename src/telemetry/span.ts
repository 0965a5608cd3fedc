import type { SpanContext } from "./trace-context.ts";

export type AttributeValue = string | number | boolean | readonly string[];
export type Attributes = Record<string, AttributeValue>;

/** `server`: a request of a client; `client`: a request to a server, or to a model; `internal`: all else. */
export type SpanKind = "internal" | "server" | "client";

/** A span that has ended. Times are in ms of the clock of its tracer. */
export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  /** Whether the parent is a span of another process. */
  readonly isParentRemote: boolean;
  readonly traceState: string | undefined;
  readonly name: string;
  readonly kind: SpanKind;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly attributes: Readonly<Attributes>;
  readonly links: readonly SpanContext[];
  /** Set if the span has failed: the message for its status, "" if there is none. */
  readonly error: string | undefined;
}

/**
 * A span that waits to be sent. Its attributes are made when it is sent: until then, it has what it was given on the
 * path of a call.
 */
export interface EndedSpan {
  /** Size of the arguments and results that it keeps, in characters. */
  readonly contentSize: number;
  toSpan(): Span;
}
