/**
 * Run by bun; writes toolmux.schema.json: the manifest as a JSON Schema, for editors. What is allowed comes from the schemas
 * that the manifest is checked with; what a person wants to know about each key is here.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { type ConversionConfig, type JsonSchema, toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import {
  defaultsSchema,
  HUB_DEFAULTS,
  hubSchema,
  LIMIT_DEFAULTS,
  pluginSchema,
  PROCESS_KEYS,
  REMOTE_KEYS,
  SECRET_SOURCES,
  secretsSchema,
  serverSchema,
} from "../src/manifest/schema.ts";
import { registrySchema } from "../src/manifest/read.ts";
import { formatDuration } from "../src/manifest/fields.ts";

/** What an editor shows for a key. */
interface Notes {
  readonly title: string;
  readonly description: string;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  /** What the schema of the manifest checks elsewhere, over several keys. */
  readonly pattern?: string;
}

type Book = Readonly<Record<string, Notes>>;

const HUB: Book = {
  name: {
    title: "Name of the hub",
    description: "What toolmux calls itself towards clients.",
    default: HUB_DEFAULTS.name,
    examples: ["toolmux", "work"],
  },
  separator: {
    title: "Separator",
    description: "Stands between a server's prefix and a tool's name: files__read_file.",
    default: HUB_DEFAULTS.separator,
    examples: ["__", "-"],
  },
  nameLimit: {
    title: "Longest name",
    description:
      "How many characters of a tool's name clients accept, clientPrefix included. Longer names are shortened and end in a hash.",
    default: HUB_DEFAULTS.nameLimit,
    examples: [64, 128],
  },
  clientPrefix: {
    title: "What clients put in front",
    description: "Some clients put this in front of every tool's name; it counts for nameLimit.",
    default: HUB_DEFAULTS.clientPrefix,
    examples: ["mcp__toolmux__", ""],
  },
  listWait: {
    title: "Wait for the first list",
    description: "How long the first list of tools waits for servers that are slow to start.",
    default: formatDuration(HUB_DEFAULTS.listWait),
    examples: ["5s", "500ms", 0],
  },
  parallelStarts: {
    title: "Starts at a time",
    description:
      "How many servers may be starting at the same time; the others wait for their turn.",
    default: HUB_DEFAULTS.parallelStarts,
    examples: [16, 4],
  },
  httpToken: {
    title: "Token of clients over HTTP",
    description:
      "What clients of serve --http have to bear; --http-token-env wins over it. ${env:NAME}, ${file:PATH} and ${secret:NAME} are filled in when serving begins.",
    examples: ["${env:TOOLMUX_TOKEN}", "${file:~/.secrets/toolmux}"],
  },
};

const RECONNECT: Book = {
  policy: {
    title: "How",
    description:
      '"exponential" waits longer and longer between the attempts, "immediate" does not wait (set maxAttempts as well), "none" does not try again by itself.',
    default: LIMIT_DEFAULTS.reconnect.policy,
    examples: ["exponential", "immediate", "none"],
  },
  base: {
    title: "First wait",
    description: "How long to wait before the second attempt; each further wait is twice as long.",
    default: formatDuration(LIMIT_DEFAULTS.reconnect.base),
    examples: ["1s", "250ms"],
  },
  max: {
    title: "Longest wait",
    description: "How long to wait between two attempts at most; not less than base.",
    default: formatDuration(LIMIT_DEFAULTS.reconnect.max),
    examples: ["60s", "5m"],
  },
  jitter: {
    title: "Jitter",
    description:
      "The part of a wait that is left to chance, so that servers do not all come back at once: 0 for none, 1 for all of it.",
    default: LIMIT_DEFAULTS.reconnect.jitter,
    examples: [0.2, 0],
  },
  maxAttempts: {
    title: "Attempts",
    description:
      "After how many attempts in a row the server counts as failed; 0 for never giving up.",
    default: LIMIT_DEFAULTS.reconnect.maxAttempts,
    examples: [0, 5],
  },
};

