import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, type JsonMember, scanObject } from "../../base/json.ts";
import { randomToken } from "../../jsonrpc/id.ts";
import type { WayBack } from "./wayback.ts";
import { type Letter, textIn } from "./request.ts";

/** How long a call waits for its client's retry with `inputResponses`, in ms. */
export const PARKING_TIME = 5 * 60_000;
/** Maximum number of waiting calls: of one client, and of all. */
export const MOST_PARKED = { party: 256, all: 1024 };

/** A call that waits for its client's retry with `inputResponses`. */
export interface Parked {
  /** Digest of the request without `_meta`, `inputResponses` and `requestState`: a retry must have the same. */
  readonly digest: string;
  /** The client has sent the retry. `answers` are the results of the input requests, by their keys. */
  resume(letter: Letter, way: WayBack, answers: readonly JsonMember[]): void;
  /** No retry has come in time. */
  expire(): void;
}

/** Counts the waiting calls of all clients, against the common limit. */
export class Lot {
  /**
   * Prefix of this hub's request states. Those of servers, of which one may be a hub too, have another and pass
   * unchanged.
   */
  readonly mark = `toolmux-${randomToken(6)}.`;
  #taken = 0;

  /** @returns false if the limit is reached */
  take(): boolean {
    if (this.#taken >= MOST_PARKED.all) return false;
    this.#taken++;
    return true;
  }

  free(): void {
    this.#taken--;
  }
}

/** The waiting calls of one client, each under a `requestState` that is random and valid once. */
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

  /** @returns the `requestState` of the call; undefined if the limit is reached */
  park(parked: Parked): string | undefined {
    if (this.#places.size >= MOST_PARKED.party || !this.#lot.take()) return undefined;
    const state = this.#lot.mark + randomToken();
    const disarm = this.#clock.after(PARKING_TIME, () => {
      this.#leave(state);
      parked.expire();
    });
    this.#places.set(state, { parked, disarm });
    return state;
  }

  /**
   * Resumes the call that a retry belongs to.
   * @returns false if the request is no retry of a call that waits here
   * @throws {HubError} invalidParams; the call goes on waiting
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

  /** The client is gone: forgets all waiting calls. */
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

/** The members of params that differ between a request and its retry. */
const OWN: ReadonlySet<string> = new Set(["_meta", "inputResponses", "requestState"]);

/** SHA-256 of the method and params without `VARYING_PARAMS`, base64: equal for a request and its retry. */
export function digestOf({ request, members }: Letter): string {
  // Loaded when it is first used: it takes longer than the rest of the start.
  const hash = process.getBuiltinModule("node:crypto").createHash("sha256").update(request.method);
  const sorted = [...members].sort((a, b) => Number(a.key > b.key) - Number(a.key < b.key));
  for (const { key, start, end } of sorted) {
    if (OWN.has(key)) continue;
    hash.update(`\0${JSON.stringify(key)}:`).update(request.bytes.subarray(start, end));
  }
  return hash.digest("base64");
}

/** Whether a member of params occurs only in retries. */
export function isBrought(key: string): boolean {
  return key === "inputResponses" || key === "requestState";
}

function readAnswers({ request, members }: Letter): readonly JsonMember[] {
  const member = lastMember(members, "inputResponses");
  if (member === undefined) return [];
  const { bytes } = request;
  const answers = scanObject(bytes, member.start)?.items;
  if (answers?.every(({ start }) => bytes[start] === OPEN_BRACE) === true) return answers;
  throw new HubError("invalidParams", "inputResponses must be an object with a result for each.");
}
const OPEN_BRACE = 0x7b;
