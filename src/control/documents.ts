import { textOf } from "../base/bytes.ts";
import { HubError, usageError } from "../base/errors.ts";
import { JsonObject } from "../base/json.ts";
import type { Catalog } from "../catalog/catalog.ts";
import { idlePartsOf } from "../catalog/filter.ts";
import { estimateTokens, firstSentence, signatureOf } from "../catalog/search/signature.ts";
import type { SearchResult } from "../catalog/search/tool-index.ts";
import type { Section } from "../catalog/section.ts";
import { ARGUMENT_LIMITS } from "../catalog/search/hub-tools.ts";
import { type Kind, KINDS } from "../catalog/listing.ts";
import type { Hub } from "../hub/hub.ts";
import {
  isRunnable,
  presentationOf,
  type RunnableServer,
  type ServerPresentation,
  type ServerSpec,
} from "../manifest/manifest.ts";
import type { ModeSpec } from "../manifest/modes.ts";
import { formatProblem } from "../manifest/problems.ts";
import type { ProcessStats } from "../process/child-process.ts";
import {
  bestConnectionOf,
  type ConnectionStatus,
  type ServerStatus,
  summariesOf,
  summaryStateOf,
} from "../upstream/status.ts";
import { countServers, verdictOf } from "../upstream/verdict.ts";
import type { WithUndefined } from "../operations/documents.ts";
import type {
  CatalogDocument,
  ConnectionDocument,
  FoundToolsDocument,
  HubDocument,
  ModeDocument,
  ModesDocument,
  ServerDocument,
  ToolsDocument,
} from "./schemas.ts";
import { describeSeparation, describeState } from "./state-text.ts";

/** @param processes statistics of its processes, if there are any */
function connectionDocument(
  status: ConnectionStatus,
  processes: ProcessStats | undefined,
): ConnectionDocument {
  const { peer, startDuration } = status;
  const error = status.cause ?? status.lastError;
  return withoutUndefined({
    id: status.id,
    client: status.client,
    clients: status.clients,
    canAsk: status.canAsk,
    separation: status.separation && {
      ...status.separation,
      text: describeSeparation(status.separation),
    },
    state: status.state,
    since: status.since,
    attempt: status.attempt,
    retryAt: status.retryAt,
    progress: status.progress,
    transport: status.httpTransport,
    era: peer?.era,
    protocolVersion: peer?.protocolVersion,
    implementation: peer && withoutUndefined({ name: peer.name, version: peer.version }),
    tools: status.tools,
    prompts: status.prompts,
    resources: status.resources,
    startDuration: startDuration && Math.round(startDuration),
    calls: status.calls,
    inFlight: status.inFlight,
    lastTool: status.lastTool,
    lastError: error && failureOf(error, status.lastErrorAt),
    failing: status.failing && {
      since: status.failing.since,
      attempts: status.failing.attempts,
      same: status.failing.isSame,
    },
    pid: processes?.pid,
    memory: processes?.memory,
    unavailable: status.cause && (true as const),
    responsive: status.responsive === false ? (false as const) : undefined,
    late: status.late && Math.round(status.late),
    listedAt: status.listedAt,
    strayOutput: status.strayOutput && withoutUndefined(status.strayOutput),
    capabilityFaults: status.capabilityFaults,
  });
}

export interface ServerFacts {
  /** The server's title, description and icon for people. */
  readonly presentation: ServerPresentation;
  /** The server's command line or URL, with secrets masked. */
  readonly endpoint: string | undefined;
  readonly maxAttempts: number | undefined;
  /** Number of the server's tools that clients see. */
  readonly shown: number;
  /** The size of the definitions of those tools, in tokens. */
  readonly tokens: number;
  /** The number of its definitions that are not accepted. */
  readonly pending: number;
  /** Statistics of the server's processes, by connection id. */
  readonly processes: ReadonlyMap<string, ProcessStats>;
  /** Advice for the user on the server's error, in full sentences. */
  readonly remedies: readonly string[];
}

