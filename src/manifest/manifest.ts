/**
 * The manifest: the user's configuration, in the form that the rest of the program uses. `Manifest` and its
 * `ServerSpec`s are immutable and fully defaulted. `loadManifest` (load.ts) reads it from files, whose content
 * `schema.ts` describes; `resolve.ts` fills in `${…}` when a server starts.
 */
import type { Env } from "../base/paths.ts";
import type { Agents, Models } from "./agents.ts";
import type { CallLimitsInput, HubLimitsInput } from "./call-limits.ts";
import type { AgentFilesConfig, FleetConfig } from "./files/file-config.ts";
import type { ModeSpec } from "./modes.ts";
import type { APPROVAL_LEVELS } from "./approval-levels.ts";
import type { Isolation } from "./isolations.ts";
import type { NamedClient } from "./named-clients.ts";
import type { PinFile } from "./pin-file.ts";
import type { PackageLaunch } from "./package.ts";
import type { TelemetrySpec } from "./telemetry.ts";
import type { Problem, SpecSource } from "./problems.ts";
import type { Check } from "../scan/checks.ts";
import type {
  PIN_LEVELS,
  SCAN_LEVELS,
  HubInput,
  LimitsInput,
  SecretSource,
  ServerInput,
  ToolSearchInput,
} from "./schema.ts";

/**
 * OAuth settings of a server. `grant`: a person logs in with a browser (`authorizationCode`), or the hub
 * authenticates itself (`clientCredentials`, with a secret or a private key in PEM). `scopes` undefined: the scopes
 * that the server asks for. `issuer`: the only authorization server that may receive the client's secret.
 * `callbackPort` undefined: any free port. The texts may hold `${…}`.
 */
export type OAuthSettings = NonNullable<ServerInput["oauth"]>;

/**
 * The connection settings of an HTTP server. All texts are as written; `resolveRemote` resolves their `${…}` at each
 * connect.
 */
export interface RemoteSettings {
  readonly url: string;
  /** `auto`: Streamable HTTP, falling back to the older HTTP+SSE transport (2024-11-05). */
  readonly transport: "auto" | "http" | "sse";
  /** HTTP headers by name. Has no prototype. */
  readonly headers: Readonly<Record<string, string>>;
  /** A file with a bearer token, which is read at each connect; relative to the manifest's folder. */
  readonly keyFile: string | undefined;
  /** A file with PEM certificates that are trusted in addition to the system's; relative to the manifest's folder. */
  readonly ca: string | undefined;
  /** `auto`: OAuth if the server requires it and no other credentials are set; `oauth`: from the first request. */
  readonly auth: "auto" | "none" | "oauth";
  readonly oauth: OAuthSettings;
}

/**
 * The settings of the hub. `separator` stands between prefix and tool name; `nameLimit` is the maximum length of a
 * name in characters, including the client's own `clientPrefix`; `listWait` (ms) is how long the first list waits for
 * slow servers; `parallelStarts` is how many servers may start at a time; `shared` is whether clients on stdio share one
 * hub, which ends `linger` (ms) after its last client; `conversationDays` and `conversationSize` (bytes) are how long and
 * how much of conversations with agents is kept; `mode` is the name of the default mode of
 * clients; `expose` is the default exposure of clients, and `exposeBudget` (tokens) the limit of `direct` under `auto`.
 */
export type HubSettings = Required<HubInput>;

/**
 * How tools are searched. `always`: the tools that every client's list has; undefined: none. `limit`: the number of hits
 * by default. `readOnlyCall`: whether `call_read_only_tool` is offered. `synonyms`: lists of words of equal meaning.
 */
export type ToolSearchSettings = Omit<Required<ToolSearchInput>, "always"> &
  Pick<ToolSearchInput, "always">;

/** The variable of the environment whose servers are added to those of the manifest's files, as JSON. */
export const SERVERS_VARIABLE = "TOOLMUX_SERVERS";

/** The text of that variable; empty if there is none. */
export function serversVariableOf(env: Env): string {
  return env[SERVERS_VARIABLE]?.trim() ?? "";
}

