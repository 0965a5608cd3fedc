import type { ManifestChoice, OperationContext } from "../operations/context.ts";
import type { SharingDocument } from "../operations/documents.ts";
import type { HubUse, SharingOffer } from "../operations/share.ts";
import { clientOfHub, type RunningHub } from "./running-hubs.ts";

/** Time that a hub may take to answer, in ms. */
const ANSWER_WAIT = 3000;

/**
 * What sharing would save for the running hubs of one manifest.
 * @param hubs all running hubs of the manifest; one that does not answer is left out
 * @param choice the manifest
 */
export async function readSharing(
  hubs: readonly RunningHub[],
  choice: ManifestChoice,
  context: OperationContext,
): Promise<SharingDocument> {
  const { loadManifest } = await import("../manifest/load.ts");
  const { loadOptions } = await import("../operations/load-manifest.ts");
  const { sharingOf } = await import("../operations/share.ts");
  const [uses, loaded] = await Promise.all([
    Promise.all(hubs.map((hub) => readUse(hub, context.signal))),
    loadManifest(loadOptions(choice, context)),
  ]);
  return sharingOf(uses.flat(), loaded.ok ? loaded.manifest : undefined);
}

async function readUse(hub: RunningHub, signal: AbortSignal): Promise<readonly HubUse[]> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_WAIT)]);
  try {
    const { value } = await clientOfHub(hub, { signal: limited })("GET /servers");
    const servers = value.servers.map(({ name, connections, memory = 0 }) => {
      const processes = connections.filter(({ pid }) => pid !== undefined).length;
      return { name, processes, memory };
    });
    return [{ pid: hub.pid, cwd: hub.cwd, endpoints: hub.endpoints, servers }];
  } catch {
    signal.throwIfAborted();
    return [];
  }
}

/** An offer to share the hubs of one manifest, with its files and the figures. */
export type ManifestSharingOffer = SharingOffer &
  SharingDocument & { readonly manifest: readonly string[] };

/**
 * What can be saved by sharing: an offer for each manifest that two or more private hubs serve, and that is not shared.
 * Most often there is none, so that the code that reads manifests is loaded only then.
 * @param hubs hubs of any manifests
 */
export async function findSharingOffers(
  hubs: readonly RunningHub[],
  context: OperationContext,
): Promise<readonly ManifestSharingOffer[]> {
  const groups = Map.groupBy(hubs, ({ manifestId }) => manifestId);
  const several = [...groups.values()].filter((group) => group.length > 1);
  if (several.length === 0) return [];
  const { findUserFile } = await import("../manifest/edit/write.ts");
  const { sharingOffer } = await import("../operations/share.ts");
  const own = await findUserFile(context).catch(() => undefined);
  const found = await Promise.all(
    several.map(async (group): Promise<readonly ManifestSharingOffer[]> => {
      const manifest = group[0]?.manifest ?? [];
      const sharing = await readSharing(group, { config: manifest }, context);
      const isOwn = manifest.length === 0 || (own !== undefined && manifest.includes(own));
      const offer = sharingOffer(sharing, isOwn ? [] : manifest);
      return offer === undefined ? [] : [{ ...offer, ...sharing, manifest }];
    }),
  );
  return found.flat();
}