/** @param now in ms since the epoch */
export function serverDocument(
  status: ServerStatus,
  { presentation, endpoint, maxAttempts, shown, tokens, pending, processes, remedies }: ServerFacts,
  now: number,
): ServerDocument {
  const best = bestConnectionOf(status.connections);
  const none: Omit<ConnectionDocument, "since" | "state"> = { id: "", calls: 0, inFlight: 0 };
  const documents = status.connections.map((connection) =>
    connectionDocument(connection, processes.get(connection.id)),
  );
  const summarized: typeof none & Partial<ConnectionDocument> =
    documents.find(({ id }) => id === best?.id) ?? none;
  const {
    id: _,
    client: __,
    clients: ___,
    canAsk: ____,
    separation: _____,
    ...others
  } = summarized;
  const summary = { ...others, state: summaryStateOf(status) };
  const memory = [...processes.values()].reduce((total, stats) => total + stats.memory, 0);
  const sum = (of: (connection: ConnectionStatus) => number): number =>
    status.connections.reduce((total, connection) => total + of(connection), 0);
  return withoutUndefined({
    ...summary,
    name: status.server,
    title: presentation.title,
    description: presentation.description,
    icon: presentation.icon,
    origin: status.origin,
    transport: best?.httpTransport ?? status.transport,
    endpoint,
    goal: status.goal,
    statusText: describeState(summary, now),
    maxAttempts: maxAttempts === 0 ? undefined : maxAttempts,
    shown,
    tokens,
    calls: sum(({ calls }) => calls),
    inFlight: sum(({ inFlight }) => inFlight),
    memory: processes.size === 0 ? undefined : memory,
    pending: pending === 0 ? undefined : pending,
    remedies: remedies.length > 0 ? remedies : undefined,
    connections: documents,
  });
}

function failureOf(
  { code, message, step, stderr }: HubError,
  at: number | undefined,
): ConnectionDocument["lastError"] {
  return {
    code,
    message,
    ...(at !== undefined && { at }),
    ...(step !== undefined && { step }),
    ...(stderr.length > 0 && { stderr }),
  };
}

/** Why a server is not connected; undefined if it is connected or can be called, or if nothing has failed. */
function causeOf({ connections }: ServerStatus): HubError | undefined {
  const best = bestConnectionOf(connections);
  if (best === undefined || best.state === "connected") return undefined;
  return best.cause ?? (best.state === "idle" ? undefined : best.lastError);
}

/** The texts about a server that only the program of the hub can make. */
export interface ServerTexts {
  /** A server's command line or URL, with secrets masked. */
  describe(spec: RunnableServer): string | Promise<string>;
  /** Advice for the user on a server's error, in full sentences. */
  remedies(error: HubError, spec: ServerSpec): readonly string[] | Promise<readonly string[]>;
}

/**
 * Describes a server of a hub, with the memory of its processes.
 * @param spec its table in the manifest; undefined if the hub cannot use it
 */
export async function describeServer(
  hub: Hub,
  status: () => ServerStatus,
  spec: ServerSpec | undefined,
  texts: ServerTexts,
): Promise<ServerDocument> {
  const { server: name } = status();
  // If the server's process has just exited, its statistics cannot be read. They are left out. The server's state
  // shows that the process has exited.
  const isKnown = hub.specs.some((one) => one.name === name);
  const noProcesses = new Map<string, ProcessStats>();
  const processes = isKnown
    ? await hub.inspectConnections(name).catch(() => noProcesses)
    : noProcesses;
  const current = status();
  const cause = causeOf(current);
  const usable = spec !== undefined && isRunnable(spec) ? spec : undefined;
  const facts = {
    presentation: presentationOf(spec),
    remedies: spec && cause ? await texts.remedies(cause, spec) : [],
    endpoint: usable && (await texts.describe(usable)),
    maxAttempts: usable?.reconnect.maxAttempts,
    shown: hub.catalog.tools.routes.filter(({ server }) => server === name).length,
    tokens: estimateTokens(hub.catalog.tools.byteLengths.get(name) ?? 0),
    pending: isKnown ? hub.pinned.pendingCount(name) : 0,
    processes,
  };
  return serverDocument(current, facts, Date.now());
}

