import { HubError, toHubError } from "../base/errors.ts";
import { CLIENT_NAMES } from "../client-configs/client-names.ts";
import { printError } from "../terminal/log.ts";
import { DEFAULT_COMMAND, commandNameIn, logFormatIn, parseCommandLine } from "./args.ts";
import {
  BENCH_DEFAULTS,
  type CommandContext,
  command,
  type Command,
  LISTS,
  SECRET_VERBS,
  SHELLS,
} from "./command.ts";
import { flag, integer, oneOf, text, texts } from "./options.ts";

const JSON_OUTPUT = flag("print one JSON document, for programs");

const DRY_RUN = flag("only show what would be written");

/** Verbs of `auth`. */
const VERBS = ["login", "logout", "status"] as const;

/** Lines of the help of `import` and `install`. */
const CLIENTS = [
  "Clients: claude-desktop, claude-code, cursor, vscode, vscode-insiders, windsurf,",
  "codex, zed, gemini-cli, qwen-code, antigravity, cline, roo-code, lm-studio,",
  "opencode, amazon-q, kiro, copilot-cli, amp.",
];

const FROM = texts("DIRECTORY", "look there: official, smithery, a URL, or smithery=URL");

const FILE = text("FILE", "the manifest to change, in the place of yours", { choices: "file" });

/** Options of `serve` for recording. */
const RECORDING = {
  record: text("FILE", "write all messages of all links there, for `replay`", { choices: "file" }),
  "record-limit": text("SIZE", "the most that it holds; 256MiB by default"),
};

/**
 * The command line: parsing, the commands, and what they share. Commands are declared in this table, with their
 * options; the code of each is in the folder `commands` and is loaded when it runs. Main types: `Command`,
 * `Invocation` and `CommandContext` (command.ts). Start with `runCli`, then commands/serve.ts.
 *
 * All commands: the single source of help, parsing and shell completion.
 */
