import { type HubError, toHubError } from "./errors.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogSource = "hub" | "stderr" | "stdout" | "server";

/** The names of a connection's states; upstream/state.ts says what they mean. */
export type StateName =
  | "idle"
  | "connecting"
  | "authenticating"
  | "connected"
  | "reconnecting"
  | "stopping"
  | "failed"
  | "disconnected";

/** Who or what cancelled a call before it was answered; `shutdown`: the server or the hub was being stopped. */
export type CancelledBy = "client" | "deadline" | "disconnect" | "shutdown" | "operator";

/**
 * A condition that the user should know of while it lasts. `toolsChanged`: a tool, a prompt or the instructions
 * of a server are not what was accepted (pins); `nameMoved`: a tool name that clients see leads to another tool than before.
 */
export type AlertKind =
  /** The server's table in the manifest is invalid: the server is not started, or keeps its previous settings. */
  | "manifestInvalid"
  | "connectionFailed"
  | "disconnected"
  | "authRequired"
  | "authExpired"
  | "toolsChanged"
  /** The scan has found text in what the server lists that has no place there. */
  | "suspiciousText"
  | "nameMoved"
  /** The token of a client of `[[clients]]` is refused, because of the client's table or of the token. */
  | "clientRefused"
  /** Patterns of `fleet.import` match more servers of other machines than are taken. */
  | "importLimit"
  /** 80 % of a quota are used, or all. */
  | "quota";

export interface Alert {
  /** Unique in this hub. An alert keeps its id when its text changes. */
  readonly id: string;
  readonly kind: AlertKind;
  /** The server concerned; absent if the alert is about a client, or about the hub. */
  readonly server?: string;
  /** The name in `[[clients]]` of the client concerned; absent if the alert is about a server, or about the hub. */
  readonly client?: string;
  /** The id of the connection concerned; absent: the whole server, or its only connection. */
  readonly connection?: string;
  /** One or more complete sentences for people; may have several lines. */
  readonly text: string;
  /** When the alert was raised with this text, in ms since the epoch. */
  readonly at: number;
  /** Set after the user has dismissed the alert, until its text changes. */
  readonly dismissed?: true;
  /** Set if the alert was raised again for what keeps happening, with another text. It is then not logged again. */
  readonly repeated?: true;
}

/** `seq`: the number of an event in its hub, ascending. `at`: when it was emitted, in ms since the epoch. */
export interface EventStamp {
  readonly seq: number;
  readonly at: number;
}

/** An event in a hub. Durations are in ms, times in ms since the epoch. */
export type HubEvent =
  /** The manifest or an operator added, changed or removed a server. */
  | { kind: "server"; server: string; change: "added" | "changed" | "removed" }
  | StateEvent
  /** A log line: of the hub itself, from a server's stderr, or a line on a server's stdout that is no message. */
  | {
      kind: "log";
      level: LogLevel;
      source: LogSource;
      server?: string;
      text: string;
      /** Set if the text is a note on how something that a server lists is shown to clients. */
      isNote?: true;
    }
  | CallEvent
  | CallsEvent
  /** The tools that clients see have changed. All names are exposed names; `altered`: same name, changed content. */
  | {
      kind: "catalog";
      added: readonly string[];
      removed: readonly string[];
      altered: readonly string[];
    }
  | { kind: "alert"; raised: boolean; alert: Alert }
  /** What a server lists and what was accepted of it differ in another way. `pending`: how many definitions differ. */
  | { kind: "pins"; server: string; pending: number }
  | ApprovalEvent
  | ClientEvent
  /**
   * The manifest was read again. `servers`: their number. `refused`: the hub keeps the previous manifest; `problems`:
   * as `toolmux check` prints them.
   */
  | ({ kind: "manifest"; outcome: "reloaded"; servers: number } & ChangedServers)
  | { kind: "manifest"; outcome: "refused"; problems: string }
  | ModeEvent
  | LimitEvent
  | FleetEvent;

/**
 * A call was refused because of a limit: the first one of this limit within a minute. `limit`: the rate, the quota, or the
 * number of calls that may wait; `of`: whose limit it is, of all calls (`hub`), of a client, of a server or of a rule in its
 * `tools.limits`.
 */
export interface LimitEvent {
  readonly kind: "limit";
  readonly limit: "rate" | "quota" | "queue";
  readonly of: "hub" | "client" | "server" | "tool";
  /** The client's name in the manifest, or its id; `anybody`: those over HTTP without a name. */
  readonly client?: string;
  readonly server?: string;
  /** The name or glob of the rule. */
  readonly tool?: string;
  /** The time until a call is allowed again, in ms. */
  readonly retryAfter: number;
  /** A full sentence for people. */
  readonly text: string;
}

