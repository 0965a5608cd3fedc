import { wallNow } from "../base/clock.ts";

/** Upper bounds of the buckets of durations, in seconds: those of the semantic conventions for MCP. */
export const DURATION_BUCKETS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300,
] as const;

/** Maximum number of label sets of one metric. */
export const MAX_LABEL_SETS = 2000;
/** The value of the labels of everything that is counted together beyond that. */
export const OTHER = "other";
/** Maximum length of a label's value, in UTF-16 units. */
const MAX_VALUE = 128;

/**
 * The labels of metrics, and the attributes that OTLP has instead.
 * `error_type`: the JSON-RPC code, `tool_error`, or the code of an error of toolmux; empty: there was no error.
 */
export const LABELS = {
  method: "mcp.method.name",
  tool: "gen_ai.tool.name",
  server: "toolmux.server",
  client: "toolmux.client",
  error_type: "error.type",
  state: "state",
  limit: "limit",
  kind: "kind",
} as const satisfies Readonly<Record<string, string>>;

export type Label = keyof typeof LABELS;

/** What a metric is, in the words of OpenTelemetry. */
export interface MetricDeclaration {
  readonly name: string;
  readonly kind: "histogram" | "counter" | "gauge";
  /** A unit of UCUM; in braces: what is counted. */
  readonly unit: string;
  /** A sentence. */
  readonly description: string;
  readonly labels: readonly Label[];
}

/** All metrics of a hub. Those named `mcp.` are those of the semantic conventions for MCP. */
export const METRICS = {
  serverOperations: {
    name: "mcp.server.operation.duration",
    kind: "histogram",
    unit: "s",
    description: "Duration of the requests of clients, from their arrival to their answer.",
    labels: ["method", "tool", "server", "client", "error_type"],
  },
  clientOperations: {
    name: "mcp.client.operation.duration",
    kind: "histogram",
    unit: "s",
    description: "Duration of the requests to servers, each attempt by itself.",
    labels: ["method", "tool", "server", "client", "error_type"],
  },
  serverSessions: {
    name: "mcp.server.session.duration",
    kind: "histogram",
    unit: "s",
    description: "Duration of the sessions of clients that have ended.",
    labels: ["client"],
  },
  clientSessions: {
    name: "mcp.client.session.duration",
    kind: "histogram",
    unit: "s",
    description: "Duration of the sessions at servers that have ended.",
    labels: ["server", "error_type"],
  },
  servers: {
    name: "toolmux.servers",
    kind: "gauge",
    unit: "{server}",
    description: "Servers by their state.",
    labels: ["state"],
  },
  clients: {
    name: "toolmux.clients",
    kind: "gauge",
    unit: "{client}",
    description: "Clients that are connected.",
    labels: [],
  },
  activeCalls: {
    name: "toolmux.calls.active",
    kind: "gauge",
    unit: "{call}",
    description: "Requests of clients to servers that are not answered yet.",
    labels: [],
  },
  queueLength: {
    name: "toolmux.queue.length",
    kind: "gauge",
    unit: "{call}",
    description: "Calls that wait because as many run as may.",
    labels: [],
  },
  restarts: {
    name: "toolmux.server.restarts",
    kind: "counter",
    unit: "{restart}",
    description:
      "Attempts to start a server again after it was lost, had failed, or was reconnected.",
    labels: ["server"],
  },
  refused: {
    name: "toolmux.limits.refused",
    kind: "counter",
    unit: "{call}",
    description: "Calls that a limit has refused: a rate, a quota, or a full queue.",
    labels: ["limit"],
  },
  alerts: {
    name: "toolmux.alerts",
    kind: "counter",
    unit: "{alert}",
    description: "Alerts that were raised, by their kind.",
    labels: ["kind"],
  },
} as const satisfies Readonly<Record<string, MetricDeclaration>>;

/** A call that a trace has, as an example of the calls in a bucket. */
export interface Exemplar {
  /** 32 and 16 lower-case hexadecimal digits. */
  readonly traceId: string;
  readonly spanId: string;
  /** In the unit of its metric. */
  readonly value: number;
  /** In ms since the epoch. */
  readonly at: number;
}

