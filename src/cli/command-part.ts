import type { Command } from "./command.ts";

const VERBS = ["login", "logout", "status"] as const;

export const AUTH: Command = {
  name: "auth",
  summary: "log in to servers over HTTP, log out, see how it stands",
  usage: `${VERBS.join("|")} [SERVER …]`,
  words: [1, Number.POSITIVE_INFINITY],
  choices: VERBS,
  details: [
    "  login SERVER        opens a browser to log in, and keeps what comes of it",
    "  logout SERVER       forgets that, and has it revoked where it came from",
    "  status [SERVER …]   says how it stands; asks nobody, and shows no value",
    "",
    "A hub logs in by itself when a server asks for it. With this command it is done",
    "before, or anew. The browser comes back to this machine: over SSH, forward the",
    "port (oauth.callbackPort in the server's table says which it is).",
    "",
    "Exit codes: 0 done, 2 wrong usage, 3 the login came to nothing, 130 interrupted.",
  ],
  options: [
    { name: "no-browser", summary: "only print the page to log in at" },
    {
      name: "scope",
      value: "SCOPES",
      summary: "what to ask for, instead of what the server says",
    },
    { name: "json", summary: "print one JSON document, for programs" },
  ],
  examples: ["toolmux auth login linear", "toolmux auth status", "toolmux auth logout linear"],
  load: async () => (await import("./commands/auth.ts")).auth,
};