const LIMITS: Book = {
  connectTimeout: {
    title: "Time to connect",
    description:
      "How long a server may take to start, to shake hands and to list its tools. Where it is not set, a server that takes longer is no longer waited for, but goes on starting for up to 5 minutes; where it is set, the server is ended then.",
    default: formatDuration(LIMIT_DEFAULTS.connectTimeout),
    examples: ["30s", "2m"],
  },
  callTimeout: {
    title: "Time of a call",
    description:
      "How long a call may take. Progress that the server reports starts it anew, up to maxCallTimeout.",
    default: formatDuration(LIMIT_DEFAULTS.callTimeout),
    examples: ["60s", "500ms", "5m"],
  },
  maxCallTimeout: {
    title: "Time of a call in all",
    description: "How long a call may take in all, whatever progress it reports.",
    default: formatDuration(LIMIT_DEFAULTS.maxCallTimeout),
    examples: ["15m", "1h"],
  },
  maxMessage: {
    title: "Longest message",
    description: "The longest single message that is taken from a server.",
    default: `${LIMIT_DEFAULTS.maxMessage / 2 ** 20}MiB`,
    examples: ["64MiB", "512KB", 1_000_000],
  },
  healthInterval: {
    title: "Time between health checks",
    description:
      "How often a server that is silent is asked whether it still answers: a second at least, or 0 for never.",
    default: formatDuration(LIMIT_DEFAULTS.healthInterval),
    examples: ["30s", "5m", 0],
  },
  reconnect: {
    title: "Reconnecting",
    description:
      "What to do when a server is lost or does not start. Each key that is not set here is as in the defaults.",
    default: LIMIT_DEFAULTS.reconnect,
    examples: [{ policy: "exponential", base: "1s", max: "60s" }, { policy: "none" }],
  },
  idleStop: {
    title: "Stop when idle",
    description:
      "After how long without a call a server is stopped; 0 for never. Its tools stay listed, and the next call starts it. Set 0 for a server that keeps something in memory.",
    default: LIMIT_DEFAULTS.idleStop,
    examples: ["10m", 0],
  },
};

