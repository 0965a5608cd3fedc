import { type ByteRange, joinPieces, type Piece, utf8 } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { JsonObject, OPEN_BRACE } from "../base/json.ts";
import {
  buildResult,
  type EncodedMessage,
  paramsOf,
  randomToken,
  type Request,
} from "../jsonrpc/message.ts";
import { ModernTaskMethod } from "../protocol/tasks.ts";
import type { Caller, RunningRequest } from "./call.ts";
import type { TaskSubscriptionEvents } from "./tasks.ts";

/** How long a task is kept after its end, in ms. */
const RETENTION = 10 * 60_000;
/** Interval at which clients should poll a task, in ms. */
const POLL_INTERVAL = 1000;
/** Maximum length of a status message, in characters. */
const MAX_STATUS_MESSAGE = 2000;

/** The functions of a call that its task uses. */
export interface TaskedCall {
  /** The server of the call. */
  readonly server: string;
  /** Cancels the call, which then ends its task. */
  cancel(): void;
  /** Called when the client has answered an input request; `answer` is the result, as JSON. */
  onInput(key: string, answer: Uint8Array): void;
}

/**
 * A task (2026-07-28) that the hub itself has made of a modern client's call, at the request of a plugin. No server
 * knows this task; the client uses it like the tasks of servers.
 */
export class HubMadeTask {
  /** The task id. It cannot be guessed, because clients that cannot be told apart share their tasks. */
  readonly id = randomToken();
  /** Time at which the hub forgets the task, in ms of the clock. */
  expiresAt = Infinity;
  readonly #call: TaskedCall;
  readonly #clock: Clock;
  /** Time at which the task was made, in ms of the clock. */
  readonly #start: number;
  readonly #createdAt = new Date().toISOString();
  #updatedAt = this.#createdAt;
  #status: "working" | "input_required" | "completed" | "failed" | "cancelled" = "working";
  #message: string | undefined;
  /** The last member of the status, as JSON: `result`, `error` or `inputRequests`; undefined if there is none yet. */
  #detail: Uint8Array | undefined;
  readonly #watchers = new Set<(notification: EncodedMessage) => void>();

  constructor(call: TaskedCall, clock: Clock, message: string | undefined) {
    this.#call = call;
    this.#clock = clock;
    this.#start = clock.now();
    this.#message = message?.slice(0, MAX_STATUS_MESSAGE);
  }

  get server(): string {
    return this.#call.server;
  }

  get isOver(): boolean {
    return this.#status !== "working" && this.#status !== "input_required";
  }

  /** The task as JSON without `resultType`: the result of `tasks/get`, and the params of its notifications. */
  toJson(): Uint8Array {
    return joinPieces(["{", ...this.#members(true), "}"]);
  }

  /** The answer to the call, which announces the task. @param meta `_meta` as JSON */
  announcement(meta: string): Uint8Array {
    return joinPieces(['{"resultType":"task",', ...this.#members(false), `,"_meta":${meta}}`]);
  }

  report(message: string): void {
    if (this.isOver) return;
    this.#message = message.slice(0, MAX_STATUS_MESSAGE);
    this.#changed();
  }

  /**
   * Sets the status to `input_required` or back to `working`.
   * @param requests the input requests that wait for answers, as JSON; undefined: none
   */
  setInputRequests(requests: Uint8Array | undefined): void {
    if (this.isOver || (requests === undefined && this.#detail === undefined)) return;
    this.#status = requests === undefined ? "working" : "input_required";
    this.#detail = requests && joinPieces([',"inputRequests":', requests]);
    this.#changed();
  }

  /** Ends the task, because its call has ended. @param body the result or error, as JSON */
  end(status: "completed" | "failed" | "cancelled", body?: Uint8Array): void {
    if (this.isOver) return;
    this.#status = status;
    this.expiresAt = this.#clock.now() + RETENTION;
    const key = status === "failed" ? "error" : "result";
    this.#detail = body && joinPieces([`,"${key}":`, body]);
    this.#changed();
    this.#watchers.clear();
  }

  cancel(): void {
    if (!this.isOver) this.#call.cancel();
  }

  /** Handles a request about the task. @returns the response */
  answer(request: Request): EncodedMessage {
    if (request.method === ModernTaskMethod.get) return buildResult(request.id, this.toJson());
    if (request.method === ModernTaskMethod.cancel) {
      this.cancel();
    } else {
      const { bytes, members } = inputResponsesOf(request);
      for (const { key, start, end } of members)
        if (!this.isOver) this.#call.onInput(key, bytes.subarray(start, end));
    }
    return buildResult(request.id, utf8("{}"));
  }

  /** Calls `watcher` with each notification about the task. @returns a function that unsubscribes it */
  watch(watcher: (notification: EncodedMessage) => void): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  #changed(): void {
    this.#updatedAt = new Date().toISOString();
    if (this.#watchers.size === 0) return;
    const start = `{"jsonrpc":"2.0","method":"${ModernTaskMethod.changed}","params":`;
    const notification = joinPieces([start, this.toJson(), "}"]);
    for (const watcher of this.#watchers) watcher(notification);
  }

  #members(isWhole: boolean): readonly Piece[] {
    const status = {
      taskId: this.id,
      status: this.#status,
      ...(this.#message !== undefined && { statusMessage: this.#message }),
      createdAt: this.#createdAt,
      lastUpdatedAt: this.#updatedAt,
      ttlMs: this.isOver ? Math.round(this.expiresAt - this.#start) : null,
      pollIntervalMs: POLL_INTERVAL,
    };
    const members = JSON.stringify(status).slice(1, -1);
    return isWhole && this.#detail !== undefined ? [members, this.#detail] : [members];
  }
}

/** The `inputResponses` of a `tasks/update` request. @throws {HubError} invalidParams */
function inputResponsesOf(request: Request): JsonObject {
  const params = paramsOf(request);
  const member: ByteRange | undefined = params.member("inputResponses");
  const responses = member && JsonObject.at(params.bytes, member);
  const all = member === undefined ? [] : [member, ...(responses?.members ?? [])];
  if (responses !== undefined && all.every(({ start }) => params.bytes[start] === OPEN_BRACE))
    return responses;
  throw new HubError("invalidParams", "inputResponses must be an object with results.");
}

/** A client's request about a task that the hub has made; answered at once. */
export class CallTaskRequest implements RunningRequest {
  readonly call = undefined;
  readonly #task: HubMadeTask;
  readonly #request: Request;
  readonly #caller: Caller;

  /** @throws {HubError} invalidParams */
  constructor(task: HubMadeTask, request: Request, caller: Caller) {
    if (request.method === ModernTaskMethod.update) inputResponsesOf(request);
    this.#task = task;
    this.#request = request;
    this.#caller = caller;
  }

  run(): void {
    this.#caller.respond(this.#task.answer(this.#request));
  }

  cancel(): void {
    this.#caller.respond(undefined);
  }
}

/** A client's subscription to the notifications about a task that the hub has made. */
export class CallTaskSubscription {
  readonly #task: HubMadeTask;
  readonly #events: TaskSubscriptionEvents;
  #unwatch = (): void => {};

  constructor(task: HubMadeTask, events: TaskSubscriptionEvents) {
    this.#task = task;
    this.#events = events;
  }

  start(): void {
    this.#unwatch = this.#task.watch((message) => this.#events.onNotification(message));
    // Called only after this method has returned, as for a server's task, because the caller may first have to start
    // the client's subscriptions to other tasks.
    queueMicrotask(() => this.#events.onSubscribeAnswer(true));
  }

  stop(): void {
    this.#unwatch();
  }
}
