/**
 * What a file of a manifest may hold: the schema of every table, with the notes for toolmux.schema.json and
 * docs/configuration.md. Start with `fileSchema` and `serverSchema`; `read.ts` validates files with them, and
 * `manifest.ts` has what becomes of the files.
 */
import * as v from "valibot";
import {
  delay,
  flag,
  globs,
  interval,
  issuePath,
  json,
  limit,
  nonEmptyText,
  optionalKey,
  record,
  size,
  table,
  text,
  uncheckedTable,
  withNotes,
} from "./fields.ts";
import { parseTemplate, unknownSchemeMessage } from "./interpolate.ts";
import {
  ALL_RUNNERS,
  PACKAGE_FORMAT,
  type PackageSpec,
  parsePackage,
  runnersOf,
  VARIABLE_NAME,
} from "./package.ts";
import { isTable } from "./table.ts";

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
const processEntries = {
  command: optionalKey(nonEmptyText, {
    title: "Command",
    description:
      "The program to start: a name that is looked up in PATH, or a path (~/ is the home folder, a relative one starts at this file). ${env:NAME}, ${env:NAME:-default}, ${file:path} and ${secret:name} are filled in at the start.",
    examples: ["npx", "uvx", "~/bin/server"],
  }),
  package: optionalKey(packageSchema, {
    title: "Package",
    description:
      "In the place of command: a package of npm or PyPI, or an image, that is downloaded if need be and run by whatever is there for it: npx, bunx or deno; uvx or pipx; docker or podman. A container is given the variables of env and inheritEnv, and no others.",
    examples: ["npm:@scope/name@1.2.3", "pypi:name==1.2", "docker:ghcr.io/owner/name:1.2"],
    pattern: String.raw`^(npm:(@[\w~][\w.~-]*/)?[\w~]|pypi:[A-Za-z0-9]|docker:[A-Za-z0-9])[\w./:@=+~^!-]*$`,
  }),
  runner: optionalKey(v.picklist(ALL_RUNNERS, `one of ${ALL_RUNNERS.join(", ")}`), {
    title: "What runs the package",
    description: "By default the first that is there of those that can.",
    examples: ["bunx", "uvx"],
  }),
  args: optionalKey(v.array(text, "an array of strings"), {
    title: "Arguments",
    description: "What the program is given, one word each; no shell is involved.",
    default: [],
    examples: [["-y", "@modelcontextprotocol/server-filesystem", "${env:HOME}/work"]],
  }),
  env: optionalKey(record(text), {
    title: "Environment",
    description:
      "Variables for the server, beside a small safe set. Keep secrets out of the file: ${secret:name}, ${env:NAME} or ${file:path}.",
    default: {},
    examples: [{ LOG_LEVEL: "warn", TOKEN: "${file:~/.secrets/token}" }],
  }),
  inheritEnv: optionalKey(
    v.array(
      v.pipe(text, v.regex(/^[^\s=*]+$/, "the name of an environment variable")),
      "an array of names of environment variables",
    ),
    {
      title: "Inherited variables",
      description: "Names of variables that the server gets from toolmux's own environment.",
      default: [],
      examples: [["HTTPS_PROXY", "AWS_PROFILE"]],
    },
  ),
  cwd: optionalKey(nonEmptyText, {
    title: "Working directory",
    description:
      "Where the server is started; relative to this file. By default where toolmux was started.",
    examples: [".", "~/work"],
  }),
};

export const PROCESS_KEYS = Object.keys(processEntries) as readonly (keyof typeof processEntries)[];

/* The manifest's keys of a server that is reached over HTTP. */

const PORT = "the number of a port, 1 to 65535";

