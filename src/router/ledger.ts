import type { Route } from "../catalog/section.ts";
import type { HubError } from "../base/errors.ts";
import type { EventBus, CancelledBy } from "../base/events.ts";

/** A call in progress. */
export interface RunningCall {
  /** Its number, unique in this hub. */
  readonly call: number;
  readonly server: string;
  /** The server's own name of the tool. */
  readonly tool: string;
  /** Time since its start, in ms. */
  readonly duration: number;
}

/** How a call ended: the server answered, the hub answered in its place, or it was cancelled. */
export type CallEnd = "answered" | { readonly cause: HubError } | { readonly by: CancelledBy };

/** Numbers the calls and emits their events, if anybody subscribes to them. */
export class Ledger {
  readonly #bus: EventBus;
  #last = 0;

  constructor(bus: EventBus) {
    this.#bus = bus;
  }

  next(): number {
    return ++this.#last;
  }

  started(call: number, { server, remoteName: tool, name }: Route): void {
    if (!this.#bus.hasListeners("callStarted")) return;
    this.#bus.emit({ kind: "callStarted", call, server, tool, name });
  }

  ended({ call, server, tool, duration }: RunningCall, end: CallEnd): void {
    const about = { call, server, tool, duration };
    if (end === "answered") {
      this.#bus.emit({ kind: "callFinished", outcome: "answered", ...about });
    } else if ("cause" in end) {
      this.#bus.emit({ kind: "callFinished", outcome: "failed", cause: end.cause, ...about });
    } else {
      this.#bus.emit({ kind: "callCancelled", by: end.by, ...about });
    }
  }

  /** Whether anybody subscribes to the ends of calls. */
  get isRead(): boolean {
    return this.#bus.hasListeners("callFinished") || this.#bus.hasListeners("callCancelled");
  }
}

/** A call log for requests that are not tool calls: it only assigns numbers. */
export function silence(
  ledger: Pick<Ledger, "next">,
): Pick<Ledger, "next" | "started" | "ended" | "isRead"> {
  return { next: () => ledger.next(), started: ignore, ended: ignore, isRead: false };
}

function ignore(): void {}
