import type { ClientOrigin } from "../manifest/client-values.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { ServerIdentity, Snapshot, SnapshotKey, Snapshots } from "../snapshot/snapshots.ts";
import type { ClientProfile } from "./profile.ts";

/**
 * Returns the identity of a server, with its `${…}` values filled in; undefined if one of the values is missing.
 * `origin`: what fills them in; undefined: the hub's own environment.
 */
export type ResolveIdentity = (
  spec: RunnableServer,
  origin?: ClientOrigin,
) => Promise<ServerIdentity | undefined>;

/** Saves servers' listings for the hub's next start. */
export class SavedListings implements ListingMemory {
  readonly #snapshots: Snapshots;
  readonly #resolveIdentity: ResolveIdentity;
  readonly #saving = new Set<Promise<void>>();

  constructor(snapshots: Snapshots, resolveIdentity: ResolveIdentity) {
    this.#snapshots = snapshots;
    this.#resolveIdentity = resolveIdentity;
  }

  async load(spec: RunnableServer, profile: ClientProfile): Promise<SavedListing | undefined> {
    const key = await this.#keyOf(spec, profile);
    return key && (await this.#snapshots.load(key));
  }

  save(spec: RunnableServer, profile: ClientProfile, saved: SavedListing): void {
    const saving = this.#save(spec, profile, saved);
    this.#saving.add(saving);
    void saving.then(() => this.#saving.delete(saving));
  }

  async flush(): Promise<void> {
    await Promise.all(this.#saving);
    await this.#snapshots.flush();
  }

  async #save(
    spec: RunnableServer,
    profile: ClientProfile,
    { listing, detectedEra }: SavedListing,
  ): Promise<void> {
    const key = await this.#keyOf(spec, profile);
    if (key === undefined) return;
    await this.#snapshots.save(key, listing, detectedEra);
  }

  async #keyOf(spec: RunnableServer, profile: ClientProfile): Promise<SnapshotKey | undefined> {
    const { era, capabilities, origin } = profile;
    const identity = await this.#resolveIdentity(spec, origin);
    return identity && { ...identity, era, capabilities };
  }
}

/** Stores and loads servers' listings and eras for the hub's next run. */
export interface ListingMemory {
  /** Loads the saved listing of a server. Never rejects. */
  load(spec: RunnableServer, profile: ClientProfile): Promise<SavedListing | undefined>;
  save(spec: RunnableServer, profile: ClientProfile, saved: SavedListing): void;
}

/** The saved data of a server: its listing and its era. */
export type SavedListing = Pick<Snapshot, "listing" | "detectedEra"> & {
  /** When the data was saved, in ms since the epoch; absent in data that is to be saved. */
  readonly savedAt?: number;
};
