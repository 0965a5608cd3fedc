import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { type JsonMember, lastMember, scanObject } from "../base/json.ts";
import type { ListedItem } from "../catalog/listing.ts";
import type { Request, Response } from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { Method } from "../protocol/legacy.ts";
import { type Era, formatEnvelope, LATEST_MODERN } from "../protocol/modern.ts";
import { paramHeaders } from "../protocol/param-headers.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { Session } from "../upstream/session.ts";
import type { LoadSettingsResult } from "./result.ts";
import { failureOfLoss, failureOf, type LevelStats } from "./stats.ts";
import { BENCH_CLIENT, type BenchTargetEvents } from "./target.ts";

/** What calls are made over. */
export type RequestChannel = Pick<Session, "relay" | "cancel">;

/** What makes calls, and with what. */
export interface LoadGeneratorOptions {
  /** Who is called; it has no session while it is lost. */
  readonly contact: {
    readonly session: RequestChannel | undefined;
    readonly failure: HubError | undefined;
    events: BenchTargetEvents | undefined;
  };
  readonly template: CallTemplate;
  /** How many calls are in flight at most. */
  readonly concurrency: number;
  readonly schedule: Schedule;
  readonly tally: LevelStats;
  readonly clock: Clock;
  /** The same time, for what has to be done to the microsecond. */
  readonly precise: Clock;
  /** How long a call may take, in ms. */
  readonly timeout: number;
  /** What is to happen to calls beside being answered. */
  readonly chaos?: LoadChaos | undefined;
}

/** Those who disturb calls, and want to know what becomes of them. */
export interface LoadChaos {
  /** A call was sent. @returns after how many ms it is to be cancelled; undefined: it is not */
  sent(): number | undefined;
  /** It is cancelled now. @param mark which one, as its server hears of it */
  cancelled(mark: number): void;
  /** A call that was sent then was answered. */
  answered(sent: number, now: number, isResult: boolean): void;
  /** A call will never be answered. */
  lost(): void;
}

/** How often is looked for calls that take too long, and for spans that are over, in ms. */
const LOOK = 50;
/** After a failure it takes a moment until the next call: what fails at once would else be all that this process does. */
const PAUSE = 1;
/** How long calls that are overdue are still made after the last was due, in ms, whatever the rest took. */
const OVERTIME = 1000;

/** No two calls of this process have the same mark. */
let marks = 0;

/** So many callers, who make calls as a schedule says until it is over and all are answered. */
export class LoadGenerator {
  readonly #parts: LoadGeneratorOptions;
  readonly #free: Caller[];
  readonly #busy = new Set<Caller>();
  #began = 0;
  #isOver = false;
  #undoWake: (() => void) | undefined;
  #undoLook = (): void => {};
  #finish: () => void = () => {};
  #fail: (cause: unknown) => void = () => {};

  constructor(parts: LoadGeneratorOptions) {
    this.#parts = parts;
    this.#free = Array.from({ length: parts.concurrency }, () => new Caller(this, parts.template));
  }

