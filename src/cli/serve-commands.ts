import { EXPOSURES } from "../manifest/exposures.ts";
import { DEFAULT_COMMAND } from "./args.ts";
import { type Command, command } from "./command.ts";
import { flag, oneOf, text } from "./options.ts";

export const EXPOSE_TEXT =
  "how clients get tools: direct (all are listed), search, select, or auto (search if there are many)";

export const APPROVAL = oneOf(
  "LEVEL",
  ["auto", "always"],
  "ask a person before calls: auto, always",
);

/** Options of `serve` for recording. */
const RECORDING = {
  record: text("FILE", "record all messages of clients and servers, for `replay`", {
    choices: "file",
  }),
  "record-limit": text("SIZE", "maximum size of the recording (256MiB)"),
};

/** `toolmux serve`, the command that runs if none is named. */
export const SERVE: Command = command({
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
    "",
    "With --expose search, the list of tools has four tools, with which models find and call",
    "all others; with select, models also choose which tools are in the list; with auto, that",
    "depends on the size of the list. ?expose=… in a client's URL takes precedence.",
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
    expose: oneOf("HOW", EXPOSURES, EXPOSE_TEXT),
    servers: text("LIST", "serve only these servers: files,git"),
    shared: flag("share one hub with the other clients of this machine"),
    private: flag("start a hub of its own, also with `[hub] shared = true`"),
    ...RECORDING,
  },
  examples: [
    "toolmux",
    "toolmux --config servers.toml --config ~/.cursor/mcp.json",
    "toolmux serve --http 127.0.0.1:8700",
    "toolmux serve --mode review --servers files,git",
    "toolmux serve --record session.jsonl",
  ],
  load: async () => (await import("./commands/serve.ts")).serve,
});

/** `toolmux attach`. */
export const ATTACH: Command = command({
  name: "attach",
  group: "Use the tools",
  summary: "serve one client by the hub that all clients of this machine share",
  usage: "",
  argumentCount: [0, 0],
  details: [
    "The same as `toolmux serve --shared`. MCP clients start this command. It joins the",
    "shared hub of the manifest, or starts it, and passes on the client's messages. Mode,",
    "servers, approval, folder and variables are those of this client alone. If no shared",
    "hub can be started, the client gets a hub of its own.",
    "",
    "When the shared hub ends, open requests end with an error, and the client moves to the",
    "next hub with its next message.",
    "",
    "Exit codes: 0 the client has left, 2 the hub has refused the client, 3 no shared hub",
    "could be joined again.",
  ],
  options: {
    approval: APPROVAL,
    "approve-all": flag("ask a person before every call"),
    mode: text("NAME", "limit the client to this mode of the manifest", { choices: "modes" }),
    expose: oneOf("HOW", EXPOSURES, EXPOSE_TEXT),
    servers: text("LIST", "serve only these servers: files,git"),
  },
  examples: ["toolmux attach", "toolmux attach --mode review"],
  load: async () => (await import("./commands/serve.ts")).attach,
});
