import * as v from "valibot";
import type { EventKind } from "../base/hub-events.ts";
import { APPROVAL_LEVELS } from "../manifest/approval-levels.ts";
import { AGENT_EXPOSURES, EXPOSURES } from "../manifest/exposures.ts";
import { isTable } from "../manifest/table.ts";
import * as operations from "../operations/documents.ts";
import { COUNTED_PARTS, type CountedPart, SERVER_STATES, VERDICTS } from "../upstream/verdict.ts";

/** The path below which all endpoints of the control API are. */
export const API_PATH = "/v1";
/** The path of MCP on the control socket. */
export const MCP_PATH = "/mcp";

/** The JSON documents of the control API, besides those of operations (`src/operations/documents.ts`). Times are in ms since the epoch, durations in ms, sizes in bytes. */

const time = v.number();
const duration = v.number();
const count = v.number();

/** The numbers of servers by part, besides their total. */
const COUNTS = Object.fromEntries(COUNTED_PARTS.map((part) => [part, count])) as Record<
  CountedPart,
  typeof count
>;

/** Why a server failed: the error, its time, the step of connecting that failed, and the last lines of stderr. */
const serverFailureSchema = v.object({
  ...operations.failureSchema.entries,
  at: v.optional(time),
  step: v.optional(v.picklist(["resolve", "spawn", "dial", "authorize", "handshake", "list"])),
  stderr: v.optional(v.pipe(v.array(v.string()), v.readonly())),
});

const progressSchema = v.object({ step: v.string(), url: v.optional(v.string()) });

const connectionStates = [
  "idle",
  "connecting",
  "authenticating",
  "connected",
  "reconnecting",
  "stopping",
  "failed",
  "disconnected",
] as const;

/**
 * Why a server has one more connection. `values`: its clients fill in the server's entry with other values of `names`
 * (variables, `${workspaceFolder}`); `era`: they speak another era of the protocol; `capabilities`: they have other
 * capabilities; `client`: the server has one for each client. `text`: the same in words, without an article or full stop.
 */
const separationSchema = v.object({
  by: v.picklist(["values", "era", "capabilities", "client"]),
  names: v.optional(v.pipe(v.array(v.string()), v.readonly())),
  text: v.string(),
});

/** One connection to a server: clients share it, or it belongs to one client (`client`). */
export const connectionSchema = v.object({
  id: v.string(),
  client: v.optional(v.string()),
  /** The ids of the clients that use the connection; `canAsk`: the kinds of requests that all of them can answer. */
  clients: v.optional(v.pipe(v.array(v.string()), v.readonly())),
  canAsk: v.optional(v.pipe(v.array(v.string()), v.readonly())),
  /** Why the server has this connection in addition to others; absent for the first one. */
  separation: v.optional(separationSchema),
  state: v.picklist(connectionStates),
  since: time,
  attempt: v.optional(count),
  retryAt: v.optional(time),
  progress: v.optional(progressSchema),
  transport: v.optional(v.string()),
  era: v.optional(v.picklist(["legacy", "modern"])),
  protocolVersion: v.optional(v.string()),
  implementation: v.optional(
    v.object({ name: v.optional(v.string()), version: v.optional(v.string()) }),
  ),
  tools: v.optional(count),
  prompts: v.optional(count),
  resources: v.optional(count),
  startDuration: v.optional(duration),
  calls: count,
  inFlight: count,
  lastTool: v.optional(v.string()),
  lastError: v.optional(serverFailureSchema),
  /**
   * The attempts that have failed since the server was last connected or stopped. `since`: when the first one failed;
   * `same`: whether the last two have failed with the same error.
   */
  failing: v.optional(v.object({ since: time, attempts: count, same: v.boolean() })),
  /** `pid`: the id of the server's process; `memory`: the memory of all processes of the connection, in bytes. */
  pid: v.optional(count),
  memory: v.optional(count),
  /** Present if `lastError` is why the server cannot be used at present. */
  unavailable: v.optional(v.literal(true)),
  /** Present if the server is connected, but does not respond to health checks. */
  responsive: v.optional(v.literal(false)),
  /** How long the running attempt takes already; present only if that is longer than `connectTimeout`. */
  late: v.optional(duration),
  /** When the server listed its items; present only if the listing was saved by an earlier run. */
  listedAt: v.optional(time),
  /** Lines on stdout that were not messages. */
  strayOutput: v.optional(v.object({ lines: count, example: v.optional(v.string()) })),
  /** What is wrong with the capabilities that the server declares: texts that begin with a verb. */
  capabilityFaults: v.optional(v.pipe(v.array(v.string()), v.readonly())),
});

/**
 * A server. `calls`, `inFlight` and `memory` are sums over its connections. The other members of `connectionSchema`
 * have the values of the connection in the best state. `tools`: number of tools that the server lists; `shown`: number
 * of those that clients see; `endpoint`: the server's command line or URL, with secrets masked.
 */
export const serverSchema = v.object({
  ...connectionSchema.entries,
  id: v.optional(v.string()),
  /**
   * The state of the best connection, or: `notStarted`: it should be up, and nothing has started it yet; `idle`: it
   * waits for its next call; `stopped`: by a command; `disabled`: by the manifest.
   */
  state: v.picklist(SERVER_STATES),
  /** Absent if there is no connection yet. A connection is made when a client needs the server. */
  since: v.optional(time),
  name: v.string(),
  title: v.optional(v.string()),
  description: v.optional(v.string()),
  /** A character, or the URL of a picture. */
  icon: v.optional(v.string()),
  origin: v.picklist(["manifest", "runtime"]),
  transport: v.optional(v.string()),
  endpoint: v.optional(v.string()),
  goal: v.picklist(["up", "onDemand", "down"]),
  /** The state in words. */
  statusText: v.string(),
  maxAttempts: v.optional(count),
  shown: count,
  /** The size of the definitions of those tools, in tokens (bytes / 4). */
  tokens: count,
  /** The number of its tools, prompts and instructions that are not accepted (pins); absent: none. */
  pending: v.optional(count),
  /** Advice for the user on the error of a server that is not connected, in full sentences. */
  remedies: v.optional(v.pipe(v.array(v.string()), v.readonly())),
  connections: v.array(connectionSchema),
});

