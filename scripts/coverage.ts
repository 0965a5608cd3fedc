/**
 * Measures which lines of `src` are run by the in-process tests that scripts/covered.ts names, prints a table, and fails
 * if a folder or file is below its minimum in `FLOORS`. Run by bun. The report for other tools is
 * `dist/coverage/lcov.info`.
 *
 *   bun scripts/coverage.ts [--measured]
 *
 * With --measured it runs no tests, but reads the report of the last `npm test`.
 */
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import process from "node:process";
import { parseArgs } from "node:util";
import { COVERAGE_FOLDER, COVERAGE_OPTIONS, COVERED } from "./covered.ts";
import { runStep } from "./step.ts";

/** The minimum percentage of lines that tests must run, by the beginning of a file's path. */
const FLOORS: Readonly<Record<string, number>> = {
  "src/agent/": 80,
  "src/approval/": 90,
  "src/catalog/filter.ts": 90,
  "src/control/": 85,
  "src/manifest/": 70,
  "src/manifest/filter.ts": 90,
  "src/manifest/modes.ts": 90,
  "src/operations/": 75,
  "src/registry/": 70,
  "src/router/": 80,
  "src/secrets/": 80,
  "src/upstream/": 90,
  "src/views/client-modes.ts": 90,
};

const LIMIT = 5 * 60_000;
const LOG = `${COVERAGE_FOLDER}/tests.log`;

const { measured } = parseArgs({
  options: { measured: { type: "boolean", default: false } },
}).values;

/** Runs the tests. */
async function measure(): Promise<void> {
  rmSync(COVERAGE_FOLDER, { recursive: true, force: true });
  mkdirSync(COVERAGE_FOLDER, { recursive: true });
  const failure = await runStep({
    name: "coverage",
    command: "bun",
    args: [
      "test",
      "--timeout=30000",
      ...COVERAGE_OPTIONS,
      ...COVERED.map((start) => `./test/${start}`),
    ],
    limit: LIMIT,
    log: LOG,
  });
  if (failure === undefined) return;
  console.error(readFileSync(LOG, "utf8").slice(-10_000));
  console.error(`The tests failed: ${failure}.`);
  process.exit(1);
}

if (!measured) await measure();

interface FileCoverage {
  readonly path: string;
  readonly lines: number;
  readonly run: number;
}

const files = readFileSync(`${COVERAGE_FOLDER}/lcov.info`, "utf8")
  .split("end_of_record")
  .flatMap((record): readonly FileCoverage[] => {
    const path = /^SF:(.*)$/m.exec(record)?.[1];
    if (path === undefined) return [];
    const count = (key: string): number =>
      Number(new RegExp(`^${key}:(\\d+)$`, "m").exec(record)?.[1]);
    return [{ path, lines: count("LF"), run: count("LH") }];
  });

let isBelow = false;
for (const [folder, floor] of Object.entries(FLOORS)) {
  const own = files.filter(({ path }) => path.startsWith(folder));
  const sum = (of: (file: FileCoverage) => number): number =>
    own.reduce((total, file) => total + of(file), 0);
  const lines = sum((file) => file.lines);
  const share = lines === 0 ? 0 : (100 * sum((file) => file.run)) / lines;
  const isLow = share < floor;
  isBelow ||= isLow;
  const row = [
    folder.padEnd(24),
    `${share.toFixed(1)} %`.padStart(8),
    `of ${lines} lines`.padStart(15),
  ];
  console.log(`${row.join(" ")}   at least ${floor} %${isLow ? "   BELOW" : ""}`);
}
process.exit(isBelow ? 1 : 0);
