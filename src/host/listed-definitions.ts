import { abortable } from "../base/clock.ts";
import type { ServerPins } from "../hub/pinned-servers.ts";
import { isRunnable, type Manifest } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { Definition } from "../pins/definitions.ts";
import type { HostContext } from "./context.ts";
import { openTrialHub } from "./open-hub.ts";

/** What servers list now. */
export interface ListedDefinitions {
  /** By server, in the order of the manifest; servers that could not be listed are left out. */
  readonly listed: ReadonlyMap<string, readonly Definition[]>;
  /** The enabled servers that could not be listed, each with the reason as a sentence. */
  readonly failed: ReadonlyMap<string, string>;
  /** What is not accepted, by server. */
  readonly pins: readonly ServerPins[];
}

/**
 * Starts the enabled servers of a manifest, and reads what they list.
 * @param accepts whether what is listed first becomes the baseline of a server, as in any hub
 */
export async function listDefinitions(
  manifest: Manifest,
  accepts: boolean,
  context: HostContext,
  log: CommandLog,
): Promise<ListedDefinitions> {
  const servers = manifest.servers.map((spec) =>
    isRunnable(spec) && !accepts ? { ...spec, pin: "off" as const } : spec,
  );
  const opened = await openTrialHub({ ...manifest, servers }, context, log);
  try {
    const { hub } = opened;
    await abortable(hub.startAllAndSettle(), context.signal);
    const listed = new Map<string, readonly Definition[]>();
    const failed = new Map<string, string>();
    for (const { server, connections, goal } of hub.status()) {
      if (goal === "down" && connections.length === 0) continue;
      const definitions = hub.pinned.definitionsOf(server);
      if (definitions !== undefined) listed.set(server, definitions);
      else {
        const error = connections.findLast(({ lastError }) => lastError !== undefined)?.lastError;
        failed.set(server, opened.redact(error?.message ?? "It was not listed in time."));
      }
    }
    return { listed, failed, pins: accepts ? await hub.pinned.list() : [] };
  } finally {
    await opened.close();
  }
}
