/**
 * The manifest: what the user wants, read from TOML or JSON files.
 * `Manifest` and its `ServerSpec`s are immutable and fully defaulted. Start with the types below, then `loadManifest`
 * in `load.ts`, which discovers, parses, validates and merges files (`discover.ts`, `parse.ts`, `read.ts`, `merge.ts`).
 * `resolve.ts` fills in `${…}` when a server starts.
 */
import * as v from "valibot";
import {
  delay,
  flag,
  globs,
  interval,
  json,
  limit,
  nonEmptyText,
  record,
  size,
  table,
  text,
} from "./fields.ts";
import {
  ALL_RUNNERS,
  PACKAGE_FORMAT,
  type PackageLaunch,
  type PackageSpec,
  parsePackage,
} from "./package.ts";
import {
  describeValue,
  findNearest,
  type KeyPath,
  type Problem,
  type UnplacedProblem,
  validate,
} from "./problems.ts";
import { isTable, type Table } from "./table.ts";

/* The manifest's keys of a server that runs as a process. */

const packageSchema = v.pipe(
  text,
  v.rawTransform(({ dataset: { value }, addIssue, NEVER }): PackageSpec => {
    const parsed = parsePackage(value);
    if (parsed === undefined) addIssue({ message: PACKAGE_FORMAT });
    return parsed ?? NEVER;
  }),
);

/** The keys that determine how the process is started. */
export const processEntries = {
  command: v.exactOptional(nonEmptyText),
  package: v.exactOptional(packageSchema),
  runner: v.exactOptional(v.picklist(ALL_RUNNERS, `one of ${ALL_RUNNERS.join(", ")}`)),
  args: v.exactOptional(v.array(text, "an array of strings")),
  env: v.exactOptional(record(text)),
  inheritEnv: v.exactOptional(
    v.array(
      v.pipe(text, v.regex(/^[^\s=*]+$/, "the name of an environment variable")),
      "an array of names of environment variables",
    ),
  ),
  cwd: v.exactOptional(nonEmptyText),
};

export const PROCESS_KEYS = Object.keys(processEntries) as readonly (keyof typeof processEntries)[];

/* The manifest's keys of a server that is reached over HTTP. */

const PORT = "the number of a port, 1 to 65535";

/** OAuth settings. The texts may hold `${…}`. */
const oauthSchema = v.strictObject({
  grant: v.exactOptional(
    v.picklist(
      ["authorizationCode", "clientCredentials"],
      `"authorizationCode" or "clientCredentials"`,
    ),
  ),
  clientId: v.exactOptional(nonEmptyText),
  clientSecret: v.exactOptional(nonEmptyText),
  privateKey: v.exactOptional(nonEmptyText),
  keyAlgorithm: v.exactOptional(nonEmptyText),
  clientMetadataUrl: v.exactOptional(nonEmptyText),
  scopes: v.exactOptional(v.array(nonEmptyText, "an array of scopes")),
  issuer: v.exactOptional(nonEmptyText),
  callbackPort: v.exactOptional(
    v.pipe(v.number(PORT), v.integer(PORT), v.minValue(1, PORT), v.maxValue(65_535, PORT)),
  ),
});

const AUTH = ["auto", "none", "oauth"] as const;

/** The keys that determine how the server is reached. */
export const remoteEntries = {
  url: v.exactOptional(nonEmptyText),
  transport: v.exactOptional(v.picklist(["auto", "http", "sse"], `"auto", "http" or "sse"`)),
  headers: v.exactOptional(record(text)),
  keyFile: v.exactOptional(nonEmptyText),
  ca: v.exactOptional(nonEmptyText),
  auth: v.exactOptional(v.picklist(AUTH, `"auto", "none" or "oauth"`)),
  oauth: v.exactOptional(oauthSchema),
};

export const REMOTE_KEYS = Object.keys(remoteEntries) as readonly (keyof typeof remoteEntries)[];

/**
 * OAuth settings of a server. `grant`: a person logs in with a browser (`authorizationCode`), or the hub authenticates
 * itself (`clientCredentials`, with a secret or a private key in PEM). `scopes` undefined: those that the server asks
 * for. `issuer`: the only authorization server that may receive the client's secret. `callbackPort` undefined: any free
 * port. The texts may hold `${…}`.
 */
export type OAuthSettings = Readonly<v.InferOutput<typeof oauthSchema>>;

