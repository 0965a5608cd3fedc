import { mergeCapabilities, mergeInstructions } from "../catalog/listing.ts";
import type { InitializeAnswer } from "../frontend/early-initialize.ts";
import { stateFolder } from "../base/paths.ts";
import type { ExternalServer, Manifest, ServerSpec } from "../manifest/schema.ts";
import { diskSnapshots } from "../snapshot/disk.ts";
import type { CommandContext } from "./command.ts";
import { openTransportFactory } from "./transport-factory.ts";

/**
 * Finds the servers' instructions and capabilities in snapshots of earlier starts.
 * @param capabilities the client's capability class
 */
export type InstructionsRecall = (capabilities: string) => Promise<InitializeAnswer>;

/** Reads instructions from snapshots; undefined if snapshots alone do not determine them. */
export function openInstructionsRecall(
  { servers }: Manifest,
  context: CommandContext,
): InstructionsRecall | undefined {
  if (!servers.every(isStaticServer)) return undefined;
  const { env, platform } = context;
  const { resolveIdentity: identify } = openTransportFactory(context, () =>
    Promise.reject(new Error("Nobody logs in here.")),
  );
  // Problems with snapshots are not logged here, because the hub itself reports them.
  const snapshots = diskSnapshots({
    folder: stateFolder(env, platform),
    now: Date.now,
    warn: () => {},
  });
  const external = servers.filter(
    (spec): spec is ExternalServer => spec.enabled && spec.kind === "stdio",
  );
  return async (capabilities) => {
    const loaded = await Promise.all(
      external.map(async (spec) => {
        const identity = await identify(spec, new Map());
        const key = identity && ({ ...identity, era: "legacy", capabilities } as const);
        const kept = key && (await snapshots.load(key));
        return kept === undefined ? [] : [{ server: spec.name, listing: kept.listing }];
      }),
    );
    const kept = loaded.flat();
    const listings = kept.map(({ listing }) => listing);
    return {
      instructions: mergeInstructions(kept),
      offered: mergeCapabilities(listings, kept.length === external.length),
    };
  };
}

/**
 * Whether a server's snapshot certainly applies. If its entry contains `${…}`, that depends on their values; over HTTP,
 * it depends on the user.
 */
export function isStaticServer(spec: ServerSpec): boolean {
  if (!spec.enabled) return true;
  return spec.kind === "stdio" && !JSON.stringify(spec).includes("${");
}
