import type { Alerts } from "../base/alerts.ts";
import type { ServerListing } from "../catalog/offer.ts";
import type { EventBus } from "../base/events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { ConnectEnvironment } from "./connect.ts";
import type { MalformedOutputReporter } from "./stray-output.ts";
import type { LifecycleOptions } from "./lifecycle.ts";
import type { Snapshot } from "../snapshot/snapshots.ts";
import type { ClientProfile } from "./profile.ts";

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
