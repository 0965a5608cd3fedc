import { sha256 } from "../base/bytes.ts";
import { stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { buildCatalog, type Catalog, type CatalogSource } from "../catalog/catalog.ts";
import type { ServerListing } from "../catalog/listing.ts";
import { nameRulesOf } from "../hub/options.ts";
import { type ExternalServer, isExternal, type Manifest } from "../manifest/manifest.ts";
import { readSnapshotIndex, type SnapshotIndex } from "../snapshot/disk.ts";
import type { ServerIdentity } from "../snapshot/snapshots.ts";
import { openTransportFactory } from "../hub/transport-factory.ts";

/** The catalog made of what servers listed in earlier runs. No server is started for it. */
export interface SavedCatalog {
  readonly catalog: Catalog;
  /** What each server listed, by its name. */
  readonly listings: ReadonlyMap<string, ServerListing>;
  /** By which each of them is recognized. */
  readonly identities: ReadonlyMap<string, ServerIdentity>;
  /** Names of the enabled servers for which there is no saved listing. */
  readonly unknown: readonly string[];
}

/**
 * Builds the catalog that clients would see from the newest snapshot of each server (what it listed in an earlier run).
 * Starts nothing.
 * @param isUsable whether a server's placeholders can be filled in; by default all can
 */
export async function readSavedCatalog(
  manifest: Manifest,
  context: SystemEnvironment,
  index?: SnapshotIndex,
  isUsable: (spec: ExternalServer) => boolean = () => true,
): Promise<SavedCatalog> {
  const snapshots =
    index ?? (await readSnapshotIndex(stateFolder(context.env, context.platform), Date.now()));
  const sources: SavedSource[] = [];
  const unknown: string[] = [];
  for (const spec of manifest.servers) {
    if (!spec.enabled || !isExternal(spec)) continue;
    const source = isUsable(spec) ? await sourceOf(spec, snapshots, context) : undefined;
    if (source !== undefined) sources.push(source);
    else unknown.push(spec.name);
  }
  const listings = new Map(sources.map(({ server, listing }) => [server, listing]));
  const identities = new Map(sources.map(({ server, identity }) => [server, identity]));
  const catalog = buildCatalog(sources, nameRulesOf(manifest.hub), sha256);
  return { catalog, listings, identities, unknown };
}

interface SavedSource extends CatalogSource {
  readonly identity: ServerIdentity;
}

async function sourceOf(
  spec: ExternalServer,
  index: SnapshotIndex,
  context: SystemEnvironment,
): Promise<SavedSource | undefined> {
  const { resolveIdentity } = openTransportFactory(context, () =>
    Promise.reject(new Error("Nobody logs in here.")),
  );
  const identity = await resolveIdentity(spec, new Map());
  const snapshot = identity && (await index.find(identity));
  if (identity === undefined || snapshot === undefined) return undefined;
  const { name: server, prefix, tools, prompts, skills, callTimeout, maxCallTimeout } = spec;
  return {
    server,
    identity,
    listing: snapshot.listing,
    rules: { tools: { prefix, ...tools }, prompts: { prefix, ...prompts } },
    skills,
    limits: () => ({ timeout: callTimeout, maxTimeout: maxCallTimeout }),
  };
}