const SERVER: Book = {
  command: {
    title: "Command",
    description:
      "The program to start: a name that is looked up in PATH, or a path (~/ is the home folder, a relative one starts at this file). ${env:NAME}, ${env:NAME:-default}, ${file:path} and ${secret:name} are filled in at the start.",
    examples: ["npx", "uvx", "~/bin/server"],
  },
  package: {
    title: "Package",
    description:
      "In the place of command: a package of npm or PyPI, or an image, that is downloaded if need be and run by whatever is there for it: npx, bunx or deno; uvx or pipx; docker or podman. A container is given the variables of env and inheritEnv, and no others.",
    examples: ["npm:@scope/name@1.2.3", "pypi:name==1.2", "docker:ghcr.io/owner/name:1.2"],
    pattern: String.raw`^(npm:(@[\w~][\w.~-]*/)?[\w~]|pypi:[A-Za-z0-9]|docker:[A-Za-z0-9])[\w./:@=+~^!-]*$`,
  },
  runner: {
    title: "What runs the package",
    description: "By default the first that is there of those that can.",
    examples: ["bunx", "uvx"],
  },
  plugin: {
    title: "Plugin",
    description:
      "In the place of command: the name of the plugin that has this server, which then is no process.",
    examples: ["notes"],
  },
  args: {
    title: "Arguments",
    description: "What the program is given, one word each; no shell is involved.",
    default: [],
    examples: [["-y", "@modelcontextprotocol/server-filesystem", "${env:HOME}/work"]],
  },
  env: {
    title: "Environment",
    description:
      "Variables for the server, beside a small safe set. Keep secrets out of the file: ${secret:name}, ${env:NAME} or ${file:path}.",
    default: {},
    examples: [{ LOG_LEVEL: "warn", TOKEN: "${file:~/.secrets/token}" }],
  },
  inheritEnv: {
    title: "Inherited variables",
    description: "Names of variables that the server gets from toolmux's own environment.",
    default: [],
    examples: [["HTTPS_PROXY", "AWS_PROFILE"]],
  },
  cwd: {
    title: "Working directory",
    description:
      "Where the server is started; relative to this file. By default where toolmux was started.",
    examples: [".", "~/work"],
  },
  url: {
    title: "URL",
    description:
      "In the place of command: where a server over HTTP is. The texts of all keys about it may hold ${env:NAME}, ${file:path} and ${secret:name}, which are filled in at each connect.",
    examples: ["https://example.com/mcp", "http://127.0.0.1:3000/mcp"],
  },
  transport: {
    title: "Transport",
    description:
      '"http": Streamable HTTP. "sse": HTTP with SSE, as it was before. "auto": the first, and if the server has not got that, the second; what was found out is remembered.',
    default: "auto",
    examples: ["auto", "http", "sse"],
  },
  headers: {
    title: "Headers",
    description: "What every request to the server bears.",
    default: {},
    examples: [{ Authorization: "Bearer ${secret:linear}" }],
  },
  keyFile: {
    title: "File with a token",
    description: "A file that holds a bearer token; relative to this file, read at each connect.",
    examples: ["~/.secrets/linear"],
  },
  ca: {
    title: "Certificates",
    description:
      "A file with certificates, in PEM, that are trusted beside the system's; relative to this file.",
    examples: ["company.pem"],
  },
  auth: {
    title: "Authorization",
    description:
      '"auto": OAuth if the server asks for it and has been given nothing else. "oauth": from the beginning. "none": never.',
    default: "auto",
    examples: ["auto", "oauth", "none"],
  },
  oauth: {
    title: "OAuth",
    description: "How a token is got for the server, where what it says of itself does not do.",
    default: {},
    examples: [{ clientId: "toolmux", scopes: ["read"] }],
  },
  enabled: {
    title: "Switched on",
    description: "false keeps the entry without using it.",
    default: true,
  },
  prefix: {
    title: "Prefix",
    description:
      'What stands in front of the names of its tools; by default the server\'s key. "" for none. It must not contain hub.separator, nor begin or end with a character of it.',
    examples: ["fs", ""],
    pattern: "^[A-Za-z0-9_-]*$",
  },
  isolation: {
    title: "Who shares it",
    description:
      '"shared": all clients use one process. "perClient": each client has a process of its own.',
    default: "shared",
    examples: ["shared", "perClient"],
  },
  era: {
    title: "Era of the protocol",
    description:
      '"legacy": the revisions that begin with a handshake (up to 2025-11-25). "modern": 2026-07-28. "auto": what its client speaks, if the server speaks that too, and else the other; what was found out is remembered.',
    default: "auto",
    examples: ["auto", "legacy", "modern"],
  },
  lazy: {
    title: "Start when called",
    description:
      "true starts the server with the first call of one of its tools, which are listed as they were last seen. Only if they were never seen it is started once to learn them.",
    default: false,
    examples: [true],
  },
  ...LIMITS,
  tools: {
    title: "Tools",
    description: "Which tools are shown, and how. All names are those that the server gives them.",
  },
  prompts: {
    title: "Prompts",
    description:
      "Which prompts are shown, and how. All names are those that the server gives them.",
  },
  skills: {
    title: "Skills",
    description: "Which skills are shown, by their names or URIs.",
  },
};

