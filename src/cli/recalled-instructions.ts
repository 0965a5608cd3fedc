import { mergeCapabilities, mergeInstructions } from "../catalog/listing.ts";
import type { InitializeAnswer } from "../frontend/early-initialize.ts";
import { stateFolder } from "../base/paths.ts";
import type { ExternalServer, Manifest, ServerSpec } from "../manifest/schema.ts";
import { diskSnapshots } from "../snapshot/disk.ts";
import type { CommandContext } from "./command.ts";
import { openTransportFactory } from "./transport-factory.ts";

/** @param capabilities the class of what a client can be asked for; @returns what servers said to one of it at earlier starts */
export type InstructionsRecall = (capabilities: string) => Promise<InitializeAnswer>;

/** What the hub will recall of its servers; undefined if it takes more than what is kept of them to know that. */
export function openInstructionsRecall(
  { servers }: Manifest,
  world: CommandContext,
): InstructionsRecall | undefined {
  if (!servers.every(isStaticServer)) return undefined;
  const { env, platform } = world;
  const { identify } = openTransportFactory(world, () =>
    Promise.reject(new Error("Nobody logs in here.")),
  );
  // What there is to be said of what is kept the hub says.
  const snapshots = diskSnapshots({
    folder: stateFolder(env, platform),
    now: Date.now,
    warn: () => {},
  });
  const outer = servers.filter(
    (spec): spec is ExternalServer => spec.enabled && spec.kind === "stdio",
  );
  return async (capabilities) => {
    const recalled = await Promise.all(
      outer.map(async (spec) => {
        const identity = await identify(spec, new Map());
        const subject = identity && ({ ...identity, era: "legacy", capabilities } as const);
        const kept = subject && (await snapshots.load(subject));
        return kept === undefined ? [] : [{ server: spec.name, listing: kept.offer }];
      }),
    );
    const kept = recalled.flat();
    const listings = kept.map(({ listing }) => listing);
    return {
      instructions: mergeInstructions(kept),
      offered: mergeCapabilities(listings, kept.length === outer.length),
    };
  };
}

/**
 * Whether the manifest alone says how one meets a server: with another value for a `${…}`, or for somebody else over HTTP, it
 * may have other things to say.
 */
export function isStaticServer(spec: ServerSpec): boolean {
  if (!spec.enabled) return true;
  return spec.kind === "stdio" && !JSON.stringify(spec).includes("${");
}
