import * as v from "valibot";
import {
  delay,
  filled,
  flag,
  globs,
  interval,
  json,
  limit,
  record,
  size,
  table,
  text,
} from "./fields.ts";
import type { Packaged } from "./package.ts";
import type { Path, Problem } from "./problem.ts";
import { processEntries } from "./process.ts";
import { type Remote, remoteEntries } from "./remote.ts";
import type { SecretSource } from "./secrecy.ts";

/* Unknown keys, and values that are no table where one is wanted, are found by `validate` (validate.ts). */

export { delay, globs, limit, size };

export const hubSchema = v.strictObject({
  name: v.exactOptional(filled),
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
  httpToken: v.exactOptional(filled),
});

const ATTEMPTS = "a whole number, 0 for no limit";

const reconnect = v.strictObject({
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
    v.pipe(v.number(ATTEMPTS), v.integer(ATTEMPTS), v.minValue(0, ATTEMPTS)),
  ),
});

const limits = {
  connectTimeout: v.exactOptional(limit),
  callTimeout: v.exactOptional(limit),
  maxCallTimeout: v.exactOptional(limit),
  maxMessage: v.exactOptional(size),
  healthInterval: v.exactOptional(interval),
  reconnect: v.exactOptional(reconnect),
  idleStop: v.exactOptional(delay),
};

export const defaultsSchema = v.strictObject(limits);

/** Which of what a server lists is shown, and under which names. */
const shown = {
  allow: v.exactOptional(globs),
  deny: v.exactOptional(globs),
  rename: v.exactOptional(record(filled)),
};

/** Annotations of tools (schema, ToolAnnotations). */
const annotations = v.strictObject({
  title: v.exactOptional(text),
  readOnlyHint: v.exactOptional(flag),
  destructiveHint: v.exactOptional(flag),
  idempotentHint: v.exactOptional(flag),
  openWorldHint: v.exactOptional(flag),
});

/** Which tools are shown and how, how long they may take, and what is set in them. */
const tools = v.strictObject({
  ...shown,
  timeout: v.exactOptional(record(limit)),
  describe: v.exactOptional(record(filled)),
  meta: v.exactOptional(record(record(json))),
  annotations: v.exactOptional(record(annotations)),
});

const PLUGIN = "the name of a plugin: letters, digits, _ and -";

/** A server has either a `command` or a `package`, with those of `processEntries`, or a `url`, with those of `remoteEntries`, or a `plugin`. */
export const serverSchema = v.strictObject({
  ...processEntries,
  ...remoteEntries,
  plugin: v.exactOptional(v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, PLUGIN))),
  enabled: v.exactOptional(flag),
  prefix: v.exactOptional(text),
  isolation: v.exactOptional(v.picklist(["shared", "perClient"], `"shared" or "perClient"`)),
  lazy: v.exactOptional(flag),
  era: v.exactOptional(v.picklist(["auto", "legacy", "modern"], `"auto", "legacy" or "modern"`)),
  ...limits,
  tools: v.exactOptional(tools),
  prompts: v.exactOptional(v.strictObject(shown)),
  skills: v.exactOptional(v.strictObject({ allow: shown.allow, deny: shown.deny })),
});

export const pluginSchema = v.strictObject({
  use: filled,
  options: v.exactOptional(table),
  servers: v.exactOptional(globs),
  tools: v.exactOptional(globs),
});

/** The top of a file of our own. What stands under its keys is checked by itself. */
export const fileSchema = v.strictObject({
  $schema: v.exactOptional(text),
  hub: v.exactOptional(v.unknown()),
  defaults: v.exactOptional(v.unknown()),
  servers: v.exactOptional(v.unknown()),
  plugins: v.exactOptional(v.unknown()),
  secrets: v.exactOptional(v.unknown()),
  search: v.exactOptional(v.unknown()),
});

/** What a file says, durations in ms and sizes in bytes; what it does not say is absent. */
export type HubInput = Readonly<Omit<v.InferOutput<typeof hubSchema>, "httpToken">>;
export type LimitsInput = Readonly<v.InferOutput<typeof defaultsSchema>>;
export type ServerInput = Readonly<v.InferOutput<typeof serverSchema>>;
export type PluginInput = Readonly<v.InferOutput<typeof pluginSchema>>;

