import type { Alerts } from "../base/alerts.ts";
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

/** Saves servers' listings for the hub's next start. Raises an alert if descriptions of tools have changed. */
export class SavedListings implements ListingMemory {
  readonly #snapshots: Snapshots;
  readonly #resolveIdentity: ResolveIdentity;
  readonly #alerts: Alerts;
  readonly #redact: (text: string) => string;
  readonly #saving = new Set<Promise<void>>();
  /** The last changes by server: when, in ms since the epoch, and the tools that have changed without a long break. */
  readonly #lastChanges = new Map<
    string,
    { readonly at: number; readonly names: ReadonlySet<string> }
  >();

  /** @param redact removes secrets from the text of an alert */
  constructor(
    snapshots: Snapshots,
    resolveIdentity: ResolveIdentity,
    alerts: Alerts,
    redact: (text: string) => string,
  ) {
    this.#snapshots = snapshots;
    this.#resolveIdentity = resolveIdentity;
    this.#alerts = alerts;
    this.#redact = redact;
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
    const differences = await this.#snapshots.save(key, listing, detectedEra);
    if (differences.length === 0) return;
    const { name: server } = spec;
    const isRepeated = this.#noteChange(
      server,
      differences.map(({ name }) => name),
    );
    const names = differences.map(({ name }) => `"${name}"`).join(", ");
    const texts = differences.map(({ name, text }) => `${name}:\n${text}`);
    const text = `Server "${server}" changed what it says of ${names}.\n${texts.join("\n")}`;
    this.#alerts.raise({
      kind: "toolsChanged",
      server,
      text: this.#redact(text).slice(0, MAX_ALERT_LENGTH),
      ...(isRepeated && { repeated: true }),
    });
  }

  /** Notes which tools have changed. @returns whether all of them have kept changing */
  #noteChange(server: string, names: readonly string[]): boolean {
    const now = Date.now();
    const last = this.#lastChanges.get(server);
    const known =
      last !== undefined && now - last.at < REPEAT_PERIOD ? last.names : new Set<string>();
    const isRepeated = names.every((name) => known.has(name));
    this.#lastChanges.set(server, { at: now, names: new Set([...known, ...names]) });
    return isRepeated;
  }

  async #keyOf(spec: RunnableServer, profile: ClientProfile): Promise<SnapshotKey | undefined> {
    const { era, capabilities, origin } = profile;
    const identity = await this.#resolveIdentity(spec, origin);
    return identity && { ...identity, era, capabilities };
  }
}

/** A tool that changes again within this time keeps changing, in ms. Then only its first change is logged. */
const REPEAT_PERIOD = 10 * 60_000;

/** Maximum length of an alert's text, in characters, because a server may have changed every tool. */
const MAX_ALERT_LENGTH = 4000;

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
