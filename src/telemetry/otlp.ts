/**
 * The encodings of OTLP (OpenTelemetry Protocol over HTTP). Loaded only when something is sent: the serializers are a
 * package of OpenTelemetry.
 */
import { JsonTraceSerializer, ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import { VERSION } from "../base/version.ts";
import type { OtlpProtocol } from "../manifest/telemetry.ts";
import type { Attributes, Span, SpanKind } from "./span.ts";

/** The version of the semantic conventions whose names the spans have. */
export const SCHEMA_URL = "https://opentelemetry.io/schemas/1.45.0";

type ReadableSpan = Parameters<typeof ProtobufTraceSerializer.serializeRequest>[0][number];

/** Numbers of the kinds in the API of OpenTelemetry. */
const KINDS: Readonly<Record<SpanKind, number>> = { internal: 0, server: 1, client: 2 };
const OK = 0;
const ERROR = 2;
const SAMPLED = 1;

const SCOPE = { name: "toolmux", version: VERSION, schemaUrl: SCHEMA_URL };

/**
 * Encodes spans as the body of a request to a collector.
 * @param offset the time of the epoch that is 0 of the spans' clock, in ms
 */
export function encodeSpans(
  spans: readonly Span[],
  resource: Readonly<Attributes>,
  offset: number,
  protocol: OtlpProtocol,
): Uint8Array {
  const shared = { attributes: resource, asyncAttributesPending: false } as object;
  const readable = spans.map((span) => toReadable(span, shared, offset));
  const serializer = protocol === "http/json" ? JsonTraceSerializer : ProtobufTraceSerializer;
  return serializer.serializeRequest(readable as ReadableSpan[]) ?? new Uint8Array(0);
}

/** A span in the form of the SDK, as far as the serializers read it. */
function toReadable(span: Span, resource: object, offset: number): object {
  const { traceId, spanId, parentSpanId, traceState, links, error } = span;
  const state = traceState === undefined ? undefined : { serialize: () => traceState };
  const context = { traceId, spanId, traceFlags: SAMPLED, traceState: state };
  return {
    name: span.name,
    kind: KINDS[span.kind],
    spanContext: () => context,
    ...(parentSpanId !== undefined && {
      parentSpanContext: {
        traceId,
        spanId: parentSpanId,
        traceFlags: SAMPLED,
        isRemote: span.isParentRemote,
      },
    }),
    startTime: toHrTime(span.startedAt + offset),
    endTime: toHrTime(span.endedAt + offset),
    status:
      error === undefined ? { code: OK } : { code: ERROR, ...(error !== "" && { message: error }) },
    attributes: span.attributes,
    links: links.map((link) => ({
      context: {
        traceId: link.traceId,
        spanId: link.spanId,
        traceFlags: link.isSampled ? SAMPLED : 0,
        isRemote: true,
      },
    })),
    events: [],
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

/** A time as seconds and nanoseconds. @param ms since the epoch, with a fraction */
function toHrTime(ms: number): [number, number] {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.min(999_999_999, Math.round((ms - seconds * 1000) * 1e6))];
}
