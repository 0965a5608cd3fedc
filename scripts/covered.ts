/**
 * The tests whose coverage scripts/coverage.ts measures. They run the code of src in their own process; end-to-end
 * tests run it in other processes, which are not measured. Each entry is the beginning of a path below the folder of
 * tests.
 */
export const COVERED: readonly string[] = [
  "agent/",
  "approval/",
  "catalog/filter.test.ts",
  "control/",
  "hub/",
  "manifest/",
  "operations/",
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
