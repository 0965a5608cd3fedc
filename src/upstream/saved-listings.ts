import type { Alerts } from "../base/alerts.ts";
import type { EventBus } from "../base/events.ts";
import type { ServerListing } from "../catalog/listing.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { SnapshotKey, Snapshots, Snapshot } from "../snapshot/snapshots.ts";
import type { ConnectEnvironment } from "./connect.ts";
import type { LifecycleOptions } from "./lifecycle.ts";
import type { ClientProfile } from "./profile.ts";
import type { MalformedOutputReporter } from "./stray-output.ts";

/** Who a server is once its `${…}` are filled in; undefined if that is not possible now. */
export type ResolveIdentity = (
  spec: RunnableServer,
) => Promise<Omit<SnapshotKey, "era" | "capabilities"> | undefined>;

/** Remembers what servers list, from one start to the next, and tells when a tool is described otherwise than before. */
export class SavedListings implements ListingMemory {
  readonly #snapshots: Snapshots;
  readonly #identify: ResolveIdentity;
  readonly #alerts: Alerts;
  readonly #redact: (text: string) => string;
  readonly #keeping = new Set<Promise<void>>();

  /** @param redact takes out of a server's words what it was given and must not be shown */
  constructor(
    snapshots: Snapshots,
    identify: ResolveIdentity,
    alerts: Alerts,
    redact: (text: string) => string,
  ) {
    this.#snapshots = snapshots;
    this.#identify = identify;
    this.#alerts = alerts;
    this.#redact = redact;
  }

  async recall(spec: RunnableServer, profile: ClientProfile): Promise<SavedListing | undefined> {
    const subject = await this.#subject(spec, profile);
    return subject && (await this.#snapshots.load(subject));
  }

  keep(spec: RunnableServer, profile: ClientProfile, recalled: SavedListing): void {
    const kept = this.#keep(spec, profile, recalled);
    this.#keeping.add(kept);
    void kept.then(() => this.#keeping.delete(kept));
  }

  /** Settles when all is kept. */
  async flush(): Promise<void> {
    await Promise.all(this.#keeping);
    await this.#snapshots.flush();
  }

  async #keep(
    spec: RunnableServer,
    profile: ClientProfile,
    { offer, verdict }: SavedListing,
  ): Promise<void> {
    const subject = await this.#subject(spec, profile);
    if (subject === undefined) return;
    const differences = await this.#snapshots.save(subject, offer, verdict);
    if (differences.length === 0) return;
    const { name: server } = spec;
    const names = differences.map(({ name }) => `"${name}"`).join(", ");
    const texts = differences.map(({ name, text }) => `${name}:\n${text}`);
    const text = `Server "${server}" describes ${names} otherwise than before.\n${texts.join("\n")}`;
    this.#alerts.raise({
      kind: "toolsChanged",
      server,
      text: this.#redact(text).slice(0, LONGEST),
    });
  }

  async #subject(spec: RunnableServer, profile: ClientProfile): Promise<SnapshotKey | undefined> {
    const identity = await this.#identify(spec);
    const { era, capabilities } = profile;
    return identity && { ...identity, era, capabilities };
  }
}

/** The longest text of an alert, in characters: a server may have changed all that it has. */
const LONGEST = 4000;

/** What the pool remembers of servers beyond its own life. */
export interface ListingMemory {
  /** Never rejects. */
  recall(spec: RunnableServer, profile: ClientProfile): Promise<SavedListing | undefined>;
  keep(spec: RunnableServer, profile: ClientProfile, recalled: SavedListing): void;
}

/** What is remembered of a server: what it offered, and what it spoke when it was asked. */
export type SavedListing = Pick<Snapshot, "offer" | "verdict">;

/** What a pool is made of. */
export interface PoolOptions {
  readonly environment: ConnectEnvironment;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly memory: ListingMemory;
  /** 0…1 */
  random(): number;
  /** What some server shows is another than before. */
  changed(): void;
  /** Some connection may be settled or listable now. */
  settled(): void;
}

/** What a connection is made from. */
export interface ConnectionOptions extends Omit<LifecycleOptions, "eraMemory"> {
  readonly spec: RunnableServer;
  /** Of the server, over all its connections. */
  readonly flaws: MalformedOutputReporter;
  /** The listing of the connection that this one takes the place of. */
  readonly offer: ServerListing | undefined;
  /** The listing that was kept when the server last ran. Never rejects. */
  recall(): Promise<SavedListing | undefined>;
  keep(recalled: SavedListing): void;
  /** What it has for the catalog is another than before. */
  changed(): void;
  /** It may be settled or listable now. */
  settled(): void;
  /** It was not used for as long as its specification says, and is being stopped. */
  idled(): void;
}