/** OAuth settings. The texts may hold `${…}`. */
const oauthSchema = table({
  grant: optionalKey(
    v.picklist(
      ["authorizationCode", "clientCredentials"],
      `"authorizationCode" or "clientCredentials"`,
    ),
    {
      title: "How",
      description:
        '"authorizationCode": a person allows it in a browser. "clientCredentials": toolmux itself is known to the server, by clientSecret or privateKey.',
      default: "authorizationCode",
      examples: ["authorizationCode", "clientCredentials"],
    },
  ),
  clientId: optionalKey(nonEmptyText, {
    title: "Client",
    description: "What the authorization server knows toolmux as, if it is registered there.",
    examples: ["toolmux"],
  }),
  clientSecret: optionalKey(nonEmptyText, {
    title: "Secret of the client",
    description: "What it proves that with.",
    examples: ["${secret:linear/client}"],
  }),
  privateKey: optionalKey(nonEmptyText, {
    title: "Private key of the client",
    description: "In PEM; in the place of a secret.",
    examples: ["${file:~/.secrets/linear.pem}"],
  }),
  keyAlgorithm: optionalKey(nonEmptyText, {
    title: "Algorithm of the key",
    description: "How is signed with it.",
    examples: ["ES256", "RS256"],
  }),
  clientMetadataUrl: optionalKey(nonEmptyText, {
    title: "Description of the client",
    description: "A URL that is the client's name, and under which it is described.",
    examples: ["https://example.com/toolmux.json"],
  }),
  scopes: optionalKey(v.array(nonEmptyText, "an array of scopes"), {
    title: "Scopes",
    description: "What is asked for; by default what the server names.",
    examples: [["read", "write"]],
  }),
  issuer: optionalKey(nonEmptyText, {
    title: "Authorization server",
    description: "The only one that is trusted with the client's secret.",
    examples: ["https://login.example.com"],
  }),
  callbackPort: optionalKey(
    v.pipe(v.number(PORT), v.integer(PORT), v.minValue(1, PORT), v.maxValue(65_535, PORT)),
    {
      title: "Port",
      description: "Where the browser comes back to on this machine; by default any that is free.",
      examples: [8976],
    },
  ),
});

/** The keys that determine how the server is reached. */
const remoteEntries = {
  url: optionalKey(nonEmptyText, {
    title: "URL",
    description:
      "In the place of command: where a server over HTTP is. The texts of all keys about it may hold ${env:NAME}, ${file:path} and ${secret:name}, which are filled in at each connect.",
    examples: ["https://example.com/mcp", "http://127.0.0.1:3000/mcp"],
  }),
  transport: optionalKey(v.picklist(["auto", "http", "sse"], `"auto", "http" or "sse"`), {
    title: "Transport",
    description:
      '"http": Streamable HTTP. "sse": HTTP with SSE, as it was before. "auto": the first, and if the server has not got that, the second; what was found out is remembered.',
    default: "auto",
    examples: ["auto", "http", "sse"],
  }),
  headers: optionalKey(record(text), {
    title: "Headers",
    description: "What every request to the server bears.",
    default: {},
    examples: [{ Authorization: "Bearer ${secret:linear}" }],
  }),
  keyFile: optionalKey(nonEmptyText, {
    title: "File with a token",
    description: "A file that holds a bearer token; relative to this file, read at each connect.",
    examples: ["~/.secrets/linear"],
  }),
  ca: optionalKey(nonEmptyText, {
    title: "Certificates",
    description:
      "A file with certificates, in PEM, that are trusted beside the system's; relative to this file.",
    examples: ["company.pem"],
  }),
  auth: optionalKey(v.picklist(["auto", "none", "oauth"], `"auto", "none" or "oauth"`), {
    title: "Authorization",
    description:
      '"auto": OAuth if the server asks for it and has been given nothing else. "oauth": from the beginning. "none": never.',
    default: "auto",
    examples: ["auto", "oauth", "none"],
  }),
  oauth: optionalKey(oauthSchema, {
    title: "OAuth",
    description: "How a token is got for the server, where what it says of itself does not do.",
    default: {},
    examples: [{ clientId: "toolmux", scopes: ["read"] }],
  }),
};

export const REMOTE_KEYS = Object.keys(remoteEntries) as readonly (keyof typeof remoteEntries)[];

