import type { LogLevel } from "../base/hub-events.ts";
import { type LoadedManifest, loadManifest, type LoadOptions } from "../manifest/load.ts";
import { formatProblem, manifestError } from "../manifest/problems.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS, type Manifest } from "../manifest/manifest.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import type { LogRecord } from "../terminal/log.ts";

/** Logs a record, or a text about the hub itself, if its level is enabled. */
export type CommandLog = (level: LogLevel, what: LogRecord | string) => void;

/**
 * A loaded manifest with two texts for finding changes: `fingerprint` changes exactly if anything that was loaded
 * changes, `pluginFingerprint` exactly if the plugins change.
 */
export interface ManifestWithHashes {
  readonly manifest: Manifest;
  readonly fingerprint: string;
  readonly pluginFingerprint: string;
}

/**
 * Loads the chosen manifests, and logs the loader's notes as warnings.
 * @param mayBeAbsent if true and there is no manifest, an empty one is used
 * @throws {HubError} manifestInvalid
 */
export async function loadManifestLogged(
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
  mayBeAbsent = false,
): Promise<ManifestWithHashes> {
  const loaded = await loadManifest(loadOptions(choice, context));
  logRemarks(loaded, log);
  if (loaded.ok) return loaded;
  if (!mayBeAbsent || loaded.files.length > 0) throw manifestError(loaded.problems);
  const manifest: Manifest = {
    hub: HUB_DEFAULTS,
    defaults: LIMIT_DEFAULTS,
    servers: [],
    plugins: [],
    sources: [],
  };
  const { fingerprint, pluginFingerprint } = loaded;
  return { manifest, fingerprint, pluginFingerprint };
}

/**
 * Logs the loader's notes, and the problems that concern only a part of the manifest. Problems of servers are left
 * out, because the state of a server reports them.
 */
export function logRemarks({ ok, notes, problems }: LoadedManifest, log: CommandLog): void {
  for (const note of notes) log("warn", note);
  if (!ok) return;
  for (const problem of problems)
    if (problem.path[0] !== "servers") log("warn", formatProblem(problem));
}

/** The options for `loadManifest`. */
export function loadOptions(
  { config }: ManifestChoice,
  { env, cwd, platform }: OperationContext,
): LoadOptions {
  return { files: config, env, cwd, platform };
}

/** Does the same as `loadManifestLogged`, but returns only the manifest. @throws {HubError} manifestInvalid */
export async function loadManifestOnly(
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<Manifest> {
  return (await loadManifestLogged(choice, context, log)).manifest;
}
