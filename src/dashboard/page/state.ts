import type { Chat } from "./chat.ts";
import type * as charts from "./charts.ts";
import type {
  ServerState,
  UpstreamState,
  AgentDocument,
  AlertDocument,
  ApprovalDocument,
  RememberedApprovalDocument,
  CallDocument,
  CheckDocument,
  ClientAppDocument,
  ClientDocuments,
  Decision,
  EndedCall,
  HubDocument,
  HubEntry,
  HubEvent,
  LogEntryDocument,
  ModesDocument,
  RunDocument,
  RegistryDocument,
  SecretsDocument,
  ServerDocument,
  SnippetDocument,
  ToolDefinition,
  ToolsDocument,
  TrialDocument,
  UsageDocument,
} from "./documents.ts";

/** The module that draws charts. */
export type Charts = typeof charts;

/** Data that was requested from a hub. `absent`: the hub has no such endpoint, because it is older than the page. */
export type Loaded<T> =
  | { readonly kind: "loading" }
  | { readonly kind: "absent" }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "ready"; readonly value: T };

export const LOADING = { kind: "loading" } as const;

export function valueOf<T>(loaded: Loaded<T>): T | undefined {
  return loaded.kind === "ready" ? loaded.value : undefined;
}

/** The state of the page's connection to the hub. `live`: the page shows what the hub does now. */
export type ConnectionState =
  | { readonly kind: "opening" }
  | { readonly kind: "live" }
  /** No hub runs. */
  | { readonly kind: "none" }
  | { readonly kind: "lost"; readonly text: string }
  /** The page has no access, or has lost it. */
  | { readonly kind: "denied"; readonly text: string };

export const VIEWS = [
  "servers",
  "calls",
  "approvals",
  "agents",
  "tools",
  "modes",
  "clients",
  "logs",
  "activity",
  "usage",
  "add",
  "configure",
  "connect",
] as const;

export type ViewName = (typeof VIEWS)[number];

/** The view that the fragment of the URL names, and the item that the view shows, such as one server. */
export interface Route {
  readonly view: ViewName;
  readonly item: string | undefined;
}

export function parseRoute(fragment: string): Route {
  const [, name = "", item = ""] = /^#\/([a-z]*)(?:\/(.*))?$/s.exec(fragment) ?? [];
  const view = VIEWS.find((one) => one === name) ?? "servers";
  let text: string | undefined;
  try {
    text = item === "" ? undefined : decodeURIComponent(item);
  } catch {
    text = undefined;
  }
  return { view, item: text };
}

