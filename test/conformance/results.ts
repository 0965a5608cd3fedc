import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ExpectedFailure } from "./expected-failures.ts";

/** One check of a suite. */
export interface Check {
  readonly scenario: string;
  readonly id: string;
  readonly status: Status;
  readonly message: string;
}

/** Check statuses; others than the first three do not count. */
type Status = "SUCCESS" | "FAILURE" | "WARNING" | "INFO" | "SKIPPED";

export interface SuiteResult {
  readonly passed: number;
  readonly failed: number;
  /** Why the suite has failed; empty if it has passed. */
  readonly problems: readonly string[];
}

/** Compares the checks of a suite with their known number and the expected failures. */
export function evaluateChecks(
  checks: readonly Check[],
  known: number,
  expected: readonly ExpectedFailure[],
): SuiteResult {
  const passed = checks.filter(({ status }) => status === "SUCCESS").length;
  const failures = checks.filter(({ status }) => status === "FAILURE" || status === "WARNING");
  const isOf =
    (one: Check) =>
    ({ scenario, check }: ExpectedFailure): boolean =>
      one.scenario === scenario && one.id === check;
  const problems = [
    ...failures
      .filter((check) => !expected.some(isOf(check)))
      .map(({ scenario, id, message }) => `${scenario}: ${id}: ${message}`),
    ...expected
      .filter((failure) => !failures.some((check) => isOf(check)(failure)))
      .map(({ scenario, check }) => `${scenario}: ${check} did not fail as expected`),
  ];
  // A scenario that is missing or stops early has no failing checks.
  const count = passed + failures.length;
  if (count < known) problems.push(`only ${count} checks were made, not ${known}`);
  return { passed, failed: failures.length, problems };
}

/** Counts equal passed checks once, because how often a client repeats a request varies from run to run. */
export function withoutRepeatedPasses(checks: readonly Check[]): Check[] {
  const seen = new Set<string>();
  return checks.filter(({ scenario, id, status }) => {
    const key = `${scenario} ${id}`;
    const isNew = status !== "SUCCESS" || !seen.has(key);
    if (status === "SUCCESS") seen.add(key);
    return isNew;
  });
}

/** What ends the name of a scenario's folder. */
const TIME = /-\d{4}-\d\d-\d\dT[\d-]+Z$/;

/** Reads a suite's result folder: a folder with a `checks.json` for each scenario. `group`: the beginning of their names. */
export function readChecks(folder: string, group = ""): Check[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name): Check[] => {
    // Where the name of a scenario has a folder in it, so have its results.
    if (!TIME.test(name)) return readChecks(join(folder, name), `${group}${name}/`);
    const scenario = `${group}${name.replace(/^server-/, "").replace(TIME, "")}`;
    const file = join(folder, name, "checks.json");
    if (!existsSync(file)) {
      return [{ scenario, id: scenario, status: "FAILURE", message: "it was broken off" }];
    }
    const found = JSON.parse(readFileSync(file, "utf8")) as readonly CheckRecord[];
    return found.map(({ id, status, errorMessage, description = "" }) => {
      return { scenario, id, status, message: errorMessage ?? description };
    });
  });
}

interface CheckRecord {
  readonly id: string;
  readonly status: Status;
  readonly description?: string;
  readonly errorMessage?: string;
}
