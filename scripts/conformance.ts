/**
 * Runs the official conformance suites; run by bun. The suites for servers test the executable over HTTP, and over
 * stdio behind an adapter (`…-stdio`). The server behind the executable (test/conformance/everything.ts) has all
 * features, and uses the protocol era in the suite's name. The suites for clients (`client-…`) test the executable as a
 * client of servers.
 *
 *    npm run conformance [-- --direct] [--only NAME]
 *
 * With --direct, the suites test the server without the hub, so every failure is the server's. --only runs the suites
 * whose names contain NAME. The exit code is 0 if exactly those checks failed that are listed in
 * test/conformance/expected-failures.ts.
 */
import { closeSync, mkdirSync, openSync, readFileSync, rmSync } from "node:fs";
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
import { ScenarioClients } from "../test/conformance/clients.ts";
import { runStep } from "./step.ts";

/** A suite that tests servers, and the target that it tests. */
interface Suite {
  readonly name: string;
  /** The folder of the suite's npm package. */
  readonly folder: string;
  /** The command-line arguments with which the suite tests the server at a URL. */
  readonly args: (url: string) => readonly string[];
  /** The protocol era of the server behind the hub; undefined if the suite tests the server directly. */
  readonly behind?: Era;
  /**
   * Set if each client must get its own process of the server: the suite leaves sessions open, and with a shared server
   * the hub could not tell which client a request of the server is for. Absent if the clients or the server are of the
   * modern era, whose requests need no session.
   */
  readonly isolation?: "perClient";
  /** The transport to the hub: HTTP if absent, or stdio behind an adapter. */
  readonly transport?: "stdio";
  /** Number of checks that the suite must make. */
  readonly checks: number;
}

const OUTPUT = "dist/conformance";

/** Time limits of a suite, in ms. Over stdio, each session starts an additional process. */
const LIMIT = 60_000;
const LIMIT_OVER_STDIO = 120_000;

/** Time limit of all scenarios for clients of one revision, which run one after the other, in ms. */
const CLIENT_LIMIT = 180_000;

/** A suite that tests clients: all scenarios of a revision. */
interface ClientSuite {
  readonly name: string;
  readonly revision: string;
  /** Additional scenarios, each run by itself. */
  readonly more: readonly string[];
  readonly checks: number;
}

/** The scenarios of extensions that the hub supports. No revision contains them. */
const EXTENSIONS = ["auth/client-credentials-jwt", "auth/client-credentials-basic"];