const OAUTH: Book = {
  grant: {
    title: "How",
    description:
      '"authorizationCode": a person allows it in a browser. "clientCredentials": toolmux itself is known to the server, by clientSecret or privateKey.',
    default: "authorizationCode",
    examples: ["authorizationCode", "clientCredentials"],
  },
  clientId: {
    title: "Client",
    description: "What the authorization server knows toolmux as, if it is registered there.",
    examples: ["toolmux"],
  },
  clientSecret: {
    title: "Secret of the client",
    description: "What it proves that with.",
    examples: ["${secret:linear/client}"],
  },
  privateKey: {
    title: "Private key of the client",
    description: "In PEM; in the place of a secret.",
    examples: ["${file:~/.secrets/linear.pem}"],
  },
  keyAlgorithm: {
    title: "Algorithm of the key",
    description: "How is signed with it.",
    examples: ["ES256", "RS256"],
  },
  clientMetadataUrl: {
    title: "Description of the client",
    description: "A URL that is the client's name, and under which it is described.",
    examples: ["https://example.com/toolmux.json"],
  },
  scopes: {
    title: "Scopes",
    description: "What is asked for; by default what the server names.",
    examples: [["read", "write"]],
  },
  issuer: {
    title: "Authorization server",
    description: "The only one that is trusted with the client's secret.",
    examples: ["https://login.example.com"],
  },
  callbackPort: {
    title: "Port",
    description: "Where the browser comes back to on this machine; by default any that is free.",
    examples: [8976],
  },
};

const PROMPTS: Book = {
  allow: {
    title: "Allowed prompts",
    description: "Only these are shown. * stands for any characters, ? for one.",
    examples: [["review_*"]],
  },
  deny: {
    title: "Denied prompts",
    description: "These are not shown, even if allow names them.",
    default: [],
    examples: [["draft_*"]],
  },
  rename: {
    title: "Other names",
    description: "The server's name for a prompt, and the name to show (before the prefix).",
    default: {},
    examples: [{ summarize_all: "sum" }],
  },
};

const SKILLS: Book = {
  allow: {
    title: "Allowed skills",
    description: "Only these are shown: names or URIs. * stands for any characters, ? for one.",
    examples: [["refunds", "skill://acme/*"]],
  },
  deny: {
    title: "Denied skills",
    description: "These are not shown, nor are their files, even if allow names them.",
    examples: [["draft-*"]],
  },
};

const TOOLS: Book = {
  allow: {
    title: "Allowed tools",
    description: "Only these are shown. * stands for any characters, ? for one.",
    examples: [["read_*", "list_*"]],
  },
  deny: {
    title: "Denied tools",
    description: "These are not shown, even if allow names them.",
    default: [],
    examples: [["*_delete"]],
  },
  rename: {
    title: "Other names",
    description: "The server's name for a tool, and the name to show (before the prefix).",
    default: {},
    examples: [{ read_text_file: "cat" }],
  },
  timeout: {
    title: "Time of single tools",
    description: "The server's name for a tool, and its limit in the place of callTimeout.",
    default: {},
    examples: [{ search_files: "5m" }],
  },
  describe: {
    title: "Other descriptions",
    description: "The server's name for a tool, and the description that clients see.",
    default: {},
    examples: [{ read_text_file: "Reads a file of this project." }],
  },
  meta: {
    title: "Members of _meta",
    description:
      "The server's name for a tool, and members that are set in its _meta; the server's others stay.",
    default: {},
    examples: [{ read_text_file: { "anthropic/alwaysLoad": true } }],
  },
  annotations: {
    title: "Annotations",
    description:
      "The server's name for a tool, and annotations that are set; the server's others stay.",
    default: {},
    examples: [{ read_text_file: { readOnlyHint: true } }],
  },
};

const ANNOTATIONS: Book = {
  title: { title: "Title", description: "The tool's name for people.", examples: ["Read a file"] },
  readOnlyHint: {
    title: "Reads only",
    description: "The tool changes nothing: a call that was lost may be repeated.",
    examples: [true],
  },
  destructiveHint: {
    title: "Destructive",
    description: "The tool may destroy something.",
    examples: [false],
  },
  idempotentHint: {
    title: "Idempotent",
    description: "A second call changes nothing more: a call that was lost may be repeated.",
    examples: [true],
  },
  openWorldHint: {
    title: "Open world",
    description: "The tool reaches beyond its server, such as to the web.",
    examples: [false],
  },
};

const SEARCH: Book = {
  directories: {
    title: "Directories",
    description:
      "official: that of MCP itself. smithery: that of Smithery. A URL: another one with the API of the first. smithery=URL: another one with that of the second.",
    default: ["official", "smithery"],
    examples: [["official"], ["https://directory.example.com"]],
  },
};

