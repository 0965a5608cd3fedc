import { isShowable, type ListedItem } from "../catalog/listing.ts";
import type { Clock } from "../base/clock.ts";
import type { HubError } from "../base/errors.ts";
import { causeOfState, lateSince, stateAfterStop, retryTimeOf, sessionOf } from "./account.ts";
import type { ListingSync } from "./listing.ts";
import type { Session } from "./session.ts";
import type { State } from "./state.ts";
import type { ConnectionStatus, PeerInfo } from "./status.ts";

/** What a connection remembers beyond its present state, and its status made of both. */
export class ConnectionHistory {
  /** The last failure, also after a recovery. */
  lastError: HubError | undefined;
  /** How long the last successful start took, in ms. */
  startDuration: number | undefined;
  #calls = 0;
  #lastTool: string | undefined;
  #peer: PeerInfo | undefined;

  /** Adds up the counters of a session that has ended. */
  addSession({ calls, lastTool, met }: Session): void {
    this.#calls += calls;
    this.#lastTool = lastTool ?? this.#lastTool;
    this.#peer = met?.peer;
  }

  status(
    client: string | undefined,
    state: State<Session>,
    clock: Clock,
    { source: from, listing: offer }: ListingSync,
  ): ConnectionStatus {
    const next = stateAfterStop(state);
    const session = sessionOf(state);
    const since = lateSince(state);
    return {
      client,
      state: state.at,
      attempt: "attempt" in next ? next.attempt : undefined,
      retryAt: retryTimeOf(next, clock),
      ...(since !== undefined && { late: clock.now() - since }),
      responsive: state.at === "connected" ? state.responsive : undefined,
      way: session?.way,
      progress: state.at === "authenticating" ? state.progress : undefined,
      cause: causeOfState(next),
      lastError: this.lastError,
      peer: session?.met?.peer ?? this.#peer,
      listing: from,
      tools: offer && countShowable(offer.tools),
      prompts: offer && countShowable(offer.prompts),
      resources: offer && countShowable(offer.resources),
      startDuration: this.startDuration,
      calls: this.#calls + (session?.calls ?? 0),
      inFlight: session?.inFlight ?? 0,
      lastTool: session?.lastTool ?? this.#lastTool,
    };
  }
}

function countShowable(items: readonly ListedItem[]): number {
  return items.reduce((count, item) => (isShowable(item) ? count + 1 : count), 0);
}