/** How an HTTP server is reached. All texts are as written; `resolveRemote` resolves their `${…}` at each connect. */
export interface RemoteSettings {
  readonly url: string;
  /** `auto`: Streamable HTTP, falling back to the older HTTP+SSE transport (2024-11-05). */
  readonly transport: "auto" | "http" | "sse";
  /** Has no prototype. */
  readonly headers: Readonly<Record<string, string>>;
  /** A file with a bearer token, read at each connect; relative to the manifest's folder. */
  readonly keyFile: string | undefined;
  /** A file with PEM certificates that are trusted in addition to the system's; relative to the manifest's folder. */
  readonly ca: string | undefined;
  /** `auto`: OAuth if the server requires it and no other credentials are set; `oauth`: from the first request. */
  readonly auth: (typeof AUTH)[number];
  readonly oauth: OAuthSettings;
}

/* Unknown keys, and other values in place of tables, are reported by `validate` (problems.ts). */

export { delay, globs, limit, size };

export const hubSchema = v.strictObject({
  name: v.exactOptional(nonEmptyText),
  separator: v.exactOptional(
    v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, "letters, digits, _ and - (at least one)")),
  ),
  nameLimit: v.exactOptional(v.pipe(v.number("a whole number"), v.integer("a whole number"))),
  clientPrefix: v.exactOptional(text),
  listWait: v.exactOptional(delay),
  parallelStarts: v.exactOptional(
    v.pipe(
      v.number("a whole number, at least 1"),
      v.integer("a whole number, at least 1"),
      v.minValue(1, "a whole number, at least 1"),
    ),
  ),
  httpToken: v.exactOptional(nonEmptyText),
});

const ATTEMPTS_FORMAT = "a whole number, 0 for no limit";

const reconnectSchema = v.strictObject({
  policy: v.exactOptional(
    v.picklist(["none", "immediate", "exponential"], `"none", "immediate" or "exponential"`),
  ),
  base: v.exactOptional(limit),
  max: v.exactOptional(limit),
  jitter: v.exactOptional(
    v.pipe(
      v.number("a number between 0 and 1"),
      v.minValue(0, "a number between 0 and 1"),
      v.maxValue(1, "a number between 0 and 1"),
    ),
  ),
  maxAttempts: v.exactOptional(
    v.pipe(v.number(ATTEMPTS_FORMAT), v.integer(ATTEMPTS_FORMAT), v.minValue(0, ATTEMPTS_FORMAT)),
  ),
});

const limitEntries = {
  connectTimeout: v.exactOptional(limit),
  callTimeout: v.exactOptional(limit),
  maxCallTimeout: v.exactOptional(limit),
  maxMessage: v.exactOptional(size),
  healthInterval: v.exactOptional(interval),
  reconnect: v.exactOptional(reconnectSchema),
  idleStop: v.exactOptional(delay),
};

export const defaultsSchema = v.strictObject(limitEntries);

/** Which items of a server are shown, and under which names. */
const visibilityEntries = {
  allow: v.exactOptional(globs),
  deny: v.exactOptional(globs),
  rename: v.exactOptional(record(nonEmptyText)),
};

/** Annotations of tools (schema, ToolAnnotations). */
const annotationsSchema = v.strictObject({
  title: v.exactOptional(text),
  readOnlyHint: v.exactOptional(flag),
  destructiveHint: v.exactOptional(flag),
  idempotentHint: v.exactOptional(flag),
  openWorldHint: v.exactOptional(flag),
});

/** Which tools are shown and under which names, their timeouts, and the members of a tool that are overridden. */
const toolsSchema = v.strictObject({
  ...visibilityEntries,
  timeout: v.exactOptional(record(limit)),
  describe: v.exactOptional(record(nonEmptyText)),
  meta: v.exactOptional(record(record(json))),
  annotations: v.exactOptional(record(annotationsSchema)),
});

const PLUGIN_NAME = "the name of a plugin: letters, digits, _ and -";

/**
 * A server has exactly one of `command`, `package` (with the keys of `processEntries`), `url` (with those of
 * `remoteEntries`) and `plugin`.
 */