const PLUGIN: Book = {
  use: {
    title: "Which plugin",
    description:
      "The name of one that is built in or of a package, or the path of a file: it begins with ./, ../ (from this file), / or ~/. Files and packages are code that toolmux runs.",
    examples: ["audit-log", "./my-plugin.ts"],
  },
  options: {
    title: "Options",
    description: "What the plugin itself wants to know.",
    default: {},
    examples: [{ file: "calls.jsonl" }],
  },
  servers: {
    title: "For which servers",
    description:
      "By their keys in this file; * stands for any characters, ? for one. By default all.",
    examples: [["files", "git*"]],
  },
  tools: {
    title: "For which tools",
    description:
      "By the names that their servers give them; * stands for any characters, ? for one. By default all.",
    examples: [["read_*"]],
  },
};

const SECRETS: Book = {
  sources: {
    title: "Where secrets are",
    description:
      "Where ${secret:NAME} is looked for, in this order, by all servers; of several files the last that says it counts. environment: the variable NAME, or TOOLMUX_SECRET_NAME; file: the encrypted file of toolmux secret.",
    default: [...SECRET_SOURCES],
    examples: [["file"], ["environment"]],
  },
  commands: {
    title: "Commands that give values",
    description:
      "true: servers of this very file may have ${cmd:COMMAND}, which runs a command, without a shell, and stands for what that prints.",
    default: false,
    examples: [true],
  },
};

const PATTERNS = {
  ms: String.raw`^\s*\d+(\.\d+)? ?(ms|s|m|h|d)\s*$`,
  bytes: String.raw`^\s*\d+(\.\d+)? ?([Kk]|[Mm]|[Gg])?[Ii]?[Bb]\s*$`,
} as const;

/** What the manifest's own schemas say about themselves where the converter cannot see it. */
interface Marks {
  readonly unit?: keyof typeof PATTERNS;
  readonly min?: number;
  readonly max?: number;
  /** A number outside of these that is allowed. */
  readonly off?: number | undefined;
  readonly items?: GenericSchema;
}

const CONFIG: ConversionConfig = {
  target: "draft-2020-12",
  typeMode: "input",
  overrideSchema: ({ valibotSchema }) =>
    valibotSchema.type === "custom" ? { type: "object" } : undefined,
  overrideAction({ valibotAction }) {
    // The only check is that a value is one of JSON.
    if (valibotAction.type === "check") return {};
    if (valibotAction.type !== "metadata") return undefined;
    const marks = (valibotAction as unknown as { metadata: Marks }).metadata;
    if (marks.items !== undefined)
      return { type: "object", additionalProperties: convert(marks.items) };
    if (marks.unit === undefined) return undefined;
    const { min = 0, max = Infinity, off } = marks;
    return {
      anyOf: [
        { type: "string", pattern: PATTERNS[marks.unit] },
        { type: "number", minimum: min, maximum: max },
        ...(off === undefined ? [] : [{ const: off }]),
      ],
    };
  },
};

function convert(schema: GenericSchema): JsonSchema {
  const { $schema: _, ...converted } = toJsonSchema(schema, CONFIG);
  return converted;
}

/** Gives every property its notes. @throws {Error} if a property has none, or if there is no property for one. */
function annotate(schema: JsonSchema, book: Book): JsonSchema {
  const properties = schema.properties ?? {};
  const strays = [
    ...Object.keys(properties).filter((key) => book[key] === undefined),
    ...Object.keys(book).filter((key) => properties[key] === undefined),
  ];
  if (strays.length > 0)
    throw new Error(`not both in the schema and in the notes: ${strays.join(", ")}`);
  const annotated = Object.entries(properties).map(([key, property]) => {
    const { title, description, ...rest } = book[key] ?? { title: "", description: "" };
    return [key, { title, description, ...(property as object), ...rest }];
  });
  const { required = [], ...rest } = schema;
  return {
    ...rest,
    ...(required.length > 0 && { required }),
    properties: Object.fromEntries(annotated) as Record<string, JsonSchema>,
  };
}

