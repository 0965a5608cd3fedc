import { HubError } from "../../errors.ts";
import type { Call } from "../../router/call.ts";
import { Keeping } from "../../router/keeping.ts";
import { EVERYTHING, type Scope } from "../../upstream/scope.ts";
import type { View } from "../../upstream/view.ts";
import { ModernMethod } from "../../protocol/modern.ts";
import type { Letter } from "./letter.ts";
import { Party, type PartyParts } from "./party.ts";
import type { Check } from "./visit.ts";
import type { WayBack } from "./wayback.ts";

/** How long a party that nobody uses is kept, and how often that is looked at, in ms. */
const IDLE = { limit: 5 * 60_000, interval: 60_000 };
/** So many there may be of one link, or of one face; and so many of their requests may listen. */
const MOST = { parties: 32, listenings: 1024 };

export interface PartiesParts extends PartyParts {
  /** What a client of that name sees. */
  view(client: string | undefined, scope: Scope): View;
  /** They have ended. */
  ended(parties: Parties): void;
}

/** What takes the modern requests of one client. */
export type Taker = Pick<Parties, "take" | "stop" | "close">;

/** The modern requests of one client, or of all that cannot be told apart: in parties, by what they can be asked for and which servers they have to do with. */
export class Parties {
  readonly #parts: PartiesParts;
  readonly #parties = new Map<string, Party>();
  /** Which of them asks for a task does not matter. */
  readonly #keeping: Keeping;
  /** The party that the last request was for. */
  #latest:
    { readonly capabilities: string; readonly scope: Scope; readonly party: Party } | undefined;
  #disarm: () => void = () => {};
  #isClosed = false;

  constructor(parts: PartiesParts) {
    this.#parts = parts;
    this.#keeping = new Keeping(parts.clock);
  }

  /** All calls that run. */
  get calls(): readonly Call[] {
    return [...this.#parties.values()].flatMap(({ calls }) => calls);
  }

  /**
   * Takes a request.
   * @param check looks whether it is what it should be, by what its client can see, and again when that is more; may throw
   * @throws {HubError} if it cannot be done
   */
  take(letter: Letter, way: WayBack, scope: Scope = EVERYTHING, check?: Check): void {
    if (this.#isClosed) throw new HubError("connectionLost", "The hub is stopping.");
    if (letter.request.method === ModernMethod.listen) this.#checkListenings();
    const party = this.#find(letter, scope);
    check?.(party.view.catalog);
    party.take(letter, way, check);
  }

  /** Some server may have settled. */
  settle(): void {
    for (const { view } of this.#parties.values()) view.settle();
  }

  /** The catalog may be another. */
  catalogChanged(): void {
    for (const party of this.#parties.values()) party.catalogChanged();
  }

  /** The hub ends: who listens is told. */
  stop(): void {
    for (const party of this.#parties.values()) party.stop();
  }

  /** The client has left, or nobody can come any more. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#disarm();
    this.#keeping.close();
    for (const party of this.#parties.values()) party.close();
    this.#parties.clear();
    this.#parts.ended(this);
  }

  #find({ capabilities, sender }: Letter, scope: Scope): Party {
    // By far the most requests are for the same party as the one before.
    const latest = this.#latest;
    if (latest?.capabilities === capabilities && latest.scope === scope) return latest.party;
    const party = this.#seek(capabilities, sender.declared, scope);
    this.#latest = { capabilities, scope, party };
    return party;
  }

  #seek(capabilities: string, declared: object, scope: Scope): Party {
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

  /** Ends the one that was not used for the longest. */
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
