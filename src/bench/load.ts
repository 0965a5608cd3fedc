import { formatDuration } from "../base/format.ts";
import { Buffer } from "node:buffer";
import type { ByteRange } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { paramsOf, type Request, type Response } from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { Method } from "../protocol/legacy.ts";
import { type Era, formatEnvelope, LATEST_MODERN } from "../protocol/modern.ts";
import { paramHeaders } from "../protocol/param-headers.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { Session } from "../upstream/session.ts";
import type { LoadSettingsResult } from "./result.ts";
import { failureOfLoss, failureOf, type LevelStats } from "./stats.ts";
import { BENCH_CLIENT, type BenchConnectionEvents } from "./target.ts";

export type RequestChannel = Pick<Session, "relay" | "cancel">;

export interface LoadGeneratorOptions {
  /** The measured hub or server; it has no session while its connection is lost. */
  readonly target: {
    readonly session: RequestChannel | undefined;
    readonly failure: HubError | undefined;
    events: BenchConnectionEvents | undefined;
  };
  readonly calls: CallMix;
  /** Maximum number of calls in flight. */
  readonly concurrency: number;
  readonly schedule: Schedule;
  readonly stats: LevelStats;
  readonly clock: Clock;
  /** A clock that shows the same time as `clock`, with timers exact to the microsecond. */
  readonly preciseClock: Clock;
  /** Timeout of a call, in ms. */
  readonly timeout: number;
  /** Fault injection; if absent, no calls are cancelled. */
  readonly chaos?: LoadChaos | undefined;
}

/** Fault injection: decides which calls are cancelled, and observes the outcome of each. */
export interface LoadChaos {
  /** A call was sent. @returns the delay in ms after which to cancel it; undefined if it is not to be cancelled */
  onSent(): number | undefined;
  /** A call is cancelled now. @param mark the call's `CALL_MARK` value, which was sent in its `_meta` */
  onCancelled(mark: number): void;
  /** A call that was sent at `sentAt` was answered at `now`. Both times are in ms of the monotonic clock. */
  onAnswered(sentAt: number, now: number, isResult: boolean): void;
  /** A call will not be answered. */
  onLost(): void;
}

/** Interval for checking call timeouts and the end of timeline intervals, in ms. */
const CHECK_INTERVAL = 50;
/** Pause after a failed call, in ms. Without it, calls that fail immediately would form a busy loop. */
const FAILURE_PAUSE = 1;
/**
 * Minimum time after the end of the schedule during which overdue calls are still sent, in ms. If the schedule took
 * longer than this, they are sent for as long as the schedule took.
 */
const MIN_OVERTIME = 1000;

/** The `CALL_MARK` value of the next call. Each call of this process has a different one. */
let nextMark = 0;

/**
 * Keeps up to `concurrency` calls in flight, as the schedule says, until the schedule is over and all calls are
 * answered.
 */
export class LoadGenerator {
  readonly #options: LoadGeneratorOptions;
  readonly #idle: Caller[];
  readonly #busy = new Set<Caller>();
  #startTime = 0;
  #isDone = false;
  #cancelWake: (() => void) | undefined;
  #cancelCheck = (): void => {};
  #finish: () => void = () => {};
  #fail: (cause: unknown) => void = () => {};

