import process from "node:process";
import { stateFolder } from "../base/paths.ts";
import { isExternal, type Manifest } from "../manifest/manifest.ts";
import type { PinnedKind } from "../manifest/pin-file.ts";
import { reviewDefinitions } from "../pins/baseline.ts";
import { definitionOf, keyOf, sourcesOf } from "../pins/definitions.ts";
import { diskBaselines } from "../pins/disk.ts";
import { pinLevelOf, type UnacceptedDefinitions } from "../pins/level.ts";
import { type BaselineStore, damagedBaseline } from "../pins/store.ts";
import { formatServerIdentity } from "../snapshot/snapshots.ts";
import type { OperationContext } from "./context.ts";
import type { SavedCatalog } from "./saved-catalog.ts";

/** Opens what this user has accepted of servers. */
export function openStoredBaselines({
  env,
  platform,
}: Pick<OperationContext, "env" | "platform">): BaselineStore {
  return diskBaselines(stateFolder(env, platform));
}

/** What a server listed in an earlier run, compared with what was accepted of it. */
export interface SavedReview extends UnacceptedDefinitions {
  /** Whether this very text was accepted. The name of instructions does not matter. */
  isAccepted(kind: PinnedKind, name: string): boolean;
}

/** Compares what servers listed in earlier runs with what was accepted. Accepts and writes nothing. */
export async function reviewSavedListings(
  { listings, identities }: Pick<SavedCatalog, "listings" | "identities">,
  { servers, pinFile }: Pick<Manifest, "servers" | "pinFile">,
  context: Pick<OperationContext, "env" | "platform">,
): Promise<readonly SavedReview[]> {
  const store = openStoredBaselines(context);
  const isEmpty = await store.isEmpty();
  const content = pinFile?.content;
  const unusable = content !== undefined && "unusable" in content ? content.unusable : undefined;
  const file = content !== undefined && "servers" in content ? content.servers : undefined;
  const reviews: SavedReview[] = [];
  for (const spec of servers) {
    const listing = listings.get(spec.name);
    const identity = identities.get(spec.name);
    if (!isExternal(spec) || listing === undefined || identity === undefined) continue;
    const key = isEmpty
      ? undefined
      : await store.keyOf(formatServerIdentity(identity), spec.name).catch(() => undefined);
    const read = key === undefined ? "none" : await store.digests(key);
    const accepted = typeof read === "string" ? undefined : read;
    const definitions = sourcesOf(listing).map((source) => definitionOf(source, sha256));
    const { pending } = reviewDefinitions(definitions, {
      accepted,
      pinned: file?.get(spec.name),
      acceptsNew: pinLevelOf(spec) !== "block",
      hasHardFinding: () => false,
    });
    const digests = new Map(definitions.map((each) => [keyOf(each), each.digest]));
    reviews.push({
      server: spec.name,
      pin: pinLevelOf(spec),
      fault: read === "damaged" ? damagedBaseline(spec.name).message : unusable,
      pending,
      isAccepted(kind, name) {
        const own = keyOf({ kind, name: kind === "instructions" ? "" : name });
        const digest = digests.get(own);
        return digest !== undefined && accepted?.get(own)?.get(digest) === true;
      },
    });
  }
  return reviews;
}

function sha256(data: string | Uint8Array): Uint8Array {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(data).digest();
}