  /** Settles when everything was answered, or has failed. @throws {HubError} if the subject is lost for good, or the signal's reason */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, tally, contact } = this.#parts;
    signal.throwIfAborted();
    if (contact.failure !== undefined) throw contact.failure;
    const done = new Promise<void>((resolve, reject) => {
      this.#finish = resolve;
      this.#fail = reject;
    });
    const abort = (): void => this.#fail(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    contact.events = { returned: () => this.#fill(), failed: (cause) => this.#fail(cause) };
    this.#began = clock.now();
    tally.begin(this.#began);
    this.#look();
    this.#fill();
    try {
      await done;
    } finally {
      this.#isOver = true;
      signal.removeEventListener("abort", abort);
      this.#undoWake?.();
      this.#undoLook();
      contact.events = undefined;
      for (const caller of this.#busy) this.#withdraw(caller);
      tally.end(clock.now());
    }
  }

  /** Makes all calls that may be made now, and sees to it that the next are. */
  #fill(now = this.#parts.clock.now()): void {
    if (this.#isOver) return;
    const { contact, schedule } = this.#parts;
    this.#undoWake?.();
    this.#undoWake = undefined;
    const { session } = contact;
    if (session !== undefined && !this.#isTooLate(now)) {
      while (this.#free.length > 0) {
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
    if (wait !== undefined && wait > 0 && this.#free.length > 0) this.#wake(wait);
  }

  #wake(ms: number): void {
    this.#undoWake ??= this.#parts.precise.after(ms, () => this.#fill());
  }

  /** What is left of an open loop that its subject cannot keep up with is not made any more, but it counts. */
  #end(now: number): void {
    const left = this.#parts.schedule.backlog(now);
    if (left > 0) {
      const example = "The call was due, but those before it were not answered in time.";
      this.#parts.tally.fail({ kind: "never made", example }, left);
    }
    this.#finish();
  }

  #isTooLate(now: number): boolean {
    const { end } = this.#parts.schedule;
    return now > end + Math.max(OVERTIME, end - this.#began);
  }

  #send(session: RequestChannel, due: number, now: number): void {
    const { template, precise, chaos } = this.#parts;
    const caller = this.#free.pop();
    if (caller === undefined) return;
    this.#busy.add(caller);
    caller.due = due;
    caller.sent = now;
    caller.mark = marks++;
    caller.undoCancel = undefined;
    caller.session = session;
    // One that cannot be sent fails a turn later.
    caller.id = session.relay(caller, template.request, template.rewrite(caller.mark));
    const until = chaos?.sent();
    if (until === undefined) return;
    caller.undoCancel = precise.after(until, () => {
      this.#withdraw(caller);
      chaos?.cancelled(caller.mark);
      this.#fill();
    });
  }

  settle(caller: Caller, response: Response): void {
    const { tally, clock, chaos } = this.#parts;
    const now = clock.now();
    this.#release(caller);
    const failure = failureOf(response);
    chaos?.answered(caller.sent, now, failure === undefined);
    if (failure === undefined) {
      tally.answered(caller.due, caller.sent, now);
      this.#fill(now);
      return;
    }
    tally.fail(failure);
    this.#fillSoon();
  }

  fail(caller: Caller, error: HubError): void {
    this.#release(caller);
    this.#parts.chaos?.lost();
    this.#parts.tally.fail(failureOfLoss(error));
    this.#fillSoon();
  }

  #fillSoon(): void {
    if (!this.#isOver) this.#wake(PAUSE);
  }

  #withdraw(caller: Caller): void {
    this.#release(caller);
    caller.session?.cancel(caller.id, "Not wanted any more.");
  }

  #release(caller: Caller): void {
    caller.undoCancel?.();
    if (this.#busy.delete(caller)) this.#free.push(caller);
  }

  /** Gives up calls that take too long, and closes spans. */
  #look(): void {
    const { clock, tally, timeout, chaos } = this.#parts;
    const now = clock.now();
    tally.roll(now);
    let isStuck = false;
    for (const caller of this.#busy) {
      if (now - caller.sent < timeout) continue;
      isStuck = true;
      this.#withdraw(caller);
      chaos?.lost();
      tally.fail({ kind: "timeout", example: `No answer within ${timeout} ms.` });
    }
    if (isStuck || this.#free.length === this.#parts.concurrency) this.#fill();
    if (!this.#isOver) this.#undoLook = clock.after(LOOK, () => this.#look());
  }
}

/** Who makes one call at a time: the record of the call that it waits for. */
class Caller implements PendingRequest {
  readonly method = Method.toolsCall;
  readonly name: string;
  readonly mirrored: Readonly<Record<string, string>> | undefined;
  readonly #load: LoadGenerator;
  id = 0;
  mark = 0;
  due = 0;
  sent = 0;
  session: RequestChannel | undefined;
  undoCancel: (() => void) | undefined;

  constructor(load: LoadGenerator, { tool, mirrored }: CallTemplate) {
    this.#load = load;
    this.name = tool;
    this.mirrored = mirrored;
  }

  onResponse(response: Response): void {
    this.#load.settle(this, response);
  }

  fail(error: HubError): void {
    this.#load.fail(this, error);
  }

  onProgress(): void {}
}

/** How calls follow each other, and how long or how many of them there are: ms, or calls. */
export type Loop = LoadSettingsResult["loop"];
export type Extent = LoadSettingsResult["extent"];

