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
export class CallLog {
  readonly #bus: EventBus;
  #lastNumber = 0;

  constructor(bus: EventBus) {
    this.#bus = bus;
  }

  nextNumber(): number {
    return ++this.#lastNumber;
  }

  logStart(call: number, { server, remoteName: tool, name }: Route): void {
    if (!this.#bus.hasListeners("callStarted")) return;
    this.#bus.emit({ kind: "callStarted", call, server, tool, name });
  }

  logEnd({ call, server, tool, duration }: RunningCall, end: CallEnd): void {
    const fields = { call, server, tool, duration };
    if (end === "answered") {
      this.#bus.emit({ kind: "callFinished", outcome: "answered", ...fields });
    } else if ("cause" in end) {
      this.#bus.emit({ kind: "callFinished", outcome: "failed", cause: end.cause, ...fields });
    } else {
      this.#bus.emit({ kind: "callCancelled", by: end.by, ...fields });
    }
  }

  /** Whether anybody subscribes to the ends of calls. */
  get hasSubscribers(): boolean {
    return this.#bus.hasListeners("callFinished") || this.#bus.hasListeners("callCancelled");
  }
}

/** A call log for requests that are not tool calls: it only assigns numbers. */
export function silentCallLog(
  callLog: Pick<CallLog, "nextNumber">,
): Pick<CallLog, "nextNumber" | "logStart" | "logEnd" | "hasSubscribers"> {
  return {
    nextNumber: () => callLog.nextNumber(),
    logStart: ignore,
    logEnd: ignore,
    hasSubscribers: false,
  };
}

function ignore(): void {}
