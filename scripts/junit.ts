/** The totals of a test run. */
export interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** The parts of a JUnit report that are needed for the totals. */
export interface Report extends Totals {
  /** The names of all test suites; bun names those of the first level after their files. */
  readonly suites: ReadonlySet<string>;
}

type Outcome = keyof Totals;

const SEPARATOR = " &gt; ";

/**
 * Reads the XML of bun's or deno's JUnit reporter. Deno lists a suite, or a test with steps, also as a test of its
 * own. Such an entry is not counted, except if it failed although none of its parts did (a hook threw).
 */
export function readReport(xml: string): Report {
  const suites = new Set(
    [...xml.matchAll(/<testsuite name="([^"]*)"/g)].map((match) => match[1] ?? ""),
  );
  const cases = [
    ...xml.matchAll(/<testcase name="([^"]*)"[^>]*?(?:\/>|>([\s\S]*?)<\/testcase>)/g),
  ].map(([, name = "", body = ""]) => ({ name, outcome: outcomeOf(body) }));
  const parents = new Set(cases.flatMap(({ name }) => ancestors(name)));
  const explained = new Set(
    cases.flatMap(({ name, outcome }) => (outcome === "failed" ? ancestors(name) : [])),
  );
  const counted = cases.filter(
    ({ name, outcome }) => !parents.has(name) || (outcome === "failed" && !explained.has(name)),
  );
  const count = (wanted: Outcome) => counted.filter(({ outcome }) => outcome === wanted).length;
  return { suites, passed: count("passed"), failed: count("failed"), skipped: count("skipped") };
}

/** `a > b > c` has the ancestors `a` and `a > b`. */
function ancestors(name: string): string[] {
  const parts = name.split(SEPARATOR);
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join(SEPARATOR));
}

function outcomeOf(body: string): Outcome {
  if (/<(?:failure|error)\b/.test(body)) return "failed";
  return body.includes("<skipped") ? "skipped" : "passed";
}