  constructor(options: LoadGeneratorOptions) {
    this.#options = options;
    this.#idle = Array.from(
      { length: options.concurrency },
      () => new Caller(this, options.calls.templates[0]),
    );
  }

  /**
   * Resolves when every call is answered or has failed. @throws {HubError} if the connection to the hub or server is
   * lost and cannot be opened again, or the signal's reason
   */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, stats, target } = this.#options;
    signal.throwIfAborted();
    if (target.failure !== undefined) throw target.failure;
    const done = new Promise<void>((resolve, reject) => {
      this.#finish = resolve;
      this.#fail = reject;
    });
    const abort = (): void => this.#fail(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    target.events = { reconnected: () => this.#fill(), failed: (cause) => this.#fail(cause) };
    this.#startTime = clock.now();
    stats.beginRound(this.#startTime);
    this.#check();
    this.#fill();
    try {
      await done;
    } finally {
      this.#isDone = true;
      signal.removeEventListener("abort", abort);
      this.#cancelWake?.();
      this.#cancelCheck();
      target.events = undefined;
      for (const caller of this.#busy) this.#cancelCall(caller);
      stats.endRound(clock.now());
    }
  }

  /** Sends all calls that are due, and arms the timer for the next. */
  #fill(now = this.#options.clock.now()): void {
    if (this.#isDone) return;
    const { target, schedule } = this.#options;
    this.#cancelWake?.();
    this.#cancelWake = undefined;
    const { session } = target;
    if (session !== undefined && !this.#isTooLate(now)) {
      while (this.#idle.length > 0) {
        const due = schedule.take(now);
        if (due === undefined) break;
        this.#send(session, due, now);
      }
    }
    const wait = schedule.wait(now);
    if (this.#busy.size === 0 && (wait === undefined || this.#isTooLate(now))) {
      this.#end(now);
      return;
    }
    if (wait !== undefined && wait > 0 && this.#idle.length > 0) this.#wake(wait);
  }

  #wake(ms: number): void {
    this.#cancelWake ??= this.#options.preciseClock.after(ms, () => this.#fill());
  }

  /**
   * Ends the run. In an open loop (calls due at a constant rate), calls that were due but never sent count as failed.
   */
  #end(now: number): void {
    const left = this.#options.schedule.backlog(now);
    if (left > 0) {
      const example = "The call was due, but those before it were not answered in time.";
      this.#options.stats.fail({ kind: "never made", example }, left);
    }
    this.#finish();
  }

  #isTooLate(now: number): boolean {
    const { end } = this.#options.schedule;
    return now > end + Math.max(MIN_OVERTIME, end - this.#startTime);
  }

  #send(session: RequestChannel, due: number, now: number): void {
    const { calls, preciseClock, chaos } = this.#options;
    const caller = this.#idle.pop();
    if (caller === undefined) return;
    this.#busy.add(caller);
    caller.tool = calls.next();
    const template = calls.templates[caller.tool] ?? caller.template;
    caller.template = template;
    caller.due = due;
    caller.sent = now;
    caller.mark = nextMark++;
    caller.clearCancelTimer = undefined;
    caller.session = session;
    // If sending fails, the session reports it only in a later turn of the event loop, when `caller.id` is already set.
    caller.id = session.relay(caller, template.request, template.rewrite(caller.mark));
    const cancelDelay = chaos?.onSent();
    if (cancelDelay === undefined) return;
    caller.clearCancelTimer = preciseClock.after(cancelDelay, () => {
      this.#cancelCall(caller);
      chaos?.onCancelled(caller.mark);
      this.#fill();
    });
  }

  onResponse(caller: Caller, response: Response): void {
    const { stats, clock, chaos } = this.#options;
    const now = clock.now();
    this.#release(caller);
    const failure = failureOf(response);
    chaos?.onAnswered(caller.sent, now, failure === undefined);
    if (failure === undefined) {
      stats.answered(caller.due, caller.sent, now, caller.tool);
      this.#fill(now);
      return;
    }
    stats.fail(failure, 1, caller.tool);
    this.#fillSoon();
  }

  fail(caller: Caller, error: HubError): void {
    this.#release(caller);
    this.#options.chaos?.onLost();
    this.#options.stats.fail(failureOfLoss(error), 1, caller.tool);
    this.#fillSoon();
  }

  #fillSoon(): void {
    if (!this.#isDone) this.#wake(FAILURE_PAUSE);
  }

  #cancelCall(caller: Caller): void {
    this.#release(caller);
    caller.session?.cancel(caller.id, "Not wanted any more.");
  }

  #release(caller: Caller): void {
    caller.clearCancelTimer?.();
    if (this.#busy.delete(caller)) this.#idle.push(caller);
  }

  /** Times out calls that take too long, and ends intervals of the timeline. Runs every `CHECK_INTERVAL` ms. */
  #check(): void {
    const { clock, stats, timeout, chaos } = this.#options;
    const now = clock.now();
    stats.roll(now);
    let isStuck = false;
    for (const caller of this.#busy) {
      if (now - caller.sent < timeout) continue;
      isStuck = true;
      this.#cancelCall(caller);
      chaos?.onLost();
      const example = `No answer within ${formatDuration(timeout)}.`;
      stats.fail({ kind: "timeout", example }, 1, caller.tool);
    }
    if (isStuck || this.#idle.length === this.#options.concurrency) this.#fill();
    if (!this.#isDone) this.#cancelCheck = clock.after(CHECK_INTERVAL, () => this.#check());
  }
}

