import type { Chat } from "./chat.ts";
import type * as charts from "./charts.ts";
import type {
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
  LimitDocument,
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
  /** The limits of calls. */
  readonly limits: Loaded<readonly LimitDocument[]>;
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
  limits: LOADING,
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

/** The mode that hides nothing. */
export const FULL_MODE = "full";

export const LOG_LINES = 1000;
/**
 * Whether a log line is shown.
 * @param server the server whose log is shown; empty: the hub's own log; undefined: all
 */
export function isShown(line: LogEntryDocument, server: string | undefined): boolean {
  return server === undefined || (line.server ?? "") === server;
}

/** The servers in the order of the hub. Servers with trouble do not come first, so that no row moves. */
export function serversOf(state: Pick<DashboardState, "servers">): readonly ServerDocument[] {
  return state.servers.kind === "ready" ? [...state.servers.value.values()] : [];
}

/** The alerts that nobody has dismissed, oldest first. */
export function openAlerts({ alerts }: Pick<DashboardState, "alerts">): readonly AlertDocument[] {
  return alerts.filter(({ dismissed }) => dismissed !== true);
}