export const serverSchema = v.strictObject({
  ...processEntries,
  ...remoteEntries,
  plugin: v.exactOptional(v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, PLUGIN_NAME))),
  enabled: v.exactOptional(flag),
  prefix: v.exactOptional(text),
  isolation: v.exactOptional(v.picklist(["shared", "perClient"], `"shared" or "perClient"`)),
  lazy: v.exactOptional(flag),
  era: v.exactOptional(v.picklist(["auto", "legacy", "modern"], `"auto", "legacy" or "modern"`)),
  ...limitEntries,
  tools: v.exactOptional(toolsSchema),
  prompts: v.exactOptional(v.strictObject(visibilityEntries)),
  skills: v.exactOptional(
    v.strictObject({ allow: visibilityEntries.allow, deny: visibilityEntries.deny }),
  ),
});

export const pluginSchema = v.strictObject({
  use: nonEmptyText,
  options: v.exactOptional(table),
  servers: v.exactOptional(globs),
  tools: v.exactOptional(globs),
});

/** The root of a manifest file. The values are validated separately. */
export const fileSchema = v.strictObject({
  $schema: v.exactOptional(text),
  hub: v.exactOptional(v.unknown()),
  defaults: v.exactOptional(v.unknown()),
  servers: v.exactOptional(v.unknown()),
  plugins: v.exactOptional(v.unknown()),
  secrets: v.exactOptional(v.unknown()),
  search: v.exactOptional(v.unknown()),
});

/** The settings of one file, durations in ms and sizes in bytes; keys that are not set are absent. */
export type HubInput = Readonly<Omit<v.InferOutput<typeof hubSchema>, "httpToken">>;
export type LimitsInput = Readonly<v.InferOutput<typeof defaultsSchema>>;
export type ServerInput = Readonly<v.InferOutput<typeof serverSchema>>;
export type PluginInput = Readonly<v.InferOutput<typeof pluginSchema>>;

/**
 * `separator` stands between prefix and tool name; `nameLimit` is the maximum length of a name in characters, including
 * the client's own `clientPrefix`; `listWait` (ms) is how long the first list waits for slow servers; `parallelStarts`
 * is how many servers may start at a time.
 */
export type HubSettings = Required<HubInput>;

/**
 * The token that HTTP clients must send, as written; `${…}` is resolved when the HTTP server starts. Kept apart from
 * the settings, because those are shown.
 */
export interface HttpToken {
  readonly text: string;
  /** The file that sets it, absolute. */
  readonly file: string;
  readonly baseDir: string;
}

/**
 * What to do when a server is lost. `exponential` waits `base` ms, doubled each time up to `max` ms, less a random
 * fraction of up to `jitter` (0…1); `immediate` does not wait. After `maxAttempts` failures in a row (0: no limit) the
 * server is failed.
 */
export type Reconnect = Required<NonNullable<LimitsInput["reconnect"]>>;

/**
 * Limits of one server. `connectTimeout` (ms): spawn, handshake and first listing; `callTimeout` (ms): one call,
 * extended by progress up to `maxCallTimeout` (ms); `maxMessage` (bytes): one message; `healthInterval` (ms, 0: never):
 * how often a silent server is pinged; `idleStop` (ms, 0: never): how long without calls until it is stopped.
 * `startLimit` (ms): when a start that has exceeded `connectTimeout`, and that no request waits for, is aborted;
 * absent: at `connectTimeout`, because the manifest sets that key.
 */
export type Limits = Required<Omit<LimitsInput, "reconnect">> & {
  readonly reconnect: Reconnect;
  readonly startLimit?: number;
};

/** Which prompts are shown, and under which names; all keys are the server's own names. */
export interface PromptRules {
  /** Globs; undefined: all. */
  readonly allow: readonly string[] | undefined;
  /** Globs; take precedence over `allow`. */
  readonly deny: readonly string[];
  /** Remote name → exposed name before the prefix. Has no prototype. */
  readonly rename: Readonly<Record<string, string>>;
}

/** Which skills are shown: globs of their names or URIs (ext-skills, Skill URIs). */
export interface SkillRules {
  /** undefined: all. */
  readonly allow?: readonly string[] | undefined;
  /** Takes precedence over `allow`. */
  readonly deny?: readonly string[] | undefined;
}

/** Which tools are shown, and under which names, with their timeouts and overrides. */
export interface ToolRules extends PromptRules {
  /** Timeouts in ms by the server's own tool name; replace `callTimeout`. Has no prototype. */
  readonly timeout: Readonly<Record<string, number>>;
  /** Descriptions that replace the server's, by the server's own tool name. Has no prototype. */
  readonly describe?: Readonly<Record<string, string>>;
  /** Members to set in a tool's `_meta`, by the server's own tool name; other members are kept. */
  readonly meta?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /**
   * Remote name → annotations to set; the server's other annotations are kept. They also decide whether a call may be
   * retried.
   */
  readonly annotations?: Readonly<Record<string, ToolAnnotations>>;
}

