import type { Command, Option } from "./command.ts";

/** What `serve` takes to write a recording. */
export const RECORD: readonly Option[] = [
  {
    name: "record",
    value: "FILE",
    choices: "file",
    summary: "write all messages of all links there, for `replay`",
  },
  { name: "record-limit", value: "SIZE", summary: "the most that it holds; 256MiB by default" },
];

export const REPLAY: Command = {
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
    "Where a client does something else than was recorded is told on stderr: what",
    "is not there gets an error that names the nearest request, by its line.",
    "",
    "Exit codes: 0 all was played, 1 the server ended as it was recorded, or with",
    "--strict the client diverged.",
  ],
  options: [
    { name: "server", value: "NAME", summary: "only this server, as itself" },
    { name: "speed", value: "SPEED", summary: "1 as it was (default), 2 twice as fast, max" },
    { name: "strict", summary: "exit code 1 if the client diverged" },
  ],
  examples: [
    "toolmux replay session.jsonl",
    "toolmux replay session.jsonl --server files --speed max",
  ],
  load: async () => (await import("./commands/replay.ts")).replay,
};
