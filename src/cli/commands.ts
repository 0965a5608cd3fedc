import { HubError, toHubError } from "../base/errors.ts";
import { AUTH } from "./command-part.ts";
import { BENCH } from "./command-part1.ts";
import { IMPORT, INSTALL } from "./commands-part.ts";
import { ADD, REMOVE, SEARCH } from "./commands-part1.ts";
import { ownConsole } from "../terminal/console.ts";
import {
  type Command,
  type Invocation,
  LISTS,
  type Option,
  SHELLS,
  type CommandContext,
} from "./command.ts";
import { DOCTOR } from "./command-part2.ts";
import { DEFAULT_COMMAND, commandNamed, guessTopic, parseCommandLine } from "./args.ts";
import { RECORD, REPLAY } from "./command-part3.ts";
import { printError } from "../terminal/report.ts";
import { SECRET } from "./command-part4.ts";

const JSON_OUTPUT: Option = { name: "json", summary: "print one JSON document, for programs" };

/** Every command there is; what `help` shows, what is parsed and what shells complete come from here. */
export const COMMANDS: readonly Command[] = [
  {
    name: DEFAULT_COMMAND,
    summary: "serve all servers as one on stdio, or over HTTP (the default)",
    usage: "",
    words: [0, 0],
    details: [
      "This is what an MCP client starts. Nothing but protocol is written to stdout;",
      "what there is to tell goes to stderr. It ends when the client leaves.",
      "",
      "With --http it serves any number of clients at http://HOST:PORT/mcp instead, and",
      "runs until it is told to end; SIGHUP makes it read the manifest again. Only this",
      "machine is served, unless there is a token that clients have to bear: that of",
      "--http-token-env, or else hub.httpToken in the manifest. --token auto makes one,",
      "keeps it in the secret store (toolmux/http-token) for the next start, and shows",
      "at a terminal what clients need. Without one every user of this machine can",
      "call every tool.",
      "/healthz says that it runs, /readyz how the servers are.",
    ],
    options: [
      { name: "http", value: "HOST:PORT", summary: "serve over HTTP there; 8700: on 127.0.0.1" },
      {
        name: "http-token-env",
        value: "NAME",
        summary: "the variable with the token that clients bear",
      },
      {
        name: "token",
        value: "auto",
        summary: "make a token that clients bear, or take the kept one",
      },
      { name: "stdio", summary: "with --http: also serve stdin and stdout" },
      ...RECORD,
    ],
    examples: [
      "toolmux",
      "toolmux --config servers.toml --config ~/.cursor/mcp.json",
      "toolmux serve --http 127.0.0.1:8700",
      "toolmux serve --record session.jsonl",
    ],
    load: async () => (await import("./commands/serve.ts")).serve,
  },
  {
    name: "check",
    summary: "read the manifest and say what is wrong, or what would be started",
    usage: "",
    words: [0, 0],
    details: [
      "Starts nothing. Every problem is shown with the line that it is in; values that",
      "could be secrets are masked there. Exit code 2 if anything is wrong.",
    ],
    options: [JSON_OUTPUT],
    examples: ["toolmux check", "toolmux check --config servers.toml --json"],
    load: async () => (await import("./commands/check.ts")).check,
  },
  {
    name: "list",
    summary: "start the servers and list what they offer",
    usage: `[${LISTS.join("|")}]`,
    words: [0, 1],
    choices: LISTS,
    details: [
      "Tools, prompts and resources (with their templates) are listed by the names that",
      "clients see. Exit code 3 if no server could be reached.",
    ],
    options: [
      { name: "all", summary: "also what is hidden or has another name, and why" },
      JSON_OUTPUT,
    ],
    examples: [
      "toolmux list",
      "toolmux list --all",
      "toolmux list resources",
      "toolmux list servers --json",
    ],
    load: async () => (await import("./commands/list.ts")).list,
  },
  {
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
    options: [JSON_OUTPUT],
    examples: ["toolmux status", "toolmux status files git", "toolmux status --json"],
    load: async () => (await import("./commands/status.ts")).status,
  },
  {
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
    options: [
      { name: "json", value: "JSON", summary: "all arguments, as a JSON object sent as it is" },
      { name: "structured", summary: "print the structured content instead of the texts" },
      { name: "raw", summary: "print the result as the JSON that clients get" },
      {
        name: "output",
        letter: "o",
        value: "DIR",
        choices: "folder",
        summary: "save images, audio and other files there",
      },
    ],
    examples: [
      "toolmux call files__read_file path=notes.txt",
      "toolmux call git__log limit=5 paths=src paths=test",
      `toolmux call files__search --json '{"pattern": "*.md"}'`,
      "toolmux call web__screenshot url=https://example.com --output shots",
      "toolmux call files__edit - < arguments.json",
    ],
    load: async () => (await import("./commands/call.ts")).call,
  },
  {
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
    options: [],
    examples: ["toolmux trust .mcp.json"],
    load: async () => (await import("./commands/trust.ts")).trustFile,
  },
  AUTH,
  SECRET,
  IMPORT,
  INSTALL,
  DOCTOR,
  SEARCH,
  ADD,
  REMOVE,
  BENCH,
  REPLAY,
  {
    name: "demo",
    summary: "see it work: four small servers, one client, every result checked",
    usage: "",
    words: [0, Number.POSITIVE_INFINITY],
    details: [
      "Starts this program as a hub with four servers that it contains, and drives it",
      "with an MCP client. Needs no manifest and no network. Exit code 1 if anything is",
      "not as it should be.",
    ],
    options: [],
    examples: ["toolmux demo"],
    load: async () => (await import("./commands/demo.ts")).demo,
  },
  {
    name: "schema",
    summary: "print the JSON Schema of the manifest, for editors",
    usage: "",
    words: [0, 0],
    details: [
      "With it an editor completes keys and explains them. In a TOML file name it in",
      "the first line: #:schema ./toolmux.schema.json",
      'In a JSON file: "$schema": "./toolmux.schema.json"',
    ],
    options: [],
    examples: ["toolmux schema > toolmux.schema.json"],
    load: async () => (await import("./schema.ts")).printSchema,
  },
  {
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
    options: [],
    examples: SHELLS.map((shell) => `toolmux completions ${shell}`),
    load: async () => {
      const { printCompletions } = await import("./completions.ts");
      return (invocation) => printCompletions(invocation, COMMANDS);
    },
  },
  {
    name: "version",
    summary: "show the version",
    usage: "",
    words: [0, 0],
    details: [],
    options: [],
    examples: ["toolmux version"],
    load: async () => (await import("./version.ts")).printVersion,
  },
  {
    name: "help",
    summary: "show how to use toolmux, or one command of it",
    usage: "[COMMAND]",
    words: [0, 1],
    choices: "command",
    details: [],
    options: [],
    examples: ["toolmux help call"],
    load: async () => {
      const { formatHelp } = await import("./help.ts");
      return ({ words: [name] }) => {
        ownConsole.log(
          formatHelp(COMMANDS, name === undefined ? undefined : commandNamed(name, COMMANDS)),
        );
        return Promise.resolve(0);
      };
    },
  },
];

/** Runs a command line (without the executable). Errors are told on stderr. @returns the exit code. */
export async function runCli(argv: readonly string[], world: CommandContext): Promise<number> {
  let invocation: Invocation | undefined;
  try {
    const request = parseCommandLine(argv, COMMANDS);
    switch (request.kind) {
      case "help":
        ownConsole.log((await import("./help.ts")).formatHelp(COMMANDS, request.command));
        return 0;
      case "version":
        return await (await import("./version.ts")).printVersion();
      case "run": {
        invocation = request.invocation;
        const run = await invocation.command.load();
        return await run(invocation, world);
      }
    }
  } catch (error) {
    // All else is a mistake in this program, and where it was made is worth knowing.
    if (!(error instanceof HubError || isSystemError(error))) throw error;
    const told = toHubError(error);
    printError(told, guessTopic(argv, COMMANDS), invocation?.logFormat);
    return told.properties.exit;
  }
}

/** What the system refused, such as a folder that may not be written. */
function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