/**
 * `separator` stands between prefix and tool name; `nameLimit` counts the characters of a name as a client
 * shows it, with `clientPrefix` in front; `listWait` (ms) is how long the first list waits for slow servers;
 * `parallelStarts` is how many servers may be starting at a time.
 */
export type HubSettings = Required<HubInput>;

/** What clients over HTTP have to bear, as a file says it; `${…}` is filled in when serving begins. Apart from the settings, as it is not to be shown. */
export interface HttpToken {
  readonly text: string;
  /** Where it stands, absolute. */
  readonly file: string;
  readonly baseDir: string;
}

/**
 * What to do when a server is lost. `exponential` waits `base` ms, then twice as long each time, `max` ms at most, less a
 * random part of up to `jitter` (0…1) of it; `immediate` does not wait. After `maxAttempts` in a row (0 = no limit) it has failed.
 */
export type Reconnect = Required<NonNullable<LimitsInput["reconnect"]>>;

/**
 * Limits of one server. `connectTimeout` (ms): spawn, handshake and first listing; `callTimeout` (ms): one
 * call, pushed back by progress up to `maxCallTimeout` (ms); `maxMessage` (bytes): one message;
 * `healthInterval` (ms, 0 = never): how often a silent server is asked whether it lives; `idleStop` (ms, 0 = never):
 * how long without calls until it is stopped. `startLimit` (ms): when a start that has taken longer than `connectTimeout`,
 * and for which nobody waits any more, is ended; absent: at `connectTimeout`, because the manifest itself says that key.
 */
export type Limits = Required<Omit<LimitsInput, "reconnect">> & {
  readonly reconnect: Reconnect;
  readonly startLimit?: number;
};

/** Which prompts are shown and how; always in terms of the names that the server itself gives them. */
export interface PromptRules {
  /** Globs; undefined = all. */
  readonly allow: readonly string[] | undefined;
  /** Globs; win over `allow`. */
  readonly deny: readonly string[];
  /** Remote name → name to show (before the prefix). Has no prototype. */
  readonly rename: Readonly<Record<string, string>>;
}

/** Which skills are shown: globs of their names or URIs (ext-skills, Skill URIs). */
export interface SkillRules {
  /** undefined = all. */
  readonly allow?: readonly string[] | undefined;
  /** Win over `allow`. */
  readonly deny?: readonly string[] | undefined;
}

/** The same of tools, and how long they may take. */
export interface ToolRules extends PromptRules {
  /** Remote name → ms, instead of `callTimeout`. Has no prototype. */
  readonly timeout: Readonly<Record<string, number>>;
  /** Remote name → description instead of the server's. Has no prototype; absent = none. */
  readonly describe?: Readonly<Record<string, string>>;
  /** Remote name → members of `_meta` that are set; others stay the server's. */
  readonly meta?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Remote name → annotations that are set; others stay the server's. They also decide whether a call may be repeated. */
  readonly annotations?: Readonly<Record<string, ToolAnnotations>>;
}

/** Annotations that the manifest sets (schema, ToolAnnotations). */
export type ToolAnnotations = Readonly<v.InferOutput<typeof annotations>>;

interface Entry {
  /** The key in the manifest. */
  readonly name: string;
  readonly enabled: boolean;
  /** What stands before the names of its tools and prompts; empty = nothing, and no separator either. */
  readonly prefix: string;
}

/** What every server that can be run has, whatever it is. */
interface Runnable extends Entry, Limits {
  /** Whether all clients use one process, or each has its own. */
  readonly isolation: "shared" | "perClient";
  /** It is started by the first call of one of its tools, not with the hub. */
  readonly lazy: boolean;
  /** Which era of the protocol it is spoken to in; `auto`: its client's, if it speaks that. */
  readonly era: "auto" | "legacy" | "modern";
  readonly tools: ToolRules;
  readonly prompts: PromptRules;
  /** Absent = all are shown. */
  readonly skills?: SkillRules | undefined;
}

