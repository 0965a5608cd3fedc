import { HubError, toHubError } from "../base/errors.ts";
import { CLIENT_NAMES } from "../client-configs/client-names.ts";
import { describeError, printLogRecord, recordsOfError } from "../terminal/log.ts";
import {
  DEFAULT_COMMAND,
  LOG_LEVELS,
  commandNameIn,
  logFormatIn,
  parseCommandLine,
  wantsJson,
} from "./args.ts";
import {
  AGENT_VERBS,
  APPROVAL_VERBS,
  BENCH_DEFAULTS,
  type CommandContext,
  command,
  type Command,
  LISTS,
  SECRET_VERBS,
  SHELLS,
} from "./command.ts";
import { flag, integer, oneOf, text, texts } from "./options.ts";

const JSON_OUTPUT = flag("print one JSON document, for programs; errors too");

const DRY_RUN = flag("show what would be written, and write nothing");

const VERBS = ["login", "logout", "status"] as const;

/** A paragraph of the help of `import` and `install`. */
const CLIENTS = [`Clients: ${CLIENT_NAMES.join(", ")}.`];

const FROM = texts("DIRECTORY", "search there: official, smithery, a URL, or smithery=URL");

const FILE = text("FILE", "change this manifest instead of yours", { choices: "file" });

/** Options of all commands that use running hubs. */
const OF_HUB = {
  hub: text("PID", "the hub with this process id; toolmux ps shows it", { choices: "hubs" }),
  json: JSON_OUTPUT,
};

/** Options of all commands that run agents. */
const OF_AGENTS = {
  model: text("MODEL", "use this model: a key of [models], or PROVIDER/MODEL"),
  mode: text("NAME", "use only the tools of this mode", { choices: "modes" }),
  approval: oneOf(
    "LEVEL",
    ["auto", "always", "never"],
    "ask before calls, unless the manifest sets this: auto (default), always, never",
  ),
  fresh: flag("start the servers here, also if a hub runs"),
  hub: OF_HUB.hub,
};

const NO_WAIT = flag("do not wait until it is done");

const HUB_CODES = "3 no hub runs, or the server failed";

const APPROVAL = oneOf("LEVEL", ["auto", "always"], "ask a person before calls: auto, always");

/** Options of `serve` for recording. */
const RECORDING = {
  record: text("FILE", "record all messages of clients and servers, for `replay`", {
    choices: "file",
  }),
  "record-limit": text("SIZE", "maximum size of the recording (256MiB)"),
};

/**
 * All commands. The help, the parser and shell completion are made from this table.
 *
 * This folder is the command line. A command is declared here with its options; its code is in the folder `commands`
 * and is loaded when the command runs. Main types: `Command`, `Invocation` and `CommandContext` (command.ts). Start
 * with `runCli`, then commands/serve.ts.
 */
