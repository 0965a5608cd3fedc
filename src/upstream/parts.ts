import type { Alerts } from "../alerts.ts";
import type { Offer } from "../catalog/offer.ts";
import type { Bus } from "../events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Surroundings } from "./attempt.ts";
import type { Profile } from "./profile.ts";

/** What the pool remembers of servers beyond its own life. */
export interface Memory {
  /** Never rejects. */
  recall(spec: RunnableServer, profile: Profile): Promise<Offer | undefined>;
  keep(spec: RunnableServer, profile: Profile, offer: Offer): void;
}

/** What a pool is made of. */
export interface PoolParts {
  readonly surroundings: Surroundings;
  readonly bus: Bus;
  readonly alerts: Alerts;
  readonly memory: Memory;
  /** 0…1 */
  random(): number;
  /** What some server shows is another than before. */
  changed(): void;
  /** Some connection may be settled or listable now. */
  settled(): void;
}
