/**
 * Measures which lines of `src` are run by the in-process tests in `TESTS`, prints a table, and fails if a folder or
 * file is below its minimum in `FLOORS`. Run by bun. The report for other tools is `dist/coverage/lcov.info`.
 */
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import process from "node:process";
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
  "src/registry/": 70,
  "src/router/": 80,
  "src/secrets/": 80,
  "src/upstream/": 90,
  "src/upstream/modes.ts": 90,
};

/**
 * The tests that run files of `src` in their own process. End-to-end tests run them in other processes, which are not
 * measured.
 */
const TESTS = [
  "agent",
  "approval",
  "catalog/filter.test.ts",
  "control",
  "hub",
  "manifest",
  "registry",
  "router",
  "secrets",
  "upstream",
];

const OUTPUT = "dist/coverage";
const LIMIT = 5 * 60_000;

rmSync(OUTPUT, { recursive: true, force: true });
mkdirSync(OUTPUT, { recursive: true });
const failure = await runStep({
  name: "coverage",
  command: "bun",
  args: [
    "test",
    "--coverage",
    "--coverage-reporter=lcov",
    `--coverage-dir=${OUTPUT}`,
    ...TESTS.map((folder) => `./test/${folder}`),
  ],
  limit: LIMIT,
  log: `${OUTPUT}/tests.log`,
});
if (failure !== undefined) {
  console.error(readFileSync(`${OUTPUT}/tests.log`, "utf8").slice(-10_000));
  console.error(`The tests failed: ${failure}.`);
  process.exit(1);
}

interface FileCoverage {
  readonly path: string;
  readonly lines: number;
  readonly run: number;
}

const files = readFileSync(`${OUTPUT}/lcov.info`, "utf8")
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