const namesSchema = v.pipe(v.array(v.string()), v.readonly());

/** The hub as a member of its fleet. */
export const fleetSchema = v.object({
  /** Whether the manifest has a table `fleet`. */
  isConfigured: v.boolean(),
  /** The NATS servers of the manifest, and the one that is connected. */
  url: namesSchema,
  connected: v.optional(v.string()),
  /** Why the hub is not connected. */
  error: v.optional(v.string()),
  /** The name of the hub in the fleet; `wanted`: the name of the manifest, if another hub has it. */
  name: v.optional(v.string()),
  wanted: v.optional(v.string()),
  tenant: v.optional(v.string()),
  user: v.optional(v.string()),
  /** The largest message that NATS takes, in bytes. */
  maxPayload: v.optional(count),
  /** Whether NATS asks for credentials, so that the users of requests are believed. */
  authenticated: v.optional(v.boolean()),
  /** The subjects that NATS does not permit. */
  denied: namesSchema,
  exported: namesSchema,
  /** The requests of other hubs: all so far, those that were refused, and those that are open. */
  requests: v.object({ total: count, refused: count, open: count }),
  machines: v.array(
    v.object({
      name: v.string(),
      version: v.string(),
      servers: namesSchema,
      /** The time of the last ping until its answer, in ms. */
      roundTrip: v.optional(v.number()),
      /** The requests of this hub that are open there. */
      open: count,
      /** The time since the last sign of life, in ms. */
      silent: v.number(),
      leaving: v.optional(v.literal(true)),
    }),
  ),
  /** The servers of this hub that are on other machines; `machines`: those that export it, in order of choice. */
  imported: v.array(
    v.object({
      server: v.string(),
      fleet: v.string(),
      subject: v.string(),
      machines: namesSchema,
    }),
  ),
});

export const clientSchema = v.object({
  id: v.string(),
  name: v.optional(v.string()),
  version: v.optional(v.string()),
  era: v.optional(v.picklist(["legacy", "modern"])),
  transport: v.picklist(["stdio", "shared", "http", "nats", "memory", "control"]),
  /** The id of the process that is attached to a shared hub for the client. */
  pid: v.optional(count),
  since: v.optional(time),
  calls: count,
  inFlight: count,
  canBeAsked: v.pipe(v.array(v.string()), v.readonly()),
  /** The configured name of the client, if it has its own token. */
  principal: v.optional(v.string()),
  /** The mode that the operator has chosen for the client. */
  mode: v.string(),
  /** All modes that limit the client. It sees only what all of these modes show. */
  modes: v.pipe(v.array(v.string()), v.readonly()),
  /** Limits of the client's token or URL: for its modes, its servers, and the approval of its calls. */
  limits: v.optional(
    v.object({
      modes: v.pipe(v.array(v.string()), v.readonly()),
      servers: v.optional(v.pipe(v.array(v.string()), v.readonly())),
      approval: v.optional(v.picklist(APPROVAL_LEVELS)),
    }),
  ),
  /** The form in which the client gets its tools; absent if it gets all in one list, whatever the settings are. */
  exposure: v.optional(
    v.object({
      /** The setting that counts for the client. */
      expose: v.picklist(EXPOSURES),
      /** The form that the client's list of tools has because of it. */
      form: v.picklist(["direct", "search", "select"]),
      /** The size of the list, in tokens (bytes / 4). */
      tokens: count,
      /** Present if the list has all tools and is above `exposeBudget`. */
      isLong: v.optional(v.literal(true)),
    }),
  ),
});

/**
 * A mode: the number of its tools, and the ids of the clients that the operator has put into it. `problem`: what is
 * wrong with the mode's table in the manifest; a mode with a problem shows nothing.
 */
const modeSummarySchema = v.object({
  name: v.string(),
  title: v.string(),
  icon: v.optional(v.string()),
  tools: count,
  clients: v.array(v.string()),
  problem: v.optional(v.string()),
});

/**
 * All modes. `mode`: the mode of clients for which no other mode is chosen; `default`: the default mode of the
 * manifest.
 */
export const modesSchema = v.object({
  mode: v.string(),
  default: v.string(),
  modes: v.array(modeSummarySchema),
});

/** The body of `PUT /mode` and `PUT /clients/ID/mode`; null: undoes the choice. */
export const modeChoiceSchema = v.strictObject({ mode: v.nullable(v.string()) });

/** The members that say which call is meant, in events and documents. */
const callMembers = {
  call: count,
  parentCall: v.optional(count),
  via: v.optional(v.string()),
  client: v.optional(v.string()),
  principal: v.optional(v.string()),
  server: v.string(),
  tool: v.string(),
  name: v.string(),
  startedAt: time,
};
/**
 * A call that has not ended. `name`: the exposed name; `tool`: the name at the server; `via`: the tool of the hub, such as
 * `call_tool`, through which the client called it; `parentCall`: the call for
 * which a plugin makes this one.
 */
export const callSchema = v.object({
  ...callMembers,
  clientName: v.string(),
  clientVersion: v.string(),
  kind: v.string(),
  duration,
  waitingFor: v.picklist(["server", "client", "approval", "queue"]),
  progress: v.optional(
    v.object({
      progress: v.number(),
      total: v.optional(v.number()),
      message: v.optional(v.string()),
    }),
  ),
});

