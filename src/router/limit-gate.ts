import { joinPieces } from "../base/bytes.ts";
import { type HubError, toHubError } from "../base/errors.ts";
import type { AwaitedCall } from "../limits/awaited-retries.ts";
import { Places } from "../limits/fair-queue.ts";
import type { LimitScope } from "../limits/limit-scope.ts";
import type { ActiveLimits, ToolScopes } from "../limits/limits.ts";
import { Method } from "../protocol/legacy.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Task } from "../upstream/tasks.ts";
import type { ApprovalGate, HeldCall } from "./approval-gate.ts";
import type { Call, CallGate } from "./call.ts";

/** Interval of progress notifications to the client while its call waits, in ms. */
const PROGRESS_INTERVAL = 10_000;
/** How long a task can keep the places of its call, in ms: its end may never be known. */
const MAX_TASK_TIME = 24 * 3_600_000;
const NONE: readonly LimitScope[] = [];
const NOTHING = (): void => {};

export interface LimitGateOptions {
  readonly limits: ActiveLimits;
  readonly client: LimitScope;
  /** Undefined for a request that calls no tool: only its client's rate limits it. */
  readonly scopes: ToolScopes | undefined;
  /** The gate that holds the call until a person has allowed it; undefined if it needs no approval. */
  readonly approval: ApprovalGate | undefined;
  /**
   * Whether plugins handle the call. What limits its server then counts only when they send it there: they may answer
   * it themselves.
   */
  readonly hasPlugins: boolean;
  /** For a call that a plugin makes: the client's call that it is a part of. */
  readonly outer: Call | undefined;
  /** The call that this one goes on with: it has been counted, and has its places. */
  readonly retried: LimitGate | undefined;
  /** Says which tool of which client the call is for. */
  readonly subject: readonly string[];
}

/**
 * Takes one call through the limits: its rate, then its approval, its quota, and the queue. Holds the places of the call
 * until its final answer.
 */
export class LimitGate implements CallGate, AwaitedCall {
  readonly #options: LimitGateOptions;
  #call: HeldCall | undefined;
  /** The places that it has or waits for; those at its server apart if plugins handle it. */
  #places: Places | undefined;
  #serverPlaces: Places | undefined;
  /** Whether it waits until the stored calls of quotas are known. */
  #isLoading = false;
  /** Whether it counts at its server, and has its places there. */
  #hasEnteredServer = false;
  /** Whether its places outlast it: a task goes on with them, or a retry of the client. */
  #isKept = false;
  #cancelTimer = NOTHING;

  constructor(options: LimitGateOptions) {
    this.#options = options;
    const { retried } = options;
    if (retried === undefined) return;
    this.#places = retried.#places;
    this.#serverPlaces = retried.#serverPlaces;
    this.#hasEnteredServer = retried.#hasEnteredServer;
  }

  get client(): LimitScope {
    return this.#options.client;
  }

  get isNotable(): boolean {
    return this.#options.approval !== undefined;
  }

  get waitingFor(): "approval" | "queue" | undefined {
    const isQueued =
      this.#isLoading ||
      this.#places?.state === "waiting" ||
      this.#serverPlaces?.state === "waiting";
    return isQueued ? "queue" : this.#options.approval?.waitingFor;
  }