export const TOOL_SEARCH_DEFAULTS: ToolSearchSettings = {
  limit: 8,
  readOnlyCall: true,
  synonyms: [],
};

/**
 * The token that HTTP clients must send, as written; `${…}` is resolved when the HTTP server starts. It is not part
 * of `HubSettings`, because the settings are shown to users.
 */
export interface HttpToken {
  readonly text: string;
  /** The file that sets the token, absolute. */
  readonly file: string;
  readonly baseDir: string;
}

/**
 * How the hub reconnects to a lost server. `exponential` waits `base` ms, doubled each time up to `max` ms, less a
 * random fraction of up to `jitter` (0…1); `immediate` does not wait. After `maxAttempts` failures in a row (0: no
 * limit) the server counts as failed.
 */
export type Reconnect = Required<NonNullable<LimitsInput["reconnect"]>>;

/**
 * Limits of one server. `connectTimeout` (ms): spawn, handshake and first listing; `callTimeout` (ms): one call,
 * extended by progress up to `maxCallTimeout` (ms); `maxMessage` (bytes): one message; `healthInterval` (ms, 0:
 * never): how often a silent server is pinged; `idleStop` (ms, 0: never): the time without calls after which the
 * server is stopped. `startLimit` (ms): the time after which a start is aborted; absent: it is aborted at
 * `connectTimeout`.
 */
export type Limits = Required<Omit<LimitsInput, "reconnect">> & {
  readonly reconnect: Reconnect;
  readonly startLimit?: number;
};

/**
 * Which calls a person has to approve before they are sent. `never`: none; `auto`: calls of tools that are not known
 * to be read-only; `always`: all.
 */
export type ApprovalLevel = (typeof APPROVAL_LEVELS)[number];

/**
 * What happens when a server's definitions are not those that were accepted. `off`: nothing; `warn`: an alert; `block`:
 * new and changed ones are neither shown nor called.
 */
export type PinLevel = (typeof PIN_LEVELS)[number];
/** What happens when the scan finds suspicious text in what a server lists; see `SCAN_LEVELS`. */
export type ScanLevel = (typeof SCAN_LEVELS)[number];

/** Which calls a person has to approve if neither the server nor the tool has a setting. */
export interface ApprovalDefaults {
  /** The level for calls of clients. Undefined if the manifest does not set it, which means `never`. */
  readonly approval?: ApprovalLevel | undefined;
  /** The level for calls of agents. Undefined if the manifest does not set it, which means `auto`. */
  readonly agentApproval?: ApprovalLevel | undefined;
  /**
   * How long a call waits for a person who watches the pending approvals, in ms; undefined: `DEFAULT_APPROVAL_WAIT`, or
   * 0 if the calling client can be asked.
   */
  readonly wait?: number | undefined;
  /** How long a call waits for its approval, in ms. */
  readonly timeout: number;
}

export const APPROVAL_DEFAULTS: ApprovalDefaults = { timeout: 120_000 };

/** Time that a call of a client that cannot be asked waits for a person who watches the pending approvals, in ms. */
export const DEFAULT_APPROVAL_WAIT = 30_000;

/** The prompts that are shown, and their names; all keys are the server's own names. */
export interface PromptRules {
  /** Globs of the names that are shown; undefined: all. */
  readonly allow: readonly string[] | undefined;
  /** Globs of the names that are hidden, even if `allow` matches them. */
  readonly deny: readonly string[];
  /** The server's own name → the exposed name without the prefix. Has no prototype. */
  readonly rename: Readonly<Record<string, string>>;
}

/** The skills that are shown, as globs of their names or URIs (ext-skills, Skill URIs). */
export interface SkillRules {
  /** The skills that are shown; undefined: all. */
  readonly allow?: readonly string[] | undefined;
  /** The skills that are hidden, even if `allow` matches them. */
  readonly deny?: readonly string[] | undefined;
}