/**
 * A limit of the manifest, and what counts against it. `kind`: whose limit it is, of all calls (`hub`), of a `client` (its
 * name, its id, or `anybody`: those over HTTP without a name), of a `server`, or of a rule (`tool`) in its `tools.limits`.
 * `rate`, `quota`: `count` calls in `per` ms; `left`: how many are allowed at once now; `used`: how many count in the window
 * that ends at `endsAt`. `running`, `queued`: how many calls have a place, and how many wait for one; `refused`: how many were
 * refused since the hub started.
 */
export const limitSchema = v.object({
  kind: v.picklist(["hub", "client", "server", "tool"]),
  client: v.optional(v.string()),
  server: v.optional(v.string()),
  tool: v.optional(v.string()),
  rate: v.optional(v.object({ count, per: duration, burst: count, left: count })),
  quota: v.optional(v.object({ count, per: duration, used: count, endsAt: v.optional(time) })),
  maxConcurrent: v.optional(count),
  running: count,
  maxQueued: v.optional(count),
  queued: count,
  refused: count,
});

export const alertSchema = v.object({
  id: v.string(),
  kind: v.string(),
  /** Absent if the alert is about a client, or about the hub. */
  server: v.optional(v.string()),
  /** The name in `[[clients]]` of the client that the alert is about. */
  client: v.optional(v.string()),
  /** The id of the connection that the alert is about; absent if the alert is about the whole server. */
  connection: v.optional(v.string()),
  text: v.string(),
  at: time,
  dismissed: v.optional(v.literal(true)),
  /** Present if the alert was raised again for what keeps happening, such as a tool that changes all the time. */
  repeated: v.optional(v.literal(true)),
});

/** What the scan has found in the definitions of a server. The texts are the server's: for people only. */
export const serverFindingsSchema = v.object({
  server: v.string(),
  level: v.picklist(["off", "warn", "block"]),
  /** Whether the server was listed and all of it is scanned. */
  isScanned: v.boolean(),
  /** Hard ones first. */
  findings: v.pipe(v.array(operations.entryFindingSchema), v.readonly()),
});

export const logEntrySchema = v.object({
  seq: count,
  at: time,
  level: v.picklist(["debug", "info", "warn", "error"]),
  source: v.picklist(["hub", "stderr", "stdout", "server"]),
  server: v.optional(v.string()),
  text: v.string(),
});

/** `next`: the value of `after` with which a request gets only later entries. */
export const logSchema = v.object({ entries: v.array(logEntrySchema), next: count });

/**
 * `tokens`: estimated number of tokens of its definition in a model's context, at 4 bytes for each token. `hints`: what
 * the server says of the tool (annotations).
 */
export const toolSchema = v.object({
  name: v.string(),
  server: v.string(),
  tool: v.string(),
  description: v.optional(v.string()),
  hints: v.optional(
    v.object({
      readOnly: v.optional(v.boolean()),
      destructive: v.optional(v.boolean()),
      openWorld: v.optional(v.boolean()),
    }),
  ),
  tokens: count,
});

/**
 * `notes`: tools that are hidden from clients or changed, and why. If the request names a client or a mode, notes of
 * kind `mode` or `subset` are about tools that clients without a mode see, but this client or mode does not have; in
 * these notes, `name` is the exposed name.
 */
export const toolsSchema = v.object({
  tools: v.array(toolSchema),
  notes: v.array(
    v.object({
      server: v.string(),
      tool: v.string(),
      name: v.optional(v.string()),
      kind: v.string(),
      text: v.string(),
    }),
  ),
});

/**
 * The tools that match a query, the best first. `tool`: the name at the server; `signature`: its arguments;
 * `description`: the first sentence of it. `matches`: number of tools that match at all; `available`: number of tools
 * that could be found; `indexing`: some of these are not indexed yet; `words`: the words that counted, with `asked` from
 * the query, only with `explain`.
 */
export const foundToolsSchema = v.object({
  tools: v.array(
    v.object({
      name: v.string(),
      server: v.string(),
      tool: v.string(),
      description: v.string(),
      signature: v.string(),
      readOnly: v.optional(v.literal(true)),
      score: v.number(),
      words: v.optional(
        v.array(
          v.object({
            asked: v.string(),
            word: v.string(),
            as: v.picklist(["same", "class", "similar", "name"]),
            score: v.number(),
          }),
        ),
      ),
    }),
  ),
  matches: count,
  available: count,
  indexing: v.optional(v.literal(true)),
});

const exposureCostSchema = v.object({ tools: count, instructions: count });

/**
 * What clients get before their first call, in tokens (bytes / 4). `servers`: the number of tools of each server, and
 * the tokens of their definitions; `exposures`: the tokens of the list of tools and of the instructions.
 */
export const exposureCostsSchema = v.object({
  servers: v.pipe(
    v.array(v.object({ server: v.string(), tools: count, tokens: count })),
    v.readonly(),
  ),
  exposures: v.object({
    direct: exposureCostSchema,
    search: exposureCostSchema,
    select: exposureCostSchema,
  }),
});

/**
 * A mode with its tools, and the numbers of its prompts and resources. `idle`: the parts of its tool filter that match
 * nothing, such as `tools.and[0].servers[1]`.
 */
export const modeSchema = v.object({
  name: v.string(),
  title: v.string(),
  icon: v.optional(v.string()),
  tools: v.array(toolSchema),
  prompts: count,
  resources: count,
  idle: v.pipe(v.array(v.string()), v.readonly()),
  problem: v.optional(v.string()),
});

const entriesSchema = v.array(v.object({ name: v.string(), server: v.string(), own: v.string() }));

/**
 * All that clients see: the exposed name or URI of each entry, its server, and its name at that server (`own`); and
 * notes about entries.
 */
export const catalogSchema = v.object({
  tools: entriesSchema,
  prompts: entriesSchema,
  resources: entriesSchema,
  resourceTemplates: entriesSchema,
  skills: entriesSchema,
  notes: v.array(
    v.object({
      list: v.string(),
      server: v.string(),
      own: v.string(),
      kind: v.string(),
      text: v.string(),
    }),
  ),
});

