/**
 * The tests that run the lines that scripts/coverage.ts counts, in their own process. End-to-end tests run them in other
 * processes, which are not measured. Beginnings of paths below the folder of tests.
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

/** The folder of bun's report. */
export const COVERAGE_FOLDER = "dist/coverage";

/** The options of `bun test` that make it write the report. They cost no measurable time. */
export const COVERAGE_OPTIONS: readonly string[] = [
  "--coverage",
  "--coverage-reporter=lcov",
  `--coverage-dir=${COVERAGE_FOLDER}`,
];
