import { setImmediate } from "node:timers";
import {
  DURATION_BUCKETS,
  type Exemplar,
  type HistogramPoint,
  type LabelValues,
  type Metric,
  type MetricDeclaration,
} from "./metrics.ts";
import type { Attributes } from "./span.ts";

/** The formats in which Prometheus reads metrics: its own text format 0.0.4, and OpenMetrics 1.0, which has exemplars. */
export type ExpositionFormat = "text" | "openMetrics";

export const CONTENT_TYPES: Readonly<Record<ExpositionFormat, string>> = {
  text: "text/plain; version=0.0.4; charset=utf-8",
  openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
};

/** Metrics as a scraper reads them. */
export interface Exposition {
  readonly contentType: string;
  readonly text: string;
}

/** Units of UCUM whose names end the names of metrics. */
const UNITS: Readonly<Record<string, string>> = { s: "seconds", By: "bytes", ms: "milliseconds" };

/**
 * The name of a metric's family by the rules of OpenTelemetry for Prometheus: dots become underscores, and the unit is
 * at the end. Samples of counters have `_total` after it.
 */
export function familyNameOf({ name, unit }: Pick<MetricDeclaration, "name" | "unit">): string {
  const plain = name.replaceAll(/[^a-zA-Z0-9_:]+/g, "_");
  const suffix = UNITS[unit];
  return suffix === undefined || plain.endsWith(`_${suffix}`) ? plain : `${plain}_${suffix}`;
}

/** The names of a metric's samples. */
export function sampleNamesOf(declaration: MetricDeclaration): readonly string[] {
  const family = familyNameOf(declaration);
  switch (declaration.kind) {
    case "histogram":
      return [`${family}_bucket`, `${family}_sum`, `${family}_count`];
    case "counter":
      return [`${family}_total`];
    case "gauge":
      return [family];
  }
}

/**
 * Chooses the format that a scraper accepts most (RFC 9110, 12.5.1). Text, if it accepts both alike or neither.
 * @param accept the header `Accept`; null: there is none
 */
export function chooseFormat(accept: string | null): ExpositionFormat {
  let openMetrics = 0;
  let text = 0;
  for (const range of (accept ?? "").split(",")) {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const quality = qualityOf(parameters);
    const version = parameters.find((parameter) => parameter.startsWith("version="));
    if (type === "application/openmetrics-text") {
      const isKnown = version === undefined || /^version="?(?:0\.0\.1|1\.0\.0)"?$/.test(version);
      if (isKnown) openMetrics = Math.max(openMetrics, quality);
    } else if (type === "text/plain" || type === "text/*" || type === "*/*") {
      text = Math.max(text, quality);
    }
  }
  return openMetrics > text ? "openMetrics" : "text";
}

/** The weight of a media range, from 0 to 1. */
function qualityOf(parameters: readonly string[]): number {
  const given = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
  if (given === undefined) return 1;
  const quality = Number(given);
  return quality >= 0 && quality <= 1 ? quality : 0;
}

/** Number of values after which calls that have arrived meanwhile are handled, before others are written. */
const MAX_VALUES_PER_TURN = 100;

/** Writes metrics in the format that a scraper accepts most. @param accept its header `Accept`; null: it has none */
export async function expositionFor(
  accept: string | null,
  metrics: readonly Metric[],
  resource: Readonly<Attributes>,
): Promise<Exposition> {
  const format = chooseFormat(accept);
  let text = "";
  for (const part of partsOfExposition(metrics, resource, format)) {
    if (text !== "") await new Promise((resolve) => setImmediate(resolve));
    text += part;
  }
  return { contentType: CONTENT_TYPES[format], text };
}

/**
 * Writes metrics in a format.
 * @param resource attributes of the hub, which become the metric `target_info`
 */
export function exposition(
  metrics: readonly Metric[],
  resource: Readonly<Attributes>,
  format: ExpositionFormat,
): string {
  return [...partsOfExposition(metrics, resource, format)].join("");
}