/** Gives the properties of the table under a key their notes. */
function annotateTable(schema: JsonSchema, key: string, book: Book): JsonSchema {
  const table = schema.properties?.[key] as JsonSchema;
  return { ...schema, properties: { ...schema.properties, [key]: annotate(table, book) } };
}

/** Gives the properties of the tables in `tools.annotations` their notes. */
function annotateAnnotations(server: JsonSchema): JsonSchema {
  const tools = server.properties?.["tools"] as JsonSchema;
  const byName = tools.properties?.["annotations"] as JsonSchema;
  const additionalProperties = annotate(byName.additionalProperties as JsonSchema, ANNOTATIONS);
  const annotations = { ...byName, additionalProperties };
  const properties = { ...tools.properties, annotations };
  return { ...server, properties: { ...server.properties, tools: { ...tools, properties } } };
}

/** A server has exactly one of these, and beside it none of the keys that are about another. */
const KINDS: readonly JsonSchema[] = [
  makeKind("command", [...REMOTE_KEYS, "plugin", "package", "runner"]),
  makeKind("package", [...REMOTE_KEYS, "plugin", "command"]),
  makeKind("url", [...PROCESS_KEYS, "plugin"]),
  makeKind("plugin", [...PROCESS_KEYS, ...REMOTE_KEYS]),
];

function makeKind(key: string, others: readonly string[]): JsonSchema {
  const properties = { [key]: true, ...Object.fromEntries(others.map((other) => [other, false])) };
  return { required: [key], properties };
}

/** The whole schema, as it is written. */
export function makeSchema(): JsonSchema {
  const defaults = annotate(convert(defaultsSchema), LIMITS);
  const tables = [
    ["oauth", OAUTH],
    ["tools", TOOLS],
    ["prompts", PROMPTS],
    ["skills", SKILLS],
  ] as const;
  const server = annotateAnnotations(
    tables.reduce(
      (schema, [key, book]) => annotateTable(schema, key, book),
      annotate(convert(serverSchema), SERVER),
    ),
  );
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "toolmux manifest",
    description: "The MCP servers that toolmux makes look like one, in TOML or JSON.",
    type: "object",
    properties: {
      $schema: { title: "Schema", description: "Where this schema is.", type: "string" },
      hub: {
        title: "The hub",
        description: "Settings of toolmux itself.",
        ...annotate(convert(hubSchema), HUB),
      },
      defaults: {
        title: "Defaults",
        description: "Limits of every server that does not set its own.",
        ...annotateTable(defaults, "reconnect", RECONNECT),
      },
      servers: {
        title: "Servers",
        description: "Every server by a name of your choice, which is also its prefix.",
        type: "object",
        propertyNames: { minLength: 1 },
        additionalProperties: {
          title: "Server",
          ...annotateTable(server, "reconnect", RECONNECT),
          oneOf: [...KINDS],
        },
        examples: [{ files: { command: "npx", args: ["-y", "server-filesystem", "."] } }],
      },
      search: {
        title: "Search",
        description: "Where toolmux search and toolmux add look for servers.",
        ...annotate(convert(registrySchema), SEARCH),
      },
      plugins: {
        title: "Plugins",
        description: "What changes calls and lists on their way; the first is the outermost.",
        type: "array",
        items: { title: "Plugin", ...annotate(convert(pluginSchema), PLUGIN) },
        examples: [[{ use: "audit-log", servers: ["files"] }]],
      },
      secrets: {
        title: "Secrets",
        description: "Where the values are that stand in no manifest.",
        ...annotate(convert(secretsSchema), SECRETS),
      },
    },
    additionalProperties: false,
  };
}

if (import.meta.main) {
  const file = fileURLToPath(new URL("../toolmux.schema.json", import.meta.url));
  writeFileSync(file, JSON.stringify(makeSchema(), null, 2));
  spawnSync(process.execPath, ["fmt", file], { stdio: "inherit" });
}
