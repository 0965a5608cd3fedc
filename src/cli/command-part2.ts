import type { Command } from "./command.ts";

export const DOCTOR: Command = {
  name: "doctor",
  summary: "look for all that is wrong, or may become so, and say what to do",
  usage: "",
  words: [0, 0],
  details: [
    "Looks at the manifest, the commands of its servers, secrets, tokens, ports,",
    "what killed hubs have left, permissions, and what the servers listed last.",
    "No server is started, unless --connect says so. Each finding has a code that",
    "stays the same; README.md lists them.",
    "",
    "--fix does what is safe: permissions, leftovers, locks of the dead, and",
    "snapshots that cannot be read.",
    "",
    "Exit codes: 0 no errors, 1 errors, 2 no manifest, or one with problems.",
  ],
  options: [
    { name: "connect", summary: "start every server, and look at what it lists now" },
    { name: "fix", summary: "put right what can be put right safely" },
    { name: "http", value: "HOST:PORT", summary: "look whether a hub could serve there" },
    { name: "all", summary: "also what is fine" },
    { name: "json", summary: "print one JSON document, for programs" },
  ],
  examples: ["toolmux doctor", "toolmux doctor --fix", "toolmux doctor --connect --json"],
  load: async () => (await import("./doctor/doctor.ts")).doctor,
};