/** Another machine has joined the fleet of this hub, or has left it. */
export interface FleetEvent {
  readonly kind: "fleet";
  readonly change: "joined" | "left";
  readonly machine: string;
  /** The servers that it exports. */
  readonly servers: readonly string[];
  /** Why it has left, as the end of a sentence about it. */
  readonly reason?: string;
}

/** The names of the servers that a reload has added, changed and removed. */
export interface ChangedServers {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

/**
 * The operator has chosen another mode, for one client (by its id, or its name in the manifest) or for all; or the
 * chosen mode no longer exists. `name`, `principal`: the names of that client, as in `ClientEvent`.
 */
export interface ModeEvent {
  readonly kind: "mode";
  readonly client?: string;
  readonly name?: string;
  readonly principal?: string;
  readonly from: string;
  readonly to: string;
}

/** A person's decision about a call: allow it once, for the client's session or from now on, or deny it. */
export type ApprovalDecision = "once" | "session" | "always" | "deny";

/**
 * Where a decision comes from: a person at a terminal, in the dashboard or at the calling client; `timeout`: nobody
 * decided in time, which counts as denied; `rule`: an earlier decision that was remembered.
 */
export type ApprovalSource = "terminal" | "dashboard" | "client" | "timeout" | "rule";

/** A source at which a person decides. */
export type PersonalSource = Exclude<ApprovalSource, "timeout" | "rule">;

/** The reasons why a decision that counts for later calls is not possible for a call. */
export type UnavailableDecisions = Readonly<Partial<Record<"session" | "always", string>>>;

/** A call that waits until a person allows it. Texts are redacted. */
export interface ApprovalPrompt {
  /** Unique in this hub. */
  readonly id: string;
  /** The number of the call. */
  readonly call: number;
  /** The id of the client that calls; undefined if several clients cannot be told apart. */
  readonly client: string | undefined;
  /** The client's name in the manifest, if it has its own token there. */
  readonly principal?: string;
  /** The name that the client has sent (`clientInfo.name`); "" if it has sent none. */
  readonly clientName: string;
  /** The agent of toolmux that makes the call; absent if the client makes it. */
  readonly agent?: string;
  readonly server: string;
  /** The tool's name at its server. */
  readonly tool: string;
  /** The tool's exposed name, which clients see. */
  readonly name: string;
  /** The arguments, for people: JSON of at most 2,000 characters; long values are cut, invisible characters escaped. */
  readonly argumentsShown: string;
  /** The reason why a person is asked: a full sentence. */
  readonly reason: string;
  /** The decisions that are possible. */
  readonly choices: readonly ApprovalDecision[];
  /** For decisions that are not possible: the reason, as full sentences. */
  readonly unavailable?: UnavailableDecisions;
  /** When the approval was asked for, in ms since the epoch. */
  readonly askedAt: number;
}

/**
 * A call waits for its approval (`asked`), a person or a rule has decided (`decided`), or the call has ended before a
 * decision (`withdrawn`). `remembered`: the decision also counts for later calls, or was remembered from an earlier
 * one.
 */
export type ApprovalEvent =
  | ({ readonly kind: "approval"; readonly change: "asked" } & ApprovalPrompt)
  | (ApprovedCall & {
      readonly kind: "approval";
      readonly change: "decided";
      readonly by: ApprovalSource;
      readonly decision: ApprovalDecision;
      readonly remembered: boolean;
    })
  | (ApprovedCall & { readonly kind: "approval"; readonly change: "withdrawn" });

/** The fields of a prompt that its later events (`decided`, `withdrawn`) have, too. */
export type ApprovedCall = Pick<
  ApprovalPrompt,
  "id" | "call" | "client" | "principal" | "clientName" | "agent" | "server" | "tool" | "name"
>;

/** A client has connected, has disconnected, or has sent its name and version. `client`: its id. */
export interface ClientEvent {
  readonly kind: "client";
  readonly client: string;
  readonly change: "joined" | "left" | "changed";
  /** The client's name in the manifest, if it has its own token there. */
  readonly principal?: string;
  readonly name?: string;
  readonly version?: string;
}

export interface StateEvent {
  readonly kind: "state";
  readonly server: string;
  /** The id of the client that the connection belongs to, unless the server is shared. */
  readonly client?: string;
  /** The key that tells the connections of one server apart (`ClientProfile.keys`); absent if it is empty. */
  readonly connection?: string;
  readonly from: StateName;
  readonly to: StateName;
  /** The error, if the new state is a failure. */
  readonly cause?: HubError;
  /** Set if a program is still missing that was looked for again. It is then not logged as an error again. */
  readonly isRepeated?: true;
  /** Number of the attempt to connect since the connection was last stable, from 1. */
  readonly attempt?: number;
  /** Time of the next attempt, in ms since the epoch. */
  readonly retryAt?: number;
  /**
   * How the server is reached, as its entry says, with secrets masked: its URL, its command without arguments, or its
   * plugin. Absent unless the server is connecting or connected.
   */
  readonly endpoint?: string;
  /** Number of tools that the server lists; absent unless the server is connected. */
  readonly tools?: number;
  /** Progress of an authorization; `url`: the page on which a person grants it. */
  readonly progress?: { readonly step: string; readonly url?: string };
}

export type CallEvent =
  | CallEventOf<{ kind: "callStarted" }>
  /**
   * Outcome `answered`: the server or a plugin answered. The member `failed` tells whether the answer is an error or a
   * result with `isError`; it is undefined if the hub did not check the answer. Outcome `failed`: the hub itself
   * answered with an error. Outcome `denied`: the call was not made, because no person allowed it.
   */
  | CallEventOf<
      CallEnded<{ kind: "callFinished"; outcome: "answered"; failed: boolean | undefined }>
    >
  | CallEventOf<
      CallEnded<{ kind: "callFinished"; outcome: "failed"; failed: true; cause: HubError }>
    >
  | CallEventOf<
      CallEnded<{ kind: "callFinished"; outcome: "denied"; failed: false; cause: HubError }>
    >
  | CallEventOf<CallEnded<{ kind: "callCancelled"; by: CancelledBy }>>;

/**
 * `call`: the call's number in this hub; `client`: the id of the client, undefined if several clients cannot be told
 * apart; `principal`: the client's name in the manifest, if it has its own token; `name`: the tool's name that clients
 * see; `tool`: the tool's name at its server; `startedAt`: in ms since the epoch; `parentCall`: for a call that a
 * plugin makes while it handles a client's call, the number of the client's call; `via`: the tool of the hub through
 * which the client has called the tool, such as `call_tool`.
 */
type CallEventOf<T> = T & {
  readonly call: number;
  readonly parentCall?: number;
  readonly via?: string;
  readonly client: string | undefined;
  readonly principal?: string;
  readonly server: string;
  readonly tool: string;
  readonly name: string;
  readonly startedAt: number;
};

type CallEnded<T> = T & { readonly duration: number };

/**
 * How many calls have ended since the last event of this kind, or since calls are no longer told one by one. Emitted only
 * if somebody asks for it (`CallLog.reportCalls`).
 */
export interface CallsEvent {
  readonly kind: "calls";
  /** The time that the numbers are about, in ms. */
  readonly duration: number;
  /** The calls that have ended. `failed`, `denied` and `cancelled` are among them. */
  readonly ended: number;
  readonly failed: number;
  readonly denied: number;
  readonly cancelled: number;
  /** The last of these calls, oldest first: at most 10. */
  readonly last: readonly (CallEventOf<unknown> & { readonly duration: number })[];
}

/** Numbers of calls that have ended since the hub's start. */
export type CallTotals = Readonly<Record<"ended" | "failed" | "denied" | "cancelled", number>>;

export type EventKind = HubEvent["kind"];

/** The kinds of events about calls. The hub emits them only while somebody listens to them. */
export const CALL_KINDS = [
  "callStarted",
  "callFinished",
  "callCancelled",
  "calls",
] as const satisfies readonly EventKind[];

/** The kinds of all other events. */
export const OTHER_KINDS = [
  "server",
  "state",
  "log",
  "catalog",
  "alert",
  "pins",
  "approval",
  "client",
  "manifest",
  "mode",
  "limit",
  "fleet",
] as const satisfies readonly Exclude<EventKind, (typeof CALL_KINDS)[number]>[];

export const EVENT_KINDS: readonly EventKind[] = [...OTHER_KINDS, ...CALL_KINDS];

/** @param detail `all`: listeners for notable events do not get this event */
export type EventListener = (event: HubEvent, stamp: EventStamp, detail: EventDetail) => void;

/** Which events of a kind a listener wants: `notable` leaves out calls that were answered without an error. */
export type EventDetail = "all" | "notable";

/** A listener and the kinds of events that it wants; undefined: all. */
interface Subscription {
  readonly listener: EventListener;
  readonly kinds: ReadonlySet<EventKind> | undefined;
  readonly detail: EventDetail;
  isActive: boolean;
  /** True after the listener has thrown. Only the first error is reported. */
  hasFailed: boolean;
}

/** An event on its way. `detail`: the listeners that get it; `all`: only those that want every event. */
interface Emitted {
  readonly event: HubEvent;
  readonly stamp: EventStamp;
  readonly detail: EventDetail;
}

/** A synchronous event bus. Listeners run in order of subscription; a listener that throws does not stop later ones. */
export class EventBus {
  readonly #subscriptions = new Set<Subscription>();
  /** A cache of the subscriptions of each kind; cleared when one is added or removed. */
  readonly #byKind = new Map<EventKind, readonly Subscription[]>();
  /** The queue of events that were emitted during `atomically` or during delivery; they are delivered afterwards. */
  readonly #queue: Emitted[] = [];
  #lastSeq = 0;
  #isDeferring = false;
  #changes = 0;