/** A text whose `${…}` are supported in the token. Those of plugins are not, because plugins are loaded later. */
const tokenSchema = v.pipe(
  nonEmptyText,
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const part of parseTemplate(dataset.value, "toolmux")) {
      if (part.kind === "fault") addIssue({ message: `found ${part.message}` });
      if (part.kind === "scheme" && part.scheme !== "secret")
        addIssue({ message: `found ${unknownSchemeMessage(part.scheme)}` });
    }
  }),
);

export const hubSchema = table({
  name: optionalKey(nonEmptyText, {
    title: "Name of the hub",
    description: "What toolmux calls itself towards clients.",
    examples: ["toolmux", "work"],
  }),
  separator: optionalKey(
    v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, "letters, digits, _ and - (at least one)")),
    {
      title: "Separator",
      description: "Stands between a server's prefix and a tool's name: files__read_file.",
      examples: ["__", "-"],
    },
  ),
  nameLimit: optionalKey(v.pipe(v.number("a whole number"), v.integer("a whole number")), {
    title: "Longest name",
    description:
      "How many characters of a tool's name clients accept, clientPrefix included. Longer names are shortened and end in a hash.",
    examples: [64, 128],
  }),
  clientPrefix: optionalKey(text, {
    title: "What clients put in front",
    description: "Some clients put this in front of every tool's name; it counts for nameLimit.",
    examples: ["mcp__toolmux__", ""],
  }),
  listWait: optionalKey(delay, {
    title: "Wait for the first list",
    description: "How long the first list of tools waits for servers that are slow to start.",
    examples: ["5s", "500ms", 0],
  }),
  parallelStarts: optionalKey(
    v.pipe(
      v.number("a whole number, at least 1"),
      v.integer("a whole number, at least 1"),
      v.minValue(1, "a whole number, at least 1"),
    ),
    {
      title: "Starts at a time",
      description:
        "How many servers may be starting at the same time; the others wait for their turn.",
      examples: [16, 4],
    },
  ),
  httpToken: optionalKey(tokenSchema, {
    title: "Token of clients over HTTP",
    description:
      "What clients of serve --http have to bear; --http-token-env wins over it. ${env:NAME}, ${file:PATH} and ${secret:NAME} are filled in when serving begins.",
    examples: ["${env:TOOLMUX_TOKEN}", "${file:~/.secrets/toolmux}"],
  }),
});

const ATTEMPTS_FORMAT = "a whole number, 0 for no limit";

const reconnectSchema = table({
  policy: optionalKey(
    v.picklist(["none", "immediate", "exponential"], `"none", "immediate" or "exponential"`),
    {
      title: "How",
      description:
        '"exponential" waits longer and longer between the attempts, "immediate" does not wait (set maxAttempts as well), "none" does not try again by itself.',
      examples: ["exponential", "immediate", "none"],
    },
  ),
  base: optionalKey(limit, {
    title: "First wait",
    description: "How long to wait before the second attempt; each further wait is twice as long.",
    examples: ["1s", "250ms"],
  }),
  max: optionalKey(limit, {
    title: "Longest wait",
    description: "How long to wait between two attempts at most; not less than base.",
    examples: ["60s", "5m"],
  }),
  jitter: optionalKey(
    v.pipe(
      v.number("a number between 0 and 1"),
      v.minValue(0, "a number between 0 and 1"),
      v.maxValue(1, "a number between 0 and 1"),
    ),
    {
      title: "Jitter",
      description:
        "The part of a wait that is left to chance, so that servers do not all come back at once: 0 for none, 1 for all of it.",
      examples: [0.2, 0],
    },
  ),
  maxAttempts: optionalKey(
    v.pipe(v.number(ATTEMPTS_FORMAT), v.integer(ATTEMPTS_FORMAT), v.minValue(0, ATTEMPTS_FORMAT)),
    {
      title: "Attempts",
      description:
        "After how many attempts in a row the server counts as failed; 0 for never giving up.",
      examples: [0, 5],
    },
  ),
});

