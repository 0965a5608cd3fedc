import { type Command, SECRET_VERBS, STORES } from "./command.ts";

export const SECRET: Command = {
  name: "secret",
  summary: "keep values that stand in no manifest: set, list, remove",
  usage: "set NAME | list | remove NAME",
  words: [1, Number.POSITIVE_INFINITY],
  choices: SECRET_VERBS,
  details: [
    "A manifest has ${secret:NAME} where the value is to be; that is filled in when",
    "the server is started. A value is typed unseen, or read from stdin; it is not",
    "taken from the command line, and never shown. NAME: letters, digits, _ - . /",
    "",
    "Values are kept in an encrypted file in the config folder, or by the system",
    "(--store keychain). The key of the file is in the keychain, too; where there",
    "is none it lies beside the file, and you are told. `list` shows where each is,",
    "and which servers want it.",
    "",
    "linear/token is looked for first in the variables linear/token and",
    "TOOLMUX_SECRET_LINEAR_TOKEN; [secrets] sources in the manifest says otherwise.",
  ],
  options: [
    { name: "store", value: "STORE", choices: STORES, summary: "file (default) or keychain" },
    { name: "json", summary: "print one JSON document, for programs" },
  ],
  examples: [
    "toolmux secret set linear/token",
    "toolmux secret set linear/token --store keychain",
    "toolmux secret list",
  ],
  load: async () => (await import("./commands/secret.ts")).secret,
};
