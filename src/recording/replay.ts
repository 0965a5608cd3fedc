import { count } from "../base/format.ts";
import { type Edit, utf8 } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { enterStage } from "../base/fault-injection.ts";
import {
  buildError,
  buildResult,
  editMessage,
  type Message,
  type Notification,
  paramsOf,
  type Request,
  type Response,
  withRequestId,
  withResponseId,
} from "../jsonrpc/message.ts";
import { Method } from "../protocol/legacy.ts";
import type { Transport } from "../transport/transport.ts";
import {
  cancelledRequestOf,
  isInitialization,
  progressTokenOf,
  type RecordedExchange,
  type RecordedStep,
  type ValueDifference,
} from "./exchanges.ts";
import type { ExchangeMatcher, NearestMatch } from "./matcher.ts";

export interface ReplayOptions {
  readonly server: string;
  readonly matcher: ExchangeMatcher;
  readonly report: ReplayReport;
  readonly clock: Clock;
  /** Speed factor. 1: as recorded; 2: twice as fast; Infinity: without delays. */
  readonly speed: number;
}

/**
 * Replays a recorded server on a transport until the transport is closed.
 * @returns whether the recorded server ended the connection
 */
export async function replayServer(
  transport: Transport,
  options: ReplayOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const player = new ServerReplay(transport, options);
  await transport.open(
    {
      message: (message) => player.onMessage(message),
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => player.onClosed(),
    },
    signal,
  );
  return player.ended;
}

/** One request being replayed. */
interface ActiveExchange {
  readonly replayed: ReplayedRequest;
  readonly request: Request;
  readonly exchange: RecordedExchange;
  readonly token: string | undefined;
  /** Index of the next step. */
  nextStep: number;
  /**
   * The time at which the previous step was due, in ms of the clock. Delays count from this time, so that late timers
   * do not add up.
   */
  due: number;
  /** Cancels the timer for the next step. */
  cancelTimer: (() => void) | undefined;
  /** The lines of the server's requests that the client has answered. */
  readonly answered: Set<number>;
}

const EMPTY_RESULT = utf8("{}");
/** Longest delay of a timer, in ms. */
const MAX_TIMER_DELAY = 2 ** 31 - 1;

class ServerReplay {
  readonly #transport: Transport;
  readonly #options: ReplayOptions;
  /** The client's requests that have no response yet, by id. */
  readonly #open = new Map<string | number, ActiveExchange>();
  readonly #all = new Set<ActiveExchange>();
  readonly #serverRequests = new Map<
    number,
    { readonly active: ActiveExchange; readonly line: number }
  >();
  #lastId = 0;
  #hasEnded = false;
  #resolveEnded: (hasEnded: boolean) => void = () => {};
  readonly ended: Promise<boolean>;

