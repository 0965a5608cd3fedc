import type { Command, Option } from "./command.ts";

/* The commands that find servers, and put them into the manifest or take them out. */

const JSON_OUTPUT: Option = { name: "json", summary: "print one JSON document, for programs" };

const FROM: Option = {
  name: "from",
  value: "DIRECTORY",
  repeats: true,
  summary: "look there: official, smithery, a URL, or smithery=URL",
};

const FILE: Option = {
  name: "file",
  value: "FILE",
  choices: "file",
  summary: "the manifest to change, in the place of yours",
};

export const SEARCH: Command = {
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
  options: [
    FROM,
    { name: "limit", value: "COUNT", summary: "how many at most; 20 if it is not said" },
    JSON_OUTPUT,
  ],
  examples: ["toolmux search github", "toolmux search file system --limit 5 --json"],
  load: async () => (await import("./commands/search.ts")).search,
};

export const ADD: Command = {
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
  options: [
    { name: "url", value: "URL", summary: "a server over HTTP" },
    {
      name: "header",
      value: "NAME: VALUE",
      repeats: true,
      summary: "with --url: what requests bear",
    },
    {
      name: "transport",
      value: "WAY",
      choices: ["auto", "http", "sse"],
      summary: "with --url: auto (default), http or sse",
    },
    { name: "package", value: "PACKAGE", summary: "npm:NAME, pypi:NAME or docker:IMAGE" },
    {
      name: "runner",
      value: "RUNNER",
      choices: ["npx", "bunx", "deno", "uvx", "pipx", "docker", "podman"],
      summary: "with --package: what runs it",
    },
    { name: "command", value: "LINE", summary: "the command with its arguments; no shell sees it" },
    { name: "env", value: "KEY=VALUE", repeats: true, summary: "a variable for it" },
    {
      name: "prefix",
      value: "PREFIX",
      empty: true,
      summary: "what stands in front of its tools' names; '' for nothing",
    },
    { name: "as", value: "KEY", summary: "its key in the manifest, if NAME is of a directory" },
    FROM,
    FILE,
    { name: "replace", summary: "take the place of the server of that name" },
    { name: "no-try", summary: "do not start it" },
    { name: "force", summary: "add it even if it could not be started" },
    JSON_OUTPUT,
  ],
  examples: [
    "toolmux add git --package pypi:mcp-server-git",
    "toolmux add files -- npx -y @modelcontextprotocol/server-filesystem ~/work",
    "toolmux add linear --url https://example.com/mcp",
    "toolmux add io.github.owner/name",
  ],
  load: async () => (await import("./commands/add.ts")).add,
};

export const REMOVE: Command = {
  name: "remove",
  summary: "take a server out of the manifest",
  usage: "NAME",
  words: [1, 1],
  details: [
    "It goes with all that belongs to it, and the comments directly above it; the",
    "rest of the file stays as it is. Secrets that it alone has used are named.",
  ],
  options: [FILE],
  examples: ["toolmux remove files"],
  load: async () => (await import("./commands/remove.ts")).remove,
};
