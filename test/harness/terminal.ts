import { existsSync } from "node:fs";
import process from "node:process";
import type { TestFolder } from "./hub.ts";
import { RawClient } from "./raw-client.ts";
import { skipWithout } from "./requirements.ts";

const SCRIPT = "/usr/bin/script";

/** The `skip` option of tests that need a terminal. */
export const skipWithoutTerminal = skipWithout({
  isMet: process.platform === "linux" && existsSync(SCRIPT),
  tests: "what is shown and typed in a terminal",
  remedy: `this needs Linux and ${SCRIPT} (apt-get install bsdutils)`,
});

/** Runs a shell's line in a terminal of its own; what it shows is the stdout of the client. */
export function startInTerminal(
  { dir, env }: Pick<TestFolder, "dir" | "env">,
  line: string,
  more: Readonly<Record<string, string>> = {},
): RawClient {
  const terminalEnv = { ...env, TERM: "xterm", SHELL: "/bin/sh", ...more };
  return new RawClient(SCRIPT, ["-qfec", line, "/dev/null"], dir, terminalEnv);
}

/** All that a terminal has shown. */
export function shownBy({ lines, unterminatedOutput }: RawClient): string {
  return [...lines.map(({ text }) => text), unterminatedOutput].join("\n");
}