const limitEntries = {
  connectTimeout: optionalKey(limit, {
    title: "Time to connect",
    description:
      "How long a server may take to start, to shake hands and to list its tools. Where it is not set, a server that takes longer is no longer waited for, but goes on starting for up to 5 minutes; where it is set, the server is ended then.",
    examples: ["30s", "2m"],
  }),
  callTimeout: optionalKey(limit, {
    title: "Time of a call",
    description:
      "How long a call may take. Progress that the server reports starts it anew, up to maxCallTimeout.",
    examples: ["60s", "500ms", "5m"],
  }),
  maxCallTimeout: optionalKey(limit, {
    title: "Time of a call in all",
    description: "How long a call may take in all, whatever progress it reports.",
    examples: ["15m", "1h"],
  }),
  maxMessage: optionalKey(size, {
    title: "Longest message",
    description: "The longest single message that is taken from a server.",
    examples: ["64MiB", "512KB", 1_000_000],
  }),
  healthInterval: optionalKey(interval, {
    title: "Time between health checks",
    description:
      "How often a server that is silent is asked whether it still answers: a second at least, or 0 for never.",
    examples: ["30s", "5m", 0],
  }),
  reconnect: optionalKey(reconnectSchema, {
    title: "Reconnecting",
    description:
      "What to do when a server is lost or does not start. Each key that is not set here is as in the defaults.",
    examples: [{ policy: "exponential", base: "1s", max: "60s" }, { policy: "none" }],
  }),
  idleStop: optionalKey(delay, {
    title: "Stop when idle",
    description:
      "After how long without a call a server is stopped; 0 for never. Its tools stay listed, and the next call starts it. Set 0 for a server that keeps something in memory.",
    examples: ["10m", 0],
  }),
};

/** The keys that a server has in common with `defaults`. */
export const LIMIT_KEYS = Object.keys(limitEntries) as readonly (keyof typeof limitEntries)[];

export const defaultsSchema = table(limitEntries);

/** Which prompts are shown, and under which names. */
const promptsSchema = table({
  allow: optionalKey(globs, {
    title: "Allowed prompts",
    description: "Only these are shown. * stands for any characters, ? for one.",
    examples: [["review_*"]],
  }),
  deny: optionalKey(globs, {
    title: "Denied prompts",
    description: "These are not shown, even if allow names them.",
    default: [],
    examples: [["draft_*"]],
  }),
  rename: optionalKey(record(nonEmptyText), {
    title: "Other names",
    description: "The server's name for a prompt, and the name to show (before the prefix).",
    default: {},
    examples: [{ summarize_all: "sum" }],
  }),
});

/** Which skills are shown. */
const skillsSchema = table({
  allow: optionalKey(globs, {
    title: "Allowed skills",
    description: "Only these are shown: names or URIs. * stands for any characters, ? for one.",
    examples: [["refunds", "skill://acme/*"]],
  }),
  deny: optionalKey(globs, {
    title: "Denied skills",
    description: "These are not shown, nor are their files, even if allow names them.",
    examples: [["draft-*"]],
  }),
});

/** Annotations of tools (schema, ToolAnnotations). */
const annotationsSchema = table({
  title: optionalKey(text, {
    title: "Title",
    description: "The tool's name for people.",
    examples: ["Read a file"],
  }),
  readOnlyHint: optionalKey(flag, {
    title: "Reads only",
    description: "The tool changes nothing: a call that was lost may be repeated.",
    examples: [true],
  }),
  destructiveHint: optionalKey(flag, {
    title: "Destructive",
    description: "The tool may destroy something.",
    examples: [false],
  }),
  idempotentHint: optionalKey(flag, {
    title: "Idempotent",
    description: "A second call changes nothing more: a call that was lost may be repeated.",
    examples: [true],
  }),
  openWorldHint: optionalKey(flag, {
    title: "Open world",
    description: "The tool reaches beyond its server, such as to the web.",
    examples: [false],
  }),
});

