import { randomUUID } from "node:crypto";
import { systemClock } from "../base/clock.ts";
import { toHubError } from "../base/errors.ts";
import type { EventBus } from "../base/hub-events.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { Hub } from "../hub/hub.ts";
import { secretSchemes } from "../hub/http-clients.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { resolveHttpToken } from "../manifest/resolve.ts";
import type { TelemetryInput, TelemetrySpec } from "../manifest/telemetry.ts";
import { HubTelemetry } from "../telemetry/hub-telemetry.ts";
import { readTelemetrySettings, type TelemetrySettings } from "../telemetry/settings.ts";
import { makeFetch } from "../transport/http-client/fetch.ts";
import { passwordOf } from "../transport/http-client/url-credentials.ts";

export interface OpenTelemetryOptions {
  readonly context: Pick<SystemEnvironment, "env" | "platform">;
  readonly redact: (text: string) => string;
  /** Adds values to redact. */
  readonly addSecrets: (secrets: readonly string[]) => void;
  readonly warn: (text: string) => void;
  /** The time for which what waits is sent at the end, in ms; undefined: as at the end of a hub. */
  readonly lastFlush?: () => number | undefined;
}

/** What a hub will have, before it is opened. */
export interface FollowedHub {
  readonly bus: EventBus;
  /** Removes its secrets from a text. */
  readonly redact: (text: string) => string;
}

/** The telemetry of a hub or of agents, through all its manifests. */
export interface RunningTelemetry {
  /** The telemetry that is in force; its tracer is undefined if nothing is sent. */
  readonly current: HubTelemetry;
  /** Makes the spans of the servers of a hub, from its first event on, and removes its secrets from all spans. */
  follow(hub: FollowedHub): void;
  /** Sets the hub whose requests are traced. */
  attach(hub: Hub): void;
  /** Applies another manifest. Never rejects. */
  configure(manifest: Manifest): Promise<void>;
  /** Sends what waits, within a limited time. */
  close(): Promise<void>;
}

/** Opens the telemetry of a hub that does not run yet, or of agents. Never rejects: what is wrong is warned of. */
export async function openTelemetry(
  manifest: Manifest,
  options: OpenTelemetryOptions,
): Promise<RunningTelemetry> {
  const { context, warn } = options;
  let followed: FollowedHub | undefined;
  const redact = (text: string): string =>
    followed === undefined ? options.redact(text) : options.redact(followed.redact(text));
  const instance = randomUUID();
  const make = (settings: TelemetrySettings): HubTelemetry =>
    new HubTelemetry(settings, {
      clock: systemClock,
      fetch: makeFetch({ ca: undefined, env: context.env }),
      instance,
      wallNow: Date.now,
      random: Math.random,
      redact,
      warn,
    });
  let settings = await settingsOf(manifest, options);
  let current = make(settings);
  /** The last posts of earlier settings. */
  const closing: Promise<void>[] = [];
  let hub: Hub | undefined;
  return {
    get current() {
      return current;
    },
    follow(next) {
      followed = next;
      current.follow(next.bus);
    },
    attach(running) {
      hub = running;
      hub.trace(current.tracer);
      current.sendMetrics(hub.metrics);
    },
    async configure(next) {
      const wanted = await settingsOf(next, options);
      if (JSON.stringify(wanted) === JSON.stringify(settings)) return;
      settings = wanted;
      const before = current;
      current = make(settings);
      if (followed !== undefined) current.follow(followed.bus);
      hub?.trace(current.tracer);
      if (hub !== undefined) current.sendMetrics(hub.metrics);
      closing.push(before.close());
    },
    close: async () => {
      await Promise.all([...closing, current.close(options.lastFlush?.())]);
    },
  };
}

async function settingsOf(
  { telemetry }: Manifest,
  { context, addSecrets, warn }: OpenTelemetryOptions,
): Promise<TelemetrySettings> {
  const { env } = context;
  let input: TelemetryInput | undefined;
  try {
    input = telemetry && (await resolve(telemetry, context));
  } catch (error) {
    warn(`Traces and metrics are not sent: ${toHubError(error).message}`);
    // What is not sent still names the hub in what scrapers read.
    const { endpoint: _, headers: __, ...others } = telemetry?.input ?? {};
    const unsent = readTelemetrySettings({ ...others, headers: {} }, env);
    return { ...unsent, tracesUrl: undefined, metricsUrl: undefined };
  }
  const settings = readTelemetrySettings(input, env);
  for (const text of settings.problems) warn(text);
  addSecrets(secretsOf(settings));
  return settings;
}

/** Fills in the `${…}` of the endpoint and the headers. @throws {HubError} usage */
async function resolve(
  { input, file, baseDir }: TelemetrySpec,
  context: OpenTelemetryOptions["context"],
): Promise<TelemetryInput> {
  const schemes = secretSchemes(context);
  const fill = (text: string, what: string): Promise<string> =>
    resolveHttpToken({ text, file, baseDir }, context.env, schemes, what);
  const { endpoint, headers } = input;
  const filled = await Promise.all(
    Object.entries(headers ?? {}).map(async ([name, text]): Promise<[string, string]> => {
      return [name, await fill(text, `telemetry.headers.${name}`)];
    }),
  );
  return {
    ...input,
    ...(endpoint !== undefined && { endpoint: await fill(endpoint, "telemetry.endpoint") }),
    ...(headers !== undefined && { headers: Object.fromEntries(filled) }),
  };
}

/** The values of headers, and the password of a URL: they must not be in a log. */
function secretsOf({ headers, tracesUrl, metricsUrl }: TelemetrySettings): readonly string[] {
  const urls = [tracesUrl, metricsUrl].flatMap((url) => (url === undefined ? [] : [new URL(url)]));
  const words = Object.values(headers).flatMap((value) => [value, ...value.split(/\s+/).slice(1)]);
  return [...words, ...urls.flatMap((url) => [url.password, passwordOf(url)])].filter(
    (text) => text !== "",
  );
}
