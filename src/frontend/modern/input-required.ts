import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, type JsonMember, scanObject } from "../../base/json.ts";
import { randomToken } from "../../jsonrpc/id.ts";
import type { ModernResponder } from "./wayback.ts";
import { type ModernRequest, textParam } from "./request.ts";

/** How long a call waits for its client's retry with `inputResponses`, in ms. */
export const INPUT_TIMEOUT = 5 * 60_000;
/** Maximum number of waiting calls: of one client, and of all. */
export const MAX_AWAITING = { perClient: 256, total: 1024 };

/** A call that waits for its client's retry with `inputResponses`. */
export interface AwaitingCall {
  /** Digest of the request without `_meta`, `inputResponses` and `requestState`: a retry must have the same. */
  readonly digest: string;
  /** The client has sent the retry. `answers` are the results of the input requests, by their keys. */
  resume(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    answers: readonly JsonMember[],
  ): void;
  /** No retry has come in time. */
  expire(): void;
}

/** Counts the waiting calls of all clients, against the common limit. */
export class AwaitingLimit {
  /**
   * Prefix of this hub's request states. Those of servers, of which one may be a hub too, have another and pass
   * unchanged.
   */
  readonly statePrefix = `toolmux-${randomToken(6)}.`;
  #count = 0;

  /** @returns false if the limit is reached */
  acquire(): boolean {
    if (this.#count >= MAX_AWAITING.total) return false;
    this.#count++;
    return true;
  }

  release(): void {
    this.#count--;
  }
}

/** The waiting calls of one client, each under a `requestState` that is random and valid once. */
export class AwaitedInputs {
  readonly #limit: AwaitingLimit;
  readonly #clock: Clock;
  readonly #calls = new Map<
    string,
    { readonly call: AwaitingCall; readonly cancelTimeout: () => void }
  >();

  constructor(limit: AwaitingLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** @returns the `requestState` of the call; undefined if the limit is reached */
  add(call: AwaitingCall): string | undefined {
    if (this.#calls.size >= MAX_AWAITING.perClient || !this.#limit.acquire()) return undefined;
    const state = this.#limit.statePrefix + randomToken();
    const cancelTimeout = this.#clock.after(INPUT_TIMEOUT, () => {
      this.#remove(state);
      call.expire();
    });
    this.#calls.set(state, { call, cancelTimeout });
    return state;
  }

  /**
   * Resumes the call that a retry belongs to.
   * @returns false if the request is no retry of a call that waits here
   * @throws {HubError} invalidParams; the call goes on waiting
   */
  resume(modernRequest: ModernRequest, responder: ModernResponder): boolean {
    const state = textParam(modernRequest, "requestState");
    if (state === undefined || !state.startsWith(this.#limit.statePrefix)) return false;
    const call = this.#calls.get(state)?.call;
    if (call === undefined || call.digest !== requestDigestOf(modernRequest))
      throw invalidRequestState();
    const answers = readInputResponses(modernRequest);
    this.#remove(state);
    call.resume(modernRequest, responder, answers);
    return true;
  }

  /** The client is gone: forgets all waiting calls. */
  close(): void {
    for (const state of this.#calls.keys()) this.#remove(state);
  }

  #remove(state: string): void {
    const entry = this.#calls.get(state);
    if (entry === undefined) return;
    this.#calls.delete(state);
    this.#limit.release();
    entry.cancelTimeout();
  }
}

export function invalidRequestState(): HubError {
  return new HubError("invalidParams", "Invalid or expired requestState");
}

/** The members of params that differ between a request and its retry. */
const VARYING_PARAMS: ReadonlySet<string> = new Set(["_meta", "inputResponses", "requestState"]);

/** SHA-256 of the method and params without `VARYING_PARAMS`, base64: equal for a request and its retry. */
export function requestDigestOf({ request, members }: ModernRequest): string {
  // Loaded when it is first used: it takes longer than the rest of the start.
  const hash = process.getBuiltinModule("node:crypto").createHash("sha256").update(request.method);
  const sorted = [...members].sort((a, b) => Number(a.key > b.key) - Number(a.key < b.key));
  for (const { key, start, end } of sorted) {
    if (VARYING_PARAMS.has(key)) continue;
    hash.update(`\0${JSON.stringify(key)}:`).update(request.bytes.subarray(start, end));
  }
  return hash.digest("base64");
}

/** Whether a member of params occurs only in retries. */
export function isInputParam(key: string): boolean {
  return key === "inputResponses" || key === "requestState";
}

function readInputResponses({ request, members }: ModernRequest): readonly JsonMember[] {
  const member = lastMember(members, "inputResponses");
  if (member === undefined) return [];
  const { bytes } = request;
  const answers = scanObject(bytes, member.start)?.items;
  if (answers?.every(({ start }) => bytes[start] === OPEN_BRACE) === true) return answers;
  throw new HubError("invalidParams", "inputResponses must be an object with a result for each.");
}
const OPEN_BRACE = 0x7b;