  /** The number of listeners added or removed so far. While it stays the same, so does `hasListeners`. */
  get changes(): number {
    return this.#changes;
  }

  /**
   * Whether the kind has a listener; without one, the caller need not build an event that is expensive to build.
   * @param detail `all`: whether one of them wants every event of the kind
   */
  hasListeners(kind: EventKind, detail: EventDetail = "notable"): boolean {
    const subscriptions = this.#subscriptionsTo(kind);
    return detail === "all" ? subscriptions.some(wantsAll) : subscriptions.length > 0;
  }

  /**
   * @param at the current time, in ms since the epoch
   * @param detail `all` for an event that only listeners get that want every event of its kind
   */
  emit(event: HubEvent, at = Date.now(), detail: EventDetail = "notable"): void {
    const stamp = this.#stamp(at);
    if (this.#isDeferring) {
      this.#queue.push({ event, stamp, detail });
      return;
    }
    this.#isDeferring = true;
    this.#callListeners(event, stamp, detail);
    this.#deliver();
  }

  /** The number of the last event that was emitted; 0 if there was none. */
  get lastSeq(): number {
    return this.#lastSeq;
  }

  /** Runs `work` and delivers its events afterwards, so that no listener runs in the middle of the work. */
  atomically<T>(work: () => T): T {
    if (this.#isDeferring) return work();
    this.#isDeferring = true;
    try {
      return work();
    } finally {
      this.#deliver();
    }
  }

  /**
   * Subscribes to events of these kinds, or to all.
   * @returns a function that unsubscribes; repeated calls do nothing
   */
  subscribe(
    listener: EventListener,
    kinds?: readonly EventKind[],
    detail: EventDetail = "all",
  ): () => void {
    const subscription: Subscription = {
      listener,
      detail,
      kinds: kinds && new Set(kinds),
      isActive: true,
      hasFailed: false,
    };
    this.#subscriptions.add(subscription);
    this.#changed();
    return () => {
      subscription.isActive = false;
      this.#subscriptions.delete(subscription);
      this.#changed();
    };
  }

  #changed(): void {
    this.#changes++;
    this.#byKind.clear();
  }