/** The hub itself. `endpoints`: `stdio`, and the URL of the HTTP server. */
export const hubSchema = v.object({
  pid: count,
  version: v.string(),
  name: v.string(),
  startedAt: time,
  cwd: v.string(),
  manifest: v.array(v.string()),
  endpoints: v.array(v.string()),
  /** Present if this is the hub of `toolmux demo`. It changes no files of MCP clients. */
  demo: v.optional(v.literal(true)),
  /** The problems of the manifest as it is now, if the hub has rejected it and goes on with the one before. */
  rejected: v.optional(v.string()),
  verdict: v.picklist(VERDICTS),
  /** The mode of clients for which no other mode is chosen. */
  mode: v.string(),
  /** The setting `hub.exposeBudget`: the size of a list of tools, in tokens, up to which `auto` lists all. */
  exposeBudget: count,
  /** The number of the last event. */
  seq: count,
  counts: v.object({
    /** Each server is counted once besides `total`. `resting`: servers that wait for a call (state `idle`). */
    servers: v.object({ ...COUNTS, total: count }),
    tools: count,
    clients: count,
    calls: count,
    alerts: count,
    /** Calls that wait until a person allows them. */
    approvals: count,
  }),
});

/** The file beside a hub's socket, for programs that look for hubs. */
export const hubFileSchema = v.object({
  /** Equal for hubs of the same manifest files and the same TOOLMUX_SERVERS. */
  manifestId: v.string(),
  pid: count,
  startedAt: time,
  version: v.string(),
  name: v.string(),
  cwd: v.string(),
  manifest: v.array(v.string()),
  endpoints: v.array(v.string()),
});

export const errorSchema = v.object({ error: operations.failureSchema });

const decisionSchema = v.picklist(["once", "session", "always", "deny"]);

/**
 * A call that waits until a person allows it. `choices`: the decisions that are possible; `unavailable`: why others are
 * not; `reason`: a full sentence.
 */
export const approvalSchema = v.object({
  id: v.string(),
  call: count,
  client: v.optional(v.string()),
  principal: v.optional(v.string()),
  clientName: v.string(),
  agent: v.optional(v.string()),
  server: v.string(),
  tool: v.string(),
  name: v.string(),
  argumentsShown: v.string(),
  reason: v.string(),
  choices: v.pipe(v.array(decisionSchema), v.readonly()),
  unavailable: v.optional(
    v.object({ session: v.optional(v.string()), always: v.optional(v.string()) }),
  ),
  askedAt: time,
});

const levelSchema = v.picklist(["debug", "info", "warn", "error"]);

/** The members of all events: number and time; if the event has a text for people, also that text and its level. */
const eventFields = {
  seq: count,
  at: time,
  level: v.optional(levelSchema),
  text: v.optional(v.string()),
};

/** An event of any kind. */
export const eventSchema = v.looseObject({ ...eventFields, kind: v.string() });

const callFields = { ...eventFields, ...callMembers };

const names = v.pipe(v.array(v.string()), v.readonly());

const approvedCallFields = {
  ...eventFields,
  kind: v.literal("approval"),
  id: v.string(),
  call: count,
  client: v.optional(v.string()),
  clientName: v.string(),
  agent: v.optional(v.string()),
  server: v.string(),
  tool: v.string(),
  name: v.string(),
};

/** Whether a reader gets the event of every call, or numbers if there are many calls. */
export type CallDetail = "all" | "counted";

/** The members of each kind of event. No event has the arguments or the result of a call. */
const eventSchemas = {
  server: v.strictObject({
    ...eventFields,
    kind: v.literal("server"),
    server: v.string(),
    change: v.picklist(["added", "changed", "removed"]),
  }),
  state: v.strictObject({
    ...eventFields,
    kind: v.literal("state"),
    endpoint: v.optional(v.string()),
    server: v.string(),
    client: v.optional(v.string()),
    connection: v.optional(v.string()),
    from: v.picklist(connectionStates),
    to: v.picklist(connectionStates),
    cause: v.optional(operations.failureSchema),
    attempt: v.optional(count),
    retryAt: v.optional(time),
    tools: v.optional(count),
    progress: v.optional(progressSchema),
    isRepeated: v.optional(v.literal(true)),
  }),
  log: v.strictObject({
    ...eventFields,
    kind: v.literal("log"),
    level: levelSchema,
    text: v.string(),
    source: v.picklist(["hub", "stderr", "stdout", "server"]),
    server: v.optional(v.string()),
    isNote: v.optional(v.literal(true)),
  }),
  catalog: v.strictObject({
    ...eventFields,
    kind: v.literal("catalog"),
    added: names,
    removed: names,
    altered: names,
  }),
  alert: v.strictObject({
    ...eventFields,
    kind: v.literal("alert"),
    raised: v.boolean(),
    alert: alertSchema,
  }),
  approval: v.variant("change", [
    v.strictObject({
      ...eventFields,
      kind: v.literal("approval"),
      change: v.literal("asked"),
      ...approvalSchema.entries,
    }),
    v.strictObject({
      ...approvedCallFields,
      change: v.literal("decided"),
      by: v.picklist(["terminal", "dashboard", "client", "timeout", "rule"]),
      decision: decisionSchema,
      remembered: v.boolean(),
    }),
    v.strictObject({ ...approvedCallFields, change: v.literal("withdrawn") }),
  ]),
  client: v.strictObject({
    ...eventFields,
    kind: v.literal("client"),
    client: v.string(),
    change: v.picklist(["joined", "left", "changed"]),
    name: v.optional(v.string()),
    version: v.optional(v.string()),
    principal: v.optional(v.string()),
  }),
  mode: v.strictObject({
    ...eventFields,
    kind: v.literal("mode"),
    client: v.optional(v.string()),
    name: v.optional(v.string()),
    principal: v.optional(v.string()),
    from: v.string(),
    to: v.string(),
  }),
  limit: v.strictObject({
    ...eventFields,
    kind: v.literal("limit"),
    limit: v.picklist(["rate", "quota", "queue"]),
    of: v.picklist(["hub", "client", "server", "tool"]),
    client: v.optional(v.string()),
    server: v.optional(v.string()),
    tool: v.optional(v.string()),
    retryAfter: duration,
    text: v.string(),
  }),
  fleet: v.strictObject({
    ...eventFields,
    kind: v.literal("fleet"),
    change: v.picklist(["joined", "left"]),
    machine: v.string(),
    servers: v.pipe(v.array(v.string()), v.readonly()),
    reason: v.optional(v.string()),
  }),
  manifest: v.strictObject({
    ...eventFields,
    kind: v.literal("manifest"),
    outcome: v.picklist(["reloaded", "refused"]),
    servers: v.optional(count),
    /** The names of the servers that the reload has added, changed and removed. */
    added: v.optional(v.pipe(v.array(v.string()), v.readonly())),
    changed: v.optional(v.pipe(v.array(v.string()), v.readonly())),
    removed: v.optional(v.pipe(v.array(v.string()), v.readonly())),
    problems: v.optional(v.string()),
  }),
  pins: v.strictObject({
    ...eventFields,
    kind: v.literal("pins"),
    server: v.string(),
    pending: count,
  }),
  callStarted: v.strictObject({ ...callFields, kind: v.literal("callStarted") }),
  callFinished: v.strictObject({
    ...callFields,
    kind: v.literal("callFinished"),
    outcome: v.picklist(["answered", "failed", "denied"]),
    failed: v.optional(v.boolean()),
    cause: v.optional(operations.failureSchema),
    duration,
  }),
  callCancelled: v.strictObject({
    ...callFields,
    kind: v.literal("callCancelled"),
    by: v.picklist(["client", "deadline", "disconnect", "shutdown", "operator"]),
    duration,
  }),
  calls: v.strictObject({
    ...eventFields,
    kind: v.literal("calls"),
    duration,
    ended: count,
    failed: count,
    denied: count,
    cancelled: count,
    last: v.pipe(v.array(v.strictObject({ ...callMembers, duration })), v.readonly()),
  }),
} satisfies Readonly<Record<EventKind, v.GenericSchema>>;

