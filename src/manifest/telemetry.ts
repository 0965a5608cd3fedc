/** Where traces and metrics of the hub go: the table `telemetry`. */
import * as v from "valibot";
import {
  flag,
  limit,
  nonEmptyText,
  optionalKey,
  record,
  secretText,
  table,
  text,
} from "./fields.ts";

const ENDPOINT = 'the URL of an OTLP collector, such as "http://127.0.0.1:4318"';
const SAMPLE = "a number from 0 to 1";

/** The encodings of OTLP over HTTP. */
export const OTLP_PROTOCOLS = ["http/protobuf", "http/json"] as const;
export type OtlpProtocol = (typeof OTLP_PROTOCOLS)[number];

/** Which calls get a `traceparent` on their way to a server. */
export const PROPAGATIONS = ["always", "parent", "never"] as const;
export type Propagation = (typeof PROPAGATIONS)[number];

const entries = () => ({
  endpoint: optionalKey(
    v.pipe(secretText, v.regex(/^(?:[Hh][Tt][Tt][Pp][Ss]?:\/\/.|\$\{)/, ENDPOINT)),
    {
      title: "Collector",
      template: true,
      description:
        "The URL of an OTLP collector; spans go to /v1/traces below it, metrics to /v1/metrics. Without it, the variable OTEL_EXPORTER_OTLP_ENDPOINT counts; without both, nothing is sent. ${env:NAME}, ${file:PATH} and ${secret:NAME} are replaced when toolmux starts.",
      examples: ["http://127.0.0.1:4318", "https://otel.example.com"],
    },
  ),
  protocol: optionalKey(v.picklist(OTLP_PROTOCOLS, `"http/protobuf" or "http/json"`), {
    title: "Encoding",
    shown: true,
    description: "The encoding of OTLP over HTTP.",
    default: "http/protobuf",
    examples: ["http/protobuf", "http/json"],
  }),
  headers: optionalKey(record(secretText), {
    title: "Headers",
    template: true,
    description:
      "HTTP headers of every request to the collector. ${env:NAME}, ${file:PATH} and ${secret:NAME} are replaced when toolmux starts.",
    default: {},
    examples: [{ Authorization: "Bearer ${secret:otel}" }],
  }),
  traces: optionalKey(flag, {
    title: "Traces",
    shown: true,
    description: "Whether spans are sent to the collector.",
    default: true,
    examples: [false],
  }),
  metrics: optionalKey(flag, {
    title: "Metrics",
    shown: true,
    description: "Whether metrics are sent to the collector.",
    default: false,
    examples: [true],
  }),
  sample: optionalKey(v.pipe(v.number(SAMPLE), v.minValue(0, SAMPLE), v.maxValue(1, SAMPLE)), {
    title: "Sampled share",
    shown: true,
    description:
      "The share of requests without a parent that have spans. For a request whose client sends a traceparent, the flag of that decides.",
    default: 1,
    examples: [0.01, 1],
  }),
  propagate: optionalKey(v.picklist(PROPAGATIONS, `"always", "parent" or "never"`), {
    title: "Context for servers",
    shown: true,
    description:
      'Which requests get a traceparent in their _meta on the way to a server. "always": all that are sampled. "parent": those whose client has sent one. "never": none; what a client has sent passes as it is.',
    default: "always",
    examples: ["always", "parent", "never"],
  }),
  interval: optionalKey(limit, {
    title: "Interval",
    shown: true,
    description: "The longest time for which spans wait to be sent.",
    default: 5000,
    examples: ["5s", "500ms"],
  }),
  attributes: optionalKey(record(text), {
    title: "Attributes",
    description: "Attributes of the resource, with which the collector tells hubs apart.",
    default: {},
    examples: [{ "deployment.environment.name": "home" }],
  }),
  resource: optionalKey(nonEmptyText, {
    title: "Name of the service",
    shown: true,
    description: "The attribute service.name of the resource.",
    default: "toolmux",
    examples: ["toolmux"],
  }),
  arguments: optionalKey(flag, {
    title: "Arguments and results",
    shown: true,
    description:
      "Whether spans have the arguments and results of tools, up to 4 KiB of each. Secrets that toolmux knows are replaced; those that it does not know are not.",
    default: false,
    examples: [true],
  }),
  prometheus: optionalKey(flag, {
    title: "Metrics for Prometheus",
    shown: true,
    description:
      "Whether serve --http answers GET /metrics; it needs the hub's own token if there is one. It needs no endpoint. The control socket always answers it.",
    default: false,
    examples: [true],
  }),
});

export const makeTelemetry = () => table(entries());

export type TelemetryInput = Readonly<v.InferOutput<ReturnType<typeof makeTelemetry>>>;

/** The table `telemetry` of one file, as written: `endpoint` and `headers` may hold `${…}`. */
export interface TelemetrySpec {
  readonly input: TelemetryInput;
  /** The file that sets the table, absolute. */
  readonly file: string;
  readonly baseDir: string;
}