/** The parts of an exposition with at most `MAX_VALUES_PER_TURN` values each. */
function* partsOfExposition(
  metrics: readonly Metric[],
  resource: Readonly<Attributes>,
  format: ExpositionFormat,
): Generator<string, void, undefined> {
  let lines: string[] = [];
  let values = 0;
  const takePart = (): string => {
    const part = `${lines.join("\n")}\n`;
    lines = [];
    values = 0;
    return part;
  };
  const isOpen = format === "openMetrics";
  const family = (name: string, declaration: Omit<MetricDeclaration, "name" | "labels">): void => {
    // In text format 0.0.4 the family of a counter has the name of its samples.
    const named = declaration.kind === "counter" && !isOpen ? `${name}_total` : name;
    lines.push(`# HELP ${named} ${escapeHelp(declaration.description, isOpen)}`);
    lines.push(`# TYPE ${named} ${declaration.kind}`);
    const unit = UNITS[declaration.unit];
    if (isOpen && unit !== undefined && name.endsWith(`_${unit}`))
      lines.push(`# UNIT ${named} ${unit}`);
  };
  const attributes = [...labelsOf(resource)].map(
    ([name, value]) => `${name}="${escapeValue(value)}"`,
  );
  if (isOpen) lines.push("# HELP target The hub.", "# TYPE target info");
  else lines.push("# HELP target_info The hub.", "# TYPE target_info gauge");
  lines.push(`target_info{${attributes.join(",")}} 1`);
  for (const metric of metrics) {
    const { declaration } = metric;
    const name = familyNameOf(declaration);
    family(name, declaration);
    if ("numbers" in metric) {
      const sample = declaration.kind === "counter" ? `${name}_total` : name;
      for (const { labels, value } of metric.numbers) {
        lines.push(`${sample}${inBraces(labelsText(declaration, labels))} ${value}`);
        if (++values === MAX_VALUES_PER_TURN) yield takePart();
      }
    } else {
      for (const point of metric.histograms) {
        writeHistogram(lines, name, declaration, point, isOpen);
        if (++values === MAX_VALUES_PER_TURN) yield takePart();
      }
    }
  }
  if (isOpen) lines.push("# EOF");
  if (lines.length > 0) yield takePart();
}

/**
 * Attributes as labels, by the rules of OpenTelemetry for Prometheus: a scrape with a name that is no label, or that is
 * there twice, is refused as a whole. Values of attributes with one label are joined, in the order of the attributes.
 */
function labelsOf(attributes: Readonly<Attributes>): ReadonlyMap<string, string> {
  const labels = new Map<string, string>();
  for (const [name, value] of Object.entries(attributes).toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const plain = name.replaceAll(/[^a-zA-Z0-9_]+/g, "_");
    const label = /^[a-zA-Z_]/.test(plain) ? plain : `key_${plain}`;
    const before = labels.get(label);
    labels.set(label, before === undefined ? String(value) : `${before};${String(value)}`);
  }
  return labels;
}

function writeHistogram(
  lines: string[],
  name: string,
  declaration: MetricDeclaration,
  { labels, counts, count, sum, exemplars }: HistogramPoint,
  isOpen: boolean,
): void {
  const own = labelsText(declaration, labels);
  const before = own === "" ? "" : `${own},`;
  let below = 0;
  for (const [at, inBucket] of counts.entries()) {
    below += inBucket;
    const bound = DURATION_BUCKETS[at];
    const le = bound === undefined ? "+Inf" : boundText(bound, isOpen);
    const exemplar = exemplars[at];
    const example = isOpen && exemplar !== undefined ? exemplarText(exemplar) : "";
    lines.push(`${name}_bucket{${before}le="${le}"} ${below}${example}`);
  }
  lines.push(`${name}_sum${inBraces(own)} ${sum}`, `${name}_count${inBraces(own)} ${count}`);
}

/** A bound as a number; OpenMetrics wants a point in it. */
function boundText(bound: number, isOpen: boolean): string {
  return isOpen && Number.isInteger(bound) ? `${bound}.0` : `${bound}`;
}

function exemplarText({ traceId, spanId, value, at }: Exemplar): string {
  return ` # {trace_id="${traceId}",span_id="${spanId}"} ${value} ${at / 1000}`;
}

/** The labels of a point. Prometheus treats an empty value like a label that is absent. */
function labelsText({ labels: names }: MetricDeclaration, values: LabelValues): string {
  return names
    .flatMap((name, at) => {
      const value = values[at] ?? "";
      return value === "" ? [] : [`${name}="${escapeValue(value)}"`];
    })
    .join(",");
}

function inBraces(labels: string): string {
  return labels === "" ? "" : `{${labels}}`;
}

function escapeValue(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

function escapeHelp(text: string, isOpen: boolean): string {
  const escaped = text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
  return isOpen ? escaped.replaceAll('"', '\\"') : escaped;
}
