import type { Errand } from "./errand.ts";
import type { Faults } from "./faults.ts";
import { LIMITS } from "./roster.ts";
import type { Message } from "./wire.ts";

/** One call, from its request to its one answer. Times are in ms. */
export interface Call {
  readonly id: number | string;
  readonly server: string;
  readonly errand: Errand;
  readonly isCalm: boolean;
  readonly sentAt: number;
  /** The ping that was sent after its cancel: once that is answered, it never will be. */
  cancelledBefore?: number | string;
  progress: number;
  isOverdue?: true;
  /** Its worker goes on. */
  readonly done: () => void;
}

/** How calls ended. */
export interface Tally {
  answered: number;
  /** The hub said why there is no answer. */
  failed: number;
  /** The hub said that there was none in time. */
  late: number;
  cancelled: number;
  /** Answers that crossed the cancel of their call. */
  crossed: number;
}

export interface LedgerParts {
  readonly faults: Pick<Faults, "add">;
  /** ms */
  now(): number;
  /** The errors, by code, that calls of that server may be answered with, if they were sent then. */
  allowed(server: string, sentAt: number): readonly string[];
}

/** What a busy machine may add to every deadline, in ms. */
const GRACE = 5000;
/** `_meta` key of an answer that the hub made because the server's did not come in time. */
const ERROR_KEY = "toolmux/error";

/** All calls in flight. Every answer has to belong to one of them, and to say what it has to say. */
export class Ledger {
  readonly tally: Tally = { answered: 0, failed: 0, late: 0, cancelled: 0, crossed: 0 };
  /** How long calls of calm servers took over what they had to, in ms. */
  readonly latencies: number[] = [];
  readonly #parts: LedgerParts;
  readonly #calls = new Map<unknown, Call>();
  /** The calls that were cancelled before these pings. */
  readonly #pings = new Map<unknown, Call>();

  /** How long calls that were sent before took says nothing. */
  #excusedAt = -Infinity;

  constructor(parts: LedgerParts) {
    this.#parts = parts;
  }

  /** How many calls wait for an answer that may still come in time. */
  get open(): number {
    return [...this.#calls.values()].filter(({ isOverdue }) => isOverdue !== true).length;
  }

  has(call: Call): boolean {
    return this.#calls.get(call.id) === call;
  }

  add(call: Call): void {
    this.#calls.set(call.id, call);
  }

  /** The call is being cancelled, and then there is this ping. */
  cancel(call: Call, ping: number | string): void {
    call.cancelledBefore = ping;
    this.#pings.set(ping, call);
    this.tally.cancelled++;
    call.done();
  }

  /** The client did not read for a while. */
  excuse(): void {
    this.#excusedAt = this.#parts.now();
  }

  /** An answer came. @returns whether it is one of these calls', or of these pings'. */
  settle(message: Message): boolean {
    const call = this.#calls.get(message.id);
    if (call !== undefined) {
      this.#calls.delete(call.id);
      this.#judge(call, message);
      return true;
    }
    const cancelled = this.#pings.get(message.id);
    if (cancelled === undefined) return false;
    this.#pings.delete(message.id);
    if (message.error !== undefined) this.#blame(cancelled, "the ping after it failed", message);
    this.#calls.delete(cancelled.id);
    return true;
  }

  /** Progress of the call whose token that is: of one in flight, and more than before. */
  progress({ params }: Message): void {
    const call = this.#calls.get(params?.["progressToken"]);
    const progress = Number(params?.["progress"]);
    if (call === undefined || !call.errand.tellsProgress) {
      this.#parts.faults.add(`progress of nothing that is in flight: ${JSON.stringify(params)}`);
    } else if (progress > call.progress) {
      call.progress = progress;
    } else {
      this.#parts.faults.add(`progress of ${call.id} from ${call.progress} to ${progress}`);
    }
  }

  /** Looks for calls that should have been answered by now. */
  look(): void {
    const now = this.#parts.now();
    for (const call of this.#calls.values()) {
      const limit = call.errand.tellsProgress ? LIMITS.total : LIMITS.call.most;
      if (call.isOverdue || now - call.sentAt < limit + GRACE) continue;
      call.isOverdue = true;
      this.#blame(call, `no answer for ${Math.round(now - call.sentAt)} ms`, undefined);
      call.done();
    }
  }

  #judge(call: Call, message: Message): void {
    const { errand, sentAt, server, isCalm } = call;
    const took = this.#parts.now() - sentAt;
    const { result, error } = message;
    if (call.cancelledBefore !== undefined) this.tally.crossed++;
    else call.done();
    if (error !== undefined) {
      const { code = "", server: about } = error.data ?? {};
      const isRight = typeof errand.right === "object" && error.code === errand.right.error;
      const isClear =
        this.#parts.allowed(server, sentAt).includes(code) &&
        (about === server || code === "unknownTool");
      if (isRight) this.tally.answered++;
      else if (isClear) this.tally.failed++;
      else this.#blame(call, "an error that it should not get", message);
    } else if (result?._meta?.[ERROR_KEY] === "callTimeout") {
      this.tally.late++;
      if (isCalm) this.#blame(call, "late", message);
      else if (took < LIMITS.call.least - TICK) this.#blame(call, `late after ${took} ms`, message);
    } else if (
      this.#parts.allowed(server, sentAt).some((code) => code === result?._meta?.[ERROR_KEY])
    ) {
      this.tally.failed++;
    } else if (result !== undefined) {
      this.tally.answered++;
      const isRight = typeof errand.right === "function" && errand.right(result);
      if (!isRight) this.#blame(call, "not its answer", message);
      if (isCalm && sentAt >= this.#excusedAt) this.latencies.push(took - timeOf(errand));
    }
  }

  #blame({ id, server, errand }: Call, what: string, message: Message | undefined): void {
    const call = `call ${id} of ${server} (${errand.tool} ${JSON.stringify(errand.args)})`;
    const answer = message === undefined ? "" : `: ${JSON.stringify(message)}`;
    this.#parts.faults.add(`${call}: ${what}${answer}`);
  }
}

/** Timers may fire so much before their time, in ms. */
const TICK = 20;

/** What a call takes because it was told to, in ms. */
function timeOf({ args }: Errand): number {
  const { ms = 0, steps = 0 } = args;
  return Number(ms) * (steps === 0 ? 1 : Number(steps) + 1);
}