/** What a server has whose texts may hold `${…}`. */
interface Templated {
  /** Folder of the file that the server comes from: relative paths start there. */
  readonly baseDir: string;
  /** Which forms of `${…}` are understood. */
  readonly syntax: "toolmux" | "foreign";
  /** Where its secrets are looked for, in this order; absent: `SECRET_SOURCES`. */
  readonly secretSources?: readonly SecretSource[];
}

/** A server that is started as a child process and spoken to over its stdin and stdout. */
export interface StdioServer extends Runnable, Templated {
  readonly kind: "stdio";
  /** `command`, `args`, `env` and `cwd` are as written: `resolveServer` fills in the `${…}` at spawn. */
  readonly command: string;
  readonly args: readonly string[];
  /** If a package was named, `command` is what runs it best. */
  readonly package?: Packaged | undefined;
  /** Has no prototype. */
  readonly env: Readonly<Record<string, string>>;
  /** Names of variables to take over from the hub's own environment, where set. */
  readonly inheritEnv: readonly string[];
  /** Relative to `baseDir`; undefined = the hub's own working directory. */
  readonly cwd: string | undefined;
}

/** A server that is reached over HTTP. */
export interface RemoteServer extends Runnable, Remote, Templated {
  readonly kind: "remote";
}

/** Where something stands, for what is to be said of it. */
export interface Place {
  readonly file: string;
  readonly path: Path;
}

/** A server in this process, which a plugin makes. */
export interface PluginServer extends Runnable {
  readonly kind: "plugin";
  /** The name of the plugin that has it. */
  readonly plugin: string;
  /** Where the manifest says that, or where it names the plugin. */
  readonly origin: Place;
  /** Which of the sets of plugins that there have been it belongs to; 0 while that is not known. Another one has other servers. */
  readonly set: number;
}

/** A server that is not in this process, and may need secrets. */
export type OuterServer = StdioServer | RemoteServer;

/** A server that can be run. */
export type RunnableServer = OuterServer | PluginServer;

/** An entry of a client's file that cannot be run; it costs only itself. */
export interface UnsupportedServer extends Entry {
  readonly kind: "unsupported";
  /** Why, as the end of a sentence without a full stop. */
  readonly reason: string;
}

/** A server whose table has problems. It is never started with a part of its table ignored, and costs only itself. */
export interface InvalidServer extends Entry {
  readonly kind: "invalid";
  /** At least one; in the order of the text. */
  readonly problems: readonly Problem[];
}

export type ServerSpec = RunnableServer | UnsupportedServer | InvalidServer;

/** Whether a server can be run. */
export function isRunnable(spec: ServerSpec): spec is RunnableServer {
  return spec.kind !== "unsupported" && spec.kind !== "invalid";
}

/** A plugin that is to be used, as one entry of `[[plugins]]` says. */
export interface PluginSpec {
  /** As written: the name of a built-in plugin or of a package, or a path. */
  readonly use: string;
  /** Absolute, if `use` is a path. */
  readonly path: string | undefined;
  /** Not checked yet; undefined if there are none. Has no prototype. */
  readonly options: Readonly<Record<string, unknown>> | undefined;
  /** Globs: the servers that it is for; undefined = all. */
  readonly servers: readonly string[] | undefined;
  /** Globs: the tools that it is for, by their servers' own names; undefined = all. */
  readonly tools: readonly string[] | undefined;
  /** Folder of the file that it comes from. */
  readonly baseDir: string;
  readonly origin: Place;
}

/** What the user wants; immutable. */
export interface Manifest {
  readonly hub: HubSettings;
  readonly httpToken?: HttpToken | undefined;
  /** In the order of first mention over all sources. */
  readonly servers: readonly ServerSpec[];
  /** What a server has that sets nothing by itself. */
  readonly defaults: Limits;
  /** Where servers are looked for that are in no manifest yet; absent: in the usual directories. */
  readonly directories?: readonly string[] | undefined;
  /** In the order of the files and in them; the first is the outermost. */
  readonly plugins: readonly PluginSpec[];
  /** The files that it was made of, absolute, in the order of merging. */
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

/** `startLimit` where the manifest does not say `connectTimeout`, in ms: a first start may download a lot. */
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