/** One simulated caller. It has at most one call in flight, and is itself the `PendingRequest` of that call. */
class Caller implements PendingRequest {
  readonly method = Method.toolsCall;
  readonly #load: LoadGenerator;
  /** The template of the present call, and its number in the `CallMix`. */
  template: CallTemplate;
  tool = 0;
  id = 0;
  mark = 0;
  due = 0;
  sent = 0;
  session: RequestChannel | undefined;
  clearCancelTimer: (() => void) | undefined;

  constructor(load: LoadGenerator, template: CallTemplate) {
    this.#load = load;
    this.template = template;
  }

  get name(): string {
    return this.template.tool;
  }

  get paramHeaders(): CallTemplate["paramHeaders"] {
    return this.template.paramHeaders;
  }

  onResponse(response: Response): void {
    this.#load.onResponse(this, response);
  }

  fail(error: HubError): void {
    this.#load.fail(this, error);
  }

  onProgress(): void {}
}

/**
 * `Loop`: closed (each caller sends its next call when the last is answered) or open (calls are due at a constant
 * rate). `LevelLength`: a duration in ms, or a number of calls.
 */
export type Loop = LoadSettingsResult["loop"];
export type LevelLength = LoadSettingsResult["extent"];

/** Rounding tolerance in ms: a call that is due within this time counts as due. */
const EPSILON = 1e-6;

/**
 * Decides when calls are sent. In a closed loop a call is due whenever a caller is idle. In an open loop the k-th call
 * is due at `start + k / rate`, even if earlier calls were late.
 */
export class Schedule {
  readonly #loop: Loop;
  readonly #start: number;
  /** Time at which the schedule ends, in ms; Infinity if only the number of calls ends it. */
  readonly #end: number;
  readonly #maxCalls: number;
  #taken = 0;

  /** @param start when the schedule starts, in ms of the clock that the `now` arguments come from */
  constructor(loop: Loop, extent: LevelLength, start: number) {
    this.#loop = loop;
    this.#start = start;
    const isCounted = "calls" in extent;
    const isOpen = loop.kind === "open";
    this.#end = isCounted
      ? isOpen
        ? start + (extent.calls * 1000) / loop.rate
        : Number.POSITIVE_INFINITY
      : start + extent.duration;
    if (isCounted) this.#maxCalls = extent.calls;
    else this.#maxCalls = isOpen ? Math.ceil((extent.duration * loop.rate) / 1000) : Infinity;
  }

  /** Takes the next call, if one may be sent now. @returns its due time, in ms; undefined if none may be sent */
  take(now: number): number | undefined {
    if (this.wait(now) !== 0) return undefined;
    const due = this.#next(now);
    this.#taken++;
    return due;
  }

