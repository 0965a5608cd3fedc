import type { Chat } from "./chat.ts";
import type * as charts from "./charts.ts";
import type {
  AgentDocument,
  AlertDocument,
  ApprovalDocument,
  PinsDocument,
  RememberedApprovalDocument,
  CallDocument,
  CheckDocument,
  ClientAppDocument,
  ClientDocuments,
  Decision,
  EndedCall,
  FleetDocument,
  HubDocument,
  HubEntry,
  InstallationDocument,
  LimitDocument,
  MachineDocument,
  LogEntryDocument,
  ModesDocument,
  ConversationDocument,
  RunDocument,
  RegistryDocument,
  SecretsDocument,
  ServerDocument,
  ServerEntryDocument,
  SharingOffer,
  SnippetDocument,
  ToolDefinition,
  ServerFindingsDocument,
  ToolsDocument,
  TrialDocument,
  UsageDocument,
} from "./documents.ts";
import type { HubClients } from "./hub-names.ts";
import type { View } from "./views.ts";

/** Whether questions are shown as notifications of the desktop. `blocked`: the browser does not allow it. */
export type NotificationSetting = "on" | "off" | "blocked";

/** The windows of the usage, and the number of parts into which charts divide each. */
export const USAGE_POINTS = { "5m": 5, "15m": 15, "1h": 30, "24h": 24 } as const;

/** The number of parts of the hour that the overview shows. */
export const MINUTES = 60;

export type UsageWindow = keyof typeof USAGE_POINTS;

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
  "overview",
  "hubs",
  "servers",
  "calls",
  "approvals",
  "agents",
  "tools",
  "modes",
  "clients",
  "fleet",
  "logs",
  "usage",
  "add",
  "configure",
  "connect",
] as const;

export type ViewName = (typeof VIEWS)[number];

export const TITLES: Readonly<Record<ViewName, string>> = {
  overview: "Overview",
  hubs: "All hubs",
  servers: "Servers",
  calls: "Calls",
  approvals: "Approvals",
  agents: "Agents",
  tools: "Tools",
  modes: "Modes",
  clients: "Clients",
  fleet: "Fleet",
  logs: "Logs",
  usage: "Usage",
  add: "Add a server",
  configure: "Configure",
  connect: "Connect a client",
};

/** The view that the fragment of the URL names, and the item that the view shows, such as one server. */
export interface Route {
  readonly view: ViewName;
  readonly item: string | undefined;
}

