/**
 * The schema of every table of a manifest file, with the notes for toolmux.schema.json and docs/configuration.md.
 * Start with `fileSchema` and `serverSchema`. Schemas of tables that most manifests lack are functions, which make the
 * schema when a manifest has such a table: making all of them takes 2 ms of each start. `files/manifest-file.ts`
 * validates files with these schemas, `merge/merge.ts` merges their content; `manifest.ts` has the types of the merged
 * manifest.
 */
import * as v from "valibot";
import {
  delay,
  flag,
  globs,
  interval,
  issuePath,
  json,
  agentExposure,
  limit,
  nonEmptyText,
  once,
  optionalKey,
  record,
  secretText,
  size,
  table,
  text,
  uncheckedTable,
  withNotes,
} from "./fields.ts";
import { APPROVAL_LEVELS } from "./approval-levels.ts";
import { callLimits, makeHubLimits, toolCallLimits } from "./call-limits.ts";
import { EXPOSURES } from "./exposures.ts";
import { filterSchema } from "./filter.ts";
import { ISOLATIONS } from "./isolations.ts";
import {
  ALL_RUNNERS,
  PACKAGE_FORMAT,
  type PackageSpec,
  parsePackage,
  runnersOf,
  VARIABLE_NAME,
} from "./package.ts";
import { suggestKey } from "./problems.ts";
import { makeTelemetry } from "./telemetry.ts";
import { AGENT_DEFAULTS, MODEL_PROVIDERS } from "./agents.ts";
import { CHECKS } from "../scan/checks.ts";
import { isTable } from "./table.ts";