  /** Time until the next call may be sent, in ms; undefined if no call is left. */
  wait(now: number): number | undefined {
    if (this.#taken >= this.#maxCalls) return undefined;
    if (this.#loop.kind === "closed") return now < this.#end ? 0 : undefined;
    const left = this.#next(now) - now;
    return left <= EPSILON ? 0 : left;
  }

  /** Number of calls that are due but were not taken; 0 in a closed loop. */
  backlog(now: number): number {
    if (this.#loop.kind === "closed") return 0;
    const due = Math.floor(((now - this.#start) * this.#loop.rate) / 1000 + EPSILON) + 1;
    return Math.min(due, this.#maxCalls) - this.#taken;
  }

  /** Time at which the schedule ends, in ms; Infinity if only the number of calls ends it. */
  get end(): number {
    return this.#end;
  }

  /** The completed part of the schedule, 0 to 1. */
  progress(now: number): number {
    const byTime = (now - this.#start) / (this.#end - this.#start);
    const byCount = this.#taken / this.#maxCalls;
    return Math.min(1, Math.max(0, byTime || 0, byCount || 0));
  }

  #next(now: number): number {
    if (this.#loop.kind === "closed") return now;
    return this.#start + (this.#taken * 1000) / this.#loop.rate;
  }
}

/**
 * The key of a member in a call's `_meta`. Its value identifies the call at the server, even behind a hub, which
 * rewrites the request id.
 */
export const CALL_MARK = "toolmux.bench/call";

/**
 * A `tools/call` request, encoded once. Each call sent is a copy of it with another id and another `CALL_MARK` value.
 */
export interface CallTemplate {
  readonly tool: string;
  readonly request: Request;
  /**
   * The `Mcp-Param-*` headers for the arguments of the call; undefined for protocol versions that have no such headers.
   */
  readonly paramHeaders: Readonly<Record<string, string>> | undefined;
  /** The edits that write `mark` into a copy of the request. The session sets the request's id. */
  rewrite(mark: number): RequestRewrite;
}

/**
 * Calls of several tools, in proportion to their weights. Calls of one tool are spread evenly among those of the others
 * (smooth weighted round robin), so that every stretch of a load has the same mix.
 */
export class CallMix {
  readonly templates: readonly [CallTemplate, ...CallTemplate[]];
  readonly #weights: readonly number[];
  readonly #total: number;
  /** The amount by which each tool is behind its share. */
  readonly #debts: Float64Array;

  /** @param weights a number above 0 for each template */
  constructor(templates: CallMix["templates"], weights: readonly number[]) {
    this.templates = templates;
    this.#weights = weights;
    this.#total = weights.reduce((sum, weight) => sum + weight, 0);
    this.#debts = new Float64Array(weights.length);
  }

  /** The number of the template of the next call. */
  next(): number {
    const debts = this.#debts;
    if (debts.length === 1) return 0;
    let next = 0;
    for (let at = 0; at < debts.length; at++) {
      const debt = (debts[at] ?? 0) + (this.#weights[at] ?? 0);
      debts[at] = debt;
      if (debt > (debts[next] ?? 0)) next = at;
    }
    debts[next] = (debts[next] ?? 0) - this.#total;
    return next;
  }
}

/**
 * Encodes a call of a tool.
 * @param args the text of a JSON object, sent as it is
 * @param isMarked whether each call has a `CALL_MARK`
 * @throws {HubError} usage if `args` is not a JSON object
 */
export function makeCallTemplate(
  tool: ListedItem,
  args: string,
  era: Era,
  isMarked: boolean,
): CallTemplate {
  const client = {
    version: LATEST_MODERN,
    client: BENCH_CLIENT,
    capabilities: {},
    level: undefined,
  };
  const members = [
    ...(isMarked ? [`"${CALL_MARK}":0`] : []),
    ...(era === "modern" ? [formatEnvelope(client)] : []),
  ];
  const meta = members.length === 0 ? "" : `,"_meta":{${members.join(",")}}`;
  const params = `{"name":${JSON.stringify(tool.key)},"arguments":${args}${meta}}`;
  const text = `{"jsonrpc":"2.0","id":0,"method":"${Method.toolsCall}","params":${params}}`;
  const request = parseMessage(Buffer.from(text));
  if (request.kind !== "request")
    throw new HubError("usage", "The arguments are not a JSON object.");
  const mark = isMarked ? findMark(request) : undefined;
  return {
    tool: tool.key,
    request,
    paramHeaders: era === "modern" ? paramHeaders(tool, JSON.parse(args)) : undefined,
    rewrite: (number) => ({
      edits: mark === undefined ? [] : [{ ...mark, replacement: String(number) }],
      tokens: [],
    }),
  };
}

function findMark(request: Request): ByteRange | undefined {
  const mark = paramsOf(request).object("_meta").member(CALL_MARK);
  return mark && { start: mark.start, end: mark.end };
}