/**
 * An event of any kind. If an event is larger than 64 KiB, only the beginning of its text is sent, with `truncated`.
 */
export const anyEventSchema = v.union([
  ...Object.values(eventSchemas),
  v.strictObject({ ...eventFields, kind: v.string(), truncated: v.literal(true) }),
]);

/** The data of the server-sent event `gap`: earlier events are lost; `first`: the first event that is kept. */
export const gapSchema = v.strictObject({ first: count });

/** An object with any members. Not `v.record`, which also takes an array. */
const objectSchema = v.custom<Readonly<Record<string, unknown>>>(isTable, "must be an object");

/** The body of `POST /approvals/ID`. `by`: where the person has decided; default `terminal`. */
export const approvalAnswerSchema = v.strictObject({
  decision: decisionSchema,
  by: v.optional(v.picklist(["terminal", "dashboard"])),
});

/**
 * A remembered approval: a person has allowed all calls of this tool, permanently (`always`) or until a client leaves
 * (`session`). `by`: where the person has decided; `client`: the id of the only client that it counts for.
 */
export const rememberedApprovalSchema = v.object({
  id: v.string(),
  server: v.string(),
  tool: v.string(),
  decision: v.picklist(["session", "always"]),
  by: v.optional(v.picklist(["terminal", "dashboard", "client"])),
  client: v.optional(v.string()),
  clientName: v.string(),
  at: time,
});

/** The body of `POST /approvals/accept`: approvals will rely on the current descriptions of this server's tools. */
export const acceptToolsSchema = v.strictObject({ server: v.string() });

const pinnedKindSchema = v.picklist(["tool", "prompt", "instructions"]);

/**
 * A tool or prompt of a server, or its instructions, whose name is "". `digest`: SHA-256 of what it says, in base64url.
 */
export const pinnedDefinitionSchema = v.object({
  kind: pinnedKindSchema,
  name: v.string(),
  digest: v.string(),
});

/**
 * What a server lists that is not accepted. `pin`: what happens with it. `compared`: whether the server was listed and
 * compared. `fault`: why it could not be compared, as a sentence; then nothing of it counts as accepted. In `pending`:
 * `reason`: `new`, `changed`, `finding` (the scan has found something) or `pinFile` (the pin file has it otherwise, or
 * lacks it); `machines`: those of a fleet whose server has it so, while the list is that of another machine; `peerThen` and `peerNow`: the server's name and version when the accepted definition was seen, and now;
 * `parts`: what has changed, in order; `omitted`: the number of changes that are left out. Invisible characters are
 * escaped.
 */
export const pinsSchema = v.object({
  server: v.string(),
  pin: v.picklist(["off", "warn", "block"]),
  compared: v.boolean(),
  fault: v.optional(v.string()),
  pending: v.pipe(
    v.array(
      v.object({
        ...pinnedDefinitionSchema.entries,
        reason: v.picklist(["new", "changed", "finding", "pinFile"]),
        machines: v.optional(v.pipe(v.array(v.string()), v.readonly())),
        acceptedAt: v.optional(time),
        peerThen: v.optional(v.string()),
        peerNow: v.optional(v.string()),
        parts: v.pipe(
          v.array(
            v.object({
              part: v.string(),
              changes: v.pipe(
                v.array(
                  v.object({
                    path: v.string(),
                    before: v.optional(v.string()),
                    after: v.optional(v.string()),
                  }),
                ),
                v.readonly(),
              ),
              omitted: count,
            }),
          ),
          v.readonly(),
        ),
      }),
    ),
    v.readonly(),
  ),
});

/**
 * The body of `POST /pins/accept`. Without `definitions`, all that is pending of the server is accepted. With a `digest`,
 * a definition is accepted only if it is still the one that the person has seen.
 */