/** The folder of the newer of the two packages with suites. The older one has no additional scenarios for clients. */
const CLIENT_SUITE_FOLDER = "node_modules/conformance-alpha";
const CLIENT_COMMAND = "test/conformance/client-command.ts";
const CLIENT_SUITES: readonly ClientSuite[] = [
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

/**
 * The suites that test the server directly. A suite is named after the version of its package, or after the protocol
 * revision of its clients.
 */
const DIRECT: readonly Suite[] = [
  { name: "0.1.16", ...OLD, checks: 40 },
  { name: "2025-11-25", ...requirementsOf("2025-11-25"), checks: 84 },
  { name: "2026-07-28", ...requirementsOf("2026-07-28"), checks: 152 },
];

// The hub never ends a stream before its answer, so one check of 2025-11-25 has nothing to examine and is not made.
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

/** The four combinations over stdio: clients of both eras with servers of both eras. */
const PIPED: readonly Suite[] = [
  { name: "2025-11-25-legacy-stdio", ...pipedOf("2025-11-25"), behind: "legacy", checks: 83 },
  { name: "2025-11-25-modern-stdio", ...pipedOf("2025-11-25"), behind: "modern", checks: 83 },
  { name: "2026-07-28-legacy-stdio", ...pipedOf("2026-07-28"), behind: "legacy", checks: 151 },
  { name: "2026-07-28-modern-stdio", ...pipedOf("2026-07-28"), behind: "modern", checks: 152 },
];

function pipedOf(revision: string): Pick<Suite, "folder" | "args" | "transport"> {
  return { ...requirementsOf(revision), transport: "stdio" };
}

/** Matches scenarios that the suites run although the server has no tools for them; their checks are ignored. */
const FOREIGN = /^tasks-/;

/** Scenarios of the suites that are not run or whose checks are ignored, with the reasons. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  "tasks of 2026-07-28": "they are an extension's, and need tools of their own",
  "auth/dpop, auth/dpop-nonce":
    "tokens that are bound to a key are an extension's, which the hub does not claim",
  "auth/wif-jwt-bearer": "identities of workloads are an extension's, which the hub does not claim",
  "auth/enterprise-managed-authorization, auth/cross-app-access-complete-flow":
    "enterprise-managed identities are an extension's, which the hub does not claim",
};

async function runSuite(suite: Suite, url: string): Promise<SuiteResult> {
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
  // If a check failed, the suite's exit code says nothing new.
  if (problem === undefined || verdict.failed > 0) return verdict;
  return { ...verdict, problems: [...verdict.problems, `${problem}, see ${folder}.log`] };
}

/**
 * Runs a suite that tests clients. Each scenario starts its own server; test/conformance/clients.ts connects the hub
 * to it.
 */
async function runClientSuite({ name, revision, more, checks }: ClientSuite): Promise<SuiteResult> {
  const output = `${OUTPUT}/${name}`;
  rmSync(output, { recursive: true, force: true });
  const clientLog = openSync(`${output}-clients.log`, "w");
  const clients = new ScenarioClients(clientLog);
  process.env["TOOLMUX_CLIENTS"] = String(await clients.listen());
  const problems: string[] = [];
  const scenarios = more.map((scenario) => ["--force", "--scenario", scenario]);
  for (const [at, which] of [["--suite", "all"], ...scenarios].entries()) {
    const log = `${output}-${at}.log`;
    const problem = await runStep({
      name: `${name} ${which.join(" ")}`,
      command: "bun",
      args: [
        `${CLIENT_SUITE_FOLDER}/dist/index.js`,
        "client",
        "--command",
        `bun ${CLIENT_COMMAND}`,
      ].concat(
        ["--spec-version", revision, "--timeout", String(CLIENT_LIMIT), "-o", output],
        which,
      ),
      limit: CLIENT_LIMIT,
      log,
    });
    if (problem !== undefined) problems.push(`${which.join(" ")}: ${problem}, see ${log}`);
    // The suite itself does not check how its clients end.
    const ends = readFileSync(log, "utf8").match(/^Client (?:exited with code|timed out) .*/gm);
    problems.push(...(ends ?? []).map((end) => `${end}, see ${log}`));
  }
  clients.close();
  closeSync(clientLog);
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

async function runSuites(suites: readonly Suite[]): Promise<void> {
  for (const suite of suites.filter(({ name }) => name.includes(only))) {
    const withSubject = subjectOf(suite);
    await runWithRetry(suite, () => withSubject((url) => runSuite(suite, url)));
  }
}

function subjectOf({ behind, transport, isolation }: Suite): ConformanceTarget {
  if (behind === undefined) return withServerDirect;
  return transport === "stdio" ? withStdioHub(behind) : withHttpHub(behind, isolation ?? "shared");
}

async function runClientSuites(suites: readonly ClientSuite[]): Promise<void> {
  for (const suite of suites.filter(({ name }) => name.includes(only))) {
    await runWithRetry(suite, () => runClientSuite(suite));
  }
}

/**
 * Runs a suite. If it does not pass, prints this and runs the suite a second time. Some checks have short time limits,
 * which a busy machine may exceed; a real fault is found both times.
 */
async function runWithRetry(
  suite: Pick<Suite, "name">,
  run: () => Promise<SuiteResult>,
): Promise<void> {
  const verdict = await run();
  show(suite, verdict);
  if (verdict.problems.length === 0) return;
  console.log("  second run:");
  const second = await run();
  show(suite, second);
  if (second.problems.length > 0) process.exitCode = 1;
}

// The suites for servers and those for clients mostly wait, so they run at the same time.
await Promise.all([
  runSuites(direct ? DIRECT : [...HUB, ...PIPED]),
  runClientSuites(direct ? [] : CLIENT_SUITES),
]);
for (const [what, why] of Object.entries(LEFT_OUT)) console.log(`Left out: ${what}, as ${why}.`);
