import type { Route } from "../catalog/section.ts";
import type { HubError } from "../errors.ts";
import type { Bus, CancelledBy } from "../events.ts";

/** A call that runs. */
export interface RunningCall {
  /** Its number in this hub. */
  readonly call: number;
  readonly server: string;
  /** By the server's own name. */
  readonly tool: string;
  /** For how long it has run, in ms. */
  readonly duration: number;
}

/** How a call ended: it was answered, the hub had to answer in the server's place, or somebody ended it. */
export type CallEnd = "answered" | { readonly cause: HubError } | { readonly by: CancelledBy };

/** Gives calls their numbers and tells of them, if anybody listens. */
export class Ledger {
  readonly #bus: Bus;
  #last = 0;

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  next(): number {
    return ++this.#last;
  }

  started(call: number, { server, remoteName: tool, name }: Route): void {
    if (!this.#bus.wants("callStarted")) return;
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

  /** Whether anybody listens for the ends of calls. */
  get isRead(): boolean {
    return this.#bus.wants("callFinished") || this.#bus.wants("callCancelled");
  }
}

/** A ledger for what is none of the calls of tools that are told of: it only gives numbers. */
export function silence(
  ledger: Pick<Ledger, "next">,
): Pick<Ledger, "next" | "started" | "ended" | "isRead"> {
  return { next: () => ledger.next(), started: ignore, ended: ignore, isRead: false };
}

function ignore(): void {}
