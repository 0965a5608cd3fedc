import process from "node:process";
import type { Clock } from "../../clock.ts";
import { HubError } from "../../errors.ts";
import { lastMember, type Member, scanObject } from "../../json.ts";
import { makeSecret } from "../../wire/id.ts";
import type { WayBack } from "./wayback.ts";
import { type Letter, textIn } from "./letter.ts";

/** How long a client may take to come back with answers, in ms. */
export const PARKING_TIME = 5 * 60_000;
/** So many may be parked at a time: of one party, and of all. */
export const MOST_PARKED = { party: 256, all: 1024 };

/** What waits for its client to come back with answers. */
export interface Parked {
  /** What the request was, whatever it says of who asks and of answers. */
  readonly digest: string;
  /** The client is back. `answers` are the results of what it was asked, by their keys. */
  resume(letter: Letter, way: WayBack, answers: readonly Member[]): void;
  /** It has not come back in time. */
  expire(): void;
}

/** Room for what is parked, of all clients together. */
export class Lot {
  /** Tells this hub's states from those of servers, of which one may be a hub too: theirs pass as they are. */
  readonly mark = `toolmux-${makeSecret(6)}.`;
  #taken = 0;

  /** @returns whether there was room */
  take(): boolean {
    if (this.#taken >= MOST_PARKED.all) return false;
    this.#taken++;
    return true;
  }

  free(): void {
    this.#taken--;
  }
}

/** What one party has parked, each under a state that nobody can guess and that is good for once. */
export class Parking {
  readonly #lot: Lot;
  readonly #clock: Clock;
  readonly #places = new Map<string, { readonly parked: Parked; readonly disarm: () => void }>();

  constructor(lot: Lot, clock: Clock) {
    this.#lot = lot;
    this.#clock = clock;
  }

  get size(): number {
    return this.#places.size;
  }

  /** @returns the state that gets it back; undefined if there is no room */
  park(parked: Parked): string | undefined {
    if (this.#places.size >= MOST_PARKED.party || !this.#lot.take()) return undefined;
    const state = this.#lot.mark + makeSecret();
    const disarm = this.#clock.after(PARKING_TIME, () => {
      this.#leave(state);
      parked.expire();
    });
    this.#places.set(state, { parked, disarm });
    return state;
  }

  /**
   * Goes on with what a request comes back for. @returns whether it comes back for something that is parked here
   * @throws {HubError} invalidParams; what is parked stays
   */
  resume(letter: Letter, way: WayBack): boolean {
    const state = textIn(letter, "requestState");
    if (state === undefined || !state.startsWith(this.#lot.mark)) return false;
    const parked = this.#places.get(state)?.parked;
    if (parked === undefined || parked.digest !== digestOf(letter)) throw invalidState();
    const answers = readAnswers(letter);
    this.#leave(state);
    parked.resume(letter, way, answers);
    return true;
  }

  /** The client is gone, and nobody comes back. */
  close(): void {
    for (const state of this.#places.keys()) this.#leave(state);
  }

  #leave(state: string): void {
    const place = this.#places.get(state);
    if (place === undefined) return;
    this.#places.delete(state);
    this.#lot.free();
    place.disarm();
  }
}

export function invalidState(): HubError {
  return new HubError("invalidParams", "Invalid or expired requestState");
}

/** What of a request's params is another each time that it comes. */
const OWN: ReadonlySet<string> = new Set(["_meta", "inputResponses", "requestState"]);

/** The same for a request that comes back as for the one that it was. */
export function digestOf({ request, members }: Letter): string {
  // Loaded only here: that takes longer than all else at a start.
  const hash = process.getBuiltinModule("node:crypto").createHash("sha256").update(request.method);
  const sorted = [...members].sort((a, b) => Number(a.key > b.key) - Number(a.key < b.key));
  for (const { key, start, end } of sorted) {
    if (OWN.has(key)) continue;
    hash.update(`\0${JSON.stringify(key)}:`).update(request.bytes.subarray(start, end));
  }
  return hash.digest("base64");
}

/** Without what it brings, as it was when it first came. */
export function isBrought(key: string): boolean {
  return key === "inputResponses" || key === "requestState";
}

function readAnswers({ request, members }: Letter): readonly Member[] {
  const member = lastMember(members, "inputResponses");
  if (member === undefined) return [];
  const { bytes } = request;
  const answers = scanObject(bytes, member.start)?.items;
  if (answers?.every(({ start }) => bytes[start] === OPEN_BRACE) === true) return answers;
  throw new HubError("invalidParams", "inputResponses must be an object with a result for each.");
}
const OPEN_BRACE = 0x7b;
