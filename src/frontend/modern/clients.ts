import { HubError } from "../../base/errors.ts";
import type { Call } from "../../router/call.ts";
import { ModernClientTasks } from "../../router/modern-tasks.ts";
import { ALL_SERVERS, type ServerSubset } from "../../upstream/scope.ts";
import type { ClientView } from "../../upstream/view.ts";
import { ModernMethod } from "../../protocol/modern.ts";
import type { Letter } from "./request.ts";
import { Party, type PartyParts } from "./client.ts";
import type { Check } from "./call.ts";
import type { WayBack } from "./wayback.ts";

/** How long an unused client is kept, and how often that is checked, in ms. */
const IDLE = { limit: 5 * 60_000, interval: 60_000 };
/** Maximum number of clients, and of `subscriptions/listen` in flight, of one connection or of the HTTP server. */
const MOST = { parties: 32, listenings: 1024 };

export interface PartiesParts extends PartyParts {
  /** The view of one client. @param clientId undefined: clients that cannot be told apart */
  view(client: string | undefined, scope: ServerSubset): ClientView;
  /** Called once, when all are closed. */
  ended(parties: Parties): void;
}

/** What handles the modern requests of one client. */
export type Taker = Pick<Parties, "take" | "stop" | "close">;

/**
 * The modern requests of one client, or of all that cannot be told apart, as one ModernClient per capability class and
 * subset of servers.
 */
export class Parties {
  readonly #parts: PartiesParts;
  readonly #parties = new Map<string, Party>();
  /** The client's tasks, shared: any of its capability classes may ask for them. */
  readonly #keeping: ModernClientTasks;
  /** Cache: the client of the last request. */
  #latest:
    | { readonly capabilities: string; readonly scope: ServerSubset; readonly party: Party }
    | undefined;
  #disarm: () => void = () => {};
  #isClosed = false;

  constructor(parts: PartiesParts) {
    this.#parts = parts;
    this.#keeping = new ModernClientTasks(parts.clock);
  }

  /** All calls in flight. */
  get calls(): readonly Call[] {
    return [...this.#parties.values()].flatMap(({ calls }) => calls);
  }

  /**
   * Handles a request.
   * @param check validates the request against its client's catalog, and again when the catalog grows; may throw
   * @throws {HubError} if the request cannot be served
   */
  take(letter: Letter, way: WayBack, scope: ServerSubset = ALL_SERVERS, check?: Check): void {
    if (this.#isClosed) throw new HubError("connectionLost", "The hub is stopping.");
    if (letter.request.method === ModernMethod.listen) this.#checkListenings();
    const party = this.#find(letter, scope);
    check?.(party.view.catalog);
    party.take(letter, way, check);
  }

  /** A server may have settled. */
  settle(): void {
    for (const { view } of this.#parties.values()) view.settle();
  }

  /** The catalog may have changed. */
  catalogChanged(): void {
    for (const party of this.#parties.values()) party.catalogChanged();
  }

  /** The hub stops: ends subscriptions with a final result. */
  stop(): void {
    for (const party of this.#parties.values()) party.stop();
  }

  /** The client has disconnected, or the server has closed. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#disarm();
    this.#keeping.close();
    for (const party of this.#parties.values()) party.close();
    this.#parties.clear();
    this.#parts.ended(this);
  }

  #find({ capabilities, sender }: Letter, scope: ServerSubset): Party {
    // Most requests are of the same client as the one before.
    const latest = this.#latest;
    if (latest?.capabilities === capabilities && latest.scope === scope) return latest.party;
    const party = this.#seek(capabilities, sender.declared, scope);
    this.#latest = { capabilities, scope, party };
    return party;
  }

  #seek(capabilities: string, declared: object, scope: ServerSubset): Party {
    const key = `${scope.key}\n${capabilities}`;
    const known = this.#parties.get(key);
    if (known !== undefined) return known;
    if (this.#parties.size >= MOST.parties) this.#makeRoom();
    const parts = this.#parts;
    const view = parts.view(parts.client, scope);
    const party = new Party(view, capabilities, declared, parts, this.#keeping);
    this.#parties.set(key, party);
    if (this.#parties.size === 1) this.#watch();
    return party;
  }

  /** Closes the least recently used idle client. */
  #makeRoom(): void {
    const idle = [...this.#parties].filter(([, party]) => !party.isBusy);
    const [oldest] = idle.sort(([, a], [, b]) => a.lastUse - b.lastUse);
    if (oldest === undefined) {
      throw new HubError("invalidRequest", "Too many different clients are at work here.");
    }
    this.#end(oldest);
  }

  #end([key, party]: readonly [string, Party]): void {
    this.#parties.delete(key);
    this.#latest = undefined;
    party.close();
  }

  #watch(): void {
    this.#disarm();
    this.#disarm = this.#parts.clock.after(IDLE.interval, () => {
      const end = this.#parts.clock.now() - IDLE.limit;
      for (const [key, party] of this.#parties) {
        if (!party.isBusy && party.lastUse <= end) this.#end([key, party]);
      }
      if (this.#parties.size > 0) this.#watch();
    });
  }

  #checkListenings(): void {
    let count = 0;
    for (const { listenings } of this.#parties.values()) count += listenings;
    if (count < MOST.listenings) return;
    throw new HubError("invalidRequest", `At most ${MOST.listenings} requests may listen.`);
  }
}