/** How the machine is chosen for a call, if several machines of the fleet export a server. */
export const SPREADS = ["sticky", "call"] as const;
const FLEET_SERVER = /^[^/*?\s]+(?:\/[^/*?\s]+)?$/;

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
    shown: true,
    template: true,
    description:
      "The program to start: a name in PATH, or a path. ~/ is the home directory; a relative path starts at the directory of this file. Write arguments into args. ${env:NAME}, ${env:NAME:-default}, ${file:path} and ${secret:name} are replaced when the server starts.",
    examples: ["npx", "uvx", "~/bin/server"],
  }),
  package: optionalKey(packageSchema, {
    title: "Package",
    shown: true,
    description:
      "Instead of command: an npm package, a PyPI package or a container image. toolmux runs it with the first of these that is installed: npx, bunx or deno; uvx or pipx; docker or podman. A container gets only the variables of env and inheritEnv.",
    examples: ["npm:@scope/name@1.2.3", "pypi:name==1.2", "docker:ghcr.io/owner/name:1.2"],
    pattern: String.raw`^(npm:(@[\w~][\w.~-]*/)?[\w~]|pypi:[A-Za-z0-9]|docker:[A-Za-z0-9])[\w./:@=+~^!-]*$`,
  }),
  runner: optionalKey(v.picklist(ALL_RUNNERS, `one of ${ALL_RUNNERS.join(", ")}`), {
    title: "Runner of the package",
    shown: true,
    description: "The program that runs the package; by default the first that is installed.",
    examples: ["bunx", "uvx"],
  }),
  args: optionalKey(v.array(text, "an array of strings"), {
    title: "Arguments",
    shown: true,
    template: true,
    description: "The arguments of the program, one text each. No shell interprets them.",
    default: [],
    examples: [["-y", "@modelcontextprotocol/server-filesystem", "${env:HOME}/work"]],
  }),
  env: optionalKey(record(text), {
    title: "Environment",
    template: true,
    description:
      "Environment variables for the server, in addition to a small safe set. Do not write secrets into the file: use ${secret:name}, ${env:NAME} or ${file:path}.",
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
      shown: true,
      description:
        "Names of environment variables that the server gets from the environment of toolmux, in a shared hub from that of the client.",
      default: [],
      examples: [["HTTPS_PROXY", "AWS_PROFILE"]],
    },
  ),
  cwd: optionalKey(nonEmptyText, {
    title: "Working directory",
    shown: true,
    template: true,
    description:
      "The directory in which the server starts; a relative path starts at the directory of this file. By default the directory in which toolmux was started.",
    examples: [".", "~/work"],
  }),
};

export const PROCESS_KEYS = Object.keys(processEntries) as readonly (keyof typeof processEntries)[];

const PORT = "the number of a port, 1 to 65535";

/** OAuth settings. The texts may hold `${…}`. */
const oauthSchema = table({
  grant: optionalKey(
    v.picklist(
      ["authorizationCode", "clientCredentials"],
      `"authorizationCode" or "clientCredentials"`,
    ),
    {
      title: "Grant type",
      description:
        '"authorizationCode": a user logs in with a browser. "clientCredentials": toolmux logs in with clientSecret or privateKey, without a user.',
      default: "authorizationCode",
      examples: ["authorizationCode", "clientCredentials"],
    },
  ),
  clientId: optionalKey(nonEmptyText, {
    title: "Client ID",
    description: "The client ID of toolmux, if it is registered with the authorization server.",
    examples: ["toolmux"],
  }),
  clientSecret: optionalKey(nonEmptyText, {
    title: "Client secret",
    description: "The secret that belongs to clientId.",
    examples: ["${secret:linear/client}"],
  }),
  privateKey: optionalKey(nonEmptyText, {
    title: "Private key of the client",
    description: "A private key in PEM format, instead of clientSecret.",
    examples: ["${file:~/.secrets/linear.pem}"],
  }),
  keyAlgorithm: optionalKey(nonEmptyText, {
    title: "Signature algorithm",
    description: "The algorithm for signatures with privateKey.",
    examples: ["ES256", "RS256"],
  }),
  clientMetadataUrl: optionalKey(nonEmptyText, {
    title: "Client metadata URL",
    description: "The URL of the client metadata document, which is also the client ID.",
    examples: ["https://example.com/toolmux.json"],
  }),
  scopes: optionalKey(v.array(nonEmptyText, "an array of scopes"), {
    title: "Scopes",
    description: "The scopes to request; by default those that the server names.",
    examples: [["read", "write"]],
  }),
  issuer: optionalKey(nonEmptyText, {
    title: "Authorization server",
    description:
      "The issuer of the authorization server. toolmux sends the client secret only to this one.",
    examples: ["https://login.example.com"],
  }),
  timeout: optionalKey(limit, {
    title: "Time for a login",
    description: "How long toolmux waits until a person has logged in with a browser.",
    default: "2m",
    examples: ["10m"],
  }),
  callbackPort: optionalKey(
    v.pipe(v.number(PORT), v.integer(PORT), v.minValue(1, PORT), v.maxValue(65_535, PORT)),
    {
      title: "Callback port",
      description:
        "The local port to which the browser returns after the login; by default any free port.",
      examples: [8976],
    },
  ),
});

/** The keys that determine how the server is reached. */
const remoteEntries = {
  url: optionalKey(nonEmptyText, {
    title: "URL",
    shown: true,
    template: true,
    description:
      "Instead of command: the URL of a server over HTTP. In url, headers, keyFile, ca and oauth, toolmux replaces ${env:NAME}, ${file:path} and ${secret:name} at each connect.",
    examples: ["https://example.com/mcp", "http://127.0.0.1:3000/mcp"],
  }),
  transport: optionalKey(v.picklist(["auto", "http", "sse"], `"auto", "http" or "sse"`), {
    title: "Transport",
    shown: true,
    description:
      '"http": Streamable HTTP. "sse": the older HTTP with SSE. "auto": tries "http" first, then "sse", and remembers which one works.',
    default: "auto",
    examples: ["auto", "http", "sse"],
  }),
  headers: optionalKey(record(text), {
    title: "Headers",
    template: true,
    description: "HTTP headers of every request to the server.",
    default: {},
    examples: [{ Authorization: "Bearer ${secret:linear}" }],
  }),
  keyFile: optionalKey(nonEmptyText, {
    title: "Token file",
    shown: true,
    template: true,
    description:
      "A file that contains a bearer token. toolmux reads it at each connect. A relative path starts at the directory of this file.",
    examples: ["~/.secrets/linear"],
  }),
  ca: optionalKey(nonEmptyText, {
    title: "Certificates",
    shown: true,
    template: true,
    description:
      "A file with certificates in PEM format, which are trusted in addition to those of the system. A relative path starts at the directory of this file.",
    examples: ["company.pem"],
  }),
  auth: optionalKey(v.picklist(["auto", "none", "oauth"], `"auto", "none" or "oauth"`), {
    title: "Authorization",
    shown: true,
    description:
      '"auto": OAuth if the server requires it and no other credentials are set. "oauth": OAuth from the first request. "none": never OAuth.',
    default: "auto",
    examples: ["auto", "oauth", "none"],
  }),
  oauth: optionalKey(oauthSchema, {
    title: "OAuth",
    template: true,
    description: "OAuth settings that the server does not provide itself.",
    default: {},
    examples: [{ clientId: "toolmux", scopes: ["read"] }],
  }),
};

export const REMOTE_KEYS = Object.keys(remoteEntries) as readonly (keyof typeof remoteEntries)[];

const exposure = v.picklist(EXPOSURES, `"direct", "search", "select" or "auto"`);

const BUDGET = "a whole number of tokens, 0 to 100000000";

const CONVERSATION_DAYS = "a whole number of days from 1 to 36500";

export const hubSchema = once(() =>
  table({
    name: optionalKey(nonEmptyText, {
      title: "Name of the hub",
      shown: true,
      description: "The name that toolmux reports to clients.",
      examples: ["toolmux", "work"],
    }),
    separator: optionalKey(
      v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, "letters, digits, _ and - (at least one)")),
      {
        title: "Separator",
        shown: true,
        description:
          "The text between the prefix of a server and the name of a tool: files__read_file.",
        examples: ["__", "-"],
      },
    ),
    nameLimit: optionalKey(v.pipe(v.number("a whole number"), v.integer("a whole number")), {
      title: "Longest name",
      shown: true,
      description:
        "The maximum length of a tool name that clients accept, in characters, including clientPrefix. Longer names are shortened and end with a hash.",
      examples: [64, 128],
    }),
    clientPrefix: optionalKey(text, {
      title: "Prefix of clients",
      shown: true,
      description:
        "The prefix that some clients add to every tool name. It counts towards nameLimit.",
      examples: ["mcp__toolmux__", ""],
    }),
    listWait: optionalKey(delay, {
      title: "Wait for the first list",
      shown: true,
      description: "How long the first list of tools waits for servers that start slowly.",
      examples: ["4s", "500ms", 0],
    }),
    parallelStarts: optionalKey(
      v.pipe(
        v.number("a whole number, at least 1"),
        v.integer("a whole number, at least 1"),
        v.minValue(1, "a whole number, at least 1"),
      ),
      {
        title: "Starts at a time",
        shown: true,
        description: "How many servers may start at the same time. The others wait.",
        examples: [16, 4],
      },
    ),
    control: optionalKey(flag, {
      title: "Control socket",
      shown: true,
      description:
        "Whether toolmux ps, status, logs and other commands can show and control a running hub. Only programs of the same user can.",
      examples: [true, false],
    }),
    instructions: optionalKey(v.pipe(text, v.maxLength(400, "at most 400 characters")), {
      title: "Instructions",
      shown: true,
      description:
        'The first paragraph of the instructions that models get, before those of the servers; {separator} is replaced. It is left out if no server has a prefix. "" for none.',
      examples: ["Tools are named SERVER{separator}TOOL.", ""],
    }),
    evictSessions: optionalKey(flag, {
      title: "End idle sessions",
      shown: true,
      description:
        "What happens to a new client of serve --http when there are 10,000 sessions. true: the session that has been idle for the longest time is ended. false: the new client is refused (503).",
      examples: [true],
    }),
    shared: optionalKey(flag, {
      title: "One hub for all clients",
      shown: true,
      description:
        "Whether all clients on this machine that start toolmux on stdio share one hub. false: each client has its own hub. Counts only in the user's own manifest, not in a manifest of the working directory.",
      examples: [true],
    }),
    linger: optionalKey(delay, {
      title: "Time after the last client",
      shown: true,
      description:
        "How long the shared hub goes on running after its last client has left. Counts only in the user's own manifest.",
      examples: ["10m", "1h", 0],
    }),
    conversationDays: optionalKey(
      v.pipe(
        v.number(CONVERSATION_DAYS),
        v.integer(CONVERSATION_DAYS),
        v.minValue(1, CONVERSATION_DAYS),
        v.maxValue(36_500, CONVERSATION_DAYS),
      ),
      {
        title: "Age of conversations",
        shown: true,
        description:
          "How many days a conversation with an agent is kept after its last message. Counts only in the user's own manifest.",
        examples: [90, 7],
      },
    ),
    conversationSize: optionalKey(size, {
      title: "Size of conversations",
      shown: true,
      description:
        "How large all conversations together may be that are kept; the oldest are forgotten. Counts only in the user's own manifest.",
      examples: ["256MiB", "50MB"],
    }),
    mode: optionalKey(nonEmptyText, {
      title: "Mode",
      shown: true,
      description:
        'The mode of clients for which no other mode is set: a key of modes, or "full". The operator can choose another one while toolmux runs.',
      examples: ["review", "full"],
    }),
    expose: optionalKey(exposure, {
      title: "How clients get tools",
      shown: true,
      description:
        '"direct": the list of tools has all tools. "search": it has search_tools, describe_tools, call_tool and call_read_only_tool, with which models find and call all others. "select": it has search_tools, select_tools, call_tool and the tools that were selected. "auto": direct up to exposeBudget, else search. The URL of a client (?expose=search), its table in clients and --expose take precedence.',
      examples: ["auto", "search"],
    }),
    exposeBudget: optionalKey(
      v.pipe(
        v.number(BUDGET),
        v.integer(BUDGET),
        v.minValue(0, BUDGET),
        v.maxValue(100_000_000, BUDGET),
      ),
      {
        title: "Budget of the list of tools",
        shown: true,
        description:
          'For expose = "auto": the size of the list of tools, in tokens, up to which clients get all tools. A token counts as four bytes.',
        examples: [10_000, 4000],
      },
    ),
    pinFile: optionalKey(nonEmptyText, {
      title: "Pin file",
      shown: true,
      description:
        "A file beside the manifest with digests of what servers list, to be committed with it. A server that it has must list exactly that. toolmux pins export writes it, toolmux check --pins compares it.",
      examples: ["toolmux.pins.json"],
    }),
    httpToken: optionalKey(secretText, {
      title: "Token for clients over HTTP",
      description:
        "The bearer token that clients of serve --http must send; --http-token-env overrides it. ${env:NAME}, ${file:PATH} and ${secret:NAME} are replaced when toolmux starts.",
      examples: ["${env:TOOLMUX_TOKEN}", "${file:~/.secrets/toolmux}"],
    }),
  }),
);

const ATTEMPTS_FORMAT = "a whole number, 0 for no limit";

const reconnectSchema = table({
  policy: optionalKey(
    v.picklist(["none", "immediate", "exponential"], `"none", "immediate" or "exponential"`),
    {
      title: "Policy",
      shown: true,
      description:
        '"exponential": wait longer before each attempt. "immediate": do not wait (set maxAttempts, too). "none": do not try again until the next call.',
      examples: ["exponential", "immediate", "none"],
    },
  ),
  base: optionalKey(limit, {
    title: "First wait",
    shown: true,
    description: "The wait before the second attempt. Each further wait is twice as long.",
    examples: ["1s", "250ms"],
  }),
  max: optionalKey(limit, {
    title: "Longest wait",
    shown: true,
    description: "The longest wait between two attempts; at least base.",
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
      shown: true,
      description:
        "The random part of each wait, so that not all servers reconnect at once: 0 for none, 1 for the whole wait.",
      examples: [0.2, 0],
    },
  ),
  maxAttempts: optionalKey(
    v.pipe(v.number(ATTEMPTS_FORMAT), v.integer(ATTEMPTS_FORMAT), v.minValue(0, ATTEMPTS_FORMAT)),
    {
      title: "Attempts",
      shown: true,
      description: "How many attempts in a row may fail before toolmux gives up; 0 for no limit.",
      examples: [0, 5],
    },
  ),
});

const limitEntries = {
  connectTimeout: optionalKey(limit, {
    title: "Time to connect",
    shown: true,
    change: "settings",
    description:
      "How long a server may take to start, to finish the handshake and to list its tools. If it is set, toolmux ends the server after this time. If it is not set, clients stop waiting after 30 s, but the server may continue to start for up to 5 minutes.",
    examples: ["30s", "2m"],
  }),
  callTimeout: optionalKey(limit, {
    title: "Time of a call",
    shown: true,
    change: "settings",
    description:
      "How long a call may take. Each progress report of the server restarts this time, up to maxCallTimeout.",
    examples: ["60s", "500ms", "5m"],
  }),
  maxCallTimeout: optionalKey(limit, {
    title: "Total time of a call",
    shown: true,
    change: "settings",
    description: "How long a call may take in total, even if it reports progress.",
    examples: ["15m", "1h"],
  }),
  maxMessage: optionalKey(size, {
    title: "Maximum message size",
    shown: true,
    description: "The largest message that toolmux accepts from a server.",
    examples: ["64MiB", "512KB", 1_000_000],
  }),
  healthInterval: optionalKey(interval, {
    title: "Time between health checks",
    shown: true,
    change: "settings",
    description: "How often toolmux pings a silent server: at least 1 s, or 0 for never.",
    examples: ["30s", "5m", 0],
  }),
  reconnect: optionalKey(reconnectSchema, {
    title: "Reconnecting",
    shown: true,
    change: "settings",
    description:
      "What to do when the connection to a server is lost or the server does not start. Keys that are not set here have the values of the defaults.",
    examples: [{ policy: "exponential", base: "1s", max: "60s" }, { policy: "none" }],
  }),
  idleStop: optionalKey(delay, {
    title: "Stop when idle",
    shown: true,
    change: "settings",
    description:
      "Stops a server after this time without a call; 0 for never. Its tools stay in the list, and the next call starts it again. Set 0 for a server that keeps data in memory.",
    examples: ["10m", 0],
  }),
};

/** The keys of the limits that both servers and the table `defaults` can set. */
export const LIMIT_KEYS = Object.keys(limitEntries) as readonly (keyof typeof limitEntries)[];

const limitsSchema = table(limitEntries);

const approvalLevel = v.picklist(APPROVAL_LEVELS, `"never", "auto" or "always"`);

/** What happens when a server's tools, prompts or instructions are not those that were accepted. */
export const PIN_LEVELS = ["off", "warn", "block"] as const;

const pinLevel = v.picklist(PIN_LEVELS, `"off", "warn" or "block"`);

const PIN_TEXT =
  'What happens when a tool, a prompt or the instructions of a server differ from what was listed first. "off": nothing. "warn": an alert, until the change is accepted. "block": what is new or changed is neither shown nor called until it is accepted.';

/** What happens when the scan finds suspicious text in what a server lists. */
export const SCAN_LEVELS = ["off", "warn", "block"] as const;

const scanLevel = v.picklist(SCAN_LEVELS, `"off", "warn" or "block"`);

const SCAN_TEXT =
  'What happens when a tool, a prompt or the instructions of a server have text that tells a model what it should not do, or that people do not see. "off": it is not looked for. "warn": an alert. "block": such tools, prompts and instructions are neither shown nor called until they are accepted (toolmux pins accept), unless scanIgnore allows them.';

const APPROVAL_WAIT_TEXT =
  "How long a call that needs an approval waits for somebody to open the page or toolmux approvals --watch, while nobody watches. Then the client is asked, or the call is refused if the client cannot be asked. By default 30 s if the client cannot be asked, otherwise 0. At most approvalTimeout.";

export const defaultsSchema = once(() =>
  table({
    ...limitEntries,
    approval: optionalKey(approvalLevel, {
      title: "Approval",
      shown: true,
      description:
        'Which calls a person has to allow first. "never": none. "auto": those of tools that are not known to be read-only. "always": all.',
      default: "never",
      examples: ["auto", "always", "never"],
    }),
    agentApproval: optionalKey(approvalLevel, {
      title: "Approval for agents",
      shown: true,
      description:
        "Which calls of the agents of toolmux a person has to allow first, with the same values as approval.",
      default: "auto",
      examples: ["always"],
    }),
    approvalWait: optionalKey(delay, {
      title: "Wait for somebody who decides",
      shown: true,
      description: APPROVAL_WAIT_TEXT,
      examples: ["1m", 0],
    }),
    approvalTimeout: optionalKey(limit, {
      title: "Time for an approval",
      shown: true,
      description: "How long a call waits for its approval. After that it is denied.",
      default: "2m",
      examples: ["10m"],
    }),
    pin: optionalKey(pinLevel, {
      title: "Pins",
      shown: true,
      description: PIN_TEXT,
      default: "warn",
      examples: ["block", "off"],
    }),
    scan: optionalKey(scanLevel, {
      title: "Scan",
      shown: true,
      description: SCAN_TEXT,
      default: "warn",
      examples: ["block", "off"],
    }),
  }),
);

const promptsSchema = table({
  allow: optionalKey(globs, {
    title: "Allowed prompts",
    shown: true,
    description: "Shows only these. * matches any characters, ? matches one.",
    examples: [["review_*"]],
  }),
  deny: optionalKey(globs, {
    title: "Denied prompts",
    shown: true,
    description: "Hides these, even if allow matches them.",
    default: [],
    examples: [["draft_*"]],
  }),
  rename: optionalKey(record(nonEmptyText), {
    title: "Other names",
    shown: true,
    description: "The server's name of a prompt, and the new name (without the prefix).",
    default: {},
    examples: [{ summarize_all: "sum" }],
  }),
});

const skillsSchema = table({
  allow: optionalKey(globs, {
    title: "Allowed skills",
    shown: true,
    description: "Shows only these: names or URIs. * matches any characters, ? matches one.",
    examples: [["refunds", "skill://acme/*"]],
  }),
  deny: optionalKey(globs, {
    title: "Denied skills",
    shown: true,
    description: "Hides these and their files, even if allow matches them.",
    examples: [["draft-*"]],
  }),
});

/** Annotations of a tool (MCP schema, ToolAnnotations). */
const annotationsSchema = table({
  title: optionalKey(text, {
    title: "Title",
    shown: true,
    description: "The tool's name for people.",
    examples: ["Read a file"],
  }),
  readOnlyHint: optionalKey(flag, {
    title: "Reads only",
    shown: true,
    description: "The tool changes nothing: a call that was lost may be repeated.",
    examples: [true],
  }),
  destructiveHint: optionalKey(flag, {
    title: "Destructive",
    shown: true,
    description: "The tool may destroy something.",
    examples: [false],
  }),
  idempotentHint: optionalKey(flag, {
    title: "Idempotent",
    shown: true,
    description: "A second call changes nothing more: a call that was lost may be repeated.",
    examples: [true],
  }),
  openWorldHint: optionalKey(flag, {
    title: "Open world",
    shown: true,
    description: "The tool reaches beyond its server, such as to the web.",
    examples: [false],
  }),
});

/** The tools that are shown, their names, their timeouts, and the members of a tool that are overridden. */
/** The table `tools` of a server. */
export const toolsSchema = table({
  allow: optionalKey(globs, {
    title: "Allowed tools",
    shown: true,
    description: "Shows only these. * matches any characters, ? matches one.",
    examples: [["read_*", "list_*"]],
  }),
  deny: optionalKey(globs, {
    title: "Denied tools",
    shown: true,
    description: "Hides these, even if allow matches them.",
    default: [],
    examples: [["write_*"]],
  }),
  rename: optionalKey(record(nonEmptyText), {
    title: "Other names",
    shown: true,
    description: "The server's name of a tool, and the new name (without the prefix).",
    default: {},
    examples: [{ read_text_file: "cat" }],
  }),
  timeout: optionalKey(record(limit), {
    title: "Time limits of tools",
    shown: true,
    description: "The server's name of a tool, and its time limit, which replaces callTimeout.",
    default: {},
    examples: [{ search_files: "5m" }],
  }),
  describe: optionalKey(record(nonEmptyText), {
    title: "Other descriptions",
    shown: true,
    description: "The server's name of a tool, and the description that clients see.",
    default: {},
    examples: [{ read_text_file: "Reads a file of this project." }],
  }),
  meta: optionalKey(record(record(json)), {
    title: "Members of _meta",
    shown: true,
    description:
      "The server's name of a tool, and members to set in its _meta. Its other members stay.",
    default: {},
    examples: [{ read_text_file: { "anthropic/alwaysLoad": true } }],
  }),
  annotations: optionalKey(record(annotationsSchema), {
    title: "Annotations",
    shown: true,
    description: "The server's name of a tool, and annotations to set. Its other annotations stay.",
    default: {},
    examples: [{ read_text_file: { readOnlyHint: true } }],
  }),
  approval: optionalKey(record(approvalLevel), {
    title: "Approval of tools",
    shown: true,
    description:
      "The server's name of a tool, or a pattern (* matches any characters, ? matches one), and which of its calls a person has to allow. A name takes precedence over a pattern; of several patterns, the one with the most characters besides * and ? counts.",
    default: {},
    examples: [{ "delete_*": "always", read_text_file: "never" }],
  }),
  limits: optionalKey(record(toolCallLimits), {
    title: "Limits of tools",
    shown: true,
    description:
      "The server's name of a tool, or a pattern, and how many calls are allowed: a table with rate, burst, quota and maxConcurrent. All tools that a pattern matches share its limits. A name takes precedence over a pattern; of several patterns, the one with the most characters besides * and ? counts.",
    default: {},
    examples: [{ "search_*": { rate: "10/1m", maxConcurrent: 1 } }],
  }),
});

const PLUGIN_NAME = "the name of a plugin: letters, digits, _ and -";

/**
 * A server. It has exactly one main key: `command` or `package`, with further keys of `processEntries`; `url`, with
 * further keys of `remoteEntries`; or `plugin`.
 */
export const serverSchema = table({
  ...processEntries,
  ...remoteEntries,
  plugin: optionalKey(v.pipe(text, v.regex(/^[A-Za-z0-9_-]+$/, PLUGIN_NAME)), {
    title: "Plugin",
    shown: true,
    description:
      "Instead of command: the name of the plugin that provides this server. toolmux starts no process for it.",
    examples: ["notes"],
  }),
  title: optionalKey(nonEmptyText, {
    title: "Title",
    shown: true,
    change: "settings",
    description: "A name for people, which is shown next to the name of the server.",
    examples: ["Linear", "Files of this project"],
  }),
  description: optionalKey(nonEmptyText, {
    title: "Description",
    shown: true,
    change: "settings",
    description: "What the server is for, in one sentence. Models do not see it.",
    examples: ["The issues of our team."],
  }),
  icon: optionalKey(nonEmptyText, {
    title: "Icon",
    shown: true,
    change: "settings",
    description: "A character, or the https: URL of a picture, that is shown next to the title.",
    examples: ["📁", "https://linear.app/favicon.ico"],
  }),
  enabled: optionalKey(flag, {
    title: "Enabled",
    shown: true,
    change: "settings",
    description: "false: toolmux does not use this server.",
    default: true,
  }),
  prefix: optionalKey(text, {
    title: "Prefix",
    shown: true,
    change: "settings",
    description:
      'The prefix of the names of its tools; by default the name of the server. "" for no prefix. It must not contain hub.separator, or begin or end with one of its characters.',
    examples: ["fs", ""],
    pattern: "^[A-Za-z0-9_-]*$",
  }),
  fleet: optionalKey(
    v.pipe(text, v.regex(FLEET_SERVER, "the name of a server of the fleet, or MACHINE/SERVER")),
    {
      title: "Server of the fleet",
      shown: true,
      description:
        "Instead of command: the name of a server that machines of the fleet export, or MACHINE/SERVER for that of one machine. The table fleet says how toolmux reaches them.",
      examples: ["github", "laptop/files"],
    },
  ),
  spread: optionalKey(v.picklist(SPREADS, `"sticky" or "call"`), {
    title: "Choice of the machine",
    shown: true,
    description:
      'If several machines of the fleet export the server: "sticky": a client keeps the machine that it used first, until that is lost. "call": each call goes to the machine with the fewest calls.',
    default: "sticky",
    examples: ["call"],
  }),
  isolation: optionalKey(v.picklist(ISOLATIONS, `"auto", "shared", "perClient" or "one"`), {
    title: "Isolation",
    shown: true,
    description:
      '"shared": clients with equal capabilities use one process. "perClient": each client has a process of its own. "one": all clients use one process, which is told no capabilities and can ask no client. "auto": "perClient" in a shared hub (hub.shared) for a server that is known to keep a client\'s state, such as a browser, else "shared".',
    default: "auto",
    examples: ["perClient", "one"],
  }),
  lazy: optionalKey(flag, {
    title: "Start when called",
    shown: true,
    change: "settings",
    description:
      "true: toolmux starts the server at the first call of one of its tools, and until then lists the tools that it listed last. If its tools are not known yet, toolmux starts it once to list them.",
    default: false,
    examples: [true],
  }),
  era: optionalKey(v.picklist(["auto", "legacy", "modern"], `"auto", "legacy" or "modern"`), {
    title: "Era of the protocol",
    shown: true,
    description:
      '"legacy": the protocol versions with a handshake (up to 2025-11-25). "modern": 2026-07-28. "auto": the era of the client if the server supports it, else the other one; toolmux remembers what the server supports.',
    default: "auto",
    examples: ["auto", "legacy", "modern"],
  }),
  ...limitEntries,
  approval: optionalKey(approvalLevel, {
    title: "Approval",
    shown: true,
    change: "settings",
    description:
      'Which calls of its tools a person has to allow first. "never": none. "auto": those of tools that are not known to be read-only. "always": all. By default the value of defaults.approval.',
    examples: ["auto", "always", "never"],
  }),
  approvalWait: optionalKey(delay, {
    title: "Wait for somebody who decides",
    shown: true,
    change: "settings",
    description: `${APPROVAL_WAIT_TEXT} Without it, the value of defaults.approvalWait holds.`,
    examples: ["1m", 0],
  }),
  limits: optionalKey(callLimits, {
    title: "Limits of calls",
    shown: true,
    change: "settings",
    description: "How many calls of its tools are allowed, by all clients together.",
    examples: [{ maxConcurrent: 4, maxQueued: 100 }],
  }),
  pin: optionalKey(pinLevel, {
    title: "Pins",
    shown: true,
    change: "settings",
    description: `${PIN_TEXT} By default the value of defaults.pin.`,
    examples: ["block", "off"],
  }),
  scan: optionalKey(scanLevel, {
    title: "Scan",
    shown: true,
    change: "settings",
    description: `${SCAN_TEXT} By default the value of defaults.scan.`,
    examples: ["block", "off"],
  }),
  scanIgnore: optionalKey(record(v.array(v.picklist(CHECKS, "the name of a check"), "an array")), {
    title: "Ignored findings",
    shown: true,
    change: "settings",
    description:
      'Checks of the scan that are not made, by the name of a tool or prompt at the server; "instructions" stands for the instructions, "*" for everything. toolmux scan shows the names of the checks.',
    examples: [{ search_web: ["imperative"] }],
  }),
  tools: optionalKey(toolsSchema, {
    title: "Tools",
    shown: true,
    change: "settings",
    description:
      "Which tools clients see, and how. Use the server's own names, without the prefix.",
  }),
  prompts: optionalKey(promptsSchema, {
    title: "Prompts",
    shown: true,
    change: "settings",
    description:
      "Which prompts clients see, and how. Use the server's own names, without the prefix.",
  }),
  skills: optionalKey(skillsSchema, {
    title: "Skills",
    shown: true,
    change: "settings",
    description: "Which skills clients see, by their names or URIs.",
  }),
});

type MainKey = "plugin" | "fleet" | "url" | "package" | "command";

/** The keys that determine the kind of a server. If several are present, the first one in this list counts. */
export const MAIN_KEYS: readonly MainKey[] = ["plugin", "fleet", "url", "package", "command"];
/** The keys of a process, whether it is started by a command or from a package. */
const PROCESS_ONLY_KEYS = PROCESS_KEYS.filter(
  (key) => !["command", "package", "runner"].includes(key),
);
/** For each kind of server, the keys that it may have and that some other kinds may not have. */
const KEYS_OF_KIND: Readonly<Record<MainKey, readonly string[]>> = {
  plugin: [],
  fleet: ["spread"],
  url: REMOTE_KEYS.filter((key) => key !== "url"),
  package: [...PROCESS_ONLY_KEYS, "runner"],
  command: PROCESS_ONLY_KEYS,
};
const KINDS: Readonly<Record<MainKey, string>> = {
  plugin: ", because the plugin provides the server",
  fleet: ", because a machine of the fleet runs the server",
  url: ", because toolmux starts no process for a url",
  package: ", because a package runs as a process",
  command: ", because a command runs as a process",
};

/**
 * A server in a manifest: `serverSchema`, plus the rules that involve several keys. Servers in clients' files are
 * checked with `serverSchema` alone, because clients ignore keys that do not fit.
 */
export const manifestServerSchema = v.pipe(
  serverSchema,
  // Checks that there is exactly one main key, and that the other keys fit it. Runs even if values of other keys are
  // wrong.
  v.rawCheck(({ dataset: { value: server, issues = [] }, addIssue }) => {
    if (!isTable(server)) return;
    const [first, ...others] = MAIN_KEYS.filter((key) => key in server);
    if (first === undefined) {
      // If a main key is misspelt, it is not reported as missing: the problem of the unknown key already says what to
      // write.
      const meant = issues
        .slice(0, 100)
        .map(({ path }) => suggestKey(String(path?.[0].key), serverSchema.entries));
      if (MAIN_KEYS.some((key) => meant.includes(key))) return;
      addIssue({ message: "is missing", path: issuePath(server, ["command"], "value") });
      return;
    }
    for (const key of others) {
      const message = `cannot be used together with ${first}: a server has one of command, package, url, plugin and fleet`;
      addIssue({ message, path: issuePath(server, [key], "key") });
    }
    for (const key of new Set(MAIN_KEYS.flatMap((kind) => KEYS_OF_KIND[kind]))) {
      if (!(key in server) || KEYS_OF_KIND[first].includes(key)) continue;
      const message = `cannot be used together with ${first}${KINDS[first]}`;
      addIssue({ message, path: issuePath(server, [key], "key") });
    }
  }),
  // Checks that the runner can run the package, and that a container can get variables with these names.
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed || dataset.value.package === undefined) return;
    const { package: packageSpec, runner, env = {} } = dataset.value;
    const { origin } = packageSpec;
    const runners = runnersOf(origin);
    if (runner !== undefined && !runners.includes(runner)) {
      const message = `cannot run a package from ${origin}; use one of ${runners.join(", ")}`;
      addIssue({ message, path: issuePath(dataset.value, ["runner"], "value") });
    }
    for (const name of Object.keys(env)) {
      if (origin !== "docker" || VARIABLE_NAME.test(name)) continue;
      const message = "is not a valid name for an environment variable of a container";
      addIssue({ message, path: issuePath(dataset.value, ["env", name], "key") });
    }
  }),
);

export const pluginSchema = once(() =>
  table({
    use: withNotes(nonEmptyText, {
      title: "Plugin",
      shown: true,
      description:
        "The name of a built-in plugin or of a package, or the path of a file, which begins with ./, ../ (from the directory of this file), / or ~/. toolmux runs the code of files and packages.",
      examples: ["audit-log", "./my-plugin.ts"],
    }),
    options: optionalKey(uncheckedTable, {
      title: "Options",
      description: "The options of the plugin.",
      default: {},
      examples: [{ file: "calls.jsonl" }],
    }),
    servers: optionalKey(globs, {
      title: "Servers",
      shown: true,
      description:
        "Names of servers in this file. * matches any characters, ? matches one. By default all.",
      examples: [["files", "git*"]],
    }),
    tools: optionalKey(globs, {
      title: "Tools",
      shown: true,
      description:
        "Names of tools, as the servers list them. * matches any characters, ? matches one. By default all.",
      examples: [["read_*"]],
    }),
  }),
);

/** A mode, which selects the catalog entries that clients in this mode see. */
export const modeSchema = once(() =>
  table({
    title: optionalKey(nonEmptyText, {
      title: "Title",
      shown: true,
      description: "A name for people; by default the name of the mode.",
      examples: ["Code review"],
    }),
    icon: optionalKey(nonEmptyText, {
      title: "Icon",
      shown: true,
      description: "A character that is shown next to the title.",
      examples: ["🔎"],
    }),
    tools: withNotes(filterSchema, {
      title: "Tools",
      shown: true,
      description: "Which tools clients in this mode see.",
      examples: [{ servers: ["git", "files*"] }, { not: { pattern: "(write|delete|push)" } }],
    }),
    prompts: optionalKey(filterSchema, {
      title: "Prompts",
      shown: true,
      description:
        "Which prompts they see; by default those of the servers that tools is limited to, else all.",
      examples: [{ servers: ["git"] }],
    }),
    resources: optionalKey(filterSchema, {
      title: "Resources",
      shown: true,
      description:
        "Which resources and skills they see; by default those of the servers that tools is limited to, else all. The server's own name of a resource is its URI.",
      examples: [{ pattern: "^file:" }],
    }),
  }),
);

const CLIENT_NAME = "letters, digits, _ . and -, at most 64, beginning with a letter or digit";

/** An HTTP client with its own token. */
export const namedClientSchema = once(() =>
  table({
    name: withNotes(
      v.pipe(
        text,
        v.regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, CLIENT_NAME),
        v.check(
          (name) => !/^(?:client|plugin|agent)-|^(?:anybody|default)$/.test(name),
          'a name that toolmux does not use itself: not "default", "anybody", or one that begins with client-, plugin- or agent-',
        ),
      ),
      {
        title: "Name",
        shown: true,
        description: "The name of the client in logs, events and lists.",
        examples: ["laptop", "ci"],
      },
    ),
    token: withNotes(secretText, {
      title: "Token",
      description:
        "The bearer token that the client sends. ${env:NAME}, ${file:PATH} and ${secret:NAME} are replaced when the manifest is read.",
      examples: ["${secret:clients/laptop}", "${env:CI_TOKEN}"],
    }),
    mode: optionalKey(nonEmptyText, {
      title: "Mode",
      shown: true,
      description:
        "A key of modes. The client sees only what is in it, whatever other modes are chosen.",
      examples: ["review"],
    }),
    servers: optionalKey(v.array(nonEmptyText, "an array of names of servers"), {
      title: "Servers",
      shown: true,
      description: "The servers that the client sees; by default all.",
      examples: [["git", "files"]],
    }),
    approval: optionalKey(approvalLevel, {
      title: "Approval",
      shown: true,
      description:
        "Which calls of this client a person has to allow. It counts if it is stricter than the setting of the server; a tool with a rule in tools.approval keeps its rule.",
      examples: ["always"],
    }),
    expose: optionalKey(exposure, {
      title: "How the client gets tools",
      shown: true,
      description: "As hub.expose, for this client.",
      examples: ["search", "direct"],
    }),
    sessions: optionalKey(
      v.pipe(
        v.number("a whole number, at least 1"),
        v.integer("a whole number, at least 1"),
        v.minValue(1, "a whole number, at least 1"),
      ),
      {
        title: "Sessions",
        shown: true,
        description: "How many sessions the client may have at a time.",
        examples: [4],
      },
    ),
    limits: optionalKey(callLimits, {
      title: "Limits of calls",
      shown: true,
      description: "How many calls of the client are allowed, in place of limits.client.",
      examples: [{ rate: "60/1m", burst: 20, quota: "5000/1d", maxConcurrent: 8 }],
    }),
  }),
);

/** Limits of the calls of all clients together, and of each client. */
export const hubLimitsSchema = once(makeHubLimits);

/** Where traces and metrics go. */
export const telemetrySchema = once(makeTelemetry);

const FLEET_TOKEN = "letters, digits, _ and -, at most 64";
const fleetToken = v.pipe(text, v.regex(/^[A-Za-z0-9_-]{1,64}$/, FLEET_TOKEN));
const NATS_URL = "the URL of a NATS server: tls://HOST:PORT, or nats://HOST:PORT";
const natsUrl = v.pipe(text, v.regex(/^(?:tls|nats):\/\/[^\s/@?#]+\/?$/, NATS_URL));

/** A user of the fleet, and the limits of its requests to the servers that this hub exports. */
const fleetClientSchema = once(() =>
  table({
    user: withNotes(
      v.pipe(
        text,
        v.regex(
          /^[A-Za-z0-9_-]{1,64}\/(?!_$)[A-Za-z0-9_-]{1,64}$/,
          "TENANT/USER, where USER is not _",
        ),
      ),
      {
        title: "User",
        shown: true,
        description:
          "The tenant and the user, as requests name them. They are believed only if the NATS server asks for credentials.",
        examples: ["acme/u1"],
      },
    ),
    mode: optionalKey(nonEmptyText, {
      title: "Mode",
      shown: true,
      description: "A key of modes. The user sees only what is in it.",
      examples: ["review"],
    }),
    servers: optionalKey(v.array(nonEmptyText, "an array of names of servers"), {
      title: "Servers",
      shown: true,
      description: "The servers that the user may use, of those that are exported; by default all.",
      examples: [["git"]],
    }),
    approval: optionalKey(approvalLevel, {
      title: "Approval",
      shown: true,
      description:
        "Which calls of this user a person has to allow. It counts if it is stricter than the setting of the server.",
      examples: ["always"],
    }),
    askCaller: optionalKey(flag, {
      title: "Ask the caller",
      shown: true,
      description:
        "true: the user itself is asked to allow its calls, if its client can be asked, besides the people who watch pending approvals on this machine.",
      default: false,
      examples: [true],
    }),
  }),
);

/** The hubs of several machines, which find each other over NATS. */
export const fleetSchema = once(() =>
  v.pipe(
    table({
      url: withNotes(
        v.union(
          [
            natsUrl,
            v.pipe(v.array(natsUrl, NATS_URL), v.nonEmpty("at least one URL of a NATS server")),
          ],
          NATS_URL,
        ),
        {
          title: "NATS servers",
          shown: true,
          description:
            "The NATS server, or several of one cluster. Without TLS only on this machine, unless insecure is true.",
          examples: ["tls://nats.example:4222", ["tls://a.example", "tls://b.example"]],
        },
      ),
      credentials: optionalKey(nonEmptyText, {
        title: "Credentials file",

        description: "A file of credentials for NATS (.creds). Or use nkey, password or token.",
        examples: ["~/.config/toolmux/fleet.creds"],
      }),
      nkey: optionalKey(secretText, {
        title: "Seed of an NKey",
        description: "The seed (SU…) with which toolmux logs in to NATS.",
        examples: ["${secret:fleet/nkey}"],
      }),
      password: optionalKey(secretText, {
        title: "Password",
        description: "The password for NATS, together with user or login.",
        examples: ["${secret:fleet/password}"],
      }),
      login: optionalKey(nonEmptyText, {
        title: "Login",
        shown: true,
        description: "The user name for NATS, if it is not that of user.",
        examples: ["toolmux"],
      }),
      token: optionalKey(secretText, {
        title: "Token",
        description: "The token for NATS.",
        examples: ["${secret:fleet/token}"],
      }),
      tls: optionalKey(
        table({
          ca: optionalKey(nonEmptyText, {
            title: "Certificates of authorities",
            description: "A file with PEM certificates that are trusted in place of the system's.",
            examples: ["./ca.pem"],
          }),
          cert: optionalKey(nonEmptyText, {
            title: "Own certificate",
            shown: true,
            description: "A file with the certificate with which toolmux identifies itself.",
            examples: ["./hub.pem"],
          }),
          key: optionalKey(nonEmptyText, {
            title: "Key of the own certificate",
            description: "A file with the private key of cert.",
            examples: ["./hub.key"],
          }),
        }),
        { title: "TLS", description: "Certificates for tls://.", examples: [{ ca: "./ca.pem" }] },
      ),
      insecure: optionalKey(flag, {
        title: "Without TLS",
        shown: true,
        description:
          "true: toolmux also connects to another machine without TLS. Everybody on the way can read and change all calls.",
        default: false,
        examples: [true],
      }),
      tenant: optionalKey(fleetToken, {
        title: "Tenant",
        shown: true,
        description: "The tenant as which this hub sends requests.",
        default: "default",
        examples: ["acme"],
      }),
      user: optionalKey(fleetToken, {
        title: "User",
        shown: true,
        description:
          "The user as which this hub sends requests, and with password its user name for NATS. _: no particular one.",
        default: "_",
        examples: ["u1"],
      }),
      name: optionalKey(v.pipe(text, v.regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, CLIENT_NAME)), {
        title: "Name",
        shown: true,
        description: "The name of this hub in the fleet; by default that of the machine.",
        examples: ["laptop"],
      }),
      export: optionalKey(globs, {
        title: "Exported servers",
        shown: true,
        description:
          "Names of servers that other hubs may use. * matches any characters, ? matches one.",
        default: [],
        examples: [["git", "files*"]],
      }),
      import: optionalKey(globs, {
        title: "Imported servers",
        shown: true,
        description:
          "Names of servers of other hubs that this hub uses, or MACHINE/SERVER. * matches any characters, ? matches one. A server of this manifest takes precedence over one of the same name.",
        default: [],
        examples: [["*"], ["github", "laptop/files"]],
      }),
      clients: optionalKey(v.array(fleetClientSchema(), "an array of tables"), {
        title: "Users",
        shown: true,
        description: "Users of the fleet whose requests to this hub are limited.",
        examples: [[{ user: "acme/u1", servers: ["git"] }]],
      }),
    }),
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const { value } = dataset;
      const fail = (key: string, message: string): void =>
        addIssue({ message, path: issuePath(value, [key], "value") });
      const { url, insecure = false, password, login, user = "_" } = value;
      const isOpen = [url].flat().some((one) => one.startsWith("nats://") && !isLocalUrl(one));
      if (isOpen && !insecure && value.tls === undefined)
        fail("url", "goes to another machine without TLS; use tls://, or set insecure = true");
      const logins = (["credentials", "nkey", "password", "token"] as const).filter(
        (key) => value[key] !== undefined,
      );
      if (logins.length > 1)
        fail(logins[1] ?? "", `cannot be used together with ${logins[0]}: use one of them`);
      if (password !== undefined && login === undefined && user === "_")
        fail("password", "needs a user name for NATS: set user or login");
      if (login !== undefined && password === undefined) fail("login", "needs a password");
      const { cert, key } = value.tls ?? {};
      if ((cert === undefined) !== (key === undefined))
        fail("tls", "has to have both cert and key, or neither");
    }),
  ),
);

function isLocalUrl(url: string): boolean {
  const host = /^\w+:\/\/(\[[^\]]*\]|[^:/]*)/.exec(url)?.[1] ?? "";
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

const REGISTRY_FORMAT = /^(?:official|smithery|(?:(?:official|smithery)=)?https?:\/\/[^\s?#@]+)$/;

export const registrySchema = once(() =>
  table({
    directories: optionalKey(
      v.array(
        v.pipe(
          text,
          v.regex(
            REGISTRY_FORMAT,
            `"official", "smithery", a URL, or one of these with = and a URL`,
          ),
        ),
        "an array of directories",
      ),
      {
        title: "Directories",
        shown: true,
        description:
          "official: the official MCP registry. smithery: the directory of Smithery. A URL: a directory with the API of the official registry. smithery=URL: a directory with the API of Smithery.",
        default: ["official", "smithery"],
        examples: [["official"], ["https://directory.example.com"]],
      },
    ),
  }),
);

const HITS = "a whole number, 1 to 50";
const SYNONYMS = "an array of at most 500 arrays of words";
const SYNONYM_WORDS = "an array of 2 to 20 words";

/** Settings by which clients with the exposures `search`, `select` and `auto` find tools. */
export const toolSearchSchema = once(() =>
  table({
    always: optionalKey(filterSchema, {
      title: "Tools that are always listed",
      shown: true,
      description:
        "Tools that stay in the list of tools, whatever the exposure of the client; by default none. Tools of servers whose _meta has anthropic/alwaysLoad stay in it, too.",
      examples: [{ ids: ["git.status"] }],
    }),
    limit: optionalKey(
      v.pipe(v.number(HITS), v.integer(HITS), v.minValue(1, HITS), v.maxValue(50, HITS)),
      {
        title: "Hits",
        shown: true,
        description: "How many tools search_tools returns if the model asks for no other number.",
        default: 8,
        examples: [5],
      },
    ),
    readOnlyCall: optionalKey(flag, {
      title: "Tool for calls that only read",
      shown: true,
      description:
        "Whether the exposure search has call_read_only_tool, so that a client can allow calls that only read without allowing all calls.",
      default: true,
      examples: [false],
    }),
    synonyms: optionalKey(
      v.pipe(
        v.array(
          v.pipe(
            v.array(
              v.pipe(nonEmptyText, v.maxLength(64, "a word of at most 64 characters")),
              SYNONYM_WORDS,
            ),
            v.minLength(2, SYNONYM_WORDS),
            v.maxLength(20, SYNONYM_WORDS),
          ),
          SYNONYMS,
        ),
        v.maxLength(500, SYNONYMS),
      ),
      {
        title: "Synonyms",
        shown: true,
        description:
          "Lists of words that mean the same when tools are searched, in addition to the built-in ones.",
        default: [],
        examples: [[["ticket", "jira"]]],
      },
    ),
  }),
);

const TOKENS = "a whole number of tokens, at least 1";
const tokens = v.pipe(v.number(TOKENS), v.integer(TOKENS), v.minValue(1, TOKENS));
const TEMPERATURE = "a number between 0 and 2";

export const modelSchema = once(() =>
  table({
    provider: withNotes(v.picklist(MODEL_PROVIDERS, `one of ${MODEL_PROVIDERS.join(", ")}`), {
      title: "Provider",
      shown: true,
      description:
        "anthropic, google: their own APIs. openai: OpenAI, or any API at url that is compatible with its chat completions (Ollama, LM Studio, vLLM, OpenRouter). sampling: the model of the connected client. script: answers from a file, for tests.",
      examples: ["anthropic", "openai"],
    }),
    model: optionalKey(nonEmptyText, {
      title: "Model",
      shown: true,
      description: "The provider's name of the model.",
      examples: ["claude-sonnet-4-5", "llama3.2"],
    }),
    url: optionalKey(nonEmptyText, {
      title: "URL",
      shown: true,
      template: true,
      description:
        "The base URL of the API, instead of the provider's own. In url and apiKey, ${env:NAME}, ${file:path}, ${secret:name} and ${cmd:command} are replaced when a run starts.",
      examples: ["http://127.0.0.1:11434/v1"],
    }),
    apiKey: optionalKey(nonEmptyText, {
      title: "API key",
      template: true,
      description:
        "By default the secret with the name of the provider (toolmux secret set anthropic), then ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or GOOGLE_API_KEY. These are sent only to the provider itself: with url, set apiKey if the API needs a key.",
      examples: ["${secret:anthropic}", "${env:OPENROUTER_KEY}"],
    }),
    temperature: optionalKey(
      v.pipe(v.number(TEMPERATURE), v.minValue(0, TEMPERATURE), v.maxValue(2, TEMPERATURE)),
      {
        title: "Temperature",
        shown: true,
        description: "How random answers are. Some models do not support it.",
        examples: [0.2],
      },
    ),
    maxTokens: optionalKey(tokens, {
      title: "Tokens of an answer",
      shown: true,
      description: "The maximum number of tokens of one answer.",
      examples: [4096],
    }),
    contextTokens: optionalKey(tokens, {
      title: "Tokens of the context",
      shown: true,
      description:
        "How many tokens the model can read. The oldest messages are left out before it is full. By default 200000 for anthropic, 1000000 for google, 128000 for others.",
      examples: [200_000, 32_768],
    }),
    thinking: optionalKey(
      v.picklist(["off", "low", "medium", "high"], `"off", "low", "medium" or "high"`),
      {
        title: "Thinking",
        shown: true,
        description:
          "How much the model thinks before it answers. By default the provider decides.",
        examples: ["low"],
      },
    ),
    images: optionalKey(flag, {
      title: "Pictures",
      shown: true,
      description:
        "Whether the model accepts pictures. By default true, but false with url or provider script.",
      examples: [true],
    }),
    timeout: optionalKey(limit, {
      title: "Time of an answer",
      shown: true,
      description: "How long the model may take for one answer, from the request to its end.",
      default: "5m",
      examples: ["2m"],
    }),
    script: optionalKey(nonEmptyText, {
      title: "Script",
      shown: true,
      template: true,
      description:
        "For the provider script: the file with the answers. A relative path starts at the directory of this file.",
      examples: ["answers.toml"],
    }),
  }),
);

/** A model: `modelSchema`, plus the rules that involve several keys. */
export const manifestModelSchema = once(() =>
  v.pipe(
    modelSchema(),
    v.rawCheck(({ dataset: { value: model }, addIssue }) => {
      if (!isTable(model)) return;
      const rules = MODEL_KEYS.find(({ providers }) =>
        providers.includes(String(model["provider"])),
      );
      if (rules === undefined) return;
      if (rules.required !== undefined && !(rules.required in model)) {
        const path = issuePath(model, ["provider"], "value");
        addIssue({ message: `needs the key ${rules.required}, too`, path });
      }
      for (const key of rules.unused) {
        if (!(key in model)) continue;
        const message = `cannot be used with provider = "${String(model["provider"])}"`;
        addIssue({ message, path: issuePath(model, [key], "key") });
      }
    }),
  ),
);

/** For each provider: the key that a model needs in addition to `provider`, and the keys that it must not have. */
const MODEL_KEYS: readonly {
  readonly providers: readonly string[];
  readonly required?: string;
  readonly unused: readonly string[];
}[] = [
  { providers: ["anthropic", "openai", "google"], required: "model", unused: ["script"] },
  {
    providers: ["sampling"],
    unused: ["url", "apiKey", "thinking", "script"],
  },
  { providers: ["script"], required: "script", unused: ["url", "apiKey", "thinking"] },
];

const COUNT = "a whole number, at least 1";
const atLeastOne = v.pipe(v.number(COUNT), v.integer(COUNT), v.minValue(1, COUNT));
const NOT_NEGATIVE = "a whole number, at least 0";
const agentNames = v.array(nonEmptyText, "an array of names of agents");

export const agentSchema = once(() =>
  table({
    model: withNotes(nonEmptyText, {
      title: "Model",
      shown: true,
      description: "A key of models, or PROVIDER/MODEL. An agent must have it.",
      examples: ["main", "anthropic/claude-sonnet-4-5"],
    }),
    description: optionalKey(nonEmptyText, {
      title: "Description",
      shown: true,
      description: "What the agent does. People and other models read it.",
      examples: ["Reviews changes."],
    }),
    instruction: optionalKey(nonEmptyText, {
      title: "Instruction",
      shown: true,
      description:
        "What the model is told before every conversation (the system prompt). An agent must have it, or instructionFile.",
      examples: ["You review changes. Name each problem with its file and line."],
    }),
    instructionFile: optionalKey(nonEmptyText, {
      title: "File with the instruction",
      shown: true,
      description:
        "Instead of instruction: a text file. A relative path starts at the directory of this file.",
      examples: ["reviewer.md"],
    }),
    tools: optionalKey(filterSchema, {
      title: "Tools",
      shown: true,
      description: "Which tools of all servers the agent has; by default none.",
      examples: [{ servers: ["git", "files"] }, "all"],
    }),
    mode: optionalKey(nonEmptyText, {
      title: "Mode",
      shown: true,
      description: "Instead of tools: the mode whose tools the agent has.",
      examples: ["review"],
    }),
    respectMode: optionalKey(flag, {
      title: "Respect the mode of the caller",
      shown: true,
      description: "true: the agent has only those of its tools that the calling client sees, too.",
      default: false,
    }),
    allowAgents: optionalKey(flag, {
      title: "May use agents",
      shown: true,
      description:
        "true: the agent can use tools that run agents (agents__…), if tools selects them.",
      default: false,
    }),
    expose: optionalKey(agentExposure, {
      title: "How it gets its tools",
      shown: true,
      description:
        '"direct": the model gets the definitions of all its tools. "search": it gets search_tools, describe_tools and call_tool, with which it finds and calls them, and those of toolSearch.always. "auto": direct up to hub.exposeBudget, else search; decided when a run begins.',
      default: AGENT_DEFAULTS.expose,
      examples: ["search", "direct"],
    }),
    subAgents: optionalKey(agentNames, {
      title: "Agents for tasks",
      shown: true,
      description:
        "Agents to which it can give a task. It gets their answer; they do not see the conversation.",
      default: [],
      examples: [["tester"]],
    }),
    handoffs: optionalKey(agentNames, {
      title: "Agents that can take over",
      shown: true,
      description: "Agents to which it can hand over the conversation.",
      default: [],
      examples: [["billing"]],
    }),
    maxTurns: optionalKey(atLeastOne, {
      title: "Turns",
      shown: true,
      description: "How often the model may be asked in a run.",
      default: AGENT_DEFAULTS.maxTurns,
      examples: [20],
    }),
    maxToolCalls: optionalKey(atLeastOne, {
      title: "Tool calls",
      shown: true,
      description: "How many tools may be called in a run, including those of agents for tasks.",
      default: AGENT_DEFAULTS.maxToolCalls,
      examples: [50],
    }),
    parallelToolCalls: optionalKey(atLeastOne, {
      title: "Tool calls at a time",
      shown: true,
      description: "How many tool calls of one turn run at the same time.",
      default: AGENT_DEFAULTS.parallelToolCalls,
      examples: [1],
    }),
    retries: optionalKey(
      v.pipe(v.number(NOT_NEGATIVE), v.integer(NOT_NEGATIVE), v.minValue(0, NOT_NEGATIVE)),
      {
        title: "Retries",
        shown: true,
        description:
          "How often a call that failed for a temporary reason is repeated, if the tool was not reached or a repetition is harmless.",
        default: AGENT_DEFAULTS.retries,
        examples: [0, 3],
      },
    ),
    resultLimit: optionalKey(size, {
      title: "Largest result",
      shown: true,
      description:
        "How much of a tool's result the model gets. The rest is cut off, with a note about it.",
      default: "64KB",
      examples: ["16KB"],
    }),
    timeout: optionalKey(limit, {
      title: "Time of a run",
      shown: true,
      description: "How long a run may take.",
      default: "10m",
      examples: ["2m"],
    }),
    approval: optionalKey(v.picklist(["auto", "always", "never"], `"auto", "always" or "never"`), {
      title: "Approval",
      shown: true,
      description:
        'Which calls a person has to allow first. "auto": those of tools that are not known to be read-only. "always": all. "never": none. Settings of a tool take precedence.',
      default: "auto",
      examples: ["always"],
    }),
    persist: optionalKey(flag, {
      title: "Keep conversations",
      shown: true,
      description:
        "Whether conversations with the agent are kept in the state folder. By default those of toolmux chat and of the dashboard. true: also those of clients over HTTP that have a token. false: none.",
      examples: [true, false],
    }),
  }),
);

const AGENT_NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** An agent: `agentSchema`, plus the rules that involve several keys. */
export const manifestAgentSchema = once(() =>
  v.pipe(
    agentSchema(),
    v.rawCheck(({ dataset: { value: agent }, addIssue }) => {
      if (!isTable(agent)) return;
      if (!("instruction" in agent) && !("instructionFile" in agent))
        addIssue({ message: "is missing", path: issuePath(agent, ["instruction"], "value") });
      for (const [first, second] of [
        ["instruction", "instructionFile"],
        ["tools", "mode"],
      ] as const) {
        if (!(first in agent && second in agent)) continue;
        const message = `cannot be used together with ${first}`;
        addIssue({ message, path: issuePath(agent, [second], "key") });
      }
    }),
  ),
);

/** Describes what is wrong with an agent's name; undefined if the name is valid. */
export function agentNameProblem(name: string): string | undefined {
  if (AGENT_NAME.test(name)) return undefined;
  return "the name of an agent has letters, digits, _ and - only, and at most 64 of them";
}

const REGISTRY_HOST = "the host name of a registry, such as ghcr.io";
const registryHost = v.pipe(text, v.regex(/^[a-z0-9[][a-z0-9.:\]-]*$/, REGISTRY_HOST));

/** What provides a toolset of agents' files: a server of the manifest, or one with settings of its own. */
export const toolsetSchema = once(() =>
  table({
    ...processEntries,
    ...remoteEntries,
    server: optionalKey(nonEmptyText, {
      title: "Server",
      shown: true,
      description: "The name of the server of the manifest that provides the toolset.",
      examples: ["files"],
    }),
    roots: optionalKey(v.array(nonEmptyText, "an array of directories"), {
      title: "Roots",
      shown: true,
      description:
        "Directories in which the server may work. An argument ${roots} stands for them. By default the directory of the agent's file.",
      examples: [["~/work"]],
    }),
  }),
);

/** The places of agent files, and the registries that they may come from. */
export const agentFilesSchema = once(() =>
  table({
    directory: optionalKey(nonEmptyText, {
      title: "Directory",
      shown: true,
      description:
        "Your own directory for files of agents. By default agents in the configuration directory. Files outside of the configuration directory run commands only after toolmux trust.",
      examples: ["~/agents"],
    }),
    paths: optionalKey(v.array(nonEmptyText, "an array of directories"), {
      title: "Further directories",
      shown: true,
      description:
        "Further directories with files of agents. These files run commands only after toolmux trust.",
      default: ["~/.cagent/agents"],
      examples: [["~/work/agents"]],
    }),
    strict: optionalKey(flag, {
      title: "Refuse what is not supported",
      shown: true,
      description:
        "true: a file that uses something that toolmux does not support is refused. false: toolmux reports it and ignores it.",
      default: false,
      examples: [true],
    }),
    registries: optionalKey(v.array(registryHost, `an array of ${REGISTRY_HOST}`), {
      title: "Registries",
      shown: true,
      description:
        "Hosts that agents may be pulled from; docker.io is Docker Hub. By default any host.",
      examples: [["docker.io", "ghcr.io"]],
    }),
    credentials: optionalKey(record(secretText), {
      title: "Credentials",
      description:
        "USER:PASSWORD for registries, by host. ${secret:NAME}, ${env:NAME} and ${file:PATH} are replaced when an agent is pulled. Those of other registries are read from the config.json of docker login.",
      default: {},
      examples: [{ "ghcr.io": "${secret:ghcr}" }],
    }),
    toolsets: optionalKey(record(toolsetSchema()), {
      title: "Toolsets",
      description:
        "What provides the toolsets of agents' files, such as filesystem, fetch and shell, by the toolset's type. For a shell, a person has to allow each call.",
      default: {},
      examples: [{ filesystem: { server: "files" } }],
    }),
  }),
);

/** The root of a manifest file. The values are validated separately. */
export const fileSchema = table({
  $schema: optionalKey(text, { title: "Schema", description: "The location of this schema." }),
  hub: optionalKey(v.unknown(), { title: "The hub", description: "Settings of toolmux itself." }),
  defaults: optionalKey(v.unknown(), {
    title: "Defaults",
    description: "Limits and approval of all servers that do not set their own.",
  }),
  servers: optionalKey(v.unknown(), {
    title: "Servers",
    description: "All servers, each under a name of your choice, which is also its prefix.",
    examples: [{ files: { command: "npx", args: ["-y", "server-filesystem", "."] } }],
  }),
  plugins: optionalKey(v.unknown(), {
    title: "Plugins",
    description: "Code that sees and changes calls and lists; the first plugin is the outermost.",
    examples: [[{ use: "audit-log", servers: ["files"] }]],
  }),
  models: optionalKey(v.unknown(), {
    title: "Models",
    description: "The language models that agents use, each under a name of your choice.",
    examples: [{ main: { provider: "anthropic", model: "claude-sonnet-4-5" } }],
  }),
  agents: optionalKey(v.unknown(), {
    title: "Agents",
    description:
      "Models that use the tools of the servers, each under a name of your choice. Run one with toolmux run NAME or toolmux chat NAME.",
    examples: [{ reviewer: { model: "main", instruction: "You review changes." } }],
  }),
  agentFiles: optionalKey(v.unknown(), {
    title: "Files of agents",
    description: "Where toolmux finds agents in files, and which registries it gets them from.",
  }),
  modes: optionalKey(v.unknown(), {
    title: "Modes",
    description: "Named selections of tools, each under a name of your choice.",
    examples: [{ review: { tools: { servers: ["git"] } } }],
  }),
  clients: optionalKey(v.unknown(), {
    title: "Clients",
    description: "Clients of serve --http, each with a token of its own.",
    examples: [[{ name: "laptop", token: "${secret:clients/laptop}", mode: "review" }]],
  }),
  telemetry: optionalKey(v.unknown(), {
    title: "Telemetry",
    description:
      "Where traces and metrics go. If several files set this table, the last one counts as a whole.",
    examples: [{ endpoint: "http://127.0.0.1:4318", sample: 1 }],
  }),
  limits: optionalKey(v.unknown(), {
    title: "Limits of calls",
    description:
      "How many calls are allowed: of all clients together, and of each client (client). Servers, tools and clients have limits of their own. By default none.",
    examples: [{ maxConcurrent: 200, client: { rate: "600/1m", maxConcurrent: 32 } }],
  }),
  fleet: optionalKey(v.unknown(), {
    title: "Fleet",
    description:
      "Several machines over NATS: which servers of this hub others may use, and which servers of others this hub uses. Counts only in the user's own manifest, not in a manifest of the working directory.",
    examples: [{ url: "nats://127.0.0.1:4222", export: ["git"] }],
  }),
  secrets: optionalKey(v.unknown(), {
    title: "Secrets",
    description: "Where toolmux finds the values of ${secret:NAME}.",
  }),
  search: optionalKey(v.unknown(), {
    title: "Search",
    description: "Where toolmux search and toolmux add find servers.",
  }),
  toolSearch: optionalKey(v.unknown(), {
    title: "Search for tools",
    description:
      "How models find tools if hub.expose, a client or its URL says that they search for them.",
  }),
});

/**
 * The types of the settings in one file, with durations in ms and sizes in bytes. Keys that are not set are absent.
 */
export type HubInput = Readonly<
  Omit<v.InferOutput<ReturnType<typeof hubSchema>>, "httpToken" | "pinFile">
>;
export type LimitsInput = Readonly<v.InferOutput<typeof limitsSchema>>;
export type DefaultsInput = Readonly<v.InferOutput<ReturnType<typeof defaultsSchema>>>;
export type ServerInput = Readonly<v.InferOutput<typeof serverSchema>>;
export type ModelInput = Readonly<v.InferOutput<ReturnType<typeof modelSchema>>>;
export type AgentFilesInput = Readonly<v.InferOutput<ReturnType<typeof agentFilesSchema>>>;
export type AgentInput = Readonly<v.InferOutput<ReturnType<typeof agentSchema>>>;
export type PluginInput = Readonly<v.InferOutput<ReturnType<typeof pluginSchema>>>;
export type ToolSearchInput = Readonly<v.InferOutput<ReturnType<typeof toolSearchSchema>>>;
export type FleetInput = Readonly<v.InferOutput<ReturnType<typeof fleetSchema>>>;
export type NamedClientInput = Readonly<v.InferOutput<ReturnType<typeof namedClientSchema>>>;

/** All secret sources, in the default order of look-up. */
export const SECRET_SOURCES = ["environment", "file"] as const;

export type SecretSource = (typeof SECRET_SOURCES)[number];

/** The names of the sources, for messages. */
export const SOURCE_NAMES = SECRET_SOURCES.map((name) => `"${name}"`).join(", ");

export const secretsSchema = once(() =>
  table({
    sources: optionalKey(
      v.pipe(
        v.array(
          v.picklist(SECRET_SOURCES, `one of ${SOURCE_NAMES}`),
          `an array of ${SOURCE_NAMES}`,
        ),
        v.nonEmpty(`at least one of ${SOURCE_NAMES}`),
        v.rawCheck(({ dataset, addIssue }) => {
          if (!dataset.typed) return;
          for (const [at, name] of dataset.value.entries()) {
            if (dataset.value.indexOf(name) === at) continue;
            addIssue({
              message: "is in the list twice",
              path: issuePath(dataset.value, [at], "value"),
            });
          }
        }),
      ),
      {
        title: "Sources of secrets",
        shown: true,
        description:
          "Where toolmux looks for ${secret:NAME}, in this order, for all servers. If several files set it, the last one counts. environment: the variable NAME or TOOLMUX_SECRET_NAME. file: the encrypted file of toolmux secret.",
        default: [...SECRET_SOURCES],
        examples: [["file"], ["environment"]],
      },
    ),
    commands: optionalKey(flag, {
      title: "Allow commands",
      shown: true,
      description:
        "true: servers in this file may use ${cmd:COMMAND}. toolmux runs the command without a shell and uses its output as the value.",
      default: false,
      examples: [true],
    }),
  }),
);

/** The secret settings of one file. */
export interface SecretSettings {
  /** The sources of secrets, in the order of look-up; undefined: not set in this file. */
  readonly sources: readonly SecretSource[] | undefined;
  /** Whether servers of this file may use `${cmd:…}`. */
  readonly commands: boolean;
}

export const DEFAULT_SECRET_SETTINGS: SecretSettings = { sources: undefined, commands: false };
