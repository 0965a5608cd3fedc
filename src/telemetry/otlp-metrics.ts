/**
 * Metrics in the encodings of OTLP (OpenTelemetry Protocol over HTTP). Loaded only when something is sent: the
 * serializers are a package of OpenTelemetry.
 */
import { JsonMetricsSerializer, ProtobufMetricsSerializer } from "@opentelemetry/otlp-transformer";
import { VERSION } from "../base/version.ts";
import type { OtlpProtocol } from "../manifest/telemetry.ts";
import {
  DURATION_BUCKETS,
  type LabelValues,
  LABELS,
  type Metric,
  type MetricDeclaration,
} from "./metrics.ts";
import type { Attributes } from "./span.ts";

/** Numbers of the API and the SDK of OpenTelemetry: types of points, of sums over time, and of values. */
const HISTOGRAM = 0;
const GAUGE = 2;
const SUM = 3;
const CUMULATIVE = 1;
const INT = 0;
const DOUBLE = 1;

const SCOPE = { name: "toolmux", version: VERSION };

type ResourceMetrics = Parameters<typeof ProtobufMetricsSerializer.serializeRequest>[0];

/** @param startedAt when counting began, `now`: the time of the values, in ms since the epoch */
export interface MetricTimes {
  readonly startedAt: number;
  readonly now: number;
}

/** Encodes metrics as the body of a request to a collector. Empty metrics are left out. */
export function encodeMetrics(
  metrics: readonly Metric[],
  resource: Readonly<Attributes>,
  times: MetricTimes,
  protocol: OtlpProtocol,
): Uint8Array {
  const all = metrics.map((metric) => toReadable(metric, times));
  const request = {
    resource: { attributes: resource, asyncAttributesPending: false },
    scopeMetrics: [
      { scope: SCOPE, metrics: all.filter(({ dataPoints }) => dataPoints.length > 0) },
    ],
  };
  const serializer = protocol === "http/json" ? JsonMetricsSerializer : ProtobufMetricsSerializer;
  // The serializers read nothing but these members.
  return serializer.serializeRequest(request as unknown as ResourceMetrics) ?? new Uint8Array(0);
}

/** A metric in the form of the SDK, as far as the serializers read it. */
function toReadable(metric: Metric, { startedAt, now }: MetricTimes): ReadableMetric {
  const { declaration } = metric;
  const { name, description, unit, kind } = declaration;
  const times = { startTime: toHrTime(startedAt), endTime: toHrTime(now) };
  const valueType = kind === "histogram" ? DOUBLE : INT;
  const descriptor = { name, description, unit, valueType };
  const common = { descriptor, aggregationTemporality: CUMULATIVE };
  if ("histograms" in metric) {
    const dataPoints = metric.histograms.map(({ labels, counts, count, sum }) => ({
      ...times,
      attributes: attributesOf(declaration, labels),
      value: { buckets: { boundaries: [...DURATION_BUCKETS], counts }, count, sum },
    }));
    return { ...common, dataPointType: HISTOGRAM, dataPoints };
  }
  const dataPoints = metric.numbers.map(({ labels, value }) => ({
    ...times,
    attributes: attributesOf(declaration, labels),
    value,
  }));
  return kind === "gauge"
    ? { ...common, dataPointType: GAUGE, dataPoints }
    : { ...common, dataPointType: SUM, isMonotonic: true, dataPoints };
}

interface ReadableMetric {
  readonly descriptor: object;
  readonly dataPointType: number;
  readonly isMonotonic?: boolean;
  readonly dataPoints: readonly object[];
}

/** The attributes of a point: its labels under the names of the conventions. Empty ones are left out. */
function attributesOf(
  { labels: names }: MetricDeclaration,
  values: LabelValues,
): Readonly<Record<string, string>> {
  const given = names.flatMap((label, at) => {
    const value = values[at] ?? "";
    return value === "" ? [] : [[LABELS[label], value] as const];
  });
  const isTool = given.some(([name]) => name === LABELS.tool);
  return {
    ...Object.fromEntries(given),
    ...(isTool && { "gen_ai.operation.name": "execute_tool" }),
  };
}

/** A time as seconds and nanoseconds. @param ms since the epoch */
function toHrTime(ms: number): [number, number] {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.min(999_999_999, Math.round((ms - seconds * 1000) * 1e6))];
}