/** The tools that are shown, their names, their timeouts, and the members of a tool that are overridden. */
export interface ToolRules extends PromptRules {
  /** Timeouts in ms by the server's own tool name; replace `callTimeout`. Has no prototype. */
  readonly timeout: Readonly<Record<string, number>>;
  /** Descriptions that replace the server's, by the server's own tool name. Has no prototype. */
  readonly describe?: Readonly<Record<string, string>>;
  /** Members to set in a tool's `_meta`, by the server's own tool name; other members are kept. */
  readonly meta?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /**
   * Annotations to set, by the server's own tool name; the server's other annotations are kept. The resulting
   * annotations also decide whether a call may be retried.
   */
  readonly annotations?: Readonly<Record<string, ToolAnnotations>>;
  /** Which calls a person has to approve, by the server's own tool name or a glob of such names. Has no prototype. */
  readonly approval?: Readonly<Record<string, ApprovalLevel>>;
  /** How many calls are allowed, by the server's own tool name or a glob of such names. Has no prototype. */
  readonly limits?: Readonly<Record<string, CallLimitsInput>>;
}

/** Annotations that the manifest sets (schema, ToolAnnotations). */
export type ToolAnnotations = NonNullable<NonNullable<ServerInput["tools"]>["annotations"]>[string];

interface ServerBase {
  /** The server's key in the manifest. */
  readonly name: string;
  readonly enabled: boolean;
  /** The prefix of the names of the server's tools and prompts; empty: no prefix and no separator. */
  readonly prefix: string;
}

/** How a server is shown to people. */
export interface ServerPresentation {
  /** The server's name for people. */
  readonly title?: string | undefined;
  readonly description?: string | undefined;
  /** The server's icon: a character, or the URL of a picture. */
  readonly icon?: string | undefined;
}

/** A server's name for people: its title and its name in the manifest, or just the name. */
export function displayNameOf({
  name,
  title,
}: ServerPresentation & { readonly name: string }): string {
  return title === undefined ? name : `${title} (${name})`;
}

/** A server's name in tables: its name in the manifest, which commands take, and then its title. */
export function tableNameOf({
  name,
  title,
}: ServerPresentation & { readonly name: string }): string {
  return title === undefined ? name : `${name} (${title})`;
}

/** The fields of `spec` that say how the server is shown; fields that are not set are absent. */
export function presentationOf(spec: ServerSpec | undefined): ServerPresentation {
  if (spec === undefined || !isRunnable(spec)) return {};
  const { title, description, icon } = spec;
  return {
    ...(title !== undefined && { title }),
    ...(description !== undefined && { description }),
    ...(icon !== undefined && { icon }),
  };
}

interface RunnableBase extends ServerBase, ServerPresentation, Limits {
  readonly isolation: Isolation;
  /** Whether the server is started by the first call of one of its tools, instead of when the hub starts. */
  readonly lazy: boolean;
  /** The MCP protocol era used with the server; `auto`: the client's era if the server supports it. */
  readonly era: "auto" | "legacy" | "modern";
  readonly tools: ToolRules;
  /** Which calls a person has to approve; absent: the default applies. */
  readonly approval?: ApprovalLevel | undefined;
  /** Time that a call waits for a person who watches the pending approvals, in ms; absent: the default applies. */
  readonly approvalWait?: number | undefined;
  /** How many calls of its tools are allowed; absent: any number. */
  readonly limits?: CallLimitsInput | undefined;
  /** What happens when its definitions are not those that were accepted; absent: `warn`. */
  readonly pin?: PinLevel | undefined;
  /** What happens when the scan finds suspicious text; absent: `warn`. */
  readonly scan?: ScanLevel | undefined;
  /** Checks that are not made, by the name of a tool or prompt at the server; `*`: everything. */
  readonly scanIgnore?: Readonly<Record<string, readonly Check[]>> | undefined;
  readonly prompts: PromptRules;
  /** The skills that are shown; absent: all. */
  readonly skills?: SkillRules | undefined;
}

/** A server whose texts may hold `${…}`. */
interface TemplatedServer {
  /** The folder of the server's file; relative paths start there. */
  readonly baseDir: string;
  /** The syntax of the placeholders: that of manifests, or that of client files. */
  readonly syntax: "toolmux" | "client";
  /** The sources in which the server's secrets are looked up, in this order; absent: `SECRET_SOURCES`. */
  readonly secretSources?: readonly SecretSource[];
}