  constructor(transport: Transport, options: ReplayOptions) {
    this.#transport = transport;
    this.#options = options;
    this.ended = new Promise((resolve) => (this.#resolveEnded = resolve));
  }

  onMessage(message: Message): void {
    enterStage("replay");
    switch (message.kind) {
      case "request":
        this.#startExchange(message);
        return;
      case "notification":
        if (message.method === Method.cancelled) this.#cancel(message);
        return;
      case "response":
        this.#onResponse(message);
        return;
      case "batch":
        for (const item of message.items) this.onMessage(item);
        return;
      case "invalid":
        this.#transport.send(
          buildError(message.id, new HubError(message.code, message.reason).toRpc()),
        );
    }
  }

  onClosed(): void {
    for (const active of this.#all) active.cancelTimer?.();
    this.#all.clear();
    this.#open.clear();
    this.#resolveEnded(this.#hasEnded);
  }

  #startExchange(request: Request): void {
    const { matcher, report, server } = this.#options;
    const { method } = request;
    const replayed = {
      server,
      method,
      get what() {
        return nameOrUriOf(request);
      },
    };
    const match = matcher.match(request);
    if (match.kind === "unknown") {
      // Hubs send `ping` and `logging/setLevel` at any time, recorded or not.
      if (method === Method.ping || method === Method.setLevel) {
        this.#transport.send(buildResult(request.id, EMPTY_RESULT));
        return;
      }
      // A client that supports both eras tries one; the error makes it fall back to the other.
      if (isInitialization(method) && matcher.hasInitialization) {
        const error = new HubError(
          "methodNotFound",
          `${server} was not initialized with this method in the recording.`,
          { server },
        );
        this.#transport.send(buildError(request.id, error.toRpc()));
        return;
      }
      const { nearest } = match;
      const text = report.notRecorded(replayed, nearest);
      const data = nearest && { line: nearest.exchange.line, differences: nearest.differences };
      this.#refuse(request, text, data);
      return;
    }
    const { exchange, isRepeated } = match;
    if (isRepeated) report.repeated(replayed, exchange);
    else report.countReplayed();
    const token = progressTokenOf(request);
    const due = this.#options.clock.now();
    const active = {
      replayed,
      request,
      exchange,
      token,
      nextStep: 0,
      due,
      cancelTimer: undefined,
      answered: new Set<number>(),
    };
    this.#open.set(request.id.key, active);
    this.#all.add(active);
    this.#advance(active);
  }

  /** Runs all due steps, and waits for the next one. */
  #advance(active: ActiveExchange): void {
    const { clock, speed } = this.#options;
    for (;;) {
      const step = active.exchange.steps[active.nextStep];
      if (step === undefined) {
        this.#all.delete(active);
        return;
      }
      if (step.kind === "awaitResponse") {
        if (!active.answered.has(step.requestLine)) return;
        active.nextStep++;
        active.due = clock.now();
        continue;
      }
      active.due += step.wait / speed;
      const wait = Math.min(Math.round(active.due - clock.now()), MAX_TIMER_DELAY);
      if (wait > 0) {
        active.cancelTimer = clock.after(wait, () => {
          active.cancelTimer = undefined;
          if (this.#runStep(active, step)) this.#advance(active);
        });
        return;
      }
      if (!this.#runStep(active, step)) return;
    }
  }

  /** Runs one step. @returns false if the step has closed the connection, which ends the replay */
  #runStep(
    active: ActiveExchange,
    step: Exclude<RecordedStep, { readonly kind: "awaitResponse" }>,
  ): boolean {
    active.nextStep++;
    const { request } = active;
    switch (step.kind) {
      case "notify":
        this.#sendNotification(active, step);
        return true;
      case "request": {
        const id = ++this.#lastId;
        this.#serverRequests.set(id, { active, line: step.line });
        this.#transport.send(withRequestId(step.message, id, [], []));
        return true;
      }
      case "respond":
        this.#open.delete(request.id.key);
        this.#transport.send(withResponseId(step.response, request.id));
        return true;
      case "fail":
        this.#open.delete(request.id.key);
        this.#refuse(request, `line ${active.exchange.line} has no answer to give: ${step.reason}`);
        return true;
      case "close":
        this.#hasEnded = true;
        void this.#transport.close();
        return false;
    }
  }

  #sendNotification(
    active: ActiveExchange,
    { message, references }: Extract<RecordedStep, { readonly kind: "notify" }>,
  ): void {
    const edits: Edit[] = [];
    if (references.progressToken !== undefined) {
      // A request without a progress token gets no progress notifications.
      if (active.token === undefined) return;
      edits.push({ ...references.progressToken, replacement: utf8(active.token) });
    }
    if (references.subscriptionId !== undefined) {
      edits.push({ ...references.subscriptionId, replacement: active.request.id });
    }
    this.#transport.send(editMessage(message, edits));
  }

  #onResponse(response: Response): void {
    const serverRequest =
      response.id === undefined ? undefined : this.#serverRequests.get(response.id);
    if (response.id === undefined || serverRequest === undefined) return;
    this.#serverRequests.delete(response.id);
    const { active, line } = serverRequest;
    active.answered.add(line);
    const step = active.exchange.steps[active.nextStep];
    if (active.cancelTimer === undefined && step?.kind === "awaitResponse" && this.#all.has(active))
      this.#advance(active);
  }