/** Beyond this a test of arithmetic is not worth it: a call that is due by less than a rounding error is due. */
const EPSILON = 1e-6;

/**
 * When calls are to be made. In a closed loop one is due whenever somebody is free to make it. In an open loop they are due at
 * a constant rate from the beginning, whatever becomes of those before: the k-th at `start + k / rate`, so that nothing drifts,
 * and one that has to wait keeps the time at which it was due.
 */
export class Schedule {
  readonly #loop: Loop;
  readonly #start: number;
  /** ms. Infinity: only their number ends it. */
  readonly #end: number;
  readonly #most: number;
  #taken = 0;

  /** @param start ms, of the clock that `take` is told of */
  constructor(loop: Loop, extent: Extent, start: number) {
    this.#loop = loop;
    this.#start = start;
    const isCounted = "calls" in extent;
    const isOpen = loop.kind === "open";
    this.#end = isCounted
      ? isOpen
        ? start + (extent.calls * 1000) / loop.rate
        : Number.POSITIVE_INFINITY
      : start + extent.duration;
    if (isCounted) this.#most = extent.calls;
    else this.#most = isOpen ? Math.ceil((extent.duration * loop.rate) / 1000) : Infinity;
  }

  /** Takes the next call, if there is one that may be made now. @returns when it was due, in ms */
  take(now: number): number | undefined {
    if (this.wait(now) !== 0) return undefined;
    const due = this.#next(now);
    this.#taken++;
    return due;
  }

  /** How long it is until one more may be made, in ms; undefined: there will be none. */
  wait(now: number): number | undefined {
    if (this.#taken >= this.#most) return undefined;
    if (this.#loop.kind === "closed") return now < this.#end ? 0 : undefined;
    const left = this.#next(now) - now;
    return left <= EPSILON ? 0 : left;
  }

  /** Calls that are due and were not taken; none in a closed loop. */
  backlog(now: number): number {
    if (this.#loop.kind === "closed") return 0;
    const due = Math.floor(((now - this.#start) * this.#loop.rate) / 1000 + EPSILON) + 1;
    return Math.min(due, this.#most) - this.#taken;
  }

  /** When the last call is due, at the latest, in ms. Infinity: that is not known. */
  get end(): number {
    return this.#end;
  }

  /** The part of it that is over, 0 to 1. */
  progress(now: number): number {
    const byTime = (now - this.#start) / (this.#end - this.#start);
    const byCount = this.#taken / this.#most;
    return Math.min(1, Math.max(0, byTime || 0, byCount || 0));
  }

  #next(now: number): number {
    if (this.#loop.kind === "closed") return now;
    return this.#start + (this.#taken * 1000) / this.#loop.rate;
  }
}

/** The member of a call's `_meta` that tells it from others at the server's end, whatever ids it is given on the way. */
export const CALL_MARK = "toolmux.bench/call";

/** A call, written once: each that is made is a copy with another id in it, and another mark. */
export interface CallTemplate {
  readonly tool: string;
  readonly request: Request;
  /** The headers that repeat its arguments. */
  readonly mirrored: Readonly<Record<string, string>> | undefined;
  /** What to replace in a copy beside its id. */
  rewrite(mark: number): RequestRewrite;
}

/**
 * Makes calls of a tool.
 * @param args a JSON object, sent as it is written
 * @param isMarked whether each says which one it is
 * @throws {HubError} usage if the arguments are no JSON object
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
  if (request.kind !== "request") throw new HubError("usage", "The arguments are no JSON object.");
  const mark = isMarked ? findMark(request) : undefined;
  return {
    tool: tool.key,
    request,
    mirrored: era === "modern" ? paramHeaders(tool, JSON.parse(args)) : undefined,
    rewrite: (number) => ({
      edits: mark === undefined ? [] : [{ ...mark, replacement: String(number) }],
      tokens: [],
    }),
  };
}

function findMark({ bytes, params }: Request): Pick<JsonMember, "start" | "end"> | undefined {
  const meta = lastMember((params && scanObject(bytes, params.start)?.items) ?? [], "_meta");
  const mark = lastMember((meta && scanObject(bytes, meta.start)?.items) ?? [], CALL_MARK);
  return mark && { start: mark.start, end: mark.end };
}
