import process from "node:process";
import { Bus, type HubEvent, type LogLevel } from "../events.ts";
import { Hub } from "../hub.ts";
import { loadManifest } from "../manifest/load.ts";
import { manifestError } from "../manifest/problem.ts";
import type { Manifest } from "../manifest/schema.ts";
import { resolveServer } from "../manifest/secrets.ts";
import { memorySnapshots } from "../snapshot/snapshot.ts";
import type { Invocation, World } from "./command.ts";
import { printLine } from "./report.ts";

const SEVERITY: Readonly<Record<LogLevel, number>> = { error: 0, warn: 1, info: 2, debug: 3 };

/** Prints a line of a log on stderr if its level is wanted. */
export type Log = (level: LogLevel, text: string) => void;

export function openLog({ logLevel }: Invocation, print = printLine): Log {
  return (level, text) => {
    if (SEVERITY[level] <= SEVERITY[logLevel]) print(`${level} ${text}`);
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

/** Makes a hub, which starts its servers when its first client has come. */
export function openHub(manifest: Manifest, { env, cwd }: World, log: Log): { hub: Hub; bus: Bus } {
  const bus = new Bus();
  bus.subscribe((event) => tellLog(event, log));
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

function tellLog(event: HubEvent, log: Log): void {
  if (event.kind !== "log") return;
  const { level, server, text } = event;
  log(level, server === undefined ? text : `${server}: ${text}`);
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
