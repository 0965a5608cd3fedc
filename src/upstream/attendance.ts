import type { RunnableServer } from "../manifest/schema.ts";
import { readClass, writeSettings } from "../protocol/capabilities.ts";
import type { Audience } from "./audience.ts";
import type { Profile } from "./profile.ts";
import type { Seat, Server } from "./server.ts";

/**
 * The client profiles that are present: they decide which connections the servers with goal "up" get, and which of them
 * are unused.
 */
export class Attendance {
  readonly #profiles = new Set<Profile>();

  /** The profiles that use a server. */
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
   * The connections of a server that no present profile uses. A shared one is kept until a client needs a different
   * one.
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

  /** The clients of the connection that serves a profile. */
  audience({ name, isolation }: RunnableServer, profile: Profile): Audience {
    const { era, capabilities, keys, attendee } = profile;
    const key = keys[isolation];
    const { extensions = {}, experimental = {} } = attendee?.settings ?? {};
    // Clients that share a connection have the same extensions, as far as the server may know them, but not the same
    // experimental capabilities.
    const own = isolation === "perClient" ? { extensions, experimental } : { extensions };
    return {
      era,
      capabilities: { ...readClass(capabilities), ...writeSettings(own) },
      clients: () =>
        this.of(name).flatMap((each) => (each.keys[isolation] === key && each.attendee) || []),
    };
  }
}
