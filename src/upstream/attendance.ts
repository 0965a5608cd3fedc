import type { RunnableServer } from "../manifest/schema.ts";
import { readClass, writeSettings } from "../protocol/capabilities.ts";
import type { Audience } from "./audience.ts";
import type { Profile } from "./profile.ts";
import type { Seat, Server } from "./server.ts";

/** Who wants the servers that shall be up, and whose connections that makes them. */
export class Attendance {
  readonly #profiles = new Set<Profile>();

  /** Who wants that server. */
  of(server: string): readonly Profile[] {
    return [...this.#profiles].filter(({ scope }) => scope.has(server));
  }

  add(profile: Profile): void {
    this.#profiles.add(profile);
  }

  delete(profile: Profile): void {
    this.#profiles.delete(profile);
  }

  /**
   * The connections to a server that are nobody's any more. One that clients share is kept for the next of them, until
   * somebody has another.
   */
  orphans({ spec, seats }: Server): readonly (readonly [string, Seat])[] {
    const { isolation } = spec;
    const isShared = isolation === "shared";
    const wanting = this.of(spec.name);
    const present = wanting.filter(({ attendee }) => !isShared || attendee !== undefined);
    if (isShared && present.length === 0) return [];
    const keys = new Set(present.map((profile) => profile.keys[isolation]));
    return [...seats].filter(([key]) => !keys.has(key));
  }

  /** The clients of the connection to a server that is for this profile. */
  audience({ name, isolation }: RunnableServer, profile: Profile): Audience {
    const { era, capabilities, keys, attendee } = profile;
    const key = keys[isolation];
    const { extensions = {}, experimental = {} } = attendee?.settings ?? {};
    // Those who share a connection have the same extensions, as far as a server knows of them, but not the same experiments.
    const own = isolation === "perClient" ? { extensions, experimental } : { extensions };
    return {
      era,
      capabilities: { ...readClass(capabilities), ...writeSettings(own) },
      clients: () =>
        this.of(name).flatMap((each) => (each.keys[isolation] === key && each.attendee) || []),
    };
  }
}
