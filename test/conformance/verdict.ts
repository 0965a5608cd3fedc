import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ExpectedFailure } from "./expected.ts";

/** What a referee found out about one thing. */
export interface Check {
  readonly scenario: string;
  readonly id: string;
  readonly status: Status;
  readonly message: string;
}

/** What is neither of the first three says nothing of the subject. */
type Status = "SUCCESS" | "FAILURE" | "WARNING" | "INFO" | "SKIPPED";

export interface Verdict {
  readonly passed: number;
  readonly failed: number;
  /** Why the suite is not passed; none if it is. */
  readonly problems: readonly string[];
}

/** Compares what came out of a suite, of which so many checks are known, with what was expected to fail. */
export function judge(
  checks: readonly Check[],
  known: number,
  expected: readonly ExpectedFailure[],
): Verdict {
  const passed = checks.filter(({ status }) => status === "SUCCESS").length;
  const bad = checks.filter(({ status }) => status === "FAILURE" || status === "WARNING");
  const isOf =
    (one: Check) =>
    ({ scenario, check }: ExpectedFailure): boolean =>
      one.scenario === scenario && one.id === check;
  const problems = [
    ...bad
      .filter((check) => !expected.some(isOf(check)))
      .map(({ scenario, id, message }) => `${scenario}: ${id}: ${message}`),
    ...expected
      .filter((one) => !bad.some((check) => isOf(check)(one)))
      .map(({ scenario, check }) => `${scenario}: ${check} did not fail as expected`),
  ];
  // A scenario that is not run any more, or ends too soon, has nothing that fails.
  const count = passed + bad.length;
  if (count < known) problems.push(`only ${count} checks were made, not ${known}`);
  return { passed, failed: bad.length, problems };
}

/** Each that passed once: how often a client asks for the same is not the same every time. */
export function distinct(checks: readonly Check[]): Check[] {
  const seen = new Set<string>();
  return checks.filter(({ scenario, id, status }) => {
    const key = `${scenario} ${id}`;
    const isNew = status !== "SUCCESS" || !seen.has(key);
    if (status === "SUCCESS") seen.add(key);
    return isNew;
  });
}

/** What a suite has left in its folder of results: one folder with a `checks.json` for each scenario. */
export function readChecks(folder: string): Check[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name): Check[] => {
    const scenario = name.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, "");
    const file = join(folder, name, "checks.json");
    if (!existsSync(file)) {
      return [{ scenario, id: scenario, status: "FAILURE", message: "it was broken off" }];
    }
    const found = JSON.parse(readFileSync(file, "utf8")) as readonly Found[];
    return found.map(({ id, status, errorMessage, description = "" }) => {
      return { scenario, id, status, message: errorMessage ?? description };
    });
  });
}

interface Found {
  readonly id: string;
  readonly status: Status;
  readonly description?: string;
  readonly errorMessage?: string;
}