/** The values of a metric's labels, in the order of its declaration. */
export type LabelValues = readonly string[];

/** The durations with one label set. */
export interface HistogramPoint {
  readonly labels: LabelValues;
  /** How many durations lie in each bucket alone; the last one has those above all bounds. */
  readonly counts: readonly number[];
  readonly count: number;
  /** In seconds. */
  readonly sum: number;
  /** The last example of each bucket. */
  readonly exemplars: readonly (Exemplar | undefined)[];
}

export interface NumberPoint {
  readonly labels: LabelValues;
  readonly value: number;
}

/** A metric with its values at one time. */
export type Metric =
  | { readonly declaration: MetricDeclaration; readonly histograms: readonly HistogramPoint[] }
  | { readonly declaration: MetricDeclaration; readonly numbers: readonly NumberPoint[] };

interface MutableHistogram extends HistogramPoint {
  readonly counts: number[];
  count: number;
  sum: number;
  readonly exemplars: (Exemplar | undefined)[];
}

function emptyHistogram(labels: LabelValues): MutableHistogram {
  const counts = Array.from({ length: DURATION_BUCKETS.length + 1 }, () => 0);
  return { labels, counts, count: 0, sum: 0, exemplars: [] };
}

/** A part of the way to a label set: the values so far. The last one has the values that are counted. */
interface LabelNode<T> {
  readonly next: Map<string, LabelNode<T>>;
  counted: T | undefined;
}

function emptyNode<T>(): LabelNode<T> {
  return { next: new Map(), counted: undefined };
}

/** What one metric has counted by its label sets. Peers choose some of the values, so their number is limited. */
class LabelSets<T> {
  readonly #root = emptyNode<T>();
  /** By the label sets as they are shown. */
  readonly #all = new Map<string, T>();
  /** The names of peers may differ in what is not shown: each takes a way through the nodes. */
  #ways = 0;
  readonly #make: (labels: LabelValues) => T;
  readonly #clean: (text: string) => string;
  readonly #declaration: MetricDeclaration;
  #otherSuccesses: T | undefined;
  #otherErrors: T | undefined;
  #lastStart: LabelNode<T> | undefined;
  #lastMethod = "";
  #lastClient = "";
  #lastError = "";

  constructor(
    declaration: MetricDeclaration,
    clean: (text: string) => string,
    make: (labels: LabelValues) => T,
  ) {
    this.#make = make;
    this.#clean = clean;
    this.#declaration = declaration;
  }

  get all(): readonly T[] {
    return [...this.#all.values()];
  }

  /**
   * The values of a label set with the labels of operations. Calls differ mostly in their server and tool, so these come
   * last on the way, and the part before them is remembered from call to call.
   */
  ofOperation(method: string, tool: string, server: string, client: string, error: string): T {
    let start = this.#lastStart;
    if (
      start === undefined ||
      method !== this.#lastMethod ||
      client !== this.#lastClient ||
      error !== this.#lastError
    ) {
      start = this.#root.next.get(method)?.next.get(client)?.next.get(error);
      this.#lastStart = start;
      this.#lastMethod = method;
      this.#lastClient = client;
      this.#lastError = error;
    }
    const known = start?.next.get(server)?.next.get(tool)?.counted;
    if (known !== undefined) return known;
    if (this.#isFull) return this.#others(error !== "");
    const labels = [method, tool, server, client, error];
    return this.#add(labels, [method, client, error, server, tool]);
  }

  /** The values of a label set of a metric with other labels. */
  of(labels: LabelValues): T {
    let known: LabelNode<T> | undefined = this.#root;
    for (const value of labels) known = known?.next.get(value);
    if (known?.counted !== undefined) return known.counted;
    return this.#isFull ? this.#others(true) : this.#add(labels, labels);
  }

  /** Whether what is not known is counted together: two label sets are left for that. */
  get #isFull(): boolean {
    return this.#ways >= MAX_LABEL_SETS - 2;
  }

  /** @param way the values in the order of the way to them */
  #add(labels: LabelValues, way: LabelValues): T {
    this.#ways++;
    let node = this.#root;
    for (const value of way) {
      let next = node.next.get(value);
      if (next === undefined) {
        next = emptyNode();
        node.next.set(value, next);
      }
      node = next;
    }
    node.counted = this.#shown(labels.map((value) => shownValue(value, this.#clean)));
    return node.counted;
  }