/** A server that runs as a child process and speaks over its stdin and stdout. */
export interface StdioServer extends RunnableBase, TemplatedServer {
  readonly kind: "stdio";
  /** `command`, `args`, `env` and `cwd` are as written: `resolveServer` resolves their `${…}` at each spawn. */
  readonly command: string;
  readonly args: readonly string[];
  /** Set if the manifest names a package instead of a command: `command` is then the package's preferred runner. */
  readonly package?: PackageLaunch | undefined;
  /** Environment variables to set, by name. Has no prototype. */
  readonly env: Readonly<Record<string, string>>;
  /** Names of environment variables to copy from the hub's own environment, if they are set there. */
  readonly inheritEnv: readonly string[];
  /** The working directory, relative to `baseDir`; undefined: the hub's working directory. */
  readonly cwd: string | undefined;
}

/** A server that is reached over HTTP. */
export interface RemoteServer extends RunnableBase, RemoteSettings, TemplatedServer {
  readonly kind: "remote";
}

/** A server that a plugin runs inside this process. */
export interface PluginServer extends RunnableBase {
  readonly kind: "plugin";
  /** The name of the plugin that provides the server. */
  readonly plugin: string;
  /** The place in the manifest that names the server or the plugin. */
  readonly origin: SpecSource;
  /**
   * The number of the set of plugins that the server comes from: each reload of the plugins creates a new set, with new
   * servers. 0 while the number is unknown.
   */
  readonly set: number;
}

/** A server that other hubs of the fleet export. */
export interface FleetServer extends RunnableBase {
  readonly kind: "fleet";
  /** The name that it has in the fleet, and the tenant as which it is used. */
  readonly fleet: string;
  readonly tenant: string;
  /** The name of the only hub whose server is used; undefined: any that exports it. */
  readonly machine: string | undefined;
  readonly spread: NonNullable<ServerInput["spread"]>;
  /** Whether the server is there because `fleet.import` matches its name, and not because the manifest names it. */
  readonly isFound: boolean;
}

/** The settings of the fleet. Texts are as written: their `${…}` are resolved when the hub connects to NATS. */
export type FleetSettings = FleetConfig;

/** A server outside of this process, which may need secrets. */
export type ExternalServer = StdioServer | RemoteServer;

export type RunnableServer = ExternalServer | PluginServer | FleetServer;

/** An entry of a client's file that cannot be run. Other servers are not affected. */
export interface UnsupportedServer extends ServerBase {
  readonly kind: "unsupported";
  /** The reason, as the end of a sentence without a full stop. */
  readonly reason: string;
}

/**
 * A server whose table has problems. It is not started, even if a part of its table is valid. Other servers are not
 * affected.
 */
export interface InvalidServer extends ServerBase {
  readonly kind: "invalid";
  /** The problems of the server's table: at least one, in the order of the text. */
  readonly problems: readonly Problem[];
  /** The names of the secrets that the server's table mentions, even in parts that are not valid. */
  readonly secrets: readonly string[];
}

export type ServerSpec = RunnableServer | UnsupportedServer | InvalidServer;

/** Whether a server is outside of this process: it may have placeholders, secrets and relative paths. */
export function isExternal(spec: ServerSpec): spec is ExternalServer {
  switch (spec.kind) {
    case "stdio":
    case "remote":
      return true;
    case "plugin":
    case "fleet":
    case "unsupported":
    case "invalid":
      return false;
  }
}

export function isRunnable(spec: ServerSpec): spec is RunnableServer {
  return spec.kind !== "unsupported" && spec.kind !== "invalid";
}

/** A plugin, as configured by one entry of `[[plugins]]`. */
export interface PluginSpec {
  /** As written: the name of a built-in plugin or of a package, or a path. */
  readonly use: string;
  /** The absolute path, if `use` is a path. */
  readonly path: string | undefined;
  /** The plugin's options, not validated yet; undefined if there are none. Has no prototype. */
  readonly options: Readonly<Record<string, unknown>> | undefined;
  /** Globs: the servers that the plugin applies to; undefined: all. */
  readonly servers: readonly string[] | undefined;
  /** Globs: the tools that the plugin applies to, by remote name; undefined: all. */
  readonly tools: readonly string[] | undefined;
  /** The folder of the manifest file with this entry. */
  readonly baseDir: string;
  readonly origin: SpecSource;
}