  hold(call: HeldCall, pass: () => void): void {
    const { limits, client, scopes, approval, hasPlugins, retried } = this.#options;
    this.#call = call;
    if (retried === undefined) {
      const shared = scopes === undefined ? NONE : hasPlugins ? scopes.hub : scopes.all;
      const error = limits.takeRate(client, shared);
      if (error !== undefined) {
        call.refuse(error);
        return;
      }
    }
    if (approval === undefined) this.#enter(pass);
    else approval.hold(call, () => this.#enter(pass));
  }

  checkBeforeSend(connection: Connection, wasSent: boolean): HubError | undefined {
    return this.#options.approval?.checkBeforeSend(connection, wasSent);
  }

  /**
   * Called when plugins send the call to its server. What limits the server counts once, however often they send it.
   * @param refuse called instead of `pass` if the call is not allowed
   */
  enterServer(pass: () => void, refuse: (error: HubError) => void): void {
    const { limits, scopes, hasPlugins } = this.#options;
    if (!hasPlugins || this.#hasEnteredServer || scopes === undefined) {
      pass();
      return;
    }
    this.#hasEnteredServer = true;
    const error = limits.takeRate(undefined, scopes.server);
    if (error === undefined) this.#admit(undefined, scopes.server, scopes.server, pass, refuse);
    else refuse(error);
  }

  /** Whether the call has a place of this scope. */
  holds(scope: LimitScope): boolean {
    return [this.#places, this.#serverPlaces].some(
      (places) =>
        places?.state === "taken" && (places.client === scope || places.shared.includes(scope)),
    );
  }

  /** Keeps the places until the task of the call ends. */
  keepFor(task: Task, isEnd: boolean): void {
    if (this.#places === undefined && this.#serverPlaces === undefined) return;
    this.#isKept = isEnd;
    const cancelTimer = this.#options.limits.clock.after(
      Math.min(task.ttl ?? MAX_TASK_TIME, MAX_TASK_TIME),
      () => this.release(),
    );
    task.whenOver(() => {
      cancelTimer();
      this.release();
    });
  }

  /** Keeps the places for the retry of the call, which its client sends with this `requestState`. */
  awaitRetry(requestState: string): void {
    const { limits, subject } = this.#options;
    if (limits.retries.add([...subject, requestState], this)) this.#isKept = true;
  }

  end(): void {
    this.#options.approval?.end();
    this.#cancelTimer();
    this.#isLoading = false;
    if (!this.#isKept) this.release();
  }

  release(): void {
    const { queue } = this.#options.limits;
    const [places, serverPlaces] = [this.#places, this.#serverPlaces];
    this.#places = this.#serverPlaces = undefined;
    if (places !== undefined) queue.leave(places);
    if (serverPlaces !== undefined) queue.leave(serverPlaces);
  }

  #enter(pass: () => void): void {
    const { client, scopes, hasPlugins, outer, retried } = this.#options;
    if (retried !== undefined || scopes === undefined) {
      pass();
      return;
    }
    const counted = hasPlugins ? scopes.hub : scopes.all;
    // A call that a plugin makes is a part of its client's call, which has a place already.
    const shared = outer === undefined ? counted : hasPlugins ? NONE : scopes.server;
    this.#admit(client, counted, shared, pass, undefined);
  }

  /**
   * Counts the call for quotas, and takes its places.
   * @param client whose quota counts; undefined: no client's
   * @param counted the other scopes whose quotas count
   * @param shared the other scopes whose places it takes
   * @param refuse undefined: the whole call is refused
   */
  #admit(
    client: LimitScope | undefined,
    counted: readonly LimitScope[],
    shared: readonly LimitScope[],
    pass: () => void,
    refuse: ((error: HubError) => void) | undefined,
  ): void {
    const { limits, outer, client: turn } = this.#options;
    const { quotas } = limits;
    if (!quotas.isLoaded) {
      this.#isLoading = true;
      quotas.whenLoaded(() => {
        if (this.#call?.isOver !== false) return;
        this.#isLoading = false;
        this.#goOn(() => this.#admit(client, counted, shared, pass, refuse));
      });
      return;
    }
    const error = limits.takeQuota(client, counted);
    if (error !== undefined) {
      this.#refuse(error, refuse);
      return;
    }
    const needed = outer === undefined ? shared : shared.filter((scope) => !isHeld(scope, outer));
    const owner = outer === undefined ? client : undefined;
    if (owner === undefined && needed.length === 0) {
      pass();
      return;
    }
    const places = new Places(turn, owner, needed);
    if (refuse === undefined) this.#places = places;
    else this.#serverPlaces = places;
    if (limits.queue.take(places)) pass();
    else this.#wait(places, pass, refuse);
  }

  #wait(places: Places, pass: () => void, refuse: ((error: HubError) => void) | undefined): void {
    const { limits } = this.#options;
    const waitsSince = limits.clock.now();
    places.onTaken = () => {
      this.#cancelTimer();
      this.#call?.caller.span?.addWait("queue", limits.clock.now() - waitsSince);
      this.#goOn(pass);
    };
    const full = limits.queue.wait(places);
    if (full === undefined) this.#reportPlace(places);
    else this.#refuse(limits.refuseQueued(full), refuse);
  }

  #refuse(error: HubError, refuse: ((error: HubError) => void) | undefined): void {
    if (refuse === undefined) this.#call?.refuse(error);
    else refuse(error);
  }

  /** Goes on with the call, outside of the turn of the event loop in which it came. */
  #goOn(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#call?.fail(toHubError(error));
    }
  }

  /** Tells the client the place of its call, every 10 s. */
  #reportPlace(places: Places): void {
    const { token, caller, startedAt } = this.#call ?? {};
    if (token === undefined || caller === undefined || startedAt === undefined) return;
    const { clock, queue } = this.#options.limits;
    const begin = clock.now();
    let count = 0;
    const report = (): void => {
      const { place, of } = queue.placeOf(places);
      // Progress must only increase (MCP, progress). This value is above those that the call has had while it waited for
      // an approval, and far below those that the server will report.
      const steps = 2 + Math.ceil((begin - startedAt) / PROGRESS_INTERVAL) + ++count;
      const message = `Waiting in the queue: place ${place} of ${of}`;
      caller.notify(
        joinPieces([
          `{"jsonrpc":"2.0","method":"${Method.progress}","params":{"progressToken":`,
          token,
          `,"progress":${steps / 1e6},"message":${JSON.stringify(message)}}}`,
        ]),
      );
      this.#cancelTimer = clock.after(PROGRESS_INTERVAL, report);
    };
    this.#cancelTimer = clock.after(PROGRESS_INTERVAL, report);
  }
}

/** Whether a call, or one that it is a part of, has a place of the scope. */
function isHeld(scope: LimitScope, call: Call): boolean {
  for (let at: Call | undefined = call; at !== undefined; at = at.caller.outer)
    if (at.gate instanceof LimitGate && at.gate.holds(scope)) return true;
  return false;
}