/** The facts about a running hub that only its program knows. */
export type HubIdentity = Pick<
  HubDocument,
  "pid" | "version" | "name" | "startedAt" | "cwd" | "manifest" | "endpoints" | "demo"
>;

/** @param rejected the problems of a manifest that the hub has rejected; undefined if it has not rejected the last one */
export function hubDocument(
  hub: Hub,
  identity: HubIdentity,
  rejected: string | undefined,
): WithUndefined<HubDocument> {
  const { servers, tools, clients, calls, alerts } = hub.snapshot();
  const summaries = summariesOf(servers);
  return {
    ...identity,
    rejected,
    verdict: verdictOf(summaries),
    mode: hub.mode.current,
    exposeBudget: hub.exposeBudget,
    seq: hub.lastSeq,
    counts: {
      servers: countServers(summaries),
      tools,
      clients: clients.length,
      calls: calls.length,
      alerts: alerts.filter(({ dismissed }) => dismissed !== true).length,
      approvals: hub.approvals.prompts.length,
    },
  };
}

/** @throws {HubError} usage if it is no query of a search for tools */
export function checkQuery(query: string | undefined): asserts query is string {
  const { query: maxLength } = ARGUMENT_LIMITS;
  if (query === undefined || query.trim() === "" || query.length > maxLength)
    throw usageError(`query must be a text of 1 to ${maxLength} characters.`);
}

/** The tools that match a query. */
export function foundToolsDocument({
  hits,
  matches,
  available,
  isComplete,
}: SearchResult): FoundToolsDocument {
  return {
    tools: hits.map(({ entry, score, words }) => {
      const { name, server, remoteName: tool, item, isReadOnly } = entry;
      const definition = JsonObject.of(item.bytes);
      return {
        name,
        server,
        tool,
        description: firstSentence(definition.string("description") ?? ""),
        signature: signatureOf(definition.value("inputSchema")),
        ...(isReadOnly && { readOnly: true as const }),
        score,
        ...(words && { words: [...words] }),
      };
    }),
    matches,
    available,
    ...(!isComplete && { indexing: true as const }),
  };
}

function toolDocuments(tools: Section): ToolsDocument["tools"] {
  return tools.entries.map(({ name, server, route, bytes }) => {
    const { description, annotations } = JSON.parse(textOf(bytes)) as {
      readonly description?: unknown;
      readonly annotations?: unknown;
    };
    const hints = hintsOf(annotations);
    return {
      name,
      server,
      tool: route.remoteName,
      ...(typeof description === "string" && { description }),
      ...(hints !== undefined && { hints }),
      tokens: estimateTokens(bytes.length),
    };
  });
}

/** What a server says of a tool; undefined if it says nothing of that kind. */
function hintsOf(annotations: unknown): ToolsDocument["tools"][number]["hints"] {
  if (typeof annotations !== "object" || annotations === null) return undefined;
  const given = annotations as Readonly<Record<string, unknown>>;
  const flag = (key: string): boolean | undefined =>
    typeof given[key] === "boolean" ? given[key] : undefined;
  const hints = withoutUndefined({
    readOnly: flag("readOnlyHint"),
    destructive: flag("destructiveHint"),
    openWorld: flag("openWorldHint"),
  });
  return Object.keys(hints).length === 0 ? undefined : hints;
}

/** @param hidden notes about tools that clients without a mode see, but that are not in `catalog` */
export function toolsDocument(
  catalog: Catalog,
  hidden: ToolsDocument["notes"] = [],
): ToolsDocument {
  const notes = catalog.notes.flatMap(({ list, server, remoteName: tool, kind, text }) =>
    list === "tools" ? [{ server, tool, kind, text }] : [],
  );
  return { tools: toolDocuments(catalog.tools), notes: [...notes, ...hidden] };
}

/**
 * Notes about the tools that clients without a mode see, but the given client or mode does not have.
 * @param shown the catalog of the client or mode
 * @param modes the names of the modes that limit `shown`
 */
