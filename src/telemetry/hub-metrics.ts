import type { AlertKind, EventBus, HubEvent, StateEvent } from "../base/hub-events.ts";
import { VERSION } from "../base/version.ts";
import type { Attributes } from "./span.ts";
import { Counter, Durations, type LabelValues, type Metric, METRICS } from "./metrics.ts";

/** The numbers that a hub has at one time. */
export interface HubNumbers {
  /** The state of each server, by its name. */
  readonly serverStates: ReadonlyMap<string, string>;
  readonly clients: number;
  readonly activeCalls: number;
  readonly queueLength: number;
  /** The calls that were refused since the start of the hub, by the kind of the limit. */
  readonly refused: Readonly<Record<string, number>>;
}

export interface HubMetricsOptions {
  readonly bus: EventBus;
  /** All states that a server can have. */
  readonly serverStates: readonly string[];
  readonly numbers: () => HubNumbers;
  /** Returns the time, in ms since the epoch. */
  readonly wallNow: () => number;
  /** Returns a time that no setting of the clock changes, in ms: durations are measured by it. */
  readonly now: () => number;
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string;
  /** Called once, when somebody first wants metrics of calls: begins to count them. */
  readonly onWanted: (operations: OperationMetrics) => void;
}

/** What is counted of each request. */
export interface OperationMetrics {
  /** The requests of clients to the hub, and those of the hub to servers. */
  readonly server: Durations;
  readonly client: Durations;
}

type AlertEvent = Extract<HubEvent, { readonly kind: "alert" }>;

/** A session that has not ended. */
interface OpenSession {
  /** In ms of `HubMetricsOptions.now`. */
  readonly since: number;
  label: string;
}

/** The states that follow `connecting` when a server is started again. */
const RESTARTED_FROM: readonly StateEvent["from"][] = ["reconnecting", "failed", "stopping"];
/** Kinds of alerts whose counters appear before one is raised. */
const ALERT_KINDS = [
  "manifestInvalid",
  "connectionFailed",
  "disconnected",
  "authRequired",
  "authExpired",
  "toolsChanged",
  "nameMoved",
  "clientRefused",
  "importLimit",
  "quota",
] as const satisfies readonly AlertKind[];
/** Maximum number of open sessions whose start is known. */
const MAX_SESSIONS = 10_000;

/**
 * All metrics of a hub. Sessions, restarts and alerts are counted from its start, because they are rare events. Calls
 * are counted once somebody wants to know (`count`), because that costs each call a little.
 */
export class HubMetrics {
  /** When counting began, in ms since the epoch. */
  readonly startedAt: number;
  /** What tells the hub apart from others. */
  resource: Readonly<Attributes> = { "service.name": "toolmux", "service.version": VERSION };
  readonly #options: HubMetricsOptions;
  /** Undefined while calls are not counted. */
  #operations: OperationMetrics | undefined;
  readonly #serverSessions: Durations;
  readonly #clientSessions: Durations;
  readonly #restarts: Counter;
  readonly #alerts: Counter;
  readonly #openClients = new Map<string, OpenSession>();
  readonly #openServers = new Map<string, OpenSession>();
  /** The ids of the alerts that last. */
  readonly #raised = new Set<string>();

  constructor(options: HubMetricsOptions) {
    const { bus, redact } = options;
    this.#options = options;
    this.startedAt = options.wallNow();
    this.#serverSessions = new Durations(METRICS.serverSessions, redact);
    this.#clientSessions = new Durations(METRICS.clientSessions, redact);
    this.#restarts = new Counter(METRICS.restarts, redact);
    this.#alerts = new Counter(METRICS.alerts, redact);
    bus.subscribe((event) => this.#onEvent(event, options.now()), ["state", "client", "alert"]);
  }

  /** Begins to count calls, if it has not begun. */
  count(): OperationMetrics {
    if (this.#operations !== undefined) return this.#operations;
    const { redact, onWanted } = this.#options;
    this.#operations = {
      server: new Durations(METRICS.serverOperations, redact),
      client: new Durations(METRICS.clientOperations, redact),
    };
    onWanted(this.#operations);
    return this.#operations;
  }

  /** Counts one of the hub's own requests to a server, if calls are counted. */
  observeOwn(server: string, method: string, errorType: string, ms: number): void {
    this.#operations?.client.observeOperation(method, "", server, "", errorType, ms);
  }

  /** All metrics with their values at present. */
  read(): readonly Metric[] {
    const { server, client } = this.count();
    const { serverStates, clients, activeCalls, queueLength, refused } = this.#options.numbers();
    // What appears with a value would have no increase in Prometheus: it begins with 0.
    for (const name of serverStates.keys()) {
      this.#restarts.add([name], 0);
      this.#clientSessions.declare([name, ""]);
    }
    for (const kind of ALERT_KINDS) this.#alerts.add([kind], 0);
    const inState = (state: string): number =>
      [...serverStates.values()].filter((other) => other === state).length;
    const number = (
      value: number,
      labels: LabelValues = [],
    ): { labels: LabelValues; value: number } => ({
      labels,
      value,
    });
    return [
      server.metric,
      client.metric,
      this.#serverSessions.metric,
      this.#clientSessions.metric,
      {
        declaration: METRICS.servers,
        numbers: this.#options.serverStates.map((state) => number(inState(state), [state])),
      },
      { declaration: METRICS.clients, numbers: [number(clients)] },
      { declaration: METRICS.activeCalls, numbers: [number(activeCalls)] },
      { declaration: METRICS.queueLength, numbers: [number(queueLength)] },
      this.#restarts.metric,
      {
        declaration: METRICS.refused,
        numbers: Object.entries(refused).map(([limit, value]) => number(value, [limit])),
      },
      this.#alerts.metric,
    ];
  }

  #onEvent(event: HubEvent, at: number): void {
    switch (event.kind) {
      case "state":
        this.#onState(event, at);
        return;
      case "client": {
        const { client, change, principal, name } = event;
        const open = this.#openClients.get(client);
        if (change === "joined") {
          begin(this.#openClients, client, { since: at, label: principal ?? "" });
        } else if (open !== undefined && change === "changed") {
          open.label = principal ?? name ?? "";
        } else if (open !== undefined) {
          this.#openClients.delete(client);
          this.#serverSessions.observe([open.label], at - open.since);
        }
        return;
      }
      case "alert":
        this.#onAlert(event);
        return;
      default:
    }
  }

  /** An alert whose text changes is not counted again. */
  #onAlert({ raised, alert: { id, kind } }: AlertEvent): void {
    if (!raised) this.#raised.delete(id);
    else if (!this.#raised.has(id)) {
      this.#raised.add(id);
      this.#alerts.add([kind]);
    }
  }

  #onState(event: StateEvent, at: number): void {
    const { server, from, to, cause } = event;
    if (to === "connecting" && RESTARTED_FROM.includes(from)) this.#restarts.add([server]);
    const key = JSON.stringify([server, event.client, event.connection]);
    const open = this.#openServers.get(key);
    if (to === "connected") {
      if (open === undefined) begin(this.#openServers, key, { since: at, label: server });
      // A session stays open while its authorization is renewed.
    } else if (open !== undefined && to !== "authenticating") {
      this.#openServers.delete(key);
      this.#clientSessions.observe([server, cause?.code ?? ""], at - open.since);
    }
  }
}

/** Remembers when a session began. */
function begin(sessions: Map<string, OpenSession>, key: string, session: OpenSession): void {
  if (sessions.size < MAX_SESSIONS) sessions.set(key, session);
}