/** Which tools are shown and under which names, their timeouts, and the members of a tool that are overridden. */
const toolsSchema = table({
  allow: optionalKey(globs, {
    title: "Allowed tools",
    description: "Only these are shown. * stands for any characters, ? for one.",
    examples: [["read_*", "list_*"]],
  }),
  deny: optionalKey(globs, {
    title: "Denied tools",
    description: "These are not shown, even if allow names them.",
    default: [],
    examples: [["*_delete"]],
  }),
  rename: optionalKey(record(nonEmptyText), {
    title: "Other names",
    description: "The server's name for a tool, and the name to show (before the prefix).",
    default: {},
    examples: [{ read_text_file: "cat" }],
  }),
  timeout: optionalKey(record(limit), {
    title: "Time of single tools",
    description: "The server's name for a tool, and its limit in the place of callTimeout.",
    default: {},
    examples: [{ search_files: "5m" }],
  }),
  describe: optionalKey(record(nonEmptyText), {
    title: "Other descriptions",
    description: "The server's name for a tool, and the description that clients see.",
    default: {},
    examples: [{ read_text_file: "Reads a file of this project." }],
  }),
  meta: optionalKey(record(record(json)), {
    title: "Members of _meta",
    description:
      "The server's name for a tool, and members that are set in its _meta; the server's others stay.",
    default: {},
    examples: [{ read_text_file: { "anthropic/alwaysLoad": true } }],
  }),
  annotations: optionalKey(record(annotationsSchema), {
    title: "Annotations",
    description:
      "The server's name for a tool, and annotations that are set; the server's others stay.",
    default: {},
    examples: [{ read_text_file: { readOnlyHint: true } }],
  }),
});

const PLUGIN_NAME = "the name of a plugin: letters, digits, _ and -";

/**
 * A server has exactly one of `command`, `package` (with the keys of `processEntries`), `url` (with those of
 * `remoteEntries`) and `plugin`.
 */
export const serverSchema = table({
  ...processEntries,
  ...remoteEntries,
  plugin: optionalKey(v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, PLUGIN_NAME)), {
    title: "Plugin",
    description:
      "In the place of command: the name of the plugin that has this server, which then is no process.",
    examples: ["notes"],
  }),
  enabled: optionalKey(flag, {
    title: "Switched on",
    description: "false keeps the entry without using it.",
    default: true,
  }),
  prefix: optionalKey(text, {
    title: "Prefix",
    description:
      'What stands in front of the names of its tools; by default the server\'s key. "" for none. It must not contain hub.separator, nor begin or end with a character of it.',
    examples: ["fs", ""],
    pattern: "^[A-Za-z0-9_-]*$",
  }),
  isolation: optionalKey(v.picklist(["shared", "perClient"], `"shared" or "perClient"`), {
    title: "Who shares it",
    description:
      '"shared": all clients use one process. "perClient": each client has a process of its own.',
    default: "shared",
    examples: ["shared", "perClient"],
  }),
  lazy: optionalKey(flag, {
    title: "Start when called",
    description:
      "true starts the server with the first call of one of its tools, which are listed as they were last seen. Only if they were never seen it is started once to learn them.",
    default: false,
    examples: [true],
  }),
  era: optionalKey(v.picklist(["auto", "legacy", "modern"], `"auto", "legacy" or "modern"`), {
    title: "Era of the protocol",
    description:
      '"legacy": the revisions that begin with a handshake (up to 2025-11-25). "modern": 2026-07-28. "auto": what its client speaks, if the server speaks that too, and else the other; what was found out is remembered.',
    default: "auto",
    examples: ["auto", "legacy", "modern"],
  }),
  ...limitEntries,
  tools: optionalKey(toolsSchema, {
    title: "Tools",
    description: "Which tools are shown, and how. All names are those that the server gives them.",
  }),
  prompts: optionalKey(promptsSchema, {
    title: "Prompts",
    description:
      "Which prompts are shown, and how. All names are those that the server gives them.",
  }),
  skills: optionalKey(skillsSchema, {
    title: "Skills",
    description: "Which skills are shown, by their names or URIs.",
  }),
});

type MainKey = "plugin" | "url" | "package" | "command";

