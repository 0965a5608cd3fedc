import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";

/** Prefix of a line that names a missing requirement; scripts/test.ts prints each such line once. */
export const NOT_TESTED = "NOT TESTED: ";

/** A requirement of some tests beyond what `npm test` installs. */
export interface TestRequirement {
  /** Whether this machine meets it. */
  readonly isMet: boolean;
  /** Which tests are skipped without it. */
  readonly tests: string;
  /** What is missing, and what to install or to do, in one line. */
  readonly remedy: string;
}

/**
 * The `skip` option of each test with this requirement: false, or the reason, which is printed once per file.
 * For tests only, not for suites: bun reports nothing about a suite that is skipped as a whole.
 * With TOOLMUX_TEST_BARE in the environment no requirement counts as met.
 */
export function skipWithout({ isMet, tests, remedy }: TestRequirement): string | false {
  if (isMet && process.env["TOOLMUX_TEST_BARE"] === undefined) return false;
  const reason = `${NOT_TESTED}${tests}: ${remedy}`;
  process.stdout.write(`${reason}\n`);
  return reason;
}

/** The programs that are in no folder of PATH. */
export function missingPrograms(names: readonly string[]): readonly string[] {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  return names.filter((name) => !folders.some((folder) => existsSync(join(folder, name))));
}

/** The `skip` option of tests that need Linux. */
export function skipWithoutLinux(tests: string): string | false {
  return skipWithout({ isMet: process.platform === "linux", tests, remedy: "this needs Linux" });
}