/** Annotations that the manifest sets (schema, ToolAnnotations). */
export type ToolAnnotations = Readonly<v.InferOutput<typeof annotationsSchema>>;

interface ServerBase {
  /** The key in the manifest. */
  readonly name: string;
  readonly enabled: boolean;
  /** The prefix of the names of its tools and prompts; empty: no prefix and no separator. */
  readonly prefix: string;
}

/** What all runnable servers have in common. */
interface RunnableBase extends ServerBase, Limits {
  /** Whether all clients share one process, or each has its own. */
  readonly isolation: "shared" | "perClient";
  /** Whether the server is started by the first call of one of its tools, instead of when the hub starts. */
  readonly lazy: boolean;
  /** The MCP protocol era used with the server; `auto`: the client's era if the server supports it. */
  readonly era: "auto" | "legacy" | "modern";
  readonly tools: ToolRules;
  readonly prompts: PromptRules;
  /** Absent: all. */
  readonly skills?: SkillRules | undefined;
}

/** A server whose texts may hold `${…}`. */
interface TemplatedServer {
  /** The folder of the server's file; relative paths start there. */
  readonly baseDir: string;
  /** The placeholders that are understood: those of manifests, or those of clients. */
  readonly syntax: "toolmux" | "client";
  /** Where the server's secrets are looked up, in this order; absent: `SECRET_SOURCES`. */
  readonly secretSources?: readonly SecretSource[];
}

/** A server that runs as a child process and speaks over its stdin and stdout. */
export interface StdioServer extends RunnableBase, TemplatedServer {
  readonly kind: "stdio";
  /** `command`, `args`, `env` and `cwd` are as written: `resolveServer` resolves their `${…}` at each spawn. */
  readonly command: string;
  readonly args: readonly string[];
  /** If a package was named, `command` is its preferred runner. */
  readonly package?: PackageLaunch | undefined;
  /** Has no prototype. */
  readonly env: Readonly<Record<string, string>>;
  /** Names of variables to copy from the hub's own environment, where set. */
  readonly inheritEnv: readonly string[];
  /** Relative to `baseDir`; undefined: the hub's working directory. */
  readonly cwd: string | undefined;
}

/** A server that is reached over HTTP. */
export interface RemoteServer extends RunnableBase, RemoteSettings, TemplatedServer {
  readonly kind: "remote";
}

/** The file and the path of the keys that something comes from, for messages. */
export interface SpecSource {
  readonly file: string;
  readonly path: KeyPath;
}

/** A server that a plugin runs inside this process. */
export interface PluginServer extends RunnableBase {
  readonly kind: "plugin";
  /** The name of the plugin that provides it. */
  readonly plugin: string;
  /** Where the manifest names the server or the plugin. */
  readonly origin: SpecSource;
  /**
   * The number of the plugin set that the server belongs to; 0 while unknown. Each reload of the plugins creates a new
   * set with new servers.
   */
  readonly set: number;
}

/** A server outside of this process, which may need secrets. */
export type ExternalServer = StdioServer | RemoteServer;

/** A server that can be run. */
export type RunnableServer = ExternalServer | PluginServer;

/** An entry of a client's file that cannot be run; it affects only itself. */
export interface UnsupportedServer extends ServerBase {
  readonly kind: "unsupported";
  /** The end of a sentence, without a full stop. */
  readonly reason: string;
}

/** A server whose table has problems. It is never started with a part of its table ignored, and affects only itself. */
export interface InvalidServer extends ServerBase {
  readonly kind: "invalid";
  /** At least one; in the order of the text. */
  readonly problems: readonly Problem[];
}

export type ServerSpec = RunnableServer | UnsupportedServer | InvalidServer;

/** Whether a server can be run. */
export function isRunnable(spec: ServerSpec): spec is RunnableServer {
  return spec.kind !== "unsupported" && spec.kind !== "invalid";
}

/** A plugin, as configured by one entry of `[[plugins]]`. */
export interface PluginSpec {
  /** As written: the name of a built-in plugin or of a package, or a path. */
  readonly use: string;
  /** Absolute, if `use` is a path. */
  readonly path: string | undefined;
  /** The plugin's options, not validated yet; undefined if there are none. Has no prototype. */
  readonly options: Readonly<Record<string, unknown>> | undefined;
  /** Globs: the servers that it applies to; undefined: all. */
  readonly servers: readonly string[] | undefined;
  /** Globs: the tools that it applies to, by remote name; undefined: all. */
  readonly tools: readonly string[] | undefined;
  /** The folder of its file. */
  readonly baseDir: string;
  readonly origin: SpecSource;
}

