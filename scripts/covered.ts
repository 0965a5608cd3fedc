/**
 * The tests that run the lines in their own process whose share scripts/coverage.ts measures; the end-to-end tests run them
 * in others, which is not counted. Beginnings of paths below the folder of tests.
 */
export const COVERED: readonly string[] = [
  "agent/",
  "approval/",
  "catalog/filter.test.ts",
  "control/",
  "hub/",
  "manifest/",
  "registry/",
  "router/",
  "secrets/",
  "upstream/",
];

/** Where bun's report of the lines is. */
export const COVERAGE_FOLDER = "dist/coverage";

/** The options of `bun test` that make it write the report, which costs no time. */
export const COVERAGE_OPTIONS: readonly string[] = [
  "--coverage",
  "--coverage-reporter=lcov",
  `--coverage-dir=${COVERAGE_FOLDER}`,
];