export function parseRoute(fragment: string): Route {
  const [, name = "", item = ""] = /^#\/([a-z]*)(?:\/(.*))?$/s.exec(fragment) ?? [];
  const wanted = name === "activity" ? "calls" : name;
  const view = VIEWS.find((one) => one === wanted) ?? "overview";
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

/** The parts of the page of a server. */
export const SERVER_PARTS = ["overview", "tools", "logs", "calls", "config"] as const;

export type ServerPart = (typeof SERVER_PARTS)[number];

/** The route of a part of the page of a server. Names of servers have no slash. */
export function routeOfServer(name: string, part: ServerPart): string {
  return part === "overview" ? routeTo("servers", name) : `${routeTo("servers", name)}/${part}`;
}

/** The server whose page is shown, and the part of it. */
export function serverOf({
  view,
  item,
}: Route): { readonly name: string; readonly part: ServerPart } | undefined {
  if (view !== "servers" || item === undefined) return undefined;
  const at = item.lastIndexOf("/");
  const part = SERVER_PARTS.find((one) => one === item.slice(at + 1));
  return at < 0 || part === undefined
    ? { name: item, part: "overview" }
    : { name: item.slice(0, at), part };
}

/** The log that is shown: of a server, of the hub (empty), or of all (undefined); undefined: none is shown. */
export function logOf(route: Route): { readonly server: string | undefined } | undefined {
  const page = serverOf(route);
  if (page?.part === "logs") return { server: page.name };
  if (route.view !== "logs") return undefined;
  // `?words`: what a search looks for in all logs.
  if (route.item?.startsWith("?") === true) return { server: undefined };
  return { server: route.item === "toolmux:" ? "" : route.item };
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

/** A call of a tool that was made on this page. */
export interface ToolRun {
  /** By the clock of the hub, in ms since the epoch. */
  readonly startedAt: number;
  readonly isRunning: boolean;
  /** What was answered; undefined while the call runs. */
  readonly answer: string | undefined;
}

/** The name under which the page calls tools. */
export const PAGE_CLIENT = "toolmux dashboard";

/** How much the clocks of hub and page may differ, in ms, if the page does not correct the difference. */
export const CLOCK_ERROR = 3000;

/** The question about a call of this page that waits for an approval; undefined if the call does not wait for one. */
export function questionOfRun(
  { approvals, toolRuns }: Pick<DashboardState, "approvals" | "toolRuns">,
  name: string,
): ApprovalDocument | undefined {
  const run = toolRuns.get(name);
  if (run?.isRunning !== true) return undefined;
  const since = run.startedAt - CLOCK_ERROR;
  return valueOf(approvals)?.findLast(
    (one) => one.name === name && one.clientName === PAGE_CLIENT && one.askedAt >= since,
  );
}

/** The questions that are not shown where their calls were made. The oldest is first. */
export function questionsElsewhere(state: DashboardState): readonly ApprovalDocument[] {
  const { route, tool, chat } = state;
  const inForm = tool === undefined ? undefined : questionOfRun(state, tool.name);
  const run = runOf(route);
  const conversation = valueOf(state.runs)?.find(({ id }) => id === run && chat?.id === id);
  return (valueOf(state.approvals) ?? []).filter(
    ({ id, client, agent }) =>
      id !== inForm?.id &&
      !(agent !== undefined && client !== undefined && client === conversation?.client),
  );
}

/**
 * What is done with the file of a client. `replace`: its servers move into the manifest, and toolmux comes in their
 * place.
 */
export type InstallVerb = "install" | "replace" | "undo";

/** The questions of a hub. */
export interface HubQuestions {
  /** The id of the hub. */
  readonly id: string;
  readonly approvals: readonly ApprovalDocument[];
}

/** The questions of the hubs that are not shown, those that have some. */
export function questionsOfOthers({
  hubId,
  hubQuestions,
}: Pick<DashboardState, "hubId" | "hubQuestions">): readonly HubQuestions[] {
  return hubQuestions.filter(({ id, approvals }) => id !== hubId && approvals.length > 0);
}

/** The number of questions that wait in all hubs. */
export function countQuestions(
  state: Pick<DashboardState, "approvals" | "hubId" | "hubQuestions">,
): number {
  const own = valueOf(state.approvals)?.length ?? 0;
  return questionsOfOthers(state).reduce((sum, { approvals }) => sum + approvals.length, own);
}

/** What the view of all hubs shows of one hub. */
export interface HubOverview {
  readonly servers: readonly ServerDocument[];
  readonly alerts: readonly AlertDocument[];
  readonly clients: ClientDocuments;
  /** The problems of its manifest, if it goes on with the one before. */
  readonly rejected?: string | undefined;
  /** Number of calls that wait for an approval. */
  readonly approvals: number;
  /** Number of calls that run. */
  readonly calls: number;
}

/** All that the page shows. The documents are as the hub sent them; times are in ms since the epoch. */
export interface DashboardState {
  readonly route: Route;
  readonly connection: ConnectionState;
  /** The modules of the views that were opened. */
  readonly views: ReadonlyMap<ViewName, Loaded<View>>;
  readonly hubs: readonly HubEntry[];
  readonly hubId: string | undefined;
  /** The clients of each hub, by the hub's id; the names of hubs come from them. */
  readonly hubClients: HubClients;
  /** The questions of all hubs, if there are several. */
  readonly hubQuestions: readonly HubQuestions[];
  /** What the view of all hubs shows of each, by the hub's id. */
  readonly hubOverviews: ReadonlyMap<string, HubOverview>;
  /** What the dashboard knows without a hub. */
  readonly machine: Loaded<MachineDocument>;
  /** For each manifest that several hubs serve, the offer to share one hub. */
  readonly sharingOffers: readonly SharingOffer[];
  /** Whether the dashboard starts a hub. */
  readonly isStarting: boolean;
  /** Whether the search is open, and its module. */
  readonly isSearching: boolean;
  readonly searchModule: Loaded<View>;
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
  /** The hub as a member of its fleet. */
  readonly fleet: Loaded<FleetDocument>;
  readonly tools: Loaded<ToolsDocument>;
  /** What the scan has found in the definitions of servers. */
  readonly scanned: readonly ServerFindingsDocument[];
  readonly modes: Loaded<ModesDocument>;
  readonly approvals: Loaded<readonly ApprovalDocument[]>;
  /** What is not accepted of the server that is shown; undefined: it was not read. */
  readonly pins: PinsDocument | undefined;
  /** What was allowed before and counts for later calls. */
  readonly remembered: readonly RememberedApprovalDocument[];
  readonly agents: Loaded<readonly AgentDocument[]>;
  /** The conversations with agents that are open in the hub. */
  readonly runs: Loaded<readonly RunDocument[]>;
  /** The conversations that are kept, open or not. */
  readonly conversations: Loaded<readonly ConversationDocument[]>;
  /** The conversation that is shown. */
  readonly chat: Chat | undefined;
  readonly activity: Loaded<{ readonly since: number; readonly calls: readonly EndedCall[] }>;
  readonly usage: Loaded<UsageDocument>;
  /** The calls of each minute of the last hour. */
  readonly minutes: Loaded<UsageDocument>;
  /** What changed last in the hub, newest first: lines of its log. */
  readonly changes: readonly LogEntryDocument[];
  /** The limits of calls. */
  readonly limits: Loaded<readonly LimitDocument[]>;
  /** The code that draws charts. */
  readonly charts: Loaded<Charts>;
  readonly usageWindow: UsageWindow;
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
  /** The tool that is shown. */
  readonly tool: { readonly name: string; readonly definition: Loaded<ToolDefinition> } | undefined;
  /** The last call of each tool from this page, by the exposed name. It stays when the tool is not shown any more. */
  readonly toolRuns: ReadonlyMap<string, ToolRun>;
  /** The names of the tools that the hub has found for these words, the best first; undefined: none were searched. */
  readonly found: { readonly words: string; readonly names: readonly string[] } | undefined;
  /** The result of the last search in the directories; undefined before the first search. */
  readonly search: Loaded<RegistryDocument> | undefined;
  /** The outcome of starting a server once, to try it. */
  readonly trial: Loaded<TrialDocument> | undefined;
  /** The manifest's entry of the server that is edited. */
  readonly entry:
    { readonly name: string; readonly loaded: Loaded<ServerEntryDocument> } | undefined;
  /** The change of a client's file that is shown before it is written. */
  readonly preview:
    | {
        readonly app: string;
        readonly verb: InstallVerb;
        readonly loaded: Loaded<InstallationDocument>;
      }
    | undefined;
  /** The text to copy into the configuration file of a client. */
  readonly snippet:
    | {
        readonly app: string;
        readonly http: string | undefined;
        readonly loaded: Loaded<SnippetDocument>;
      }
    | undefined;
  readonly notices: readonly Notice[];
  readonly notifications: NotificationSetting;
}

export const INITIAL_STATE: DashboardState = {
  route: { view: "overview", item: undefined },
  connection: { kind: "opening" },
  views: new Map(),
  hubs: [],
  hubId: undefined,
  hubClients: new Map(),
  hubQuestions: [],
  hubOverviews: new Map(),
  machine: LOADING,
  sharingOffers: [],
  isStarting: false,
  isSearching: false,
  searchModule: LOADING,
  hub: undefined,
  now: 0,
  servers: LOADING,
  calls: new Map(),
  ended: [],
  decisions: [],
  alerts: [],
  clients: [],
  fleet: LOADING,
  tools: LOADING,
  modes: LOADING,
  approvals: LOADING,
  pins: undefined,
  remembered: [],
  scanned: [],
  agents: LOADING,
  runs: LOADING,
  conversations: LOADING,
  chat: undefined,
  activity: LOADING,
  usage: LOADING,
  minutes: LOADING,
  changes: [],
  limits: LOADING,
  charts: LOADING,
  usageWindow: "1h",
  secrets: LOADING,
  apps: LOADING,
  check: LOADING,
  refusal: undefined,
  log: { server: undefined, entries: LOADING },
  tool: undefined,
  toolRuns: new Map(),
  found: undefined,
  search: undefined,
  trial: undefined,
  entry: undefined,
  preview: undefined,
  snippet: undefined,
  notices: [],
  notifications: "off",
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

/** Whether a view has something to show of this hub, so that it is offered. */
export function isOffered(view: ViewName, { hubs, fleet }: DashboardState): boolean {
  if (view === "hubs") return hubs.length > 1;
  return view !== "fleet" || valueOf(fleet)?.isConfigured === true;
}