/** What the user wants; immutable. */
export interface Manifest {
  readonly hub: HubSettings;
  readonly httpToken?: HttpToken | undefined;
  /** In the order of first mention over all files. */
  readonly servers: readonly ServerSpec[];
  /** The limits of servers that set none. */
  readonly defaults: Limits;
  /** The registries that `toolmux search` uses; absent: the default ones. */
  readonly registries?: readonly string[] | undefined;
  /** In the order of the files, then in the order within each; the first is the outermost. */
  readonly plugins: readonly PluginSpec[];
  /** The files that it was merged from, absolute, in the order of merging. */
  readonly sources: readonly string[];
}

export const HUB_DEFAULTS: HubSettings = {
  name: "toolmux",
  separator: "__",
  nameLimit: 64,
  clientPrefix: "mcp__toolmux__",
  listWait: 5_000,
  parallelStarts: 24,
};

/**
 * The default of `startLimit` where the manifest does not set `connectTimeout`, in ms: a first start may download a
 * lot.
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

/* The manifest's table `secrets`: where `${secret:NAME}` is looked up, and whether `${cmd:…}` may be used. */

/** All secret sources, in the default order of look-up. */
export const SECRET_SOURCES = ["environment", "file", "keychain"] as const;

export type SecretSource = (typeof SECRET_SOURCES)[number];

const SOURCE_NAMES = SECRET_SOURCES.map((name) => `"${name}"`).join(", ");

export const secretsSchema = v.strictObject({
  sources: v.exactOptional(
    v.pipe(
      v.array(v.picklist(SECRET_SOURCES, `one of ${SOURCE_NAMES}`), `an array of ${SOURCE_NAMES}`),
      v.nonEmpty(`at least one of ${SOURCE_NAMES}`),
    ),
  ),
  commands: v.exactOptional(flag),
});

/** The secret settings of one file. */
export interface SecretSettings {
  /** undefined: not set. */
  readonly sources: readonly SecretSource[] | undefined;
  /** Whether servers of this file may use `${cmd:…}`. */
  readonly commands: boolean;
}

export const DEFAULT_SECRET_SETTINGS: SecretSettings = { sources: undefined, commands: false };

/** Reads the table `secrets` of a manifest. */
export function readSecretSettings(secretsTable: Table): {
  readonly settings: SecretSettings;
  readonly problems: readonly UnplacedProblem[];
} {
  const checked = validate(secretsSchema, secretsTable["secrets"] ?? {}, ["secrets"]);
  if (checked.ok) {
    const { sources, commands = false } = checked.value;
    const duplicates = findDuplicates(sources ?? []);
    return { settings: { sources, commands }, problems: duplicates };
  }
  const problems = checked.problems.map((problem) =>
    suggestSource(problem, secretsTable["secrets"]),
  );
  // `commands` counts even if other settings of the table are invalid: otherwise every `${cmd:…}` would be reported as
  // not allowed, too.
  const commands = isTable(secretsTable["secrets"]) && secretsTable["secrets"]["commands"] === true;
  return { settings: { sources: undefined, commands }, problems };
}

function findDuplicates(sources: readonly SecretSource[]): readonly UnplacedProblem[] {
  return sources.flatMap((name, at) =>
    sources.indexOf(name) === at
      ? []
      : [{ path: ["secrets", "sources", at], at: "value" as const, message: "stands there twice" }],
  );
}

/** If the problem is an unknown secret source, adds the source that was probably meant to the message. */
function suggestSource(problem: UnplacedProblem, secretsTable: unknown): UnplacedProblem {
  const [, key, at] = problem.path;
  const sources = isTable(secretsTable) ? secretsTable["sources"] : undefined;
  if (key !== "sources" || typeof at !== "number" || !Array.isArray(sources)) return problem;
  const found: unknown = sources[at];
  const nearest = typeof found === "string" ? findNearest(found, SECRET_SOURCES) : undefined;
  if (nearest === undefined) return problem;
  return {
    ...problem,
    message: `expected one of ${SOURCE_NAMES}, found ${describeValue(found, true)}; did you mean "${nearest}"?`,
  };
}