export const pinAcceptanceSchema = v.strictObject({
  server: v.string(),
  definitions: v.optional(
    v.pipe(
      v.array(
        v.strictObject({
          name: v.string(),
          kind: v.optional(pinnedKindSchema),
          digest: v.optional(v.string()),
        }),
      ),
      v.nonEmpty(),
      v.readonly(),
    ),
  ),
});

/** The body of `POST /servers`: an entry as in a manifest. */
export const addServerSchema = v.strictObject({
  name: v.pipe(v.string(), v.nonEmpty()),
  entry: objectSchema,
  persist: v.optional(v.boolean()),
});

/**
 * A server's entry as it stands in the manifest, with `•••` for what may be a secret. `toml`: the same as TOML;
 * `schema`: the JSON Schema of its keys.
 */
export const serverEntrySchema = v.object({
  name: v.string(),
  file: v.string(),
  entry: objectSchema,
  toml: v.string(),
  schema: objectSchema,
});

/** The body of `POST /servers/NAME/preview`: the edited entry, as an object or as TOML. */
export const entryEditSchema = v.union([
  v.strictObject({ entry: objectSchema }),
  v.strictObject({ toml: v.string() }),
]);

/**
 * What an edited entry would be, with `•••` for what may be a secret; `entry` and `toml` are absent if the text cannot be
 * read. `problems`: what is wrong with it, with line and column in the given TOML.
 */
export const entryPreviewSchema = v.object({
  before: v.string(),
  toml: v.optional(v.string()),
  entry: v.optional(objectSchema),
  problems: v.array(
    v.object({
      path: v.string(),
      message: v.string(),
      line: v.optional(count),
      column: v.optional(count),
    }),
  ),
});

/** The body of `PATCH /servers/NAME`: enables or disables the server, or replaces its entry. */
export const patchServerSchema = v.strictObject({
  enabled: v.optional(v.boolean()),
  entry: v.optional(objectSchema),
  persist: v.optional(v.boolean()),
});

/**
 * A call of a tool that has ended. `personWait`: how long it waited for an approval or for an answer of the client;
 * `queueWait`: how long it waited to be sent to its server; both are parts of `duration`. `sent`: whether it was sent.
 * Outcome `denied`: it was not approved. `code` and `reason`: code and message of the hub's own error; `by`: who
 * cancelled the call.
 */
export const endedCallSchema = v.object({
  ...callMembers,
  clientName: v.string(),
  duration,
  personWait: duration,
  queueWait: duration,
  sent: v.boolean(),
  outcome: v.picklist(["answered", "failed", "denied", "cancelled"]),
  code: v.optional(v.string()),
  reason: v.optional(v.string()),
  by: v.optional(v.string()),
  requestSize: count,
  resultSize: count,
});

/** The last calls that have ended, newest first; `since`: time at which the hub began to record calls. */
export const activitySchema = v.object({ since: time, calls: v.array(endedCallSchema) });

/**
 * What the plugin `by` has kept of a call that has ended: the JSON texts of its arguments and result, or the size in
 * bytes of a text that was too long to be kept. Without `by`, no plugin has kept anything.
 */
export const keptCallSchema = v.object({
  call: count,
  by: v.optional(v.string()),
  arguments: v.optional(v.string()),
  argumentsSize: v.optional(count),
  result: v.optional(v.string()),
  resultSize: v.optional(count),
});

const usagePointSchema = v.object({
  calls: count,
  failed: count,
  denied: count,
  cancelled: count,
  p50: v.optional(duration),
  p95: v.optional(duration),
  resultBytes: count,
});

/**
 * Calls by tool, those with most calls first, in a window that ends at `until`. `points`: the parts of the window,
 * each `step` ms long, oldest first. `failed` counts no call that was denied. Durations are the times in which the tool
 * ran: they do not contain the times for which calls waited for a person (`personWait`, in all) or to be sent
 * (`queueWait`). `n`: the number of durations, which is that of the calls that were sent; `min` and `max` are
 * exact, `p50` and `p95` come from a histogram and are right to 5 %.
 */
export const usageSchema = v.object({
  since: time,
  until: time,
  step: duration,
  tools: v.array(
    v.object({
      server: v.string(),
      tool: v.string(),
      ...usagePointSchema.entries,
      n: count,
      min: v.optional(duration),
      max: v.optional(duration),
      personWait: duration,
      queueWait: duration,
      points: v.array(usagePointSchema),
    }),
  ),
});

/** A tool with its definition as clients see it; see `Tool` in the MCP schema. */
export const toolDefinitionSchema = v.object({
  name: v.string(),
  server: v.string(),
  tool: v.string(),
  definition: v.looseObject({}),
});

/**
 * The body of `POST /tools/NAME/call`. `client`: the name of the caller, which approvals and lists of calls show
 * (`clientInfo.name`); by default the name of the hub.
 */
export const toolCallSchema = v.strictObject({
  arguments: v.optional(objectSchema),
  client: v.optional(v.pipe(v.string(), v.nonEmpty(), v.maxLength(64))),
});

/** The answer to `POST /tools/NAME/call`: the result, or the JSON-RPC error. */
export const toolCallAnswerSchema = v.object({
  result: v.optional(v.looseObject({})),
  error: v.optional(v.looseObject({})),
});

/** The body of `PUT /secrets/NAME`. */
export const secretValueSchema = v.strictObject({
  value: v.pipe(v.string(), v.nonEmpty(), v.maxLength(64 * 1024)),
});

/** The body of `POST /trial`: an entry as in a manifest. */
export const trialRequestSchema = v.strictObject({
  name: v.pipe(v.string(), v.nonEmpty()),
  entry: objectSchema,
});

