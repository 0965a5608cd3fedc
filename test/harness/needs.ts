import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";

/** How a line begins that says what this machine lacks; scripts/test.ts shows each such line once. */
export const NOT_TESTED = "NOT TESTED: ";

/** What some tests need of the machine beside what `npm test` installs. */
export interface Need {
  /** Whether the machine has it. */
  readonly isMet: boolean;
  /** What is not tested without it. */
  readonly tests: string;
  /** What is missing, and what to install or to do, in one line. */
  readonly cure: string;
}

/**
 * The `skip` option of each test that needs this: false, or the reason, which is printed once per file. It belongs to
 * tests, not to suites: bun reports nothing of a suite that is skipped as a whole.
 * With TOOLMUX_TEST_BARE in the environment no need is met, as on a machine that has nothing.
 */
export function skipWithout({ isMet, tests, cure }: Need): string | false {
  if (isMet && process.env["TOOLMUX_TEST_BARE"] === undefined) return false;
  const reason = `${NOT_TESTED}${tests}: ${cure}`;
  process.stdout.write(`${reason}\n`);
  return reason;
}

/** Those of these programs that no folder of PATH has. */
export function missingPrograms(names: readonly string[]): readonly string[] {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  return names.filter((name) => !folders.some((folder) => existsSync(join(folder, name))));
}

/** The same for tests of what only Linux has. */
export function skipWithoutLinux(tests: string): string | false {
  return skipWithout({ isMet: process.platform === "linux", tests, cure: "this needs Linux" });
}