  #stamp(at: number): EventStamp {
    return { seq: ++this.#lastSeq, at };
  }

  /** Delivers the queued events, and ends the deferral: later events are delivered immediately. */
  #deliver(): void {
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift())
      this.#callListeners(next.event, next.stamp, next.detail);
    this.#isDeferring = false;
  }

  #callListeners(event: HubEvent, stamp: EventStamp, detail: EventDetail): void {
    for (const subscription of this.#subscriptionsTo(event.kind)) {
      if (detail === "all" && !wantsAll(subscription)) continue;
      // An earlier listener may have unsubscribed this one.
      if (subscription.isActive) this.#callListener(subscription, event, stamp, detail);
    }
  }

  #callListener(
    subscription: Subscription,
    event: HubEvent,
    stamp: EventStamp,
    detail: EventDetail,
  ): void {
    try {
      subscription.listener(event, stamp, detail);
    } catch (error) {
      if (subscription.hasFailed) return;
      subscription.hasFailed = true;
      const text = `A listener for events failed: ${toHubError(error).message}`;
      this.#queue.push({
        event: { kind: "log", level: "error", source: "hub", text },
        stamp: this.#stamp(Date.now()),
        detail: "notable",
      });
    }
  }

  #subscriptionsTo(kind: EventKind): readonly Subscription[] {
    const known = this.#byKind.get(kind);
    if (known !== undefined) return known;
    const subscriptions = [...this.#subscriptions].filter(
      ({ kinds }) => kinds === undefined || kinds.has(kind),
    );
    this.#byKind.set(kind, subscriptions);
    return subscriptions;
  }
}

/** An event as listeners get it. */
export type DeliveredEvent = Parameters<EventListener>;

/**
 * Keeps the last events of these kinds, until they are taken.
 * @param most the maximum number of events that are kept
 * @returns a function that ends this, and returns the events, the oldest first
 */
export function keepEvents(
  bus: EventBus,
  kinds: readonly EventKind[],
  most: number,
): () => readonly DeliveredEvent[] {
  const kept: DeliveredEvent[] = [];
  const unsubscribe = bus.subscribe((...event) => {
    kept.push(event);
    if (kept.length > most) kept.shift();
  }, kinds);
  return () => {
    unsubscribe();
    return kept.splice(0);
  };
}

function wantsAll({ detail }: Subscription): boolean {
  return detail === "all";
}
