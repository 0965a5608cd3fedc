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
import { mkdirSync, rmSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
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
  type Check,
  withoutRepeatedPasses,
  evaluateChecks,
  readChecks,
  type SuiteResult,
} from "../test/conformance/results.ts";
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
   * Each client gets its own server: the suites leave sessions open, and the hub never guesses which of several
   * clients a server's request is for. Requests of the modern era need no session.
   */
  readonly isolation?: "perClient";
  /** The transport to the hub: HTTP if absent, or stdio behind an adapter. */
  readonly transport?: "stdio";
  /** Number of checks that the suite must make. */
  readonly checks: number;
}

const OUTPUT = "dist/conformance";

/** Time limits of a suite, in ms. Over stdio, each session starts an additional process. */
const LIMIT = 25_000;
const LIMIT_OVER_STDIO = 45_000;

/**
 * A suite that tests clients. Its scenarios are run one by one: the suite itself would run all of them at the same
 * time, which is too much for slow machines.
 */
interface ClientSuite {
  readonly name: string;
  readonly folder: string;
  readonly args: readonly string[];
  readonly scenarios: readonly string[];
  readonly checks: number;
}

const LEGACY_SCENARIOS = [
  "initialize",
  "tools_call",
  "elicitation-sep1034-client-defaults",
  "sse-retry",
];

/** Login scenarios. Their authorization servers grant access at once (test/conformance/scenario-settings.ts). */
const LOGINS = [
  "metadata-default",
  "metadata-var1",
  "metadata-var2",
  "metadata-var3",
  "basic-cimd",
  "scope-from-www-authenticate",
  "scope-from-scopes-supported",
  "scope-omitted-when-undefined",
  "scope-step-up",
  "scope-retry-limit",
  "token-endpoint-auth-basic",
  "token-endpoint-auth-post",
  "token-endpoint-auth-none",
  "pre-registration",
  "client-credentials-jwt",
  "client-credentials-basic",
].map((name) => `auth/${name}`);

const LOGINS_OF_OLD = [
  "auth/2025-03-26-oauth-metadata-backcompat",
  "auth/2025-03-26-oauth-endpoint-fallback",
];

/** Login scenarios that are drafts in the earlier suite. */
const LOGINS_OF_DRAFT = [
  "resource-mismatch",
  "offline-access-scope",
  "offline-access-not-supported",
].map((name) => `auth/${name}`);

const LOGINS_OF_NEW = [
  "authorization-server-migration",
  "iss-supported",
  "iss-not-advertised",
  "iss-supported-missing",
  "iss-wrong-issuer",
  "iss-unexpected",
  "iss-normalized",
  "metadata-issuer-mismatch",
].map((name) => `auth/${name}`);

/** The suites that test clients. Only the newer package is used, because it has all scenarios of the older one. */
const CLIENT_SUITES: readonly ClientSuite[] = [
  {
    name: "client-auth-2025-03-26",
    folder: "node_modules/conformance-alpha",
    args: ["--spec-version", "2025-03-26"],
    scenarios: LOGINS_OF_OLD,
    checks: 13,
  },
  {
    name: "client-auth-2025-11-25",
    folder: "node_modules/conformance-alpha",
    args: ["--spec-version", "2025-11-25", "--force"],
    scenarios: LOGINS,
    checks: 193,
  },
  {
    name: "client-auth-2026-07-28",
    folder: "node_modules/conformance-alpha",
    args: ["--spec-version", "2026-07-28", "--force"],
    scenarios: [...LOGINS, ...LOGINS_OF_DRAFT, ...LOGINS_OF_NEW],
    checks: 303,
  },
  {
    name: "client-2025-11-25",
    folder: "node_modules/conformance-alpha",
    args: ["--spec-version", "2025-11-25"],
    scenarios: [...LEGACY_SCENARIOS, "json-schema-2020-12-preservation"],
    checks: 20,
  },
  {
    name: "client-2026-07-28",
    folder: "node_modules/conformance-alpha",
    args: ["--spec-version", "2026-07-28"],
    scenarios: [
      "tools_call",
      "json-schema-2020-12-preservation",
      "request-metadata",
      "sep-2322-client-request-state",
      "http-standard-headers",
      "http-custom-headers",
      "http-invalid-tool-headers",
      "json-schema-ref-no-deref",
    ],
    checks: 36,
  },
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

/** The suites that test the server directly. Each acts as a client of the protocol version in its name. */
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
 * Runs a suite that tests clients. Each scenario starts its own server; test/conformance/client-driver.ts connects
 * the hub to it.
 */
async function runClientSuite({
  name,
  folder,
  args,
  scenarios,
  checks,
}: ClientSuite): Promise<SuiteResult> {
  const output = `${OUTPUT}/${name}`;
  rmSync(output, { recursive: true, force: true });
  const problems: string[] = [];
  const found: Check[] = [];
  for (const scenario of scenarios) {
    const own = `${output}/${scenario}`;
    const driver = `bun ${resolve("test/conformance/client-driver.ts")}`;
    const problem = await runStep({
      name: `${name} ${scenario}`,
      command: "bun",
      args: [`${folder}/dist/index.js`, "client", "--command", driver].concat(
        ["--scenario", scenario, "-o", own],
        args,
      ),
      limit: LIMIT,
      log: `${output}-${scenario.replace("/", "-")}.log`,
    });
    // If a scenario's name contains a folder, the path of its results contains it, too.
    found.push(
      ...readChecks(join(own, dirname(scenario))).map((check) => ({ ...check, scenario })),
    );
    if (problem !== undefined) problems.push(`${scenario}: ${problem}`);
  }
  const expected = EXPECTED.filter(({ suite }) => suite === name);
  const verdict = evaluateChecks(withoutRepeatedPasses(found), checks, expected);
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
 * Runs a suite, and a second time if it did not pass, which is printed. Some checks have short time limits, which a
 * busy machine may exceed; a real fault is found both times.
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
