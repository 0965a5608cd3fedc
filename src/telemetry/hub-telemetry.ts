import type { Clock } from "../base/clock.ts";
import type { EventBus } from "../base/hub-events.ts";
import { VERSION } from "../base/version.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import { Collector } from "./collector.ts";
import { SpanExporter } from "./exporter.ts";
import { Lifecycle } from "./lifecycle.ts";
import type { HubMetrics } from "./hub-metrics.ts";
import { MetricExporter } from "./metric-exporter.ts";
import type { TelemetrySettings } from "./settings.ts";
import type { Attributes } from "./span.ts";
import { Tracer } from "./tracer.ts";

export interface HubTelemetryOptions {
  readonly clock: Clock;
  readonly fetch: Fetch;
  /** Tells this process apart from others that send to the same collector. */
  readonly instance: string;
  /** Returns the time, in ms since the epoch. */
  wallNow(): number;
  random(): number;
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string;
  warn(text: string): void;
}

/** Time limit of the last post when the hub ends, in ms. */
export const LAST_FLUSH_LIMIT = 500;

/** What a hub sends to a collector. `tracer` makes its spans; undefined while none are sent. */
export class HubTelemetry {
  readonly tracer: Tracer | undefined;
  readonly settings: TelemetrySettings;
  /** The attributes of the hub as a resource. */
  readonly resource: Readonly<Attributes>;
  readonly #options: HubTelemetryOptions;
  readonly #exporter: SpanExporter | undefined;
  #lifecycle: Lifecycle | undefined;
  #metricExporter: MetricExporter | undefined;

  constructor(settings: TelemetrySettings, options: HubTelemetryOptions) {
    const { clock } = options;
    this.settings = settings;
    this.#options = options;
    this.resource = {
      "service.name": "toolmux",
      "service.version": VERSION,
      "service.instance.id": options.instance,
      ...settings.resource,
    };
    if (settings.tracesUrl === undefined) return;
    const exporter = new SpanExporter({
      clock,
      collector: this.collector(settings.tracesUrl),
      interval: settings.interval,
      encode: async (spans) => {
        const { encodeSpans } = await import("./otlp.ts");
        const offset = options.wallNow() - clock.now();
        return encodeSpans(spans, this.resource, offset, settings.protocol);
      },
      random: () => options.random(),
      warn: (text) => options.warn(text),
    });
    this.#exporter = exporter;
    this.tracer = new Tracer({
      sample: settings.sample,
      isParentBased: settings.isParentBased,
      propagate: settings.propagate,
      keepsContent: settings.keepsContent,
      now: () => clock.now(),
      redact: (text) => options.redact(text),
      record: (span) => exporter.add(span),
    });
  }

  /** Makes the spans of the servers of a hub, from its events. Those of another hub are made no longer. */
  follow(bus: EventBus): void {
    this.#lifecycle?.close();
    this.#lifecycle = this.tracer && new Lifecycle(this.tracer, bus);
  }

  /** Names the hub in its metrics, and sends them, if the settings say so. */
  sendMetrics(metrics: HubMetrics): void {
    const { metricsUrl, interval, protocol } = this.settings;
    const { clock } = this.#options;
    metrics.resource = this.resource;
    if (metricsUrl === undefined) return;
    metrics.count();
    void this.#metricExporter?.close(0);
    this.#metricExporter = new MetricExporter({
      clock,
      collector: this.collector(metricsUrl),
      interval,
      read: () => metrics.read(),
      encode: async (all) => {
        const { encodeMetrics } = await import("./otlp-metrics.ts");
        // The clock may have been set back since.
        const { startedAt } = metrics;
        const times = { startedAt, now: Math.max(startedAt, this.#options.wallNow()) };
        return encodeMetrics(all, this.resource, times, protocol);
      },
      warn: (text) => this.#options.warn(text),
    });
  }

  /** What posts to a URL of the collector. */
  collector(url: string): Collector {
    const { headers, protocol } = this.settings;
    const { fetch, clock, redact } = this.#options;
    return new Collector({ url, headers, protocol, fetch, clock, redact });
  }

  /** Number of spans that were dropped, because too many waited to be sent. */
  get dropped(): number {
    return this.#exporter?.dropped ?? 0;
  }

  /** Sends what waits, for at most `limit` ms. */
  async close(limit = LAST_FLUSH_LIMIT): Promise<void> {
    this.#lifecycle?.close();
    await Promise.all([this.#exporter?.close(limit), this.#metricExporter?.close(limit)]);
  }
}
