import type { LogLevel } from "../base/events.ts";
import { loadManifest, type LoadOptions } from "../manifest/load.ts";
import { manifestError } from "../manifest/problems.ts";
import type { Manifest } from "../manifest/schema.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { isLevelEnabled, type LogRecord, makeLogRecord, printLogRecord } from "../terminal/log.ts";

/** Tells a record, or a text about the hub as a whole, on stderr if its level is wanted. */
export type CommandLog = (level: LogLevel, what: LogRecord | string) => void;

/** @param tell what takes a record that is wanted; by default it is on stderr at once, as those of commands have to be. */
export function openLog(
  { logLevel, logFormat }: Invocation,
  tell: (record: LogRecord) => void = (record) => printLogRecord(record, logFormat),
): CommandLog {
  return (level, what) => {
    if (!isLevelEnabled(level, logLevel)) return;
    tell(typeof what === "string" ? makeLogRecord(level, what) : what);
  };
}

/** A manifest, and the editions of what it was loaded from; see `LoadResult`. */
export interface LoadedBasis {
  readonly manifest: Manifest;
  readonly fingerprint: string;
  readonly pluginFingerprint: string;
}

/** Loads the manifest that was named, or that is found; what is to be said of it is logged. @throws {HubError} manifestInvalid */
export async function loadManifestLogged(
  invocation: Invocation,
  world: CommandContext,
  log: CommandLog,
): Promise<LoadedBasis> {
  const loaded = await loadManifest(loadOptions(invocation, world));
  for (const note of loaded.notes) log("warn", note);
  if (!loaded.ok) throw manifestError(loaded.problems);
  return loaded;
}

/** Where the manifest is looked for. */
export function loadOptions(
  { config }: Invocation,
  { env, cwd, platform }: CommandContext,
): LoadOptions {
  return { files: config, env, cwd, platform };
}

/** The manifest alone; see `openBasis`. */
export async function loadManifestOnly(
  invocation: Invocation,
  world: CommandContext,
  log: CommandLog,
): Promise<Manifest> {
  return (await loadManifestLogged(invocation, world, log)).manifest;
}