  #cancel(notification: Notification): void {
    const key = cancelledRequestOf(notification);
    const active = key === undefined ? undefined : this.#open.get(key);
    if (key === undefined || active === undefined) return;
    this.#open.delete(key);
    this.#all.delete(active);
    active.cancelTimer?.();
  }

  #refuse(request: Request, text: string, data?: Readonly<Record<string, unknown>>): void {
    const { server } = this.#options;
    const error = new HubError("notRecorded", text, { server, data });
    this.#transport.send(buildError(request.id, error.toRpc()));
  }
}

/** The name or URI in a request's params. */
function nameOrUriOf(request: Request): string | undefined {
  const params = paramsOf(request);
  return params.string("name") ?? params.string("uri");
}

/** Maximum number of unrecorded requests reported individually. */
const MAX_REPORTED = 20;
/** Maximum number of differences shown for each divergence. */
const MAX_DIFFERENCES_SHOWN = 3;

/** A request in the report. `what`: the name or URI in its params, evaluated only if the request is reported. */
export interface ReplayedRequest {
  readonly server: string;
  readonly method: string;
  readonly what: string | undefined;
}

/** Counts the clients' requests, and reports each request that was not recorded as soon as it arrives. */
export class ReplayReport {
  readonly #print: (text: string) => void;
  readonly #exhausted = new Set<string>();
  #reported = 0;
  #played = 0;
  #repeated = 0;
  #unknown = 0;

  /** @param print receives one line at a time */
  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  get hasDiverged(): boolean {
    return this.#unknown > 0;
  }

  countReplayed(): void {
    this.#played++;
  }

  /**
   * Counts a repeated request. A repetition is no divergence, because a load test sends the same request many times.
   */
  repeated(request: ReplayedRequest, exchange: RecordedExchange): void {
    this.#repeated++;
    if (this.#exhausted.has(request.server)) return;
    this.#exhausted.add(request.server);
    const text = `was made more often than it was recorded: from now on it gets the last recorded answer (line ${exchange.line})`;
    this.#print(`${describeRequest(request)} ${text}`);
  }

  /** Counts and reports a request that was not recorded. @returns the error text for the client */
  notRecorded(request: ReplayedRequest, nearest: NearestMatch | undefined): string {
    this.#unknown++;
    const near =
      nearest === undefined
        ? "no request with this method was"
        : `the nearest is on line ${nearest.exchange.line}, with ${listDifferences(nearest.differences)}`;
    const text = `${describeRequest(request)} was not recorded: ${near}`;
    this.#report(text);
    return text;
  }

  /** The totals in one line. @param unplayed number of recorded requests that were never made */
  summary(unplayed: number): string {
    const parts = [
      `${count(this.#played, "request")} answered as recorded`,
      `${this.#repeated} again with the last answer`,
      `${this.#unknown} not recorded`,
      `${unplayed} recorded and never made`,
    ];
    return `replayed: ${parts.join(", ")}`;
  }

  #report(text: string): void {
    this.#reported++;
    if (this.#reported <= MAX_REPORTED) this.#print(`diverged: ${text}`);
    if (this.#reported === MAX_REPORTED)
      this.#print("diverged too often: further differences are only counted");
  }
}

function describeRequest({ server, method, what }: ReplayedRequest): string {
  return `${server}: ${method}${what === undefined ? "" : ` of ${what}`}`;
}

function listDifferences(differences: readonly ValueDifference[]): string {
  const shown = differences
    .slice(0, MAX_DIFFERENCES_SHOWN)
    .map(({ path, recorded, asked: actual }) => `${path} ${recorded} and not ${actual}`);
  const more = differences.length - shown.length;
  return shown.join("; ") + (more > 0 ? `; and ${count(more, "more difference")}` : "");
}
