import type { Alerts } from "../base/alerts.ts";
import type { ServerListing } from "../catalog/offer.ts";
import type { EventBus } from "../base/events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Surroundings } from "./connect.ts";
import type { Flaws } from "./stray-output.ts";
import type { LifeParts } from "./lifecycle.ts";
import type { Snapshot } from "../snapshot/snapshots.ts";
import type { Profile } from "./profile.ts";

/** What the pool remembers of servers beyond its own life. */
export interface Memory {
  /** Never rejects. */
  recall(spec: RunnableServer, profile: Profile): Promise<Recalled | undefined>;
  keep(spec: RunnableServer, profile: Profile, recalled: Recalled): void;
}

/** What is remembered of a server: what it offered, and what it spoke when it was asked. */
export type Recalled = Pick<Snapshot, "offer" | "verdict">;

/** What a pool is made of. */
export interface PoolParts {
  readonly surroundings: Surroundings;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly memory: Memory;
  /** 0…1 */
  random(): number;
  /** What some server shows is another than before. */
  changed(): void;
  /** Some connection may be settled or listable now. */
  settled(): void;
}

/** What a connection is made from. */
export interface ConnectionParts extends Omit<LifeParts, "dialects"> {
  readonly spec: RunnableServer;
  /** Of the server, over all its connections. */
  readonly flaws: Flaws;
  /** The listing of the connection that this one takes the place of. */
  readonly offer: ServerListing | undefined;
  /** The listing that was kept when the server last ran. Never rejects. */
  recall(): Promise<Recalled | undefined>;
  keep(recalled: Recalled): void;
  /** What it has for the catalog is another than before. */
  changed(): void;
  /** It may be settled or listable now. */
  settled(): void;
  /** It was not used for as long as its specification says, and is being stopped. */
  idled(): void;
}