export const COMMANDS: readonly Command[] = [
  command({
    name: "import",
    group: "Start here",
    summary: "add the servers of your MCP clients to the manifest",
    usage: "[CLIENT …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [[CLIENT_NAMES]],
    details: [
      "Reads the configuration files of all MCP clients, or of the named ones. Shows which",
      "of their servers it would add to the manifest and which it leaves out, and asks",
      "before it adds them. It never changes the files of the clients.",
      "",
      ...CLIENTS,
      "",
      "Files in the current directory are read only with --project. Servers that the manifest already has, also in another version, servers of a single project, and toolmux itself are left out. Values that look like secrets are masked. With --secrets they move into the secret store, and the manifest gets ${secret:SERVER/NAME} instead.",
      "",
      "Exit codes: 0 added, or nothing to add; 2 not confirmed, wrong usage, or the",
      "manifest has problems.",
    ],
    options: {
      only: texts("NAME", "add only this server; may be repeated"),
      except: texts("NAME", "do not add this server; may be repeated"),
      all: flag("also add other versions, and servers of a single project"),
      project: flag("read the client files of the current directory instead of yours"),
      secrets: flag("move values that look like secrets into the secret store"),
      yes: flag("add the servers without asking", { letter: "y" }),
      "dry-run": DRY_RUN,
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux import",
      "toolmux import cursor --only github --only files",
      "toolmux import cursor codex --secrets --yes",
    ],
    load: async () => (await import("./commands/import.ts")).importServers,
  }),
  command({
    name: "add",
    group: "Start here",
    summary: "add one server to the manifest, after a test start",
    usage: "NAME [-- COMMAND ARGS …]",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    details: [
      "Starts the server once and lists its tools. If that fails, nothing is written. A",
      "server that only needs a login or a value is added, and toolmux prints what to run",
      "next. The rest of the manifest stays unchanged.",
      "",
      "Without COMMAND, --package, --command or --url, NAME (such as",
      "io.github.owner/name) is looked up in the directories that `toolmux search` uses.",
      "",
      "Exit codes: 0 added; 2 wrong usage, or the manifest has problems; 3 the server did",
      "not start or no directory answered, and nothing was written.",
    ],
    options: {
      url: text("URL", "URL of a server over HTTP"),
      header: texts("NAME: VALUE", "with --url: HTTP header of every request"),
      transport: oneOf(
        "TRANSPORT",
        ["auto", "http", "sse"],
        "with --url: auto (default), http or sse",
      ),
      package: text("PACKAGE", "npm:NAME, pypi:NAME or docker:IMAGE"),
      runner: oneOf(
        "RUNNER",
        ["npx", "bunx", "deno", "uvx", "pipx", "docker", "podman"],
        "with --package: the program that runs it",
      ),
      command: text("LINE", "command with its arguments, run without a shell"),
      env: texts("KEY=VALUE", "environment variable of the server"),
      prefix: text("PREFIX", "prefix of its tool names; '' for none", {
        empty: true,
      }),
      as: text("KEY", "name in the manifest, if NAME comes from a directory"),
      from: FROM,
      file: FILE,
      replace: flag("replace the server of that name"),
      "no-try": flag("add it without a test start"),
      force: flag("add it even if the test start fails"),
      live: flag("add it to the running hub only; the manifest stays unchanged"),
      hub: OF_HUB.hub,
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux add git --package pypi:mcp-server-git",
      "toolmux add files -- npx -y @modelcontextprotocol/server-filesystem ~/work",
      "toolmux add linear --url https://example.com/mcp",
      "toolmux add io.github.owner/name",
    ],
    load: async () => (await import("./commands/add.ts")).add,
  }),
  command({
    name: "install",
    group: "Start here",
    summary: "connect an MCP client to toolmux, or disconnect it",
    usage: "CLIENT",
    argumentCount: [1, 1],
    completes: [[CLIENT_NAMES]],
    details: [
      "Adds one entry, named toolmux, to the servers in the client's configuration file.",
      "The rest of the file stays unchanged, comments included. A copy of the original file",
      "is kept next to it. --undo restores the copy if nobody has changed the file since;",
      "otherwise it removes only the entry.",
      "",
      ...CLIENTS,
      "",
      "With --http the client connects to a running hub (`toolmux serve --http`) instead of",
      "starting one; some clients cannot. With --replace the other servers of the client",
      "move into the manifest first, as `toolmux import` does.",
    ],
    options: {
      project: flag("use the client's file in the current directory"),
      http: text("URL", "connect to the hub at URL: http://127.0.0.1:8700/mcp"),
      "http-token-env": text("NAME", "environment variable of the client with the token"),
      approval: APPROVAL,
      mode: text("NAME", "limit the client to this mode of the manifest", { choices: "modes" }),
      replace: flag("move its other servers into the manifest"),
      secrets: flag("with --replace: move secrets into the secret store"),
      undo: flag("remove toolmux from the client"),
      print: flag("print the entry to copy it, and write nothing"),
      "dry-run": DRY_RUN,
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux install cursor",
      "toolmux install claude-code --replace --dry-run",
      "toolmux install vscode --http http://127.0.0.1:8700/mcp",
      "toolmux install claude-code --approval auto",
      "toolmux install cursor --mode review",
      "toolmux install cursor --undo",
    ],
    load: async () => (await import("./commands/install.ts")).install,
  }),
  command({
    name: "status",
    group: "Start here",
    summary: "show the state of the servers",
    usage: "[SERVER …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [["servers"]],
    details: [
      "If a hub runs that serves your manifest, shows the servers as they are there. Otherwise,",
      "or with --fresh, starts every enabled server (or only the named ones), lists its tools",
      "and stops it again. For a server that fails it prints the cause; with --fresh also the",
      "failed step, the last lines of the server's stderr and what to do.",
      "",
      "START is the time from the start of the server to its list of tools. MEMORY is the",
      "sum of all its processes. TOOLS `3 of 5` means that clients see 3 of its 5 tools.",
      "",
      "Exit codes: 0 all servers work, 1 some failed, 3 all failed, 2 there are no servers.",
    ],
    options: {
      ...OF_HUB,
      fresh: flag("start the servers here, also if a hub runs"),
    },
    examples: [
      "toolmux status",
      "toolmux status files git",
      "toolmux status --fresh",
      "toolmux status --json",
    ],
    load: async () => (await import("./commands/status.ts")).status,
  }),
  command({
    name: DEFAULT_COMMAND,
    group: "Use the tools",
    summary: "serve all servers as one MCP server (the default)",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "MCP clients start this command. It serves MCP on stdin and stdout, writes messages",
      "to stderr, and ends when the client disconnects.",
      "",
      "With --http it serves any number of clients at http://HOST:PORT/mcp until it is",
      "stopped; SIGHUP reloads the manifest. It accepts connections from other machines",
      "only with a token. The token is in the environment variable that --http-token-env",
      "names, or in hub.httpToken of the manifest. --token auto creates a token, stores it",
      "as the secret toolmux/http-token for the next start, and shows on a terminal what",
      "clients need. Without a token, every user of this machine can call every tool.",
      "[[clients]] in the manifest are clients with tokens, modes and servers of their own.",
      "",
      "GET /healthz tells whether the hub runs, GET /readyz whether its servers are ready.",
      "",
      "With --approval, a person must allow calls before they reach a server: with auto, calls",
      "of tools that are not known to be read-only; with always, all calls. The setting of the",
      "manifest still applies if it is stricter. Tools with a rule in tools.approval keep that",
      "rule; --approve-all asks for them, too.",
    ],
    options: {
      http: text("HOST:PORT", "serve over HTTP; 8700 means 127.0.0.1:8700"),
      "http-token-env": text("NAME", "environment variable with the token that clients send"),
      token: text("auto", "create a token for clients, or use the stored one"),
      stdio: flag("with --http: also serve stdin and stdout"),
      dashboard: flag("with --http: also serve the dashboard of this hub, at /ui"),
      approval: APPROVAL,
      "approve-all": flag("ask a person before every call"),
      mode: text("NAME", "limit all clients to this mode of the manifest", { choices: "modes" }),
      servers: text("LIST", "serve only these servers: files,git"),
      ...RECORDING,
    },
    examples: [
      "toolmux",
      "toolmux --config servers.toml --config ~/.cursor/mcp.json",
      "toolmux serve --http 127.0.0.1:8700",
      "toolmux serve --mode review --servers files,git",
      "toolmux serve --record session.jsonl",
    ],
    load: async () => {
      const { serve } = await import("./commands/serve.ts");
      // A hub runs commands for users of its control API. `runCli` is passed as an argument, because serve.ts cannot
      // import this file: the import would be circular.
      return (invocation, context) => serve(invocation, context, runCli);
    },
  }),
  command({
    name: "list",
    group: "Use the tools",
    summary: "list the tools, prompts, resources or skills of the servers",
    usage: "[LIST] [SERVER …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [[LISTS, "servers"], ["servers"]],
    details: [
      "Shows what a running hub that serves your manifest offers. Without one, shows at once what the servers listed last, and starts only servers that were never listed; --fresh starts them all here. With names of servers it shows only these servers.",
      "",
      `LIST is ${LISTS.slice(0, -1).join(", ")} or ${LISTS.at(-1)}; the default is tools.`,
      "",
      "Exit codes: 0 listed, 3 no server could be reached.",
    ],
    options: {
      fresh: flag("start the servers here and list them now"),
      all: flag("also show what is hidden or renamed, and why"),
      mode: text("NAME", "show what clients in this mode see", { choices: "modes" }),
      ...OF_HUB,
    },
    examples: [
      "toolmux list",
      "toolmux list --mode review --all",
      "toolmux list files",
      "toolmux list --all --fresh",
      "toolmux list resources files git",
      "toolmux list servers --json",
    ],
    load: async () => (await import("./commands/list.ts")).list,
  }),
  command({
    name: "describe",
    group: "Use the tools",
    summary: "show what a tool does, its arguments and an example call",
    usage: "TOOL",
    argumentCount: [1, 1],
    completes: [["tools"]],
    details: [
      "TOOL is a name that `toolmux list` shows. Starts the server of the tool only if it was never listed, or with --fresh.",
    ],
    options: {
      fresh: flag("start the server and list it now"),
      json: flag("print the tool as the JSON that clients get"),
    },
    examples: ["toolmux describe files__read_file"],
    load: async () => (await import("./commands/describe.ts")).describe,
  }),
  command({
    name: "call",
    group: "Use the tools",
    summary: "call one tool and print its result",
    usage: "NAME [KEY=VALUE … | --json JSON | -]",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    completes: [["tools"], ["arguments"]],
    takesPairs: true,
    details: [
      "NAME is a name that `toolmux list` shows; `toolmux describe NAME` shows its",
      "arguments. A hub that runs and serves your manifest makes the call; without one, or",
      "with --fresh, only the server of the tool is started here. Arguments are converted to",
      "the types of the tool's schema; errors in them are reported before the call:",
      "",
      "  key=value        a text, number, true, false, null, or one of the allowed values",
      '  tag=a tag=b      the elements of an array; also tag=\'["a","b"]\'',
      "  filter.name=x    a key in an object",
      "  key:=JSON        a value as JSON",
      "  key=@FILE        the content of a file; key=@@x sends a text that begins with @",
      "  -                all arguments from stdin, a JSON object that is sent unchanged",
      "",
      "Texts are printed unchanged. Images, audio and other files are described in one",
      "line each, or saved with --output. On a terminal, progress is shown on stderr.",
      "",
      "Exit codes: 0 ok, 1 the tool reported an error, 2 wrong usage or unknown tool,",
      "3 could not connect to the server, 124 timed out, 130 interrupted.",
    ],
    options: {
      fresh: flag("start the server here, also if a hub runs"),
      hub: OF_HUB.hub,
      timeout: text("TIME", "time limit of the call: 30s, 5m, … (the server's callTimeout)"),
      json: text("JSON", "all arguments, a JSON object that is sent unchanged"),
      structured: flag("print the structured content instead of the texts"),
      raw: flag("print the result as the JSON that clients get"),
      output: text("DIR", "save images, audio and other files there", {
        letter: "o",
        choices: "folder",
      }),
    },
    examples: [
      "toolmux call files__read_file path=notes.txt",
      "toolmux call git__log limit=5 paths=src paths=test",
      `toolmux call files__search --json '{"pattern": "*.md"}'`,
      "toolmux call web__screenshot url=https://example.com --output shots",
      "toolmux call files__edit - < arguments.json",
    ],
    load: async () => (await import("./commands/call.ts")).call,
  }),
  command({
    name: "run",
    group: "Use the tools",
    summary: "run an agent on one message and print its answer",
    usage: "AGENT MESSAGE | AGENT -",
    argumentCount: [2, Number.POSITIVE_INFINITY],
    completes: [["agents"], []],
    details: [
      "AGENT is a name under [agents] of the manifest, the path of a file, or the name of an agent that was pulled; `toolmux agents` lists them. The agent's model calls the agent's tools until it has an answer. MESSAGE is its task; - reads it from stdin.",
      "",
      "Uses the servers of a running hub that serves your manifest. Without one, or with --fresh, starts the servers here. The model's key comes from the manifest, the secret with the provider's name, or the environment of this command.",
      "",
      "The answer is printed on stdout as it comes, each call of a tool with its duration on stderr. In a terminal, toolmux asks before it calls tools that may change something. With --json, prints each event as one line of JSON.",
      "",
      "Exit codes: 0 answered, 1 no answer, 2 wrong usage or unknown agent, 124 timed out,",
      "130 interrupted.",
    ],
    options: {
      ...OF_AGENTS,
      json: flag("print each event as one line of JSON"),
    },
    examples: [
      'toolmux run reviewer "Review the last commit."',
      "toolmux run reviewer - < task.md",
      'toolmux run reviewer "What changed?" --model local --json',
    ],
    load: async () => (await import("./commands/run.ts")).run,
  }),
  command({
    name: "chat",
    group: "Use the tools",
    summary: "talk to an agent in the terminal",
    usage: "[AGENT]",
    argumentCount: [0, 1],
    completes: [["agents"]],
    details: [
      "A conversation with an agent of the manifest (by default with the only one), of a file, or from a registry. Ctrl-C stops what runs, and twice ends the chat. Lines that are typed while the agent works are its next messages. toolmux asks before it calls tools that may change something.",
      "",
      "  /tools       the tools that the agent has",
      "  /servers     the servers and their states",
      "  /mode NAME   use only the tools of a mode; full for all",
      "  /history     the conversation so far",
      "  /clear       forget the conversation",
      "  /save FILE   write the conversation to a file",
      "  /quit        end",
    ],
    options: OF_AGENTS,
    examples: ["toolmux chat", "toolmux chat reviewer --mode review"],
    load: async () => (await import("./commands/chat.ts")).chat,
  }),
  command({
    name: "agents",
    group: "Use the tools",
    summary: "list agents, get them from registries, serve them as tools",
    usage: "[list|show|pull|remove|serve] [AGENT]",
    argumentCount: [0, 2],
    completes: [[AGENT_VERBS], ["agents"]],
    details: [
      "  list         all agents: of the manifest, in files, and from registries (the default)",
      "  show AGENT   what an agent has: its team, models, servers, and what is not supported",
      "  pull REF     get an agent from a registry: [HOST/]REPOSITORY[:TAG][@DIGEST]",
      "  remove REF   remove an agent that was pulled",
      "  serve        serve agents as MCP tools, on stdin and stdout or with --http",
      "",
      "AGENT is a name in the manifest, the path of a file in a directory for agents, or the name of an agent that was pulled. An agent that was pulled, or whose file is not in your configuration directory, runs no command and reaches no URL of its own before `toolmux trust`.",
      "",
      "An agent of the manifest cannot be used if its table has a problem, or the key of its model is missing. This command sends nothing to a model.",
      "",
      "`serve` starts a hub whose clients see only the tools of agents: create_agent_session, send_message, invoke_agent and so on. The agents use the servers of the manifest. If the manifest has the plugin agents, `toolmux serve` has these tools in addition to those of all servers.",
      "",
      "Exit codes: 0 done; 2 there is no such agent, or it has problems; 3 the registry did not send it.",
    ],
    options: {
      json: JSON_OUTPUT,
      http: text("HOST:PORT", "serve: over HTTP; 8700 means 127.0.0.1:8700"),
      "http-token-env": text("NAME", "serve: environment variable with the token of clients"),
      token: text("auto", "serve: create a token for clients, or use the stored one"),
      "agents-dir": text("DIRECTORY", "serve: the directory with files of agents", {
        choices: "folder",
      }),
      "max-sessions": text("COUNT", "serve: maximum number of sessions (100)"),
      "session-timeout": text("DURATION", "serve: how long an unused session is kept (1h)"),
    },
    examples: [
      "toolmux agents",
      "toolmux agents --json",
      "toolmux agents pull agentcatalog/pirate",
      "toolmux agents show pirate",
      "toolmux agents serve --http 8700 --token auto",
    ],
    load: async () => {
      const { agentFiles } = await import("./commands/agent-files.ts");
      return (invocation, context) => agentFiles(invocation, context, runCli);
    },
  }),
  command({
    name: "get",
    group: "Use the tools",
    summary: "get one prompt and print its messages",
    usage: "PROMPT [KEY=VALUE …]",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    completes: [["prompts"], ["arguments"]],
    takesPairs: true,
    details: [
      "PROMPT is a name that `toolmux list prompts` shows. Starts only the server of the prompt. KEY=@FILE reads a value from a file.",
    ],
    options: { raw: flag("print the result as the JSON that clients get") },
    examples: ["toolmux get github__review_pull_request number=12"],
    load: async () => (await import("./commands/get.ts")).get,
  }),
  command({
    name: "read",
    group: "Use the tools",
    summary: "read one resource and print its contents",
    usage: "URI",
    argumentCount: [1, 1],
    completes: [["resources"]],
    details: [
      "URI is one that `toolmux list resources` shows, or one that matches a template. Text is printed unchanged. Other contents are described in one line each, or saved with --output.",
    ],
    options: {
      raw: flag("print the result as the JSON that clients get"),
      output: text("DIR", "save binary contents in this directory", {
        letter: "o",
        choices: "folder",
      }),
    },
    examples: ["toolmux read file:///work/notes.txt", "toolmux read demo://logo --output ."],
    load: async () => (await import("./commands/read.ts")).read,
  }),
  command({
    name: "search",
    group: "Servers",
    summary: "find servers in the public directories",
    usage: "WORD …",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    details: [
      "Searches the official directory of MCP servers, and Smithery, which needs an API",
      "key: toolmux secret set smithery, or the environment variable SMITHERY_API_KEY. A",
      "directory that does not answer is skipped. The results were written by strangers:",
      "check a server before you run it.",
      "",
      "Choose other directories with --from, the environment variable TOOLMUX_DIRECTORIES",
      "(separated by spaces) or [search] directories in the manifest. A URL is a directory",
      "with the official API.",
      "",
      "Exit codes: 0 found, 1 nothing found, 3 no directory answered.",
    ],
    options: {
      from: FROM,
      limit: integer("COUNT", "maximum number of results (20)", {
        preset: 20,
        min: 1,
        max: 200,
      }),
      json: JSON_OUTPUT,
    },
    examples: ["toolmux search github", "toolmux search file system --limit 5 --json"],
    load: async () => (await import("./commands/search.ts")).search,
  }),
  command({
    name: "remove",
    group: "Servers",
    summary: "remove a server from the manifest",
    usage: "NAME",
    argumentCount: [1, 1],
    completes: [["servers"]],
    details: [
      "Removes the server with all its tables and the comments directly above it. The rest",
      "of the file stays unchanged. Prints the names of secrets that no other server uses.",
    ],
    options: {
      file: FILE,
      live: flag("remove a server that add --live has added to the running hub"),
      hub: OF_HUB.hub,
    },
    examples: ["toolmux remove files", "toolmux remove files --live"],
    load: async () => (await import("./commands/remove.ts")).remove,
  }),
  command({
    name: "auth",
    group: "Servers",
    summary: "log in to servers over HTTP, log out, show logins",
    usage: `${VERBS.join("|")} [SERVER …]`,
    argumentCount: [1, Number.POSITIVE_INFINITY],
    completes: [[VERBS], ["servers"]],
    details: [
      "  login SERVER       opens a browser to log in, and stores the tokens",
      "  logout SERVER      deletes the tokens and revokes them at the provider",
      "  status [SERVER …]  shows who is logged in; sends no request, shows no token",
      "",
      "A hub logs in by itself when a server asks for it. Use this command to log in",
      "earlier, or again. The browser returns to this machine: over SSH, forward the port",
      "(oauth.callbackPort in the server's table sets it).",
      "",
      "Exit codes: 0 done, 2 wrong usage, 3 the login failed, 130 interrupted.",
    ],
    options: {
      "no-browser": flag("only print the URL of the login page"),
      scope: text("SCOPES", "request these scopes instead of those that the server names"),
      json: JSON_OUTPUT,
    },
    examples: ["toolmux auth login linear", "toolmux auth status", "toolmux auth logout linear"],
    load: async () => (await import("./commands/auth.ts")).runAuth,
  }),
  command({
    name: "secret",
    group: "Servers",
    summary: "store values that must not be in the manifest",
    usage: "set NAME | list | remove NAME",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    completes: [[SECRET_VERBS], []],
    details: [
      "Write ${secret:NAME} in the manifest; toolmux fills in the value when it starts the",
      "server. `set` asks for the value without showing it, or reads it from stdin; never",
      "from the command line. toolmux never prints a value. NAME may have letters, digits",
      "and _ - . /",
      "",
      "Values are in an encrypted file in the config directory. Its key is in the keychain",
      "of the system. If there is no keychain, the key is next to the file, and toolmux",
      "says so. `list` shows where each value is and what uses it.",
      "",
      "Environment variables take precedence: for the secret linear/token, the variables",
      "linear/token and TOOLMUX_SECRET_LINEAR_TOKEN. To change that, set [secrets] sources in",
      "the manifest.",
    ],
    options: {
      json: JSON_OUTPUT,
    },
    examples: ["toolmux secret set linear/token", "toolmux secret list"],
    load: async () => (await import("./commands/secret.ts")).secret,
  }),
  command({
    name: "trust",
    group: "Servers",
    summary: "allow the manifest of a directory, or an agent, to be used",
    usage: "FILE|AGENT",
    argumentCount: [1, 1],
    completes: [["file"]],
    details: [
      "A manifest in the current directory has commands that somebody else may have",
      "written. toolmux uses it only after this command, and only while its content stays",
      "the same.",
      "",
      "The same holds for the commands and URLs of agents in files and from registries. AGENT is the name of an agent that was pulled, or of a file in a directory for agents.",
    ],
    options: {},
    examples: ["toolmux trust .mcp.json", "toolmux trust agentcatalog/pirate"],
    load: async () => (await import("./commands/trust.ts")).trustFile,
  }),
  command({
    name: "ps",
    group: "Running hubs",
    summary: "show the hubs that run now",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "A hub is a running `toolmux serve`: an MCP client starts one, or you do. The other",
      "commands of this group use the hubs that serve your manifest, or the one of --hub.",
      "",
      "SERVERS `2/3` means that 2 of its 3 servers are connected. Only hubs of your own user",
      "are shown. `[hub] control = false` in the manifest hides a hub.",
      "",
      "Exit codes: 0 done, 3 no hub runs.",
    ],
    options: { json: JSON_OUTPUT },
    examples: ["toolmux ps", "toolmux ps --json"],
    load: async () => (await import("./commands/ps.ts")).ps,
  }),
  command({
    name: "dashboard",
    group: "Running hubs",
    summary: "open a page that shows and controls the running hubs",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "Serves a page on this machine until it is stopped, and opens it in a browser. It shows",
      "all hubs of your user: servers, calls, logs, alerts, tools and clients. If a dashboard",
      "runs on that port already, opens that one.",
      "",
      "The link has a token that works once, within 5 minutes; the page can then be used for",
      "12 hours. Only this machine can connect; `ssh -L 8701:127.0.0.1:8701 HOST` brings the",
      "page of another machine to yours.",
    ],
    options: {
      port: integer("PORT", "port to listen on, 0 for any free one (8701)", {
        preset: 8701,
        min: 0,
        max: 65_535,
      }),
      "no-browser": flag("do not open a browser"),
      json: flag("print the link as JSON, for programs"),
    },
    examples: ["toolmux dashboard", "toolmux dashboard --port 9000 --no-browser"],
    load: async () => (await import("./commands/dashboard.ts")).dashboard,
  }),
  command({
    name: "start",
    group: "Running hubs",
    summary: "start a server of a running hub",
    usage: "SERVER …",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    completes: [["servers"]],
    details: [
      "Starts servers that are stopped, or that wait for their first call. The manifest stays",
      "unchanged.",
      "",
      `Exit codes: 0 done, 2 there is no such server, ${HUB_CODES}.`,
    ],
    options: { ...OF_HUB, "no-wait": NO_WAIT },
    examples: ["toolmux start files"],
    load: async () => (await import("./commands/operate.ts")).operate("start"),
  }),
  command({
    name: "stop",
    group: "Running hubs",
    summary: "stop a server of a running hub, or a whole hub",
    usage: "[SERVER …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [["servers"]],
    details: [
      "A stopped server stays stopped until `toolmux start`, even if it is called. The manifest",
      "stays unchanged. Without SERVER, --hub PID ends that hub and all its servers.",
      "",
      "Exit codes: 0 done, 2 there is no such server, 3 no hub runs.",
    ],
    options: { ...OF_HUB, "no-wait": NO_WAIT },
    examples: ["toolmux stop files", "toolmux stop --hub 4711"],
    load: async () => (await import("./commands/operate.ts")).operate("stop"),
  }),
  command({
    name: "reconnect",
    group: "Running hubs",
    summary: "restart a server of a running hub",
    usage: "[SERVER …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [["servers"]],
    details: [
      "Ends the process or connection of a server and starts it again at once, without the",
      "wait between attempts. Use it when you have fixed the cause of a failure. An attempt that",
      "is in progress continues.",
      "",
      `Exit codes: 0 done, 2 there is no such server, ${HUB_CODES}.`,
    ],
    options: {
      ...OF_HUB,
      failed: flag("all servers that have failed, or wait for their next attempt"),
      all: flag("all servers; with SERVER: in all hubs that have it"),
      "no-wait": NO_WAIT,
    },
    examples: ["toolmux reconnect files", "toolmux reconnect --failed"],
    load: async () => (await import("./commands/operate.ts")).operate("reconnect"),
  }),
  command({
    name: "refresh",
    group: "Running hubs",
    summary: "list the tools of a server of a running hub again",
    usage: "SERVER …",
    argumentCount: [1, Number.POSITIVE_INFINITY],
    completes: [["servers"]],
    details: [
      "For servers that do not announce changes of their lists. The server is not restarted.",
      "",
      `Exit codes: 0 done, 2 there is no such server, ${HUB_CODES}.`,
    ],
    options: { ...OF_HUB, "no-wait": NO_WAIT },
    examples: ["toolmux refresh files"],
    load: async () => (await import("./commands/operate.ts")).operate("refresh"),
  }),
  command({
    name: "cancel",
    group: "Running hubs",
    summary: "cancel a call, or a server's attempt to connect",
    usage: "[SERVER]",
    argumentCount: [0, 1],
    completes: [["servers"]],
    details: [
      "--call N cancels a call that `toolmux calls` shows: the server is told, and the client",
      "gets an error. With SERVER, it cancels the attempt to connect, or the login, that is in",
      "progress.",
      "",
      "Exit codes: 0 done, 2 there is no such call or server, 3 no hub runs.",
    ],
    options: { ...OF_HUB, call: text("N", "the number of the call", { choices: "calls" }) },
    examples: ["toolmux cancel --call 17", "toolmux cancel linear"],
    load: async () => (await import("./commands/operate.ts")).cancel,
  }),
  command({
    name: "mode",
    group: "Running hubs",
    summary: "show modes, or choose the mode of clients",
    usage: "[NAME | show NAME]",
    argumentCount: [0, 2],
    completes: [[["show"], "modes"], ["modes"]],
    details: [
      "A mode of the manifest is a selection of tools: its clients see only these. Without",
      "NAME, shows the modes and which clients are in each. With NAME, puts all clients into",
      "that mode, or one of them with --client. `show` prints the tools of a mode, and the",
      "parts of its filter that match nothing.",
      "",
      "Clients are told when their list of tools changes; calls in flight go on. Limits set by",
      "`serve --mode`, or by the token or the URL of a client, still apply. The mode `full`",
      "hides nothing. The choice is kept until the hub ends.",
      "",
      "Exit codes: 0 done, 2 there is no such mode or client, 3 no hub runs.",
    ],
    options: {
      ...OF_HUB,
      client: text("ID", "the client with this id, or of this name with a token of its own"),
      reset: flag("undo the choice: back to the mode of the manifest, or of all clients"),
      all: flag("choose the mode in every hub that serves the manifest"),
    },
    examples: [
      "toolmux mode",
      "toolmux mode review",
      "toolmux mode full --client client-2",
      "toolmux mode show review",
    ],
    load: async () => (await import("./commands/mode.ts")).mode,
  }),
  command({
    name: "reload",
    group: "Running hubs",
    summary: "read the manifest again, in running hubs",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "A hub notices changes of its manifest within 2 s. This command waits until they are in",
      "force, and prints the problems if the manifest is rejected. It reaches every hub that",
      "serves the manifest.",
      "",
      "Exit codes: 0 done, 2 the manifest has problems, 3 no hub runs.",
    ],
    options: { ...OF_HUB, all: flag("all hubs, also those that serve another manifest") },
    examples: ["toolmux reload"],
    load: async () => (await import("./commands/operate.ts")).reload,
  }),
  command({
    name: "calls",
    group: "Running hubs",
    summary: "show the calls that run now",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "WAITS FOR `client` means that the server has asked the client something, and the client",
      "has not answered; `approval` means that nobody has allowed the call yet. CALL is the",
      "number for `toolmux cancel --call`. Arguments of calls are never shown.",
      "",
      "Exit codes: 0 done, 3 no hub runs.",
    ],
    options: { ...OF_HUB, watch: flag("show them again twice a second, until Ctrl-C") },
    examples: ["toolmux calls", "toolmux calls --watch"],
    load: async () => (await import("./commands/calls.ts")).calls,
  }),
  command({
    name: "logs",
    group: "Running hubs",
    summary: "show what servers have logged",
    usage: "[SERVER …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [["servers"]],
    details: [
      "Shows the stderr, the log messages and the state changes of the named servers; without",
      "names, those of all servers and of the hub. A hub keeps the last 1,000 lines of each",
      "server.",
      "",
      "Exit codes: 0 done, 2 there is no such server, 3 no hub runs, 130 interrupted.",
    ],
    options: {
      ...OF_HUB,
      follow: flag("print new lines as they come, until Ctrl-C", { letter: "f" }),
      lines: integer("COUNT", "how many of the last lines (100)", {
        preset: 100,
        min: 0,
        max: 100_000,
        letter: "n",
      }),
      level: oneOf("LEVEL", LOG_LEVELS, "only lines of this level or more severe"),
      since: text("TIME", "only lines of the last 10m, 2h, …"),
    },
    examples: ["toolmux logs files", "toolmux logs -f --level warn", "toolmux logs --since 10m"],
    load: async () => (await import("./commands/logs.ts")).logs,
  }),
  command({
    name: "events",
    group: "Running hubs",
    summary: "print what happens in running hubs, as JSON lines",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "Prints one JSON document per event, as events come, until Ctrl-C or until the hub ends.",
      "Kinds: call, server, state, log, catalog, alert, approval, client, manifest, mode. Each",
      "event has a number (`seq`) and a time (`at`, ms since 1970). No event contains the result",
      "of a call; only events of approvals contain arguments, redacted.",
      "",
      "Exit codes: 0 the hub has ended, 2 wrong usage, 3 no hub runs, 130 interrupted.",
    ],
    options: {
      ...OF_HUB,
      kinds: text("LIST", "only these kinds, separated by commas"),
      calls: oneOf(
        "DETAIL",
        ["counted", "all"],
        "counted (default): numbers in place of more than 50 calls a second; all: every call",
      ),
      after: text("SEQ", "also print the stored events after this number"),
    },
    examples: ["toolmux events", "toolmux events --kinds call,state"],
    load: async () => (await import("./commands/logs.ts")).events,
  }),
  command({
    name: "alerts",
    group: "Running hubs",
    summary: "show or dismiss what is wrong in running hubs",
    usage: "[dismiss ID …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [[["dismiss"]], ["alerts"]],
    details: [
      "An alert lasts as long as its cause: a server that fails, a login that is needed, a tool",
      "whose description has changed. A dismissed alert is hidden until its text changes.",
      "",
      "Exit codes: 0 done, 2 there is no such alert, 3 no hub runs.",
    ],
    options: { ...OF_HUB, all: flag("also dismissed ones; with dismiss: all alerts") },
    examples: ["toolmux alerts", "toolmux alerts dismiss 3", "toolmux alerts dismiss --all"],
    load: async () => (await import("./commands/alerts.ts")).alerts,
  }),
  command({
    name: "approvals",
    group: "Running hubs",
    summary: "allow or deny calls that wait for a person",
    usage: "[list | forget [ID …] | accept SERVER]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    completes: [[APPROVAL_VERBS], []],
    details: [
      "Shows the calls that wait for an approval. With --watch, it asks for each in the",
      "terminal, one after the other, until Ctrl-C: y allows this call, s all calls of the tool",
      "until the client leaves, a all calls of the tool from now on; n or an empty line denies",
      "it.",
      "",
      "  list              shows the tools that are always allowed",
      "  forget ID …       asks again before calls of these tools; with --all, of all tools",
      "  accept SERVER     accepts the current annotations of the tools of a server",
      "",
      "Whether calls need an approval is set in the manifest (approval, tools.approval) or by",
      "serve --approval. docs/approval.md explains it.",
      "",
      "Exit codes: 0 done, 2 wrong usage, 3 no hub runs, 130 interrupted.",
    ],
    options: {
      ...OF_HUB,
      watch: flag("ask for each call in the terminal, until Ctrl-C"),
      all: flag("with forget: all"),
    },
    examples: [
      "toolmux approvals --watch",
      "toolmux approvals list",
      "toolmux approvals forget --all",
      "toolmux approvals accept files",
    ],
    load: async () => (await import("./commands/approvals.ts")).approvals,
  }),
  command({
    name: "check",
    group: "Diagnose",
    summary: "check the manifest and show which servers can start",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "Shows each problem with its line in the file; values that may be secrets are masked. Then shows for each server whether it can start: whether its command is installed and all its values are set. Starts no server and loads no plugin.",
      "",
      'Exit codes: 0 no problems, 2 the manifest has a problem. With --strict: 3 if a server cannot start. With --json, such a server has "starts": false.',
    ],
    options: {
      strict: flag("exit with code 3 if a server cannot start"),
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux check",
      "toolmux check --strict",
      "toolmux check --config servers.toml --json",
    ],
    load: async () => (await import("./commands/check.ts")).check,
  }),
  command({
    name: "doctor",
    group: "Diagnose",
    summary: "find problems, and say how to solve them",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "Checks the manifest, the commands of its servers, secrets, tokens, ports, file",
      "permissions, processes that a killed hub left, clients, and the last known tools of",
      "each server. It starts servers only with --connect. Each finding has a code;",
      "docs/doctor-codes.md lists them.",
      "",
      "--fix repairs what is safe to repair: permissions, left processes, stale locks, and",
      "snapshots that cannot be read.",
      "",
      "Exit codes: 0 no errors, 1 errors, 2 no manifest, or the manifest has problems.",
    ],
    options: {
      connect: flag("start every server and check its current tools"),
      fix: flag("repair what is safe to repair"),
      http: text("HOST:PORT", "check whether a hub can serve at this address"),
      all: flag("also show what is in order"),
      json: JSON_OUTPUT,
    },
    examples: ["toolmux doctor", "toolmux doctor --fix", "toolmux doctor --connect --json"],
    load: async () => (await import("./doctor/doctor.ts")).doctor,
  }),
  command({
    name: "demo",
    group: "Diagnose",
    summary: "try toolmux with four built-in servers, without a manifest",
    usage: "[agents]",
    argumentCount: [0, 1],
    completes: [[["agents"]]],
    details: [
      "Starts a hub with four servers that toolmux contains, connects an MCP client and",
      "checks every result. It needs no manifest and no network. Exit code 1 if a step",
      "fails.",
      "",
      "`toolmux demo agents` runs an agent instead: it calls tools, asks before it changes something, and gives a task to another agent. Its answers come from a file, not from a model.",
      "",
      "With --dashboard it shows a hub with these servers in your browser, with calls that",
      "run, until it is stopped.",
    ],
    options: {
      dashboard: flag("show the hub in the dashboard"),
      "no-browser": flag("with --dashboard: do not open a browser"),
    },
    examples: ["toolmux demo", "toolmux demo agents", "toolmux demo --dashboard"],
    load: async () => (await import("./commands/demo.ts")).demo,
  }),
  command({
    name: "bench",
    group: "Advanced",
    summary: "measure the speed of a server or of the hub",
    usage: "[-- COMMAND ARGS …]",
    argumentCount: [0, Number.POSITIVE_INFINITY],
    details: [
      "Measures the server that COMMAND starts, or the server at --url. Without them, it",
      "measures the hub with your manifest, or with a built-in server if there is no",
      "manifest. For a manifest, --tool is a name that `toolmux list` shows. Without --tool",
      "it calls a tool that is marked as read-only and has no required arguments.",
      "",
      "Each level of --concurrency starts with a warm-up that is not measured. Each caller",
      "makes its next call when it has the last result. With --rate, calls are due at a",
      "constant rate instead, and latency counts from the time when a call was due, so that",
      "the wait for a slow server counts too.",
      "",
      "--compare direct measures the same server with and without the hub, in turns, and",
      "shows the cost of the hub.",
      "",
      "--kill-every kills the server, or every server behind the hub. --delay delays the",
      "answers of servers that bench starts. --cancel-rate cancels this part of the calls",
      "and measures when such a server gets the cancellation.",
      "",
      "Exit codes: 0 measured, 1 no call was answered, 2 wrong usage or manifest, 3 could",
      "not connect, 130 interrupted. Results so far are printed in any case.",
    ],
    options: {
      url: text("URL", "measure the server at this URL"),
      header: texts("NAME: VALUE", "with --url: HTTP header of every request"),
      tool: text("NAME", "the tool to call"),
      args: text("JSON", "arguments of the tool, a JSON object"),
      concurrency: text("LIST", `calls in flight at each level (${BENCH_DEFAULTS.concurrency})`),
      duration: text("TIME", `duration of a level (${BENCH_DEFAULTS.duration})`),
      calls: text("COUNT", "number of calls of a level, instead of --duration"),
      rate: text("COUNT", "calls per second, due at a constant rate"),
      "warm-up": text("TIME", "warm-up before each level (a tenth of it); 0 for none"),
      timeout: text("TIME", `time limit of a call (${BENCH_DEFAULTS.timeout})`),
      era: oneOf(
        "ERA",
        ["legacy", "modern"],
        "protocol era if the server has both: legacy (default), modern",
      ),
      compare: oneOf("WITH", ["direct"], "direct: also measure without the hub"),
      "kill-every": text("TIME", "kill the server at this interval"),
      delay: text("TIME", "delay each answer of the server by this time"),
      "cancel-rate": text("PART", "part of the calls to cancel, 0 to 1"),
      html: text("FILE", "also write an HTML report", { choices: "file" }),
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux bench",
      "toolmux bench --compare direct --duration 3s",
      'toolmux bench --tool files__read --args \'{"path": "a.txt"}\' --html page.html',
      "toolmux bench --concurrency 64 --rate 2000 -- node server.js",
      "toolmux bench --kill-every 5s --cancel-rate 0.1 -- node server.js",
      "toolmux bench --url http://127.0.0.1:8700/mcp --calls 10000 --json",
    ],
    load: async () => (await import("./commands/bench.ts")).bench,
  }),
  command({
    name: "replay",
    group: "Advanced",
    summary: "serve a recording, without the servers",
    usage: "FILE",
    argumentCount: [1, 1],
    completes: [["file"]],
    details: [
      "FILE is a recording of `toolmux serve --record`. The recorded hub is served on stdio.",
      "Its servers do not run: recorded answers are sent for the same requests, after the",
      "same time. With --server, one recorded server is served instead, for use in a",
      "manifest or in a benchmark.",
      "",
      "A request that is not in the recording gets an error, which names the line of the",
      "most similar recorded request. It is also reported on stderr.",
      "",
      "Exit codes: 0 done; 1 the server ended as recorded or, with --strict, a request was",
      "not in the recording.",
    ],
    options: {
      server: text("NAME", "serve only this server, without the hub"),
      speed: text("SPEED", "1 recorded speed (default), 2 twice as fast, max"),
      strict: flag("exit code 1 if a request was not in the recording"),
    },
    examples: [
      "toolmux replay session.jsonl",
      "toolmux replay session.jsonl --server files --speed max",
    ],
    load: async () => (await import("./commands/replay.ts")).replay,
  }),
  command({
    name: "schema",
    group: "Advanced",
    summary: "print the JSON Schema of the manifest, for editors",
    usage: "",
    argumentCount: [0, 0],
    details: [
      "An editor with this schema completes and explains the keys of the manifest. Save it",
      "next to the manifest and name it there:",
      "",
      "  TOML  first line: #:schema ./toolmux.schema.json",
      '  JSON  "$schema": "./toolmux.schema.json"',
    ],
    options: {},
    examples: ["toolmux schema > toolmux.schema.json"],
    load: async () => (await import("./commands/schema.ts")).schema,
  }),
  command({
    name: "completions",
    group: "Advanced",
    summary: "print the completion script of your shell",
    usage: SHELLS.join("|"),
    argumentCount: [1, 1],
    completes: [[SHELLS]],
    details: [
      "Load it where your shell starts:",
      "",
      "  bash   source <(toolmux completions bash)   in ~/.bashrc",
      "  zsh    source <(toolmux completions zsh)    in ~/.zshrc, after compinit",
      "  fish   toolmux completions fish | source    in config.fish",
      "",
      "It completes the servers of the manifest, and the tools, prompts, resources and",
      "arguments that servers listed last. It starts no server.",
    ],
    options: {},
    examples: SHELLS.map((shell) => `toolmux completions ${shell}`),
    load: async () => {
      const { printCompletions } = await import("./commands/completions.ts");
      return printCompletions;
    },
  }),
  command({
    name: "help",
    group: "Advanced",
    summary: "show this help, or the help of one command",
    usage: "[COMMAND]",
    argumentCount: [0, 1],
    completes: [["command"]],
    details: [],
    options: {},
    examples: ["toolmux help call"],
    load: async () => {
      const { help } = await import("./commands/help.ts");
      return (invocation, context) => help(invocation, COMMANDS, context);
    },
  }),
  command({
    name: "version",
    group: "Advanced",
    summary: "show the version",
    usage: "",
    argumentCount: [0, 0],
    details: [],
    options: {},
    examples: ["toolmux version"],
    load: async () => {
      const { printVersion } = await import("./commands/version.ts");
      return (_, { terminal }) => printVersion(terminal);
    },
  }),
];

