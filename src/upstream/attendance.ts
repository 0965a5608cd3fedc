import type { RunnableServer } from "../manifest/schema.ts";
import { parseCapabilityClass, formatExtensionSettings } from "../protocol/capabilities.ts";
import type { ConnectionClients } from "./audience.ts";
import type { ClientProfile } from "./profile.ts";
import type { PooledConnection, PooledServer } from "./server.ts";

/**
 * The client profiles that are present: they decide which connections the servers with goal "up" get, and which of them
 * are unused.
 */
export class PresentProfiles {
  readonly #profiles = new Set<ClientProfile>();

  /** The profiles that use a server. */
  profilesOf(server: string): readonly ClientProfile[] {
    return [...this.#profiles].filter(({ scope: subset }) => subset.has(server));
  }

  add(profile: ClientProfile): void {
    this.#profiles.add(profile);
  }

  delete(profile: ClientProfile): void {
    this.#profiles.delete(profile);
  }

  /**
   * The connections of a server that no present profile uses. A shared one is kept until a client needs a different
   * one.
   */
  unusedConnections({
    spec,
    seats: connections,
  }: PooledServer): readonly (readonly [string, PooledConnection])[] {
    const { isolation } = spec;
    const isShared = isolation === "shared";
    const users = this.profilesOf(spec.name);
    const present = users.filter(({ attendee: channel }) => !isShared || channel !== undefined);
    if (isShared && present.length === 0) return [];
    const keys = new Set(present.map((profile) => profile.keys[isolation]));
    return [...connections].filter(([key]) => !keys.has(key));
  }

  /** The clients of the connection that serves a profile. */
  clientsOf({ name, isolation }: RunnableServer, profile: ClientProfile): ConnectionClients {
    const { era, capabilities, keys, attendee: channel } = profile;
    const key = keys[isolation];
    const { extensions = {}, experimental = {} } = channel?.settings ?? {};
    // Clients that share a connection have the same extensions, as far as the server may know them, but not the same
    // experimental capabilities.
    const settings = isolation === "perClient" ? { extensions, experimental } : { extensions };
    return {
      era,
      capabilities: { ...parseCapabilityClass(capabilities), ...formatExtensionSettings(settings) },
      current: () =>
        this.profilesOf(name).flatMap(
          (each) => (each.keys[isolation] === key && each.attendee) || [],
        ),
    };
  }
}