export const COMMANDS: readonly Command[] = [
  command({
    name: DEFAULT_COMMAND,
    summary: "serve all servers as one, on stdio or over HTTP (the default)",
    usage: "",
    words: [0, 0],
    details: [
      "MCP clients start this command. stdout has only MCP messages; the log is on",
      "stderr. It ends when the client disconnects.",
      "",
      "With --http it serves any number of clients at http://HOST:PORT/mcp, until it",
      "gets a signal; SIGHUP reloads the config. The servers start when the first",
      "client connects.",
      "",
      "Without a token every user of this machine can call every tool. --token auto",
      "creates a token in the secret store (toolmux/http-token), uses it at each start,",
      "and shows the settings for clients in a terminal. To use your own token, set",
      "--http-token-env, or hub.httpToken in the config. To serve other machines, a",
      "token is required.",
      "",
      "/healthz answers while toolmux runs, /readyz shows the state of the servers.",
    ],
    options: {
      http: text("HOST:PORT", "serve over HTTP at this address; 8700 means 127.0.0.1:8700"),
      "http-token-env": text("NAME", "environment variable with the token for clients"),
      token: text("auto", "use the stored token for clients; create it first if needed"),
      stdio: flag("with --http: also serve one client on stdin and stdout"),
      ...RECORDING,
    },
    examples: [
      "toolmux",
      "toolmux --config servers.toml --config ~/.cursor/mcp.json",
      "toolmux serve --http 127.0.0.1:8700",
      "toolmux serve --record session.jsonl",
    ],
    load: async () => (await import("./commands/serve.ts")).serve,
  }),
  command({
    name: "check",
    summary: "read the manifest and say what is wrong, or what would be started",
    usage: "",
    words: [0, 0],
    details: [
      "Starts nothing. Every problem is shown with the line that it is in; values that",
      "could be secrets are masked there. Exit code 2 if anything is wrong.",
    ],
    options: { json: JSON_OUTPUT },
    examples: ["toolmux check", "toolmux check --config servers.toml --json"],
    load: async () => (await import("./commands/check.ts")).check,
  }),
  command({
    name: "list",
    summary: "start the servers and list what they offer",
    usage: `[${LISTS.join("|")}]`,
    words: [0, 1],
    choices: LISTS,
    details: [
      "Tools, prompts and resources (with their templates) are listed by the names that",
      "clients see. Exit code 3 if no server could be reached.",
    ],
    options: {
      all: flag("also what is hidden or has another name, and why"),
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux list",
      "toolmux list --all",
      "toolmux list resources",
      "toolmux list servers --json",
    ],
    load: async () => (await import("./commands/list.ts")).list,
  }),
  command({
    name: "status",
    summary: "start the servers, say how each is, and what to do if one fails",
    usage: "[SERVER …]",
    words: [0, Number.POSITIVE_INFINITY],
    details: [
      "Every server that is switched on is started anew, or only those that are named,",
      "and asked what it offers: nothing is told from memory. For a server that fails",
      "there are the step, the cause, the last lines of its stderr and what may help.",
      "",
      "START is how long it took from the start to its list of tools; MEMORY is that of",
      "all of its processes. `3 of 5` tools: clients see 3 of the 5 that it has.",
      "",
      "Exit codes: 0 all healthy, 1 some failed, 3 all failed, 2 no servers to ask.",
    ],
    options: { json: JSON_OUTPUT },
    examples: ["toolmux status", "toolmux status files git", "toolmux status --json"],
    load: async () => (await import("./commands/status.ts")).status,
  }),
  command({
    name: "call",
    summary: "call one tool and print its result",
    usage: "NAME [KEY=VALUE … | --json JSON | -]",
    words: [1, Number.POSITIVE_INFINITY],
    details: [
      "NAME is the name that `toolmux list` shows. Only the servers that can have the",
      "tool are started. Arguments are read as the tool's schema wants them, and what",
      "does not fit is told before anything is called:",
      "",
      "  key=value        a text, number, true, false, null, or one of its choices",
      '  tag=a tag=b      the elements of an array; also tag=\'["a","b"]\'',
      "  filter.name=x    a key inside of an object",
      "  key:=JSON        JSON, whatever it looks like",
      "  key=@FILE        what the file holds; key=@@x for a text that begins with @",
      "  -                all arguments from stdin, as a JSON object sent as it is",
      "",
      "Texts are printed as they are. Images, audio and other files are described in a",
      "line each, or saved with --output. On a terminal, progress is shown on stderr.",
      "",
      "Exit codes: 0 the tool has answered, 1 it reported an error, 2 wrong usage or no",
      "such tool, 3 its server could not be reached, 124 it took too long,",
      "130 interrupted.",
    ],
    options: {
      json: text("JSON", "all arguments, as a JSON object sent as it is"),
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
    name: "trust",
    summary: "allow a manifest in a working directory to be used",
    usage: "FILE",
    words: [1, 1],
    choices: "file",
    details: [
      "Files in the folder that one stands in hold commands that somebody else may",
      "have written, so they are used only after this, and only as long as their",
      "content stays the same.",
    ],
    options: {},
    examples: ["toolmux trust .mcp.json"],
    load: async () => (await import("./commands/trust.ts")).trustFile,
  }),
  command({
    name: "auth",
    summary: "log in to HTTP servers, log out, show the login status",
    usage: `${VERBS.join("|")} [SERVER …]`,
    words: [1, Number.POSITIVE_INFINITY],
    choices: VERBS,
    details: [
      "  login SERVER        opens a browser to log in, and stores the tokens",
      "  logout SERVER       deletes the tokens here, and revokes them at their issuer",
      "  status [SERVER …]   shows the login status; sends no request, shows no token",
      "",
      "toolmux also logs in when a server asks for it. Use this command to log in",
      "earlier, or again. The browser returns to this machine: over SSH, set",
      "oauth.callbackPort for the server, and forward that port.",
      "",
      "Exit codes: 0 done, 2 wrong usage, 3 the login failed, 130 interrupted.",
    ],
    options: {
      "no-browser": flag("only print the URL of the login page"),
      scope: text("SCOPES", "scopes to request instead of those that the server names"),
      json: JSON_OUTPUT,
    },
    examples: ["toolmux auth login linear", "toolmux auth status", "toolmux auth logout linear"],
    load: async () => (await import("./commands/auth.ts")).runAuth,
  }),
  command({
    name: "secret",
    summary: "store secrets outside of the config: set, list, remove",
    usage: "set NAME | list | remove NAME",
    words: [1, Number.POSITIVE_INFINITY],
    choices: SECRET_VERBS,
    details: [
      "Write ${secret:NAME} in the config; toolmux inserts the value when it starts the",
      "server. `set` asks for the value, or reads it from stdin. Values are never read",
      "from the command line, and never shown. NAME: letters, digits, _ - . /",
      "",
      "The values are in an encrypted file in the config directory. Its key is in the",
      "keychain of the system; without a keychain it is in the same directory, and `set`",
      "prints a warning. `list` shows where each secret is, and which servers use it.",
      "",
      "The environment takes precedence: for linear/token, the variables linear/token",
      "and TOOLMUX_SECRET_LINEAR_TOKEN. To change that, set sources under [secrets].",
    ],
    options: {
      json: JSON_OUTPUT,
    },
    examples: ["toolmux secret set linear/token", "toolmux secret list"],
    load: async () => (await import("./commands/secret.ts")).secret,
  }),
  command({
    name: "import",
    summary: "take over the servers of other MCP clients",
    usage: "[CLIENT …]",
    words: [0, Number.POSITIVE_INFINITY],
    choices: CLIENT_NAMES,
    details: [
      "Looks at the files of all clients, or of those that are named, shows which of",
      "their servers would be added to the manifest and which not, and adds them",
      "when you say so. The files of the clients stay as they are.",
      "",
      ...CLIENTS,
      "",
      "Files in the folder that one stands in are looked at only with --project.",
      "What the manifest has already is not added again; toolmux itself never is.",
      "Values that look like secrets are masked; with --secrets they are moved into",
      "the secret store, and the manifest has ${secret:SERVER/NAME} in their place.",
      "",
      "Exit codes: 0 added, or nothing to add; 2 not confirmed, wrong usage, or",
      "there is something wrong with the manifest.",
    ],
    options: {
      project: flag("the files in this folder, not those of the user"),
      secrets: flag("move values that look like secrets into the secret store"),
      yes: flag("add them without asking", { letter: "y" }),
      "dry-run": DRY_RUN,
      json: JSON_OUTPUT,
    },
    examples: ["toolmux import", "toolmux import cursor codex --secrets --yes"],
    load: async () => (await import("./commands/import.ts")).importServers,
  }),
  command({
    name: "install",
    summary: "write toolmux into an MCP client's file, or take it out again",
    usage: "CLIENT",
    words: [1, 1],
    choices: CLIENT_NAMES,
    details: [
      "Adds one entry, called toolmux, to the servers of a client, and leaves all",
      "else in its file as it is, comments included. A copy of the file as it was is",
      "kept beside it. --undo puts that back if nobody has changed the file since,",
      "and else takes out the entry alone.",
      "",
      ...CLIENTS,
      "",
      "With --http the client goes to a hub that runs (`toolmux serve --http`) and",
      "does not start one; not every client can. With --replace its other servers",
      "are moved into the manifest first, as `toolmux import` does.",
    ],
    options: {
      project: flag("the client's file in this folder"),
      http: text("URL", "go to the hub there: http://127.0.0.1:8700/mcp"),
      "http-token-env": text("NAME", "the client's variable with the token for that"),
      replace: flag("move its servers into the manifest"),
      secrets: flag("with --replace: move secrets into the secret store"),
      undo: flag("take it out again"),
      "dry-run": DRY_RUN,
      json: JSON_OUTPUT,
    },
    examples: [
      "toolmux install cursor",
      "toolmux install claude-code --replace --dry-run",
      "toolmux install vscode --http http://127.0.0.1:8700/mcp",
      "toolmux install cursor --undo",
    ],
    load: async () => (await import("./commands/install.ts")).install,
  }),
  command({
    name: "doctor",
    summary: "find problems and say how to solve them",
    usage: "",
    words: [0, 0],
    details: [
      "Checks the config, the commands of its servers, secrets, tokens, ports, leftover",
      "processes, permissions, and the tools that the servers listed last. It starts no",
      "server without --connect. Each finding has a stable code (docs/doctor-codes.md).",
      "",
      "--fix corrects what is safe to correct: permissions, leftover processes and",
      "files, old locks, and snapshots that cannot be read.",
      "",
      "Exit codes: 0 no errors, 1 errors, 2 no config, or a config with errors.",
    ],
    options: {
      connect: flag("start every server, and check its tools"),
      fix: flag("correct what is safe to correct"),
      http: text("HOST:PORT", "check whether toolmux can serve at this address"),
      all: flag("also show checks without problems"),
      json: JSON_OUTPUT,
    },
    examples: ["toolmux doctor", "toolmux doctor --fix", "toolmux doctor --connect --json"],
    load: async () => (await import("./doctor/doctor.ts")).doctor,
  }),
  command({
    name: "search",
    summary: "look for servers in the public directories",
    usage: "WORD …",
    words: [1, Number.POSITIVE_INFINITY],
    details: [
      "Asks the official directory of MCP servers, and Smithery's, which wants a key:",
      "toolmux secret set smithery, or SMITHERY_API_KEY. One that does not answer costs",
      "only what it would have found. What is listed was written by strangers.",
      "",
      "Others are named by --from, by TOOLMUX_DIRECTORIES (with spaces between), or in",
      "the manifest ([search] directories). A URL is one with the official API.",
      "",
      "Exit codes: 0 found, 1 nothing found, 3 no directory could be asked.",
    ],
    options: {
      from: FROM,
      limit: integer("COUNT", "how many at most; 20 if it is not said", {
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
    name: "add",
    summary: "put a server into the manifest, once it has been tried",
    usage: "NAME [-- COMMAND ARGS …]",
    words: [1, Number.POSITIVE_INFINITY],
    details: [
      "The server is started once and asked what it has; if that fails nothing is",
      "written. One that only wants an authorization, or values that are still to be",
      "set, is added, and what to run is said. The rest of the file stays as it is.",
      "",
      "A NAME alone, such as io.github.owner/name, is looked up in the directories that",
      "`toolmux search` asks; what has to be set is named.",
      "",
      "Exit codes: 0 added; 2 wrong usage, or something is wrong with the manifest;",
      "3 the server could not be started, or nobody be asked; then nothing is written.",
    ],
    options: {
      url: text("URL", "a server over HTTP"),
      header: texts("NAME: VALUE", "with --url: what requests bear"),
      transport: oneOf("WAY", ["auto", "http", "sse"], "with --url: auto (default), http or sse"),
      package: text("PACKAGE", "npm:NAME, pypi:NAME or docker:IMAGE"),
      runner: oneOf(
        "RUNNER",
        ["npx", "bunx", "deno", "uvx", "pipx", "docker", "podman"],
        "with --package: what runs it",
      ),
      command: text("LINE", "the command with its arguments; no shell sees it"),
      env: texts("KEY=VALUE", "a variable for it"),
      prefix: text("PREFIX", "what stands in front of its tools' names; '' for nothing", {
        empty: true,
      }),
      as: text("KEY", "its key in the manifest, if NAME is of a directory"),
      from: FROM,
      file: FILE,
      replace: flag("take the place of the server of that name"),
      "no-try": flag("do not start it"),
      force: flag("add it even if it could not be started"),
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
    name: "remove",
    summary: "take a server out of the manifest",
    usage: "NAME",
    words: [1, 1],
    details: [
      "It goes with all that belongs to it, and the comments directly above it; the",
      "rest of the file stays as it is. Secrets that it alone has used are named.",
    ],
    options: { file: FILE },
    examples: ["toolmux remove files"],
    load: async () => (await import("./commands/remove.ts")).remove,
  }),
  command({
    name: "bench",
    summary: "measure a server, or a manifest, under concurrent tool calls",
    usage: "[-- COMMAND ARGS …]",
    words: [0, Number.POSITIVE_INFINITY],
    details: [
      "Measures the server that COMMAND starts or that is at --url; else the hub with",
      "the manifest that `toolmux serve` would use; else the hub with a server that it",
      "contains. Of a manifest, --tool is a name that `toolmux list` shows. Without",
      "--tool it calls one that changes nothing and wants no arguments.",
      "",
      "Each level of --concurrency has a warm-up that does not count. Its callers make",
      "a call whenever they were answered; with --rate calls are due at a constant rate",
      "instead, and latency counts from when a call was due, so that a server that",
      "stalls is charged for all that had to wait.",
      "",
      "--compare direct measures the same server with the hub before it and without, in",
      "turns, and tells what the hub costs.",
      "",
      "--kill-every kills the server, or every server behind the hub; --delay holds",
      "back what servers say that are started here; --cancel-rate cancels that part of",
      "the calls, and it is seen when such a server hears of it.",
      "",
      "Exit codes: 0 measured, 1 not one call was answered, 2 wrong usage or manifest,",
      "3 could not connect, 130 interrupted; what there is by then is told.",
    ],
    options: {
      url: text("URL", "measure the server that is there"),
      header: texts("NAME: VALUE", "with --url: what requests bear"),
      tool: text("NAME", "the tool to call"),
      args: text("JSON", "its arguments, a JSON object sent as it is"),
      concurrency: text("LIST", `calls in flight, level by level (${BENCH_DEFAULTS.concurrency})`),
      duration: text(
        "TIME",
        `how long a level takes; ${BENCH_DEFAULTS.duration} if it is not said`,
      ),
      calls: text("COUNT", "how many calls a level has, instead"),
      rate: text("COUNT", "calls a second that are due, come what may"),
      "warm-up": text("TIME", "before each level; a tenth of it, 0 for none"),
      timeout: text(
        "TIME",
        `how long a call may take; ${BENCH_DEFAULTS.timeout} if it is not said`,
      ),
      era: oneOf(
        "ERA",
        ["legacy", "modern"],
        "what is spoken where both are: legacy (default), modern",
      ),
      compare: oneOf("WITH", ["direct"], "direct: also without the hub"),
      "kill-every": text("TIME", "kill the server as often"),
      delay: text("TIME", "hold back each answer of the server by as much"),
      "cancel-rate": text("PART", "cancel that part of the calls, 0 to 1"),
      html: text("FILE", "also write a report to look at", { choices: "file" }),
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
    summary: "serve what was recorded, without the servers",
    usage: "FILE",
    words: [1, 1],
    choices: "file",
    details: [
      "FILE is what `serve --record` has written. The hub that was recorded is served",
      "on stdio, over servers that are played: they answer as they did, to requests",
      "that ask for the same, after as long as it took them. With --server one of them",
      "is served as it is, so that it can stand in a manifest, or be measured.",
      "",
      "A request that was not recorded is told on stderr, and gets an error that names",
      "the nearest recorded request, by its line.",
      "",
      "Exit codes: 0 all was played, 1 the server ended as it was recorded, or with",
      "--strict a request was not recorded.",
    ],
    options: {
      server: text("NAME", "only this server, as itself"),
      speed: text("SPEED", "1 as it was (default), 2 twice as fast, max"),
      strict: flag("exit code 1 if the client diverged"),
    },
    examples: [
      "toolmux replay session.jsonl",
      "toolmux replay session.jsonl --server files --speed max",
    ],
    load: async () => (await import("./commands/replay.ts")).replay,
  }),
  command({
    name: "demo",
    summary: "see it work: four small servers, one client, every result checked",
    usage: "",
    words: [0, 0],
    details: [
      "Starts this program as a hub with four servers that it contains, and drives it",
      "with an MCP client. Needs no manifest and no network. Exit code 1 if anything is",
      "not as it should be.",
    ],
    options: {},
    examples: ["toolmux demo"],
    load: async () => (await import("./commands/demo.ts")).demo,
  }),
  command({
    name: "schema",
    summary: "print the JSON Schema of the manifest, for editors",
    usage: "",
    words: [0, 0],
    details: [
      "With it an editor completes keys and explains them. In a TOML file name it in",
      "the first line: #:schema ./toolmux.schema.json",
      'In a JSON file: "$schema": "./toolmux.schema.json"',
    ],
    options: {},
    examples: ["toolmux schema > toolmux.schema.json"],
    load: async () => (await import("./commands/schema.ts")).schema,
  }),
  command({
    name: "completions",
    summary: "print a script that completes commands in your shell",
    usage: SHELLS.join("|"),
    words: [1, 1],
    choices: SHELLS,
    details: [
      "Load it where your shell starts:",
      "",
      "  bash   source <(toolmux completions bash)   in ~/.bashrc",
      "  zsh    source <(toolmux completions zsh)    in ~/.zshrc, after compinit",
      "  fish   toolmux completions fish | source    in config.fish",
      "",
      "Names of tools are not completed: only running servers can tell them, and a key",
      "press should not start any.",
    ],
    options: {},
    examples: SHELLS.map((shell) => `toolmux completions ${shell}`),
    load: async () => {
      const { printCompletions } = await import("./commands/completions.ts");
      return (invocation, context) => printCompletions(invocation, COMMANDS, context);
    },
  }),
  command({
    name: "version",
    summary: "show the version",
    usage: "",
    words: [0, 0],
    details: [],
    options: {},
    examples: ["toolmux version"],
    load: async () => {
      const { printVersion } = await import("./commands/version.ts");
      return (_, { terminal }) => printVersion(terminal);
    },
  }),
  command({
    name: "help",
    summary: "show how to use toolmux, or one command of it",
    usage: "[COMMAND]",
    words: [0, 1],
    choices: "command",
    details: [],
    options: {},
    examples: ["toolmux help call"],
    load: async () => {
      const { help } = await import("./commands/help.ts");
      return (invocation, context) => help(invocation, COMMANDS, context);
    },
  }),
];

/** Runs a command line (without the executable). Errors are printed to stderr. @returns the exit code */
export async function runCli(argv: readonly string[], context: CommandContext): Promise<number> {
  try {
    if (argv[0] === "internal") {
      const { runInternal } = await import("./commands/internal.ts");
      return await runInternal(argv.slice(1));
    }
    const request = parseCommandLine(argv, COMMANDS);
    switch (request.kind) {
      case "help":
        context.terminal.print((await import("./help.ts")).formatHelp(COMMANDS, request.command));
        return 0;
      case "version":
        return await (await import("./commands/version.ts")).printVersion(context.terminal);
      case "run": {
        const run = await request.command.load();
        return await run(request.invocation, context);
      }
    }
  } catch (error) {
    // Any other error is a bug of toolmux: it is thrown on, so that its stack trace is printed.
    if (!(error instanceof HubError || isSystemError(error))) throw error;
    const hubError = toHubError(error);
    printError(hubError, commandNameIn(argv, COMMANDS), logFormatIn(argv));
    return hubError.properties.exit;
  }
}

/** Whether it is an operating system error, such as missing permission for a folder. */
function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