/**
 * Runs a command line (without the executable). Errors are printed to stderr and, if JSON is wanted, to stdout.
 * @returns the exit code
 */
export async function runCli(argv: readonly string[], context: CommandContext): Promise<number> {
  try {
    if (argv[0] === "internal") {
      const { runInternal } = await import("./commands/internal.ts");
      return await runInternal(argv.slice(1), context, COMMANDS);
    }
    const request = parseCommandLine(argv, COMMANDS);
    switch (request.kind) {
      case "help": {
        const { formatHelp } = await import("./help.ts");
        context.terminal.print(formatHelp(COMMANDS, request.command, context.terminal.stdout));
        return 0;
      }
      case "version":
        return await (await import("./commands/version.ts")).printVersion(context.terminal);
      case "run": {
        const run = await request.command.load();
        return await run(request.invocation, context);
      }
    }
  } catch (error) {
    // Any other error is a bug of toolmux. It is rethrown, so that its stack trace is printed.
    if (!(error instanceof HubError || isSystemError(error))) throw error;
    const hubError = toHubError(error);
    printError(hubError, argv, context);
    return hubError.properties.exit;
  }
}

/**
 * Prints the error that ends a command to stderr. If the command line asks for JSON and nothing was printed to stdout,
 * also prints `{error: {code, message, server?, step?, stderr?, hint?}}` there.
 */
function printError(error: HubError, argv: readonly string[], { terminal }: CommandContext): void {
  if (wantsJson(argv, COMMANDS) && !terminal.hasPrinted) {
    const { code, message, server, step, stderr, hint } = error;
    const words = stderr.length > 0 ? stderr : undefined;
    terminal.printJson({ error: { code, message, server, step, stderr: words, hint } });
  }
  const format = logFormatIn(argv);
  if (format === "text") {
    terminal.printStderrWrapped(describeError(error, commandNameIn(argv, COMMANDS)));
  } else for (const record of recordsOfError(error)) printLogRecord(record, format);
}

/** Whether the error comes from the operating system, such as a missing permission for a folder. */
function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
