import type { Env } from "../base/paths.ts";
import type { OtlpProtocol, TelemetryInput } from "../manifest/telemetry.ts";
import type { Attributes } from "./span.ts";
import type { TracerSettings } from "./tracer.ts";

/** What a hub sends, and where to: the table `telemetry` of its manifest, and the environment where that says nothing. */
export interface TelemetrySettings extends TracerSettings {
  /** The URL that spans are posted to; undefined: none are sent. */
  readonly tracesUrl: string | undefined;
  /** The URL that metrics are posted to; undefined: none are sent. */
  readonly metricsUrl: string | undefined;
  readonly protocol: OtlpProtocol;
  readonly headers: Readonly<Record<string, string>>;
  /** The longest time for which spans wait to be sent, and the time between two posts of metrics, in ms. */
  readonly interval: number;
  /** The attributes of the resource. */
  readonly resource: Readonly<Attributes>;
  /** Whether `serve --http` answers `GET /metrics`. */
  readonly prometheus: boolean;
  /** What is wrong in the environment, as whole sentences. */
  readonly problems: readonly string[];
}

const DEFAULT_INTERVAL = 5000;

/**
 * Reads the settings.
 * @param input the table of the manifest, with its `${…}` replaced; undefined: there is none
 */
export function readTelemetrySettings(
  input: TelemetryInput | undefined,
  env: Env,
): TelemetrySettings {
  const problems: string[] = [];
  const given = (name: string): string | undefined => {
    const value = env[name]?.trim();
    return value === "" ? undefined : value;
  };
  const isDisabled = given("OTEL_SDK_DISABLED")?.toLowerCase() === "true";
  const shared = input?.endpoint ?? given("OTEL_EXPORTER_OTLP_ENDPOINT");
  const urlOf = (path: string, variable: string): string | undefined => {
    if (isDisabled) return undefined;
    const own = input?.endpoint === undefined ? given(variable) : undefined;
    const url = own ?? (shared === undefined ? undefined : below(shared, path));
    if (url === undefined || isHttpUrl(url)) return url;
    // The value may hold credentials, so it is not shown.
    const name = own !== undefined ? variable : "OTEL_EXPORTER_OTLP_ENDPOINT";
    const what = input?.endpoint === undefined ? name : "telemetry.endpoint";
    problems.push(`${what} is no URL of a collector (http://… or https://…), so nothing is sent.`);
    return undefined;
  };
  const tracesUrl =
    input?.traces === false ? undefined : urlOf("v1/traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
  const metricsUrl =
    input?.metrics === true
      ? urlOf("v1/metrics", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
      : undefined;
  return {
    tracesUrl,
    metricsUrl,
    protocol: input?.protocol ?? protocolOf(given("OTEL_EXPORTER_OTLP_PROTOCOL"), problems),
    headers: validHeaders(
      input?.headers ?? readPairs(given("OTEL_EXPORTER_OTLP_HEADERS")),
      input?.headers === undefined ? "OTEL_EXPORTER_OTLP_HEADERS" : "telemetry.headers",
      problems,
    ),
    ...samplerOf(input?.sample, given, problems),
    propagate: input?.propagate ?? "always",
    interval: input?.interval ?? DEFAULT_INTERVAL,
    keepsContent: input?.arguments ?? false,
    resource: {
      ...readPairs(given("OTEL_RESOURCE_ATTRIBUTES")),
      ...(input?.resource === undefined && given("OTEL_SERVICE_NAME") !== undefined
        ? { "service.name": given("OTEL_SERVICE_NAME") ?? "" }
        : {}),
      ...input?.attributes,
      ...(input?.resource !== undefined && { "service.name": input.resource }),
    },
    prometheus: input?.prometheus ?? false,
    problems,
  };
}

/**
 * The headers that HTTP allows: with another one, no post could be made. The others are told, without their values, and
 * without a name that is none, because it may be a value in the wrong place.
 */
function validHeaders(
  headers: Readonly<Record<string, string>>,
  where: string,
  problems: string[],
): Record<string, string> {
  const valid = Object.entries(headers).filter(([name, value]) => {
    try {
      return new Headers([[name, value]]).has(name);
    } catch {
      const fault = /^[\w-]+$/.test(name)
        ? `the header ${name} with a value that HTTP does not allow`
        : "a header with a name that HTTP does not allow";
      problems.push(`${where} has ${fault}, so it is not sent.`);
      return false;
    }
  });
  return Object.fromEntries(valid);
}

/** Appends a path to a base URL (OTLP, endpoint URLs). */
function below(base: string, path: string): string {
  const [, before = base, query = ""] = /^([^?#]*)([?#].*)?$/s.exec(base) ?? [];
  return `${before.replace(/(?<!\/)\/+$/, "")}/${path}${query}`;
}

function isHttpUrl(text: string): boolean {
  return /^https?:\/\//i.test(text) && URL.canParse(text);
}

function protocolOf(text: string | undefined, problems: string[]): OtlpProtocol {
  if (text === undefined || text === "http/protobuf" || text === "http/json")
    return text ?? "http/protobuf";
  problems.push(
    "OTEL_EXPORTER_OTLP_PROTOCOL names an encoding that is not supported; http/protobuf is used.",
  );
  return "http/protobuf";
}

/** The share that is sampled (OpenTelemetry, OTEL_TRACES_SAMPLER). */
function samplerOf(
  sample: number | undefined,
  given: (name: string) => string | undefined,
  problems: string[],
): Pick<TelemetrySettings, "sample" | "isParentBased"> {
  if (sample !== undefined) return { sample, isParentBased: true };
  const name = given("OTEL_TRACES_SAMPLER");
  const kind = name?.replace(/^parentbased_/, "");
  const isParentBased = name === undefined || name !== kind;
  switch (kind) {
    case undefined:
    case "always_on":
      return { sample: 1, isParentBased };
    case "always_off":
      return { sample: 0, isParentBased };
    case "traceidratio": {
      const share = Number(given("OTEL_TRACES_SAMPLER_ARG") ?? 1);
      if (share >= 0 && share <= 1) return { sample: share, isParentBased };
      problems.push("OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1; all are sampled.");
      return { sample: 1, isParentBased };
    }
    default:
      problems.push("OTEL_TRACES_SAMPLER names a sampler that is not supported; all are sampled.");
      return { sample: 1, isParentBased: true };
  }
}

/** Reads `name=value,name=value`, with percent-encoded values. Pairs that cannot be read are left out. */
function readPairs(text: string | undefined): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const pair of text?.split(",") ?? []) {
    const at = pair.indexOf("=");
    const name = pair.slice(0, at).trim();
    if (at < 0 || name === "") continue;
    try {
      pairs[name] = decodeURIComponent(pair.slice(at + 1).trim());
    } catch {
      continue;
    }
  }
  return pairs;
}