/** The keys that determine the kind of server; the first that is present counts. */
export const MAIN_KEYS: readonly MainKey[] = ["plugin", "url", "package", "command"];
/** The keys of a process, however it is started. */
const PROCESS_ONLY_KEYS = PROCESS_KEYS.filter(
  (key) => !["command", "package", "runner"].includes(key),
);
/** The keys that a server of each kind may have, of those that only some kinds have. */
const KEYS_OF_KIND: Readonly<Record<MainKey, readonly string[]>> = {
  plugin: [],
  url: REMOTE_KEYS.filter((key) => key !== "url"),
  package: [...PROCESS_ONLY_KEYS, "runner"],
  command: PROCESS_ONLY_KEYS,
};
const KINDS: Readonly<Record<MainKey, string>> = {
  plugin: "which neither starts a process nor goes anywhere",
  url: "where no process is started",
  package: "which starts a process and goes nowhere",
  command: "which is started as it is, and goes nowhere",
};

/**
 * A server of a manifest, with the rules about several of its keys. Servers of clients' files are checked with
 * `serverSchema` alone: clients ignore keys that do not belong together.
 */
export const manifestServerSchema = v.pipe(
  serverSchema,
  // A server is either a process, or remote, or part of a plugin. Wrong values of other keys do not matter here.
  v.rawCheck(({ dataset: { value: server }, addIssue }) => {
    if (!isTable(server)) return;
    const [first, ...others] = MAIN_KEYS.filter((key) => key in server);
    if (first === undefined) {
      addIssue({ message: "is missing", path: issuePath(server, ["command"], "value") });
      return;
    }
    for (const key of others) {
      const message = `cannot stand beside ${first}: a server is either started with a command or from a package, or has a url, or is part of a plugin`;
      addIssue({ message, path: issuePath(server, [key], "key") });
    }
    for (const key of new Set(MAIN_KEYS.flatMap((kind) => KEYS_OF_KIND[kind]))) {
      if (!(key in server) || KEYS_OF_KIND[first].includes(key)) continue;
      const message = `cannot stand beside ${first}, ${KINDS[first]}`;
      addIssue({ message, path: issuePath(server, [key], "key") });
    }
  }),
  // A package needs one of its runners, and the variables of a container need names that the runner can be given.
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed || dataset.value.package === undefined) return;
    const { package: packageSpec, runner, env = {} } = dataset.value;
    const { origin } = packageSpec;
    const runners = runnersOf(origin);
    if (runner !== undefined && !runners.includes(runner)) {
      const message = `cannot run a package of ${origin}; expected one of ${runners.join(", ")}`;
      addIssue({ message, path: issuePath(dataset.value, ["runner"], "value") });
    }
    for (const name of Object.keys(env)) {
      if (origin !== "docker" || VARIABLE_NAME.test(name)) continue;
      const message = "cannot be the name of a variable of a container";
      addIssue({ message, path: issuePath(dataset.value, ["env", name], "key") });
    }
  }),
);

export const pluginSchema = table({
  use: withNotes(nonEmptyText, {
    title: "Which plugin",
    description:
      "The name of one that is built in or of a package, or the path of a file: it begins with ./, ../ (from this file), / or ~/. Files and packages are code that toolmux runs.",
    examples: ["audit-log", "./my-plugin.ts"],
  }),
  options: optionalKey(uncheckedTable, {
    title: "Options",
    description: "What the plugin itself wants to know.",
    default: {},
    examples: [{ file: "calls.jsonl" }],
  }),
  servers: optionalKey(globs, {
    title: "For which servers",
    description:
      "By their keys in this file; * stands for any characters, ? for one. By default all.",
    examples: [["files", "git*"]],
  }),
  tools: optionalKey(globs, {
    title: "For which tools",
    description:
      "By the names that their servers give them; * stands for any characters, ? for one. By default all.",
    examples: [["read_*"]],
  }),
});

/* The manifest's table `search`: the registries that `toolmux search` uses. */