/** The body of `POST /client-apps/NAME/install`; `http`: the URL of a hub that the client connects to. */
export const clientAppRequestSchema = v.strictObject({
  replace: v.optional(v.boolean()),
  http: v.optional(v.string()),
  dryRun: v.optional(v.boolean()),
});

/**
 * An agent of the manifest. `tools`: the exposed names of its present tools, if its table is valid; `expose`: its
 * setting; `exposure`: what that means for these tools; `problem`: why the agent cannot be used, and what to do.
 */
export const agentSchema = v.object({
  name: v.string(),
  model: v.optional(v.string()),
  description: v.optional(v.string()),
  instruction: v.optional(v.string()),
  tools: v.optional(names),
  expose: v.optional(v.picklist(AGENT_EXPOSURES)),
  exposure: v.optional(
    v.object({
      /** The form in which the model gets the tools because of `expose`. */
      form: v.picklist(["direct", "search"]),
      /** The size of the definitions of all its tools, in tokens (bytes / 4). */
      tokens: count,
    }),
  ),
  subAgents: v.optional(names),
  handoffs: v.optional(names),
  /** The path or the reference of the file that describes it; absent: the manifest does. */
  file: v.optional(v.string()),
  /** What a person is told when a conversation with it begins. */
  welcome: v.optional(v.string()),
  /** Prompts that a person sends by their names: the message `/NAME`, perhaps with arguments. */
  prompts: v.optional(
    v.array(
      v.object({
        name: v.string(),
        description: v.optional(v.string()),
        instruction: v.string(),
      }),
    ),
  ),
  /** The names of the servers that its file has of its own; what they offer is known when a conversation uses them. */
  servers: v.optional(names),
  /** What its file asks for and does not get. */
  notes: v.optional(names),
  usable: v.boolean(),
  problem: v.optional(v.string()),
});

/**
 * A conversation with an agent that runs in the hub. `client`: the id of the hub's client that makes the agent's calls;
 * `file`: the path or the reference of the file that describes the agent, if the manifest does not; `mode`: the mode that
 * limits the agent's tools; `title`: the beginning of the first message; `waiting`: number of messages that wait for the
 * agent; `lastEvent`: the number of the last event; `kept`: whether it is kept when it is closed; `leftOut`: how many
 * messages its model does not get any more; absent: it gets all; `prompts`: the names of the agent's prompts (`Agent`).
 */
export const runSchema = v.object({
  id: v.string(),
  client: v.string(),
  agent: v.string(),
  file: v.optional(v.string()),
  model: v.string(),
  mode: v.optional(v.string()),
  title: v.string(),
  state: v.picklist(["idle", "running"]),
  waiting: count,
  tokensUsed: count,
  startedAt: time,
  lastEvent: count,
  kept: v.boolean(),
  leftOut: v.optional(count),
  prompts: v.optional(names),
});

/**
 * A conversation with an agent that is kept in the state folder of the user. `agent`: the agent with which it began;
 * `title`: the beginning of the first message; `size`: in bytes; `open`: whether it is open in this hub (`AgentRun`).
 */
export const conversationSchema = v.object({
  id: v.string(),
  agent: v.string(),
  title: v.string(),
  created: time,
  lastUsed: time,
  size: count,
  open: v.boolean(),
});

const agentMessage = v.pipe(v.string(), v.nonEmpty(), v.maxLength(1024 * 1024));

/** The body of `POST /agents/NAME/runs`. */
export const runRequestSchema = v.strictObject({
  message: agentMessage,
  model: v.optional(v.string()),
  mode: v.optional(v.string()),
});

/** The body of `POST /runs/ID/message`; `mode`: limits the agent's tools from now on. */
export const runMessageSchema = v.strictObject({
  message: agentMessage,
  mode: v.optional(v.string()),
});

const tokenUsageSchema = v.object({
  inputTokens: count,
  outputTokens: count,
  estimated: v.optional(v.literal(true)),
});

/** The key of events of nested runs: the `runId` of the nested run; absent: the outermost run. */
const nestedRun = { run: v.optional(v.string()) };

/**
 * An event of a conversation with an agent, with its number and time. `agentStarted` and `agentEnded` are the ends of a
 * nested run; `isReported`: it has happened in a called agent and is told after its end.
 */
export const agentEventSchema = v.variant("type", [
  v.object({ type: v.literal("message"), seq: count, at: time, text: v.string() }),
  v.object({
    type: v.literal("runStarted"),
    seq: count,
    at: time,
    runId: v.string(),
    agent: v.string(),
    model: v.string(),
  }),
  v.object({
    type: v.literal("agentStarted"),
    seq: count,
    at: time,
    runId: v.string(),
    how: v.picklist(["task", "call"]),
    agent: v.string(),
    toolCallId: v.string(),
    task: v.string(),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("agentEnded"),
    seq: count,
    at: time,
    runId: v.string(),
    how: v.picklist(["task", "call"]),
    agent: v.string(),
    success: v.boolean(),
    error: v.optional(v.string()),
    duration,
    usage: tokenUsageSchema,
    toolCalls: count,
    isReported: v.optional(v.literal(true)),
    ...nestedRun,
  }),
  v.object({
    type: v.picklist(["textDelta", "thinkingDelta"]),
    seq: count,
    at: time,
    text: v.string(),
    agent: v.string(),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("toolCallStart"),
    seq: count,
    at: time,
    toolName: v.string(),
    toolCallId: v.string(),
    via: v.optional(v.literal("call_tool")),
    server: v.optional(v.string()),
    arguments: v.string(),
    agent: v.string(),
    isReported: v.optional(v.literal(true)),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("toolProgress"),
    seq: count,
    at: time,
    toolName: v.string(),
    toolCallId: v.string(),
    message: v.string(),
    agent: v.string(),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("toolExecuted"),
    seq: count,
    at: time,
    toolName: v.string(),
    toolCallId: v.string(),
    via: v.optional(v.literal("call_tool")),
    success: v.boolean(),
    error: v.optional(v.string()),
    duration,
    size: count,
    result: v.optional(v.string()),
    agent: v.string(),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("transferred"),
    seq: count,
    at: time,
    from: v.string(),
    to: v.string(),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("usage"),
    seq: count,
    at: time,
    ...tokenUsageSchema.entries,
    agent: v.string(),
    ...nestedRun,
  }),
  v.object({
    type: v.literal("runComplete"),
    seq: count,
    at: time,
    runId: v.string(),
    text: v.string(),
    stopReason: v.picklist(["stop", "length", "refused", "cancelled"]),
    usage: tokenUsageSchema,
    duration,
    toolCalls: count,
  }),
  v.object({
    type: v.literal("error"),
    seq: count,
    at: time,
    message: v.string(),
    code: v.string(),
    retryable: v.boolean(),
  }),
]);

