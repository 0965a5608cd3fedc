/**
 * Runs the checks and the tests of the project; run by bun. All tests run on Bun; those that depend on the runtime also
 * run on Deno and Node.
 *
 *    bun scripts/test.ts [--tests FOLDER] [--output FOLDER] [NAME …]
 *
 * With names, runs only the test files whose paths contain one of them, and no checks. `--tests` names a folder of
 * tests to use instead of `test`; with it, no checks are run, either. `--output` is the folder for reports and logs.
 * The last line is the sum over all runtimes; a check that fails counts as one failure. The lines before it say what
 * the machine lacks and which tests are left out for that reason.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { delimiter, isAbsolute, resolve, sep } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs, stripVTControlCharacters } from "node:util";
import { findNode } from "../test/harness/node.ts";
import { NOT_TESTED } from "../test/harness/requirements.ts";
import { COVERAGE_FOLDER, COVERAGE_OPTIONS, COVERED } from "./covered.ts";
import { readReport, type Totals } from "./junit.ts";
import { runStep, type Step } from "./step.ts";

interface TestStep extends Step {
  /** The JUnit file that the step writes. */
  readonly report: string;
  /** Files that must report at least one test. Otherwise, a file without tests would always pass. */
  readonly reporting: readonly string[];
}

interface Verdict extends Totals {
  /** Failures that no test reported; they are part of `failed`. */
  readonly problems: readonly string[];
  /** Notes about what could not be tested, and what to install for it; one line each. */
  readonly missing: readonly string[];
}

const MINUTE = 60_000;

const NO_NODE = `${NOT_TESTED}the sources under Node: there is no Node 22.18 or later (npm ci in test/node)`;

const { values, positionals: names } = parseArgs({
  options: {
    tests: { type: "string", default: "test" },
    output: { type: "string", default: "dist/test" },
  },
  allowPositionals: true,
});
const { tests: TESTS, output: OUTPUT } = values;
const isWhole = names.length === 0 && TESTS === "test";

const CHECKS: readonly Step[] = [
  { name: "format", command: "bun", args: ["fmt", "--check"], limit: MINUTE },
  { name: "lint", command: "oxlint", args: [], limit: 2 * MINUTE },
  { name: "types-bun", command: "bun", args: ["check"], limit: 2 * MINUTE },
].map(logged);

function logged(step: Omit<Step, "log">): Step {
  return { ...step, log: `${OUTPUT}/${step.name}.log` };
}

/**
 * Tests that must run alone. They examine processes that killed hubs have left behind, which any other hub that
 * starts on this machine would end.
 */
const ALONE = ["e2e/shutdown.test.ts", "e2e/orphans.test.ts"];

/**
 * Tests whose outcome depends on the runtime (files, processes, sockets, HTTP, bytes, modules that are loaded while
 * running) run on Bun, Deno and Node; all others run on Bun alone. The entries are beginnings of paths below the
 * folder of tests.
 */
const ON_EVERY_RUNTIME = [
  "agent-files/agent-library.test.ts",
  "agent/contract.test.ts",
  "agent/conversation-store.test.ts",
  "approval/disk.test.ts",
  "base/private-files.test.ts",
  "control/api-on-every-runtime.test.ts",
  "control/hub-socket.test.ts",
  "frontend/http/listener.test.ts",
  "frontend/http/loading.test.ts",
  "frontend/http/modern-socket.test.ts",
  "frontend/http/request-body.test.ts",
  "frontend/http/sdk.test.ts",
  "frontend/http/socket.test.ts",
  "host/shared-hub.test.ts",
  "hub/hub.test.ts",
  "jsonrpc/pipe.test.ts",
  "jsonrpc/utf8.test.ts",
  "process/",
  "secrets/",
  "telemetry/collector.test.ts",
  "transport/contract.test.ts",
  "transport/http-client/",
  "transport/http/contract.test.ts",
  "transport/http/faults.test.ts",
  "transport/http/timeouts.test.ts",
  "transport/http/tls.test.ts",
  "transport/stdio.test.ts",
];

/** Number of files of test/e2e that run at the same time; they mostly wait. */
const PARALLEL = 3;