const REGISTRY_FORMAT = /^(?:official|smithery|(?:(?:official|smithery)=)?https?:\/\/[^\s?#@]+)$/;

export const registrySchema = table({
  directories: optionalKey(
    v.array(
      v.pipe(
        text,
        v.regex(REGISTRY_FORMAT, `"official", "smithery", a URL, or one of these with = and a URL`),
      ),
      "an array of directories",
    ),
    {
      title: "Directories",
      description:
        "official: that of MCP itself. smithery: that of Smithery. A URL: another one with the API of the first. smithery=URL: another one with that of the second.",
      default: ["official", "smithery"],
      examples: [["official"], ["https://directory.example.com"]],
    },
  ),
});

/** The root of a manifest file. The values are validated separately. */
export const fileSchema = table({
  $schema: optionalKey(text, { title: "Schema", description: "Where this schema is." }),
  hub: optionalKey(v.unknown(), { title: "The hub", description: "Settings of toolmux itself." }),
  defaults: optionalKey(v.unknown(), {
    title: "Defaults",
    description: "Limits of every server that does not set its own.",
  }),
  servers: optionalKey(v.unknown(), {
    title: "Servers",
    description: "Every server by a name of your choice, which is also its prefix.",
    examples: [{ files: { command: "npx", args: ["-y", "server-filesystem", "."] } }],
  }),
  plugins: optionalKey(v.unknown(), {
    title: "Plugins",
    description: "What changes calls and lists on their way; the first is the outermost.",
    examples: [[{ use: "audit-log", servers: ["files"] }]],
  }),
  secrets: optionalKey(v.unknown(), {
    title: "Secrets",
    description: "Where the values are that stand in no manifest.",
  }),
  search: optionalKey(v.unknown(), {
    title: "Search",
    description: "Where toolmux search and toolmux add look for servers.",
  }),
});

/** The settings of one file, durations in ms and sizes in bytes; keys that are not set are absent. */
export type HubInput = Readonly<Omit<v.InferOutput<typeof hubSchema>, "httpToken">>;
export type LimitsInput = Readonly<v.InferOutput<typeof defaultsSchema>>;
export type ServerInput = Readonly<v.InferOutput<typeof serverSchema>>;
export type PluginInput = Readonly<v.InferOutput<typeof pluginSchema>>;

/* The manifest's table `secrets`: where `${secret:NAME}` is looked up, and whether `${cmd:…}` may be used. */

/** All secret sources, in the default order of look-up. */
export const SECRET_SOURCES = ["environment", "file"] as const;

export type SecretSource = (typeof SECRET_SOURCES)[number];

/** The names of the sources, for messages. */
export const SOURCE_NAMES = SECRET_SOURCES.map((name) => `"${name}"`).join(", ");

export const secretsSchema = table({
  sources: optionalKey(
    v.pipe(
      v.array(v.picklist(SECRET_SOURCES, `one of ${SOURCE_NAMES}`), `an array of ${SOURCE_NAMES}`),
      v.nonEmpty(`at least one of ${SOURCE_NAMES}`),
      v.rawCheck(({ dataset, addIssue }) => {
        if (!dataset.typed) return;
        for (const [at, name] of dataset.value.entries()) {
          if (dataset.value.indexOf(name) === at) continue;
          addIssue({
            message: "stands there twice",
            path: issuePath(dataset.value, [at], "value"),
          });
        }
      }),
    ),
    {
      title: "Where secrets are",
      description:
        "Where ${secret:NAME} is looked for, in this order, by all servers; of several files the last that says it counts. environment: the variable NAME, or TOOLMUX_SECRET_NAME; file: the encrypted file of toolmux secret.",
      default: [...SECRET_SOURCES],
      examples: [["file"], ["environment"]],
    },
  ),
  commands: optionalKey(flag, {
    title: "Commands that give values",
    description:
      "true: servers of this very file may have ${cmd:COMMAND}, which runs a command, without a shell, and stands for what that prints.",
    default: false,
    examples: [true],
  }),
});

/** The secret settings of one file. */
export interface SecretSettings {
  /** undefined: not set. */
  readonly sources: readonly SecretSource[] | undefined;
  /** Whether servers of this file may use `${cmd:…}`. */
  readonly commands: boolean;
}

export const DEFAULT_SECRET_SETTINGS: SecretSettings = { sources: undefined, commands: false };
