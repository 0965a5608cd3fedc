/**
 * Lets the official conformance suites loose on the executable's HTTP face, and on the executable over stdio behind an
 * adapter (`…-stdio`), with a server of everything behind it that speaks the era in the suite's name, and on what it is to
 * servers (`client-…`); run by bun.
 *
 *   npm run conformance [-- --direct] [--only NAME]
 *
 * With --direct there is no hub: what then fails is the server's fault. --only plays what has that in its name. The exit code is 0 if nothing failed but what
 * test/conformance/expected-failures.ts names, and if all of that did.
 */
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { delimiter, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { Era } from "../src/protocol/modern.ts";
import { EXPECTED } from "../test/conformance/expected-failures.ts";
import {
  type ConformanceTarget,
  withHttpHub,
  withStdioHub,
  withServerDirect,
} from "../test/conformance/targets.ts";
import {
  withoutRepeatedPasses,
  evaluateChecks,
  readChecks,
  type SuiteResult,
} from "../test/conformance/results.ts";
import { bundleProgram } from "../test/conformance/programs.ts";
import { Turns } from "../test/conformance/turns.ts";
import { executable } from "../test/harness/hub.ts";
import { runStep } from "./step.ts";

/** One suite, as it is played against one thing. */
interface Suite {
  readonly name: string;
  /** The folder of its package. */
  readonly folder: string;
  /** How it is told to play against a URL. */
  readonly args: (url: string) => readonly string[];
  /** The era in which the server behind the hub speaks; undefined: the server is played with directly. */
  readonly behind?: Era;
  /** Referees leave sessions behind, and who of several clients is asked is never guessed. Requests of the modern era have none. */
  readonly isolation?: "perClient";
  /** How the hub is reached: over HTTP itself, or over stdio behind an adapter. */
  readonly transport?: "stdio";
  /** How many checks it has to make. */
  readonly checks: number;
}

const OUTPUT = "dist/conformance";

/** What a suite may take, in ms; over stdio each session starts a process more. */
const LIMIT = 60_000;
const LIMIT_OVER_STDIO = 120_000;

/** What all scenarios of clients may take, which wait for each other, in ms. */
const GUEST_LIMIT = 180_000;

/** What a suite plays with clients: all scenarios of a revision, of which one at a time gets its client. */
interface Guest {
  readonly name: string;
  readonly revision: string;
  /** Scenarios that are played besides, each by itself. */
  readonly more: readonly string[];
  readonly checks: number;
}

/** The hub claims these of the extensions; the revisions have none. */
const EXTENSIONS = ["auth/client-credentials-jwt", "auth/client-credentials-basic"];

/** The newer package alone: it has all scenarios that the older one has. */
const GUEST_FOLDER = "node_modules/conformance-alpha";
const GUESTS: readonly Guest[] = [
  { name: "client-2025-03-26", revision: "2025-03-26", more: [], checks: 13 },
  { name: "client-2025-11-25", revision: "2025-11-25", more: EXTENSIONS, checks: 213 },
  { name: "client-2026-07-28", revision: "2026-07-28", more: EXTENSIONS, checks: 339 },
];

const OLD: Pick<Suite, "folder" | "args"> = {
  folder: "node_modules/@modelcontextprotocol/conformance",
  args: (url) => ["server", "--url", url],
};

function requirementsOf(revision: string): Pick<Suite, "folder" | "args"> {
  return {
    folder: "node_modules/conformance-alpha",
    args: (url) => ["server", "--url", url, "--requirements", revision],
  };
}

/** The referees are clients of the era that their names say. */
const DIRECT: readonly Suite[] = [
  { name: "0.1.16", ...OLD, checks: 40 },
  { name: "2025-11-25", ...requirementsOf("2025-11-25"), checks: 84 },
  { name: "2026-07-28", ...requirementsOf("2026-07-28"), checks: 152 },
];

// The hub ends no stream before its answer: one check finds nothing to look at.
const HUB: readonly Suite[] = [
  { name: "0.1.16-legacy", ...OLD, behind: "legacy", isolation: "perClient", checks: 40 },
  { name: "0.1.16-modern", ...OLD, behind: "modern", checks: 40 },
  {
    name: "2025-11-25-legacy",
    ...requirementsOf("2025-11-25"),
    behind: "legacy",
    isolation: "perClient",
    checks: 83,
  },
  { name: "2025-11-25-modern", ...requirementsOf("2025-11-25"), behind: "modern", checks: 83 },
  { name: "2026-07-28-legacy", ...requirementsOf("2026-07-28"), behind: "legacy", checks: 152 },
  { name: "2026-07-28-modern", ...requirementsOf("2026-07-28"), behind: "modern", checks: 153 },
];

/** The four cells over stdio: clients of either era, in front of servers of either era. */
const PIPED: readonly Suite[] = [
  { name: "2025-11-25-legacy-stdio", ...pipedOf("2025-11-25"), behind: "legacy", checks: 83 },
  { name: "2025-11-25-modern-stdio", ...pipedOf("2025-11-25"), behind: "modern", checks: 83 },
  { name: "2026-07-28-legacy-stdio", ...pipedOf("2026-07-28"), behind: "legacy", checks: 151 },
  { name: "2026-07-28-modern-stdio", ...pipedOf("2026-07-28"), behind: "modern", checks: 152 },
];

function pipedOf(revision: string): Pick<Suite, "folder" | "args" | "transport"> {
  return { ...requirementsOf(revision), transport: "stdio" };
}

/** Scenarios that are played with the rest, for which the server of everything has no tools. */
const FOREIGN = /^tasks-/;

/** What the suites have besides, and why it is not played, or not looked at. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  "tasks of 2026-07-28": "they are an extension's, and want tools of their own",
  "auth/dpop, auth/dpop-nonce":
    "tokens that are bound to a key are an extension's, which the hub does not claim",
  "auth/wif-jwt-bearer": "identities of workloads are an extension's, which the hub does not claim",
  "auth/enterprise-managed-authorization, auth/cross-app-access-complete-flow":
    "identities that a company gives are an extension's, which the hub does not claim",
};

async function play(suite: Suite, url: string): Promise<SuiteResult> {
  const folder = `${OUTPUT}/${suite.name}`;
  rmSync(folder, { recursive: true, force: true });
  const problem = await runStep({
    name: suite.name,
    command: "bun",
    args: [`${suite.folder}/dist/index.js`, ...suite.args(url), "-o", folder],
    limit: suite.transport === "stdio" ? LIMIT_OVER_STDIO : LIMIT,
    log: `${folder}.log`,
  });
  const expected = EXPECTED.filter((one) => one.suite === suite.name);
  const checks = readChecks(folder).filter(({ scenario }) => !FOREIGN.test(scenario));
  const verdict = evaluateChecks(checks, suite.checks, expected);
  // Its exit code says what its checks say, if it came so far.
  if (problem === undefined || verdict.failed > 0) return verdict;
  return { ...verdict, problems: [...verdict.problems, `${problem}, see ${folder}.log`] };
}

/** Each scenario has a server of its own, which the hub is put in front of (test/conformance/client-driver.ts). */
async function playGuest({ name, revision, more, checks }: Guest): Promise<SuiteResult> {
  const output = `${OUTPUT}/${name}`;
  rmSync(output, { recursive: true, force: true });
  const driver = bundleProgram("client-driver");
  const turns = new Turns();
  process.env["TOOLMUX_TURNS"] = String(await turns.listen());
  process.env["TOOLMUX_EXECUTABLE"] ??= executable();
  const problems: string[] = [];
  const scenarios = more.map((scenario) => ["--force", "--scenario", scenario]);
  for (const [at, which] of [["--suite", "all"], ...scenarios].entries()) {
    const log = `${output}-${at}.log`;
    const problem = await runStep({
      name: `${name} ${which.join(" ")}`,
      command: "bun",
      args: [`${GUEST_FOLDER}/dist/index.js`, "client", "--command", `bun ${driver}`].concat(
        ["--spec-version", revision, "--timeout", String(GUEST_LIMIT), "-o", output],
        which,
      ),
      limit: GUEST_LIMIT,
      log,
    });
    if (problem !== undefined) problems.push(`${which.join(" ")}: ${problem}, see ${log}`);
    // A suite does not look at the end of its clients.
    const ends = readFileSync(log, "utf8").match(/^Client (?:exited with code|timed out) .*/gm);
    problems.push(...(ends ?? []).map((end) => `${end}, see ${log}`));
  }
  turns.close();
  const expected = EXPECTED.filter(({ suite }) => suite === name);
  const verdict = evaluateChecks(withoutRepeatedPasses(readChecks(output)), checks, expected);
  return verdict.failed > 0
    ? verdict
    : { ...verdict, problems: [...verdict.problems, ...problems] };
}

function show({ name }: Pick<Suite, "name">, { passed, failed, problems }: SuiteResult): void {
  console.log(`${name.padEnd(26)} ${passed} passed, ${failed} failed`);
  for (const problem of problems) console.log(`  FAILED: ${problem}`);
}

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
process.env["PATH"] = [resolve("node_modules/.bin"), process.env["PATH"]].join(delimiter);
mkdirSync(OUTPUT, { recursive: true });
const { direct, only } = parseArgs({
  options: { direct: { type: "boolean", default: false }, only: { type: "string", default: "" } },
}).values;

async function playSuites(suites: readonly Suite[]): Promise<void> {
  for (const suite of suites.filter(({ name }) => name.includes(only))) {
    const withSubject = subjectOf(suite);
    await conclude(suite, () => withSubject((url) => play(suite, url)));
  }
}

function subjectOf({ behind, transport, isolation }: Suite): ConformanceTarget {
  if (behind === undefined) return withServerDirect;
  return transport === "stdio" ? withStdioHub(behind) : withHttpHub(behind, isolation ?? "shared");
}

async function playGuests(guests: readonly Guest[]): Promise<void> {
  for (const guest of guests.filter(({ name }) => name.includes(only))) {
    await conclude(guest, () => playGuest(guest));
  }
}

/**
 * Some checks give their subject only so many ms of a clock, which a busy machine may take for itself: what is not passed is
 * played a second time, and said to be. A fault is found both times.
 */
async function conclude(
  suite: Pick<Suite, "name">,
  run: () => Promise<SuiteResult>,
): Promise<void> {
  const verdict = await run();
  show(suite, verdict);
  if (verdict.problems.length === 0) return;
  console.log("  played once more:");
  const second = await run();
  show(suite, second);
  if (second.problems.length > 0) process.exitCode = 1;
}

// Most of the time each of them waits.
await Promise.all([
  playSuites(direct ? DIRECT : [...HUB, ...PIPED]),
  playGuests(direct ? [] : GUESTS),
]);
for (const [what, why] of Object.entries(LEFT_OUT)) console.log(`Left out: ${what}, as ${why}.`);
