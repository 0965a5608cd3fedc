import type { CallCount, CallLimitsInput } from "../manifest/call-limits.ts";
import type { Quota } from "./quota.ts";
import { TokenBucket } from "./token-bucket.ts";

/** What is limited: all calls of the hub, those of a client, or those of the tools of a server. */
export interface LimitedThing {
  readonly kind: "hub" | "client" | "server" | "tool";
  /**
   * The name of the client or the server. A client without a name in the manifest has its id; those over HTTP that have
   * none have `ANONYMOUS`.
   */
  readonly name: string;
  /** The name or glob in `tools.limits`. */
  readonly tool?: string | undefined;
}

/** The name of all clients over HTTP that the manifest does not name: they share their limits. */
export const ANONYMOUS = "anybody";

/** The kinds of limits that refuse a call; `queue`: too many calls wait. */
export type LimitKind = "rate" | "quota" | "queue";

/** The limits of one thing, and what counts against them. */
export class LimitScope implements LimitedThing {
  readonly kind: LimitedThing["kind"];
  readonly name: string;
  readonly tool: string | undefined;
  /** Whether a client has a connection of its own and no name in the manifest. */
  readonly isConnection: boolean;
  settings: CallLimitsInput = {};
  /** Undefined: there is no rate. */
  bucket: TokenBucket | undefined;
  /** Undefined: there is no quota. */
  quota: Quota | undefined;
  /** Numbers of calls that have a place, and that wait for one. */
  running = 0;
  queued = 0;
  /** Number of calls that were refused. */
  refused = 0;
  #maxConcurrent = Infinity;
  /** When a refusal was last told, by the kind of the limit, in ms of the clock. */
  readonly #toldAt = new Map<LimitKind, number>();

  constructor({ kind, name, tool }: LimitedThing, isConnection = false) {
    this.kind = kind;
    this.name = name;
    this.tool = tool;
    this.isConnection = isConnection;
  }

  get isFull(): boolean {
    return this.running >= this.#maxConcurrent;
  }

  /** Whether the manifest limits it. */
  get isLimited(): boolean {
    return Object.keys(this.settings).length > 0;
  }

  /**
   * Takes over settings. A rate that does not change keeps its calls.
   * @param quota undefined: it has none
   */
  configure(settings: CallLimitsInput, quota: Quota | undefined): void {
    const { rate, burst = rate?.count, maxConcurrent = Infinity } = settings;
    this.settings = settings;
    this.#maxConcurrent = maxConcurrent;
    this.quota = quota;
    if (rate === undefined || burst === undefined) this.bucket = undefined;
    else if (
      this.bucket === undefined ||
      this.bucket.rate.count !== rate.count ||
      this.bucket.rate.per !== rate.per ||
      this.bucket.burst !== burst
    )
      this.bucket = new TokenBucket(rate, burst);
  }

  /** Counts a refusal. @returns whether it is the first one of this limit within a minute */
  refuse(kind: LimitKind, now: number): boolean {
    this.refused++;
    const before = this.#toldAt.get(kind) ?? -Infinity;
    if (now - before < MINUTE) return false;
    this.#toldAt.set(kind, now);
    return true;
  }

  /** The thing in words, after `for`. */
  get words(): string {
    switch (this.kind) {
      case "hub":
        return "all clients together";
      case "client":
        return this.name === ANONYMOUS
          ? "clients without a name"
          : `client ${JSON.stringify(this.name)}`;
      case "server":
        return `server ${JSON.stringify(this.name)}`;
      case "tool":
        return `tool ${JSON.stringify(this.tool)} of server ${JSON.stringify(this.name)}`;
    }
  }
}

const MINUTE = 60_000;
const PERIODS: Readonly<Record<number, string>> = {
  1000: "a second",
  [MINUTE]: "a minute",
  [60 * MINUTE]: "an hour",
  [1440 * MINUTE]: "a day",
};

/** A number of calls in a time, in words: `60 calls a minute`, `10 calls in 5 min`. */
export function wordsOf({ count, per }: CallCount): string {
  const calls = `${count} ${count === 1 ? "call" : "calls"}`;
  return `${calls} ${PERIODS[per] ?? `in ${formatWait(per)}`}`;
}

/** A time in ms in words, never less than it is: `14 s`, `3 min`, `5 h`, `2 days`. */
export function formatWait(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (ms < 1000) return `${Math.ceil(ms)} ms`;
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.ceil(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.ceil(seconds / 3600)} h`;
  return `${Math.ceil(seconds / 86_400)} days`;
}