/** The documents of the API by name: those of answers, then those of requests. */
export const DOCUMENTS = {
  Hub: hubSchema,
  Server: serverSchema,
  ServerEntry: serverEntrySchema,
  EntryEdit: entryEditSchema,
  EntryPreview: entryPreviewSchema,
  Connection: connectionSchema,
  Client: clientSchema,
  Fleet: fleetSchema,
  Modes: modesSchema,
  Mode: modeSchema,
  Call: callSchema,
  Limit: limitSchema,
  Alert: alertSchema,
  ServerFindings: serverFindingsSchema,
  Log: logSchema,
  Tools: toolsSchema,
  FoundTools: foundToolsSchema,
  ExposureCosts: exposureCostsSchema,
  Catalog: catalogSchema,
  Activity: activitySchema,
  KeptCall: keptCallSchema,
  Usage: usageSchema,
  Tool: toolDefinitionSchema,
  ToolCallAnswer: toolCallAnswerSchema,
  Trial: operations.trialSchema,
  ClientApp: operations.clientAppSchema,
  Secrets: operations.secretsSchema,
  Registry: operations.registrySchema,
  Check: operations.checkSchema,
  Login: operations.loginSchema,
  Logout: operations.logoutSchema,
  Snippet: operations.snippetSchema,
  Installation: operations.installationSchema,
  Approval: approvalSchema,
  RememberedApproval: rememberedApprovalSchema,
  Pins: pinsSchema,
  PinnedDefinition: pinnedDefinitionSchema,
  Agent: agentSchema,
  AgentRun: runSchema,
  Conversation: conversationSchema,
  AgentEvent: agentEventSchema,
  Event: anyEventSchema,
  Gap: gapSchema,
  Error: errorSchema,
  ApprovalAnswer: approvalAnswerSchema,
  AcceptTools: acceptToolsSchema,
  PinAcceptance: pinAcceptanceSchema,
  AddServer: addServerSchema,
  PatchServer: patchServerSchema,
  ModeChoice: modeChoiceSchema,
  ToolCall: toolCallSchema,
  SecretValue: secretValueSchema,
  TrialRequest: trialRequestSchema,
  ClientAppRequest: clientAppRequestSchema,
  AgentRunRequest: runRequestSchema,
  AgentMessage: runMessageSchema,
} as const satisfies Readonly<Record<string, v.GenericSchema>>;

export type DocumentName = keyof typeof DOCUMENTS;
export type Document<Name extends DocumentName> = v.InferOutput<(typeof DOCUMENTS)[Name]>;

export type AgentDocument = v.InferOutput<typeof agentSchema>;
export type RunDocument = v.InferOutput<typeof runSchema>;
export type ConversationDocument = v.InferOutput<typeof conversationSchema>;
export type AgentEventDocument = v.InferOutput<typeof agentEventSchema>;

export type ApprovalDocument = v.InferOutput<typeof approvalSchema>;
export type RememberedApprovalDocument = v.InferOutput<typeof rememberedApprovalSchema>;
export type PinsDocument = v.InferOutput<typeof pinsSchema>;
export type PinAcceptance = v.InferOutput<typeof pinAcceptanceSchema>;
export type ServerDocument = v.InferOutput<typeof serverSchema>;
export type ConnectionDocument = v.InferOutput<typeof connectionSchema>;
export type ModesDocument = v.InferOutput<typeof modesSchema>;
export type ModeDocument = v.InferOutput<typeof modeSchema>;
export type FleetDocument = v.InferOutput<typeof fleetSchema>;
export type ClientDocument = v.InferOutput<typeof clientSchema>;
export type CallDocument = v.InferOutput<typeof callSchema>;
export type LimitDocument = v.InferOutput<typeof limitSchema>;
export type AlertDocument = v.InferOutput<typeof alertSchema>;
export type ServerFindingsDocument = v.InferOutput<typeof serverFindingsSchema>;
export type LogDocument = v.InferOutput<typeof logSchema>;
export type LogEntryDocument = v.InferOutput<typeof logEntrySchema>;
export type ExposureCostsDocument = v.InferOutput<typeof exposureCostsSchema>;
export type FoundToolsDocument = v.InferOutput<typeof foundToolsSchema>;
export type ToolsDocument = v.InferOutput<typeof toolsSchema>;
export type CatalogDocument = v.InferOutput<typeof catalogSchema>;
export type HubDocument = v.InferOutput<typeof hubSchema>;
export type HubFile = v.InferOutput<typeof hubFileSchema>;
export type KeptCallDocument = v.InferOutput<typeof keptCallSchema>;
export type EndedCallDocument = v.InferOutput<typeof endedCallSchema>;
export type UsageDocument = v.InferOutput<typeof usageSchema>;
export type ToolDefinitionDocument = v.InferOutput<typeof toolDefinitionSchema>;
export type ClientAppRequest = v.InferOutput<typeof clientAppRequestSchema>;
export type EventDocument = v.InferOutput<typeof eventSchema>;
/** An event of a kind of this version, unless it was truncated. */
export type HubEventDocument = v.InferOutput<(typeof eventSchemas)[EventKind]>;
