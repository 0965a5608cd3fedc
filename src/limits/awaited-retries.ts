import process from "node:process";
import type { Clock } from "../base/clock.ts";
import type { LimitScope } from "./limit-scope.ts";

/** How long a call keeps its places while its client answers what a server has asked, in ms. */
const RETRY_WAIT = 5 * 60_000;
/** Maximum number of calls whose retries are awaited. A retry of another one counts as a new call. */
const MAX_AWAITED = 1024;

/** A call that has ended for the hub, and goes on with a retry of its client. */
export interface AwaitedCall {
  readonly client: LimitScope;
  /** Gives up its places. */
  release(): void;
}

/**
 * The calls that a client was asked to send again with answers and a `requestState` (2026-07-28, multi round-trip
 * requests). The retry is the same call.
 */
export class AwaitedRetries<Call extends AwaitedCall = AwaitedCall> {
  readonly #clock: Clock;
  readonly #calls = new Map<string, { readonly call: Call; readonly cancelTimeout: () => void }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param state says which call it is: its client, its tool and its `requestState` */
  add(state: readonly string[], call: Call): boolean {
    const key = digestOf(state);
    if (this.#calls.size >= MAX_AWAITED || this.#calls.has(key)) return false;
    const cancelTimeout = this.#clock.after(RETRY_WAIT, () => {
      this.#calls.delete(key);
      call.release();
    });
    this.#calls.set(key, { call, cancelTimeout });
    return true;
  }

  /** The call that goes on; undefined: none does. Its places are the caller's. */
  take(state: readonly string[]): Call | undefined {
    if (this.#calls.size === 0) return undefined;
    const key = digestOf(state);
    const awaited = this.#calls.get(key);
    awaited?.cancelTimeout();
    this.#calls.delete(key);
    return awaited?.call;
  }

  /** Gives up the places of a client's calls, because the client has left. */
  dropOf(client: LimitScope): void {
    for (const [key, { call, cancelTimeout }] of this.#calls) {
      if (call.client !== client) continue;
      cancelTimeout();
      this.#calls.delete(key);
      call.release();
    }
  }

  close(): void {
    for (const { cancelTimeout } of this.#calls.values()) cancelTimeout();
    this.#calls.clear();
  }
}

/** A digest, because a server may make a `requestState` long. */
function digestOf(state: readonly string[]): string {
  // node:crypto is loaded at first use: loading it takes longer than the rest of the hub's start.
  const { createHash } = process.getBuiltinModule("node:crypto");
  return createHash("sha256").update(JSON.stringify(state)).digest("base64");
}