export function hiddenTools(
  hub: Hub,
  shown: Catalog,
  modes: readonly string[],
): ToolsDocument["notes"] {
  return hub.catalog.tools.entries.flatMap((entry) => {
    const { server, remoteName: tool, name } = entry;
    if (shown.tools.remoteEntries(tool).some((one) => one.server === server)) return [];
    const mode = hub.hidingMode(modes, "tools", entry);
    return mode === undefined
      ? [
          {
            server,
            tool,
            name,
            kind: "subset",
            text: `The client does not use server "${server}".`,
          },
        ]
      : [{ server, tool, name, kind: "mode", text: `Mode "${mode}" hides it.` }];
  });
}

export function modesDocument(hub: Hub): ModesDocument {
  const { current: mode, default: own } = hub.mode;
  const { clients } = hub.snapshot();
  const modes = hub.modes.map((spec) => ({
    ...modeHead(spec),
    tools: hub.catalogOfMode(spec.name).tools.size,
    clients: clients.filter((client) => client.mode === spec.name).map(({ id }) => id),
  }));
  return { mode, default: own, modes };
}

export function modeDocument(hub: Hub, spec: ModeSpec): ModeDocument {
  const catalog = hub.catalogOfMode(spec.name);
  const { entries } = hub.catalog.tools;
  const idle = idlePartsOf(spec.tools, entries).map((part) => `tools.${part}`);
  // Until some server has listed its tools, every part of the filter would seem to match nothing.
  const isKnown = spec.problems.length === 0 && entries.length > 0;
  return {
    ...modeHead(spec),
    tools: toolDocuments(catalog.tools),
    prompts: catalog.prompts.size,
    resources: catalog.resources.size + catalog.resourceTemplates.size,
    idle: isKnown ? idle : [],
  };
}

function modeHead({ name, title, icon, problems }: ModeSpec) {
  const [problem] = problems;
  return withoutUndefined({ name, title, icon, problem: problem && formatProblem(problem) });
}

/** @param hidden notes about entries that clients without a mode see, but that are not in `catalog` */
export function catalogDocument(
  catalog: Catalog,
  hidden: CatalogDocument["notes"] = [],
): CatalogDocument {
  const entriesOf = (kind: Kind): CatalogDocument["tools"] =>
    catalog[kind].entries.map(({ name, server, route }) => ({
      name,
      server,
      own: route.remoteName,
    }));
  return {
    tools: entriesOf("tools"),
    prompts: entriesOf("prompts"),
    resources: entriesOf("resources"),
    resourceTemplates: entriesOf("resourceTemplates"),
    skills: entriesOf("skills"),
    notes: [
      ...catalog.notes.map(({ list, server, remoteName: own, kind, text }) => ({
        list,
        server,
        own,
        kind,
        text,
      })),
      ...hidden,
    ],
  };
}

/** What clients in a mode see, with a note of kind `mode` about each entry that the mode hides. */
export function catalogDocumentOfMode(hub: Hub, mode: string): CatalogDocument {
  const shown = hub.catalogOfMode(mode);
  const hidden = KINDS.flatMap((list) =>
    hub.catalog[list].entries.flatMap(({ name, server, remoteName: own }) =>
      shown[list].entry(name) === undefined
        ? [{ list, server, own, kind: "mode", text: `Mode "${mode}" hides it.` }]
        : [],
    ),
  );
  return catalogDocument({ ...shown, notes: hub.catalog.notes }, hidden);
}

/** Members whose values are names that requests use. They are not redacted, even if a secret has the same text. */
const NAMES: ReadonlySet<string> = new Set(["name", "server", "tool", "client", "id"]);

/**
 * A copy of a document without secrets: all texts are redacted except the members in NAMES, and errors keep only their
 * code and message.
 */
export function redactTexts(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === "string") return redact(value);
  if (value instanceof HubError) return { code: value.code, message: redact(value.message) };
  if (Array.isArray(value)) return value.map((item) => redactTexts(item, redact));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, item]) =>
    typeof item === "string" && NAMES.has(key) ? [key, item] : [key, redactTexts(item, redact)],
  );
  return Object.fromEntries(entries);
}

type Defined<T> = { [Key in keyof T]: Exclude<T[Key], undefined> };

/** A copy without the members that are undefined. */
function withoutUndefined<T extends object>(value: T): Defined<T> {
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries) as Defined<T>;
}