/** Plans the steps in lanes that run in parallel. Tests of test/e2e start the executable, and run under Bun. */
function planSteps(files: readonly string[]): Plan {
  const below = (file: string): string => file.slice(TESTS.length + 1);
  const isEndToEnd = (file: string): boolean => below(file).startsWith("e2e/");
  const alone = files.filter((file) => ALONE.includes(below(file)));
  const endToEnd = files.filter((file) => isEndToEnd(file) && !alone.includes(file));
  const portable = files.filter((file) => !isEndToEnd(file));
  const beginsWith = (starts: readonly string[]) => (file: string) =>
    starts.some((start) => below(file).startsWith(start));
  const onEvery = isWhole ? portable.filter(beginsWith(ON_EVERY_RUNTIME)) : portable;
  const covered = isWhole ? portable.filter(beginsWith(COVERED)) : [];
  const others = portable.filter((file) => !covered.includes(file));
  return {
    lanes: [
      [
        ...testOnBun("test-alone", alone),
        ...testOnBun("test-e2e", endToEnd, [`--parallel=${PARALLEL}`]),
      ],
      [
        ...(isWhole ? CHECKS : []),
        ...testOnBun("test-bun", others),
        // These files run in a separate process, for which bun measures the coverage.
        ...testOnBun("test-covered", covered, COVERAGE_OPTIONS),
      ],
    ],
    rest: [...testOnDeno(onEvery), ...testOnNode(onEvery)],
  };
}

/** Steps that run one after the other. */
type Lane = readonly (Step | TestStep)[];

/** `rest`: steps that a lane takes when its own are done. */
interface Plan {
  readonly lanes: readonly Lane[];
  readonly rest: Lane;
}

async function runAll({ lanes, rest }: Plan): Promise<readonly Verdict[]> {
  const left = [...rest];
  const verdicts: Verdict[] = [];
  const runLane = async (lane: Lane): Promise<void> => {
    const own = [...lane];
    const next = (): Step | TestStep | undefined => own.shift() ?? left.shift();
    for (let step = next(); step !== undefined; step = next()) {
      verdicts.push(await show(step, "report" in step ? test(step) : check(step)));
    }
  };
  await Promise.all(lanes.map(runLane));
  return verdicts;
}

/**
 * Leaves out the last of the compilers in Bun: no test runs long enough for it, and the whole takes a tenth less
 * processor time.
 */
const SHORT_RUNS = { BUN_JSC_useFTLJIT: "0" };

/** The step that runs test files on Bun. There is none without files. */
function testOnBun(name: string, files: readonly string[], options: readonly string[] = []): Lane {
  if (files.length === 0) return [];
  const report = `${OUTPUT}/${name}.xml`;
  const args = [
    "test",
    "--only-failures",
    // Time limit of one test, in ms. The setting in bunfig.toml does not apply to tests of node:test.
    "--timeout=30000",
    "--reporter=junit",
    `--reporter-outfile=${report}`,
    ...options,
    // Without a folder in front, bun would read the path as a pattern.
    ...files.map((file) => (isAbsolute(file) ? file : `./${file}`)),
  ];
  const log = `${OUTPUT}/${name}.log`;
  const limit = 20 * MINUTE;
  return [{ name, command: "bun", args, env: SHORT_RUNS, limit, log, report, reporting: files }];
}

/** The step that runs test files on Deno. There is none without files. */
function testOnDeno(files: readonly string[]): Lane {
  if (files.length === 0) return [];
  const name = "test-deno";
  const report = `${OUTPUT}/${name}.xml`;
  const args = ["test", "-A", "--no-check", `--junit-path=${report}`, ...files];
  const log = `${OUTPUT}/${name}.log`;
  // Deno's report does not say which file ran, only where a test was declared.
  return [{ name, command: "deno", args, limit: 20 * MINUTE, log, report, reporting: [] }];
}

/** The step that runs test files on Node. There is none without files, or without a Node that runs TypeScript. */
function testOnNode(files: readonly string[]): Lane {
  const node = findNode();
  if (files.length === 0 || node === undefined) return [];
  const name = "test-node";
  const report = `${OUTPUT}/${name}.xml`;
  const args = [
    "--import=./test/node/resolve.mjs",
    "--disable-warning=ExperimentalWarning",
    "--test",
    // All files in one process, as on the other runtimes: each module is read and stripped of its types once.
    "--experimental-test-isolation=none",
    // Node applies this to whole suites, too.
    "--test-timeout=120000",
    "--test-reporter=junit",
    `--test-reporter-destination=${report}`,
    "--test-reporter=spec",
    "--test-reporter-destination=stdout",
    ...files,
  ];
  const log = `${OUTPUT}/${name}.log`;
  // Node's report does not say which file ran.
  return [{ name, command: node, args, limit: 20 * MINUTE, log, report, reporting: [] }];
}

