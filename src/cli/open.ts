import process from "node:process";
import { Bus, type EventKind, type HubEvent, type LogLevel } from "../events.ts";
import { Hub } from "../hub.ts";
import { loadManifest } from "../manifest/load.ts";
import { manifestError } from "../manifest/problem.ts";
import type { Manifest } from "../manifest/schema.ts";
import { resolveServer } from "../manifest/secrets.ts";
import { memorySnapshots } from "../snapshot/snapshot.ts";
import type { Invocation, World } from "./command.ts";
import { createRecord, describeEvent, isTold, type LogRecord } from "./log.ts";
import { printRecord } from "./report.ts";

/** Tells a record, or a text about the hub as a whole, on stderr if its level is wanted. */
export type Log = (level: LogLevel, what: LogRecord | string) => void;

/** @param tell what takes a record that is wanted; by default it is on stderr at once, as those of commands have to be. */
export function openLog(
  { logLevel, logFormat }: Invocation,
  tell: (record: LogRecord) => void = (record) => printRecord(record, logFormat),
): Log {
  return (level, what) => {
    if (!isTold(level, logLevel)) return;
    tell(typeof what === "string" ? createRecord(level, what) : what);
  };
}

/** Loads the manifest that was named, or that is found; what is to be said of it is logged. @throws {HubError} manifestInvalid */
export async function openManifest(
  { config }: Invocation,
  { env, cwd, platform }: World,
  log: Log,
): Promise<Manifest> {
  const loaded = await loadManifest({ files: config, env, cwd, platform });
  for (const note of loaded.notes) log("warn", note);
  if (!loaded.ok) throw manifestError(loaded.problems);
  return loaded.manifest;
}

/**
 * Makes a hub, which starts its servers when its first client has come.
 * @param kinds the events that are logged; by default only what the servers and the hub say, as commands tell the rest.
 */
export function openHub(
  manifest: Manifest,
  { env, cwd }: World,
  log: Log,
  kinds: readonly EventKind[] = ["log"],
): { hub: Hub; bus: Bus } {
  const bus = new Bus();
  bus.subscribe((event) => tellEvent(event, log), kinds);
  const hub = new Hub({
    manifest,
    bus,
    digest,
    snapshots: memorySnapshots(),
    identify: (spec) =>
      resolveServer(spec, env, cwd).then(
        ({ command, args, cwd: folder, env: variables }) => ({
          command,
          args,
          cwd: folder,
          env: variables,
          url: undefined,
          principal: undefined,
        }),
        () => undefined,
      ),
    makeLink: async (spec) => {
      const { name: server, maxMessage } = spec;
      const resolved = await resolveServer(spec, env, cwd);
      // Whatever starts processes is loaded after the first answer to the client.
      const { stdioLink } = await import("../wire/stdio.ts");
      return stdioLink({ ...resolved, server, maxMessage, hubEnv: env });
    },
  });
  return { hub, bus };
}

function tellEvent(event: HubEvent, log: Log): void {
  const record = describeEvent(event, Date.now());
  if (record !== undefined) log(record.level, record);
}

/** Needed only for names that have to be shortened, so it is loaded only then. */
function digest(text: string): Uint8Array {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(text).digest();
}

/** Rejects with the signal's reason as soon as it is aborted. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