/** The manifest merged from all files; immutable. */
export interface Manifest {
  readonly hub: HubSettings;
  readonly httpToken?: HttpToken | undefined;
  /** The pin file; absent: none. */
  readonly pinFile?: PinFile | undefined;
  /** The servers, in the order in which the files first mention them. */
  readonly servers: readonly ServerSpec[];
  /** The modes, in the order in which the files first mention them, without `full`; absent: none. */
  readonly modes?: readonly ModeSpec[] | undefined;
  /** The HTTP clients that have their own tokens; absent: none. */
  readonly clients?: readonly NamedClient[] | undefined;
  /** The fleet that the hub belongs to; absent: none. */
  readonly fleet?: FleetSettings | undefined;
  /** The default limits, for servers that do not set their own. */
  readonly defaults: Limits;
  /** The models that agents use; absent: none. */
  readonly models?: Models | undefined;
  /** The agents; absent: none. */
  readonly agents?: Agents | undefined;
  /** The places of agent files; absent: the default places. The last file that sets them counts. */
  readonly agentFiles?: AgentFilesConfig | undefined;
  /** The approval settings of the table `defaults`; absent: `APPROVAL_DEFAULTS`. */
  readonly approval?: ApprovalDefaults | undefined;
  /** How many calls of all clients, and of each client, are allowed; absent: any number. */
  readonly limits?: HubLimitsInput | undefined;
  /** Where traces and metrics go; absent: the environment decides. */
  readonly telemetry?: TelemetrySpec | undefined;
  /** Settings for the search for tools; absent: `TOOL_SEARCH_DEFAULTS`. */
  readonly toolSearch?: ToolSearchSettings | undefined;
  /** The registries that `toolmux search` uses; absent: the default ones. */
  readonly registries?: readonly string[] | undefined;
  /**
   * The plugins, in the order of the files and, within a file, in the order of its text. The first plugin is the
   * outermost.
   */
  readonly plugins: readonly PluginSpec[];
  /** The files that the manifest was merged from, absolute, in the order of merging. */
  readonly sources: readonly string[];
}

/** The name of the mode that hides nothing, which always exists. */
export const FULL_MODE = "full";

export const HUB_DEFAULTS: HubSettings = {
  name: "toolmux",
  separator: "__",
  nameLimit: 64,
  clientPrefix: "mcp__toolmux__",
  listWait: 4_000,
  parallelStarts: 24,
  control: true,
  instructions:
    "These are the tools of several MCP servers. A tool's name begins with the name of its server: SERVER{separator}TOOL. Use each like any other tool, by its whole name.",
  evictSessions: false,
  shared: false,
  linger: 600_000,
  conversationDays: 90,
  conversationSize: 256 * 1024 * 1024,
  mode: FULL_MODE,
  expose: "direct",
  exposeBudget: 10_000,
};

/**
 * The default of `startLimit` if the manifest does not set `connectTimeout`, in ms. It is long, because a first start
 * may download a lot.
 */
export const START_LIMIT = 300_000;

export const LIMIT_DEFAULTS: Limits = {
  connectTimeout: 30_000,
  callTimeout: 60_000,
  maxCallTimeout: 900_000,
  maxMessage: 64 * 1024 * 1024,
  healthInterval: 30_000,
  reconnect: { policy: "exponential", base: 1_000, max: 60_000, jitter: 0.2, maxAttempts: 0 },
  idleStop: 0,
};

/** The largest message limit of all servers, in bytes. A longer message cannot be for any server. */
export function messageLimit({ servers }: Pick<Manifest, "servers">): number {
  const limits = servers.map((spec) => (isRunnable(spec) ? spec.maxMessage : 0));
  return Math.max(LIMIT_DEFAULTS.maxMessage, ...limits);
}
