import { type HubError, toHubError } from "./errors.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogSource = "hub" | "stderr" | "stdout" | "server";

/** The names of the states that a connection can be in; what they mean is in upstream/state.ts. */
export type StateName =
  | "idle"
  | "connecting"
  | "authenticating"
  | "connected"
  | "reconnecting"
  | "stopping"
  | "failed"
  | "disconnected";

/** Who ended a call before it was answered; `shutdown`: its server or the hub was being stopped. */
export type CancelledBy = "client" | "deadline" | "disconnect" | "shutdown" | "operator";

/**
 * What a person should know of as long as it lasts. `toolsChanged`: a tool is described otherwise than when it was
 * first seen; `nameMoved`: an exposed name belongs to another tool than before.
 */
export type AlertKind =
  /** The server's table in the manifest has a problem: it is not started, or goes on as it was. */
  | "manifestInvalid"
  | "connectionFailed"
  | "disconnected"
  | "authRequired"
  | "authExpired"
  | "toolsChanged"
  | "nameMoved";

export interface Alert {
  readonly kind: AlertKind;
  readonly server: string;
  /** One whole sentence or more, for people; may have several lines. */
  readonly text: string;
}

/** What happens in a hub, as data. Times are in ms; those of day are counted from the epoch. */
export type HubEvent =
  /** The manifest, or somebody at work, added a server, gave it another specification, or removed it. */
  | { kind: "server"; server: string; change: "added" | "changed" | "removed" }
  | StateEvent
  /** A line for people: from the hub itself, or from a server's stderr or stray stdout. */
  | { kind: "log"; level: LogLevel; source: LogSource; server?: string; text: string }
  | CallEvent
  /** The list that clients see is another, by exposed names; `altered`: same name, other content. */
  | {
      kind: "catalog";
      added: readonly string[];
      removed: readonly string[];
      altered: readonly string[];
    }
  | { kind: "alert"; raised: boolean; alert: Alert }
  /** The manifest's files were read again. `refused`: the hub goes on with the old one; `problems` are as `check` shows them. */
  | { kind: "manifest"; outcome: "reloaded"; servers: number }
  | { kind: "manifest"; outcome: "refused"; problems: string };

/** A connection moved. */
export interface StateEvent {
  readonly kind: "state";
  readonly server: string;
  /** Whose connection it is, if the server is not shared. */
  readonly client?: string;
  /** Which of the server's connections it is: the key of the clients that it is for; absent if that is the empty one. */
  readonly connection?: string;
  readonly from: StateName;
  readonly to: StateName;
  /** Why, when the move is a failure. */
  readonly cause?: HubError;
  /** Which attempt of the present series this is, from 1. */
  readonly attempt?: number;
  /** When the next attempt is due, in ms since the epoch. */
  readonly retryAt?: number;
  /** How far an authorization has come; `url`: the page where a person gives it. */
  readonly progress?: { readonly step: string; readonly url?: string };
}

/** `call` is the call's number in this hub; `name` the exposed and `tool` the server's own name of the tool. */
export type CallEvent =
  | { kind: "callStarted"; call: number; server: string; tool: string; name: string }
  /** `failed`: the hub had to answer in the server's place. Whether an answer reports an error of the tool is not looked at. */
  | CallEnd<{ kind: "callFinished"; outcome: "answered" }>
  | CallEnd<{ kind: "callFinished"; outcome: "failed"; cause: HubError }>
  | CallEnd<{ kind: "callCancelled"; by: CancelledBy }>;

type CallEnd<T> = T & { call: number; server: string; tool: string; duration: number };

export type EventKind = HubEvent["kind"];

export type Listener = (event: HubEvent) => void;

/** A synchronous bus: listeners run in order of subscription, and one that throws does not stop the others. */
export class Bus {
  readonly #listeners = new Map<Listener, ReadonlySet<EventKind> | "all">();
  /** What some listener wants. */
  #wanted: ReadonlySet<EventKind> | "all" = new Set();
  /** Events that were emitted while something whole was done, or another was being delivered: they come after that. */
  readonly #queue: HubEvent[] = [];
  #isBusy = false;
  /** Those that have thrown: it is told of each once. */
  readonly #faulty = new WeakSet<Listener>();

  /** Whether anybody listens for events of that kind; costly ones are built only then. */
  wants(kind: EventKind): boolean {
    return this.#wanted === "all" || this.#wanted.has(kind);
  }

  emit(event: HubEvent): void {
    this.#queue.push(event);
    if (!this.#isBusy) this.#deliver();
  }

  /** Does something as a whole: listeners hear of it when it is done, so that none of them sees it half done, or meddles. */
  whole<T>(work: () => T): T {
    if (this.#isBusy) return work();
    this.#isBusy = true;
    try {
      return work();
    } finally {
      this.#deliver();
    }
  }

  /**
   * Listens to events of these kinds, or to all.
   * @returns the undo; calling it twice is harmless.
   */
  subscribe(listener: Listener, kinds?: readonly EventKind[]): () => void {
    // One function may be subscribed twice: each time it is another listener.
    const own: Listener = (event) => listener(event);
    this.#listeners.set(own, kinds === undefined ? "all" : new Set(kinds));
    this.#count();
    return () => {
      this.#listeners.delete(own);
      this.#count();
    };
  }

  #deliver(): void {
    this.#isBusy = true;
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      for (const [listener, kinds] of this.#listeners) {
        if (kinds === "all" || kinds.has(next.kind)) this.#tell(listener, next);
      }
    }
    this.#isBusy = false;
  }

  #tell(listener: Listener, event: HubEvent): void {
    try {
      listener(event);
    } catch (error) {
      if (this.#faulty.has(listener)) return;
      this.#faulty.add(listener);
      const text = `A listener for events failed: ${toHubError(error).message}`;
      this.#queue.push({ kind: "log", level: "error", source: "hub", text });
    }
  }

  #count(): void {
    const all = [...this.#listeners.values()];
    this.#wanted = all.includes("all")
      ? "all"
      : new Set(all.flatMap((kinds) => (kinds === "all" ? [] : [...kinds])));
  }
}