  #shown(labels: LabelValues): T {
    const key = JSON.stringify(labels);
    let counted = this.#all.get(key);
    if (counted === undefined) {
      counted = this.#make(labels);
      this.#all.set(key, counted);
    }
    return counted;
  }

  /** What is counted together: all without an error, and all else. */
  #others(isError: boolean): T {
    const { labels } = this.#declaration;
    if (isError) return (this.#otherErrors ??= this.#shown(labels.map(() => OTHER)));
    return (this.#otherSuccesses ??= this.#shown(
      labels.map((label) => (label === "error_type" ? "" : OTHER)),
    ));
  }
}

/** A label's value without secrets, as well-formed Unicode that is not too long. */
function shownValue(value: string, clean: (text: string) => string): string {
  return clean(value).slice(0, MAX_VALUE).toWellFormed();
}

/** The index of the bucket of a duration. @param seconds at a bound it belongs to the bucket below */
export function bucketOf(seconds: number): number {
  let at = 0;
  for (; at < DURATION_BUCKETS.length; at++) if (seconds <= (DURATION_BUCKETS[at] ?? 0)) return at;
  return at;
}

/** A metric of durations. */
export class Durations {
  readonly declaration: MetricDeclaration;
  readonly #sets: LabelSets<MutableHistogram>;

  /** @param clean removes secrets from a label's value */
  constructor(declaration: MetricDeclaration, clean: (text: string) => string = unchanged) {
    this.declaration = declaration;
    this.#sets = new LabelSets(declaration, clean, emptyHistogram);
  }

  get metric(): Metric {
    const histograms = this.#sets.all.map((point) => {
      return { ...point, counts: [...point.counts], exemplars: [...point.exemplars] };
    });
    return { declaration: this.declaration, histograms };
  }

  /** Makes a label set appear before a duration is observed. */
  declare(labels: LabelValues): void {
    this.#sets.of(labels);
  }

  /** @param ms a negative time counts as 0 */
  observe(labels: LabelValues, ms: number): void {
    add(this.#sets.of(labels), ms);
  }

  /**
   * Observes a duration of a metric with the labels of operations.
   * @param ms a negative time counts as 0
   * @param span the call in a trace that is kept; undefined: there is none
   */
  observeOperation(
    method: string,
    tool: string,
    server: string,
    client: string,
    errorType: string,
    ms: number,
    span?: Pick<Exemplar, "traceId" | "spanId">,
  ): void {
    const histogram = this.#sets.ofOperation(method, tool, server, client, errorType);
    const bucket = add(histogram, ms);
    if (span === undefined) return;
    const { traceId, spanId } = span;
    const value = Math.max(0, ms) / 1000;
    histogram.exemplars[bucket] = { traceId, spanId, value, at: wallNow() };
  }
}

function unchanged(text: string): string {
  return text;
}

/** Adds a duration in ms. @returns the index of its bucket */
function add(histogram: MutableHistogram, ms: number): number {
  const seconds = ms > 0 ? ms / 1000 : 0;
  const bucket = bucketOf(seconds);
  histogram.counts[bucket] = (histogram.counts[bucket] ?? 0) + 1;
  histogram.count++;
  histogram.sum += seconds;
  return bucket;
}

/** A metric that counts up. */
export class Counter {
  readonly declaration: MetricDeclaration;
  readonly #sets: LabelSets<{ readonly labels: LabelValues; value: number }>;

  /** @param clean removes secrets from a label's value */
  constructor(declaration: MetricDeclaration, clean: (text: string) => string = unchanged) {
    this.declaration = declaration;
    this.#sets = new LabelSets(declaration, clean, (labels) => ({ labels, value: 0 }));
  }

  get metric(): Metric {
    const numbers = this.#sets.all.map((point) => ({ ...point }));
    return { declaration: this.declaration, numbers };
  }

  /** @param by 0 makes the label set appear before anything is counted */
  add(labels: LabelValues, by = 1): void {
    this.#sets.of(labels).value += by;
  }
}