export function routeTo(view: ViewName, item?: string): string {
  return item === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(item)}`;
}

/**
 * The route of a conversation with an agent. Its colon tells it apart from the route of an agent, whose name has none.
 */
export function routeOfRun(id: string): string {
  return routeTo("agents", `run:${id}`);
}

/** The id of the conversation that a route names. */
export function runOf({ view, item = "" }: Route): string | undefined {
  return view === "agents" && item.startsWith("run:") ? item.slice("run:".length) : undefined;
}

export interface Notice {
  readonly id: number;
  readonly isError: boolean;
  readonly text: string;
}

/** All that the page shows. The documents are as the hub sent them; times are in ms since the epoch. */
export interface DashboardState {
  readonly route: Route;
  readonly connection: ConnectionState;
  readonly hubs: readonly HubEntry[];
  readonly hubId: string | undefined;
  readonly hub: HubDocument | undefined;
  /** The time by the hub's clock; it ticks each second. */
  readonly now: number;
  readonly servers: Loaded<ReadonlyMap<string, ServerDocument>>;
  readonly calls: ReadonlyMap<number, CallDocument>;
  /** The last calls that have ended, newest first. */
  readonly ended: readonly EndedCall[];
  readonly decisions: readonly Decision[];
  readonly alerts: readonly AlertDocument[];
  readonly clients: ClientDocuments;
  readonly tools: Loaded<ToolsDocument>;
  readonly modes: Loaded<ModesDocument>;
  readonly approvals: Loaded<readonly ApprovalDocument[]>;
  /** What was allowed before and counts for later calls. */
  readonly remembered: readonly RememberedApprovalDocument[];
  readonly agents: Loaded<readonly AgentDocument[]>;
  /** The conversations with agents that are open in the hub. */
  readonly runs: Loaded<readonly RunDocument[]>;
  /** The conversation that is shown. */
  readonly chat: Chat | undefined;
  readonly activity: Loaded<{ readonly since: number; readonly calls: readonly EndedCall[] }>;
  readonly usage: Loaded<UsageDocument>;
  /** The code that draws charts. */
  readonly charts: Loaded<Charts>;
  readonly usageWindow: "1h" | "24h";
  readonly secrets: Loaded<SecretsDocument>;
  readonly apps: Loaded<readonly ClientAppDocument[]>;
  readonly check: Loaded<CheckDocument>;
  /** Why the hub refused the last change of the manifest. */
  readonly refusal: string | undefined;
  /** The last 1,000 lines of a log: of one server, or of all servers and the hub. */
  readonly log: {
    readonly server: string | undefined;
    readonly entries: Loaded<readonly LogEntryDocument[]>;
  };
  /** The tool that is shown, and the answer to the last call of it from this page. */
  readonly tool:
    | {
        readonly name: string;
        readonly definition: Loaded<ToolDefinition>;
        readonly run: { readonly isRunning: boolean; readonly answer: string | undefined };
      }
    | undefined;
  /** The names of the tools that the hub has found for these words, the best first; undefined: none were searched. */
  readonly found: { readonly words: string; readonly names: readonly string[] } | undefined;
  /** The result of the last search in the directories; undefined before the first search. */
  readonly search: Loaded<RegistryDocument> | undefined;
  /** The outcome of starting a server once, to try it. */
  readonly trial: Loaded<TrialDocument> | undefined;
  /** The manifest's entry of the server that is edited. */
  readonly entry: { readonly name: string; readonly loaded: Loaded<unknown> } | undefined;
  /** The text to copy into the configuration file of a client. */
  readonly snippet:
    | {
        readonly app: string;
        readonly http: string | undefined;
        readonly loaded: Loaded<SnippetDocument>;
      }
    | undefined;
  readonly notices: readonly Notice[];
}

export const INITIAL_STATE: DashboardState = {
  route: { view: "servers", item: undefined },
  connection: { kind: "opening" },
  hubs: [],
  hubId: undefined,
  hub: undefined,
  now: 0,
  servers: LOADING,
  calls: new Map(),
  ended: [],
  decisions: [],
  alerts: [],
  clients: [],
  tools: LOADING,
  modes: LOADING,
  approvals: LOADING,
  remembered: [],
  agents: LOADING,
  runs: LOADING,
  chat: undefined,
  activity: LOADING,
  usage: LOADING,
  charts: LOADING,
  usageWindow: "1h",
  secrets: LOADING,
  apps: LOADING,
  check: LOADING,
  refusal: undefined,
  log: { server: undefined, entries: LOADING },
  tool: undefined,
  found: undefined,
  search: undefined,
  trial: undefined,
  entry: undefined,
  snippet: undefined,
  notices: [],
};

/** The data that must be read again: a part of the state, or one server. */
export type Stale =
  | "hub"
  | "servers"
  | "clients"
  | "tools"
  | "modes"
  | "approvals"
  | "activity"
  | "calls"
  | "everything"
  | `server:${string}`;

/** The mode that hides nothing. */
export const FULL_MODE = "full";

export const LOG_LINES = 1000;
const ENDED_CALLS = 200;

/**
 * Applies events to the state. Also returns the data that must be read again. A part that no event changes stays the
 * same object.
 * @param events in the order of their numbers
 */
export function applyEvents(
  state: DashboardState,
  events: readonly HubEvent[],
): { readonly state: DashboardState; readonly stale: ReadonlySet<Stale> } {
  const stale = new Set<Stale>();
  let servers: Map<string, ServerDocument> | undefined;
  let calls: Map<number, CallDocument> | undefined;
  let { alerts, refusal } = state;
  const ended: EndedCall[] = [];
  const decisions: Decision[] = [];
  const lines: LogEntryDocument[] = [];

  const changeServer = (name: string, change: (server: ServerDocument) => object): void => {
    if (state.servers.kind !== "ready") return;
    const server = (servers ?? state.servers.value).get(name);
    if (server === undefined) return;
    servers ??= new Map(state.servers.value);
    servers.set(name, { ...server, ...change(server) });
  };

  for (const event of events) {
    const line = lineOf(event);
    if (line !== undefined && isShown(line, state.log.server)) lines.push(line);
    switch (event.kind) {
      case "gap":
        stale.add("everything");
        break;
      case "log":
        break;
      case "server":
        if (event.change !== "removed") stale.add("servers");
        else if (state.servers.kind === "ready") {
          servers ??= new Map(state.servers.value);
          servers.delete(event.server);
        }
        break;
      case "state": {
        const { server: name, to, attempt, retryAt, progress, cause } = event;
        stale.add(`server:${name}`);
        changeServer(name, (server) =>
          server.connections.length > 1
            ? {}
            : {
                state: stateAfter(to, cause !== undefined),
                since: event.at,
                attempt,
                retryAt,
                progress,
                lastError: cause ?? server.lastError,
              },
        );
        break;
      }
      case "callStarted": {
        const client = state.clients.find(({ id }) => id === event.client);
        calls ??= new Map(state.calls);
        calls.set(event.call, {
          ...event,
          clientName: client?.name ?? "",
          clientVersion: client?.version ?? "",
          kind: "tools",
          duration: 0,
          waitingFor: "server",
        });
        changeServer(event.server, ({ inFlight, calls: total }) => ({
          inFlight: inFlight + 1,
          calls: total + 1,
          lastTool: event.tool,
        }));
        break;
      }
      case "callFinished":
      case "callCancelled": {
        const running = (calls ?? state.calls).get(event.call);
        calls ??= new Map(state.calls);
        calls.delete(event.call);
        ended.push(endedCall(event, running));
        changeServer(event.server, ({ inFlight }) => ({ inFlight: Math.max(0, inFlight - 1) }));
        stale.add("activity");
        break;
      }
      // Calls are counted: what runs, and the numbers of each server, are not in the events.
      case "calls":
        for (const call of event.last)
          ended.push(endedCall({ ...call, kind: "callFinished", outcome: "answered" }, undefined));
        stale.add("calls").add("servers").add("activity");
        break;
      case "catalog":
        stale.add("tools").add("servers").add("modes");
        break;
      case "alert": {
        const others = alerts.filter(({ id }) => id !== event.alert.id);
        alerts = event.raised ? [...others, event.alert] : others;
        break;
      }
      case "client":
        stale.add("clients").add("modes");
        break;
      case "manifest":
        refusal = event.outcome === "refused" ? event.problems : undefined;
        stale.add("hub").add("servers").add("modes");
        break;
      case "mode":
        stale.add("modes").add("tools").add("clients").add("hub");
        break;
      case "approval":
        stale.add("approvals");
        if (event.change === "decided") {
          const { at, server, tool, name, client, decision, by } = event;
          decisions.push({ at, server, tool, name, client, decision, by });
        }
        break;
    }
  }

  const { log } = state;
  return {
    stale,
    state: {
      ...state,
      alerts,
      refusal,
      ...(servers && { servers: { kind: "ready", value: servers } }),
      ...(calls && { calls }),
      ...(ended.length > 0 && {
        ended: [...ended.toReversed(), ...state.ended].slice(0, ENDED_CALLS),
      }),
      ...(decisions.length > 0 && {
        decisions: [...decisions.toReversed(), ...state.decisions].slice(0, ENDED_CALLS),
      }),
      ...(lines.length > 0 &&
        log.entries.kind === "ready" && {
          log: { ...log, entries: { kind: "ready", value: addLines(log.entries.value, lines) } },
        }),
    },
  };
}

/** The log line of an event; undefined if it has no text. */
function lineOf(event: HubEvent): LogEntryDocument | undefined {
  const { seq, at, level, text } = event;
  if (level === undefined || text === undefined) return undefined;
  const server = "server" in event ? event.server : undefined;
  const source = event.kind === "log" ? event.source : "hub";
  return { seq, at, level, text, source, ...(server !== undefined && { server }) };
}

/**
 * Whether a log line is shown.
 * @param server the server whose log is shown; empty: the hub's own log; undefined: all
 */
export function isShown(line: LogEntryDocument, server: string | undefined): boolean {
  return server === undefined || (line.server ?? "") === server;
}

/** The events of the end of a call, without number and time. */
type CallEnd =
  | Omit<Extract<HubEvent, { readonly kind: "callFinished" }>, "seq" | "at">
  | Omit<Extract<HubEvent, { readonly kind: "callCancelled" }>, "seq" | "at">;

function endedCall(event: CallEnd, running: CallDocument | undefined): EndedCall {
  const { call, parentCall, client, server, tool, name, startedAt, duration } = event;
  const isFinished = event.kind === "callFinished";
  return {
    call,
    ...(parentCall !== undefined && { parentCall }),
    ...(client !== undefined && { client }),
    clientName: running?.clientName ?? "",
    server,
    tool,
    name,
    startedAt,
    duration,
    outcome: isFinished ? event.outcome : "cancelled",
    ...(isFinished && event.cause && { code: event.cause.code }),
    ...(isFinished && event.failed !== undefined && { isError: event.failed }),
    ...(!isFinished && { by: event.by }),
  };
}

/** Adds lines that are newer than the last one, and keeps the last 1,000. */
function addLines(
  entries: readonly LogEntryDocument[],
  lines: readonly LogEntryDocument[],
): readonly LogEntryDocument[] {
  const last = entries.at(-1)?.seq ?? 0;
  const newer = lines.filter(({ seq }) => seq > last);
  return [...entries, ...newer].slice(-LOG_LINES);
}

/** The servers in the order of the hub. Servers with trouble do not come first, so that no row moves. */
export function serversOf(state: Pick<DashboardState, "servers">): readonly ServerDocument[] {
  return state.servers.kind === "ready" ? [...state.servers.value.values()] : [];
}

/** The alerts that nobody has dismissed, oldest first. */
export function openAlerts({ alerts }: Pick<DashboardState, "alerts">): readonly AlertDocument[] {
  return alerts.filter(({ dismissed }) => dismissed !== true);
}

/** The state of a server after an event of its only connection, until the page has read the server again. */
function stateAfter(to: UpstreamState, hasFailed: boolean): ServerState {
  if (to === "disconnected") return "stopped";
  return to === "idle" && hasFailed ? "failed" : to;
}