async function check(step: Step): Promise<Verdict> {
  const problem = await runStep(step);
  const problems = problem === undefined ? [] : [problem];
  return { passed: 0, failed: problems.length, skipped: 0, problems, missing: [] };
}

/** Advice for failures: bun's report does not contain a suite that is skipped as a whole. */
const SKIPPING = "to skip a file, skip each of its tests";

/**
 * Runs a step of tests. Trusts neither the exit code nor the report alone: a test that ends the process leaves exit
 * code 0 and no report.
 */
async function test(step: TestStep): Promise<Verdict> {
  rmSync(step.report, { force: true });
  const problem = await runStep(step);
  const xml = read(step.report);
  const missing = readMissing(read(step.log) ?? "");
  if (xml === undefined) {
    const problems = [
      `no report: ${problem ?? `no test was found (${SKIPPING}), or a test ended the process`}`,
    ];
    return { passed: 0, failed: 1, skipped: 0, problems, missing };
  }
  const report = readReport(xml);
  const problems = step.reporting
    .filter((file) => !report.suites.has(file))
    .map((file) => `${file} reported no test; ${SKIPPING}`);
  // A fault outside of the tests (a file that does not load, a hook that throws) shows only in the exit code.
  if (problem !== undefined && report.failed + problems.length === 0) problems.push(problem);
  return { ...report, failed: report.failed + problems.length, problems, missing };
}

/** The lines that test/harness/requirements.ts prints. */
function readMissing(log: string): readonly string[] {
  const lines = stripVTControlCharacters(log).split("\n");
  return lines.filter((line) => line.startsWith(NOT_TESTED)).map((line) => line.trimEnd());
}

async function main(): Promise<Totals> {
  mkdirSync(OUTPUT, { recursive: true });
  const files = readdirSync(TESTS, { encoding: "utf8", recursive: true })
    .map((file) => `${TESTS}/${file.replaceAll(sep, "/")}`)
    .filter((file) => file.endsWith(".test.ts"))
    .filter((file) => names.length === 0 || names.some((name) => file.includes(name)))
    .toSorted();
  if (files.length === 0) {
    console.log("no test file matches");
    return { passed: 0, failed: 1, skipped: 0 };
  }
  if (isWhole) rmSync(COVERAGE_FOLDER, { recursive: true, force: true });
  if (findNode() === undefined) console.log(NO_NODE);
  const verdicts = await runAll(planSteps(files));
  for (const line of new Set(verdicts.flatMap(({ missing }) => missing))) console.log(line);
  const sum = (of: (totals: Totals) => number) => verdicts.map(of).reduce((a, b) => a + b, 0);
  return {
    passed: sum((t) => t.passed),
    failed: sum((t) => t.failed),
    skipped: sum((t) => t.skipped),
  };
}

async function show(step: Step, running: Promise<Verdict>): Promise<Verdict> {
  const started = performance.now();
  const verdict = await running;
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  if (verdict.failed > 0) {
    const output = read(step.log) ?? "";
    console.log(process.stdout.isTTY ? output : stripVTControlCharacters(output));
  }
  const counts = verdict.passed + verdict.failed + verdict.skipped > 0 ? format(verdict) : "";
  console.log(`${step.name.padEnd(12)} ${seconds.padStart(6)} s  ${counts}`.trimEnd());
  for (const problem of verdict.problems) console.log(`  FAILED: ${problem}`);
  return verdict;
}

function format({ passed, failed, skipped }: Totals): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
process.env["PATH"] = [resolve("node_modules/.bin"), process.env["PATH"]].join(delimiter);
// Lint and types are checked by Go programs, which need a quarter less time if they collect garbage less often.
process.env["GOGC"] ??= "400";
const totals = await main();
process.exitCode = totals.failed > 0 ? 1 : 0;
console.log(format(totals));
