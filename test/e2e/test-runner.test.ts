import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { TEST_OPTIONS, it } from "../harness/hub.ts";

const RUNNER = fileURLToPath(new URL("../../scripts/test.ts", import.meta.url));
const NEEDS = new URL("../harness/requirements.ts", import.meta.url).href;

const PASSING = 'import { it } from "node:test";\nit("passes", () => {});\n';
const FAILING = 'import { it } from "node:test";\nit("fails", () => { throw new Error("no"); });\n';
const EMPTY = "export {};\n";
const LEAVING = 'import { it } from "node:test";\nit("leaves", () => process.exit(0));\n';
const BROKEN = 'import "./missing.ts";\n';

/** All tests are skipped, as the machine lacks something. */
const SKIPPED = `
import { describe, it } from "node:test";
import { skipWithout } from "${NEEDS}";
const skip = skipWithout({ isMet: false, tests: "flights", remedy: "no wings (apt-get install wings)" });
describe("a flight", () => {
  it("begins", { skip }, () => { throw new Error("no"); });
  it("ends", { skip }, () => { throw new Error("no"); });
});
`;

/** A suite that is skipped as a whole: bun reports nothing of it. */
const WHOLE = `
import { describe, it } from "node:test";
describe("a flight", { skip: "no wings" }, () => { it("begins", () => {}); });
`;

interface Run {
  readonly code: number | null;
  /** The last line. */
  readonly totals: string;
  /** The lines that say what is missing. */
  readonly missing: readonly string[];
  /** The lines that name a failure that no test reported. */
  readonly problems: readonly string[];
}

/** Runs the test runner of this project as a program. */
function runTests(args: readonly string[], env: Readonly<Record<string, string>> = {}): Run {
  const { stdout, status } = spawnSync(process.execPath, [RUNNER, ...args], {
    encoding: "utf8",
    env: { ...process.env, ...env },
    timeout: TEST_OPTIONS.timeout,
  });
  const lines = stdout.trimEnd().split("\n");
  const beginWith = (start: string): string[] => lines.filter((line) => line.startsWith(start));
  return {
    code: status,
    totals: lines.at(-1) ?? "",
    // The log of a failed step has them too.
    missing: [...new Set(beginWith("NOT TESTED: "))],
    problems: beginWith("  FAILED: "),
  };
}

/** Runs it on a folder of test files. */
function runFolder(files: Readonly<Record<string, string>>, ...names: readonly string[]): Run {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-runner-"));
  const tests = join(folder, "tests");
  try {
    for (const [name, text] of Object.entries(files)) {
      const path = join(tests, name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
    }
    return runTests(["--tests", tests, "--output", join(folder, "output"), ...names]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe("the test runner", () => {
  it("counts a file all of whose tests are skipped as skipped on every runtime, and says once what to install", () => {
    const { code, totals, missing } = runFolder({ "skipped.test.ts": SKIPPED });
    assert.deepEqual([code, totals], [0, "0 passed, 0 failed, 6 skipped"]);
    assert.deepEqual(missing, ["NOT TESTED: flights: no wings (apt-get install wings)"]);
  });

  it("counts skipped tests beside others, and runs the files that are named alone", () => {
    const files = { "e2e/a.test.ts": PASSING, "e2e/b.test.ts": SKIPPED, "e2e/c.test.ts": PASSING };
    assert.equal(runFolder(files).totals, "2 passed, 0 failed, 2 skipped");
    assert.equal(runFolder(files, "a.test").totals, "1 passed, 0 failed");
  });

  for (const [what, text] of Object.entries({
    "in which there is no test": EMPTY,
    "whose suite is skipped as a whole": WHOLE,
    "with a test that ends the process": LEAVING,
    "with a test that fails": FAILING,
    "that does not load": BROKEN,
  })) {
    it(`fails for a file ${what}, alone and beside others`, () => {
      for (const others of [{}, { "e2e/a.test.ts": PASSING, "e2e/z.test.ts": PASSING }]) {
        const { code, totals } = runFolder({ ...others, "e2e/x.test.ts": text });
        assert.equal(code, 1);
        assert.doesNotMatch(totals, /, 0 failed/);
      }
    });
  }

  it("fails on every runtime on which a test fails or ends the process", () => {
    const run = (text: string): Run => runFolder({ "a.test.ts": PASSING, "x.test.ts": text });
    assert.match(run(FAILING).totals, /^\d passed, 3 failed$/);
    assert.match(run(LEAVING).totals, /, [1-9] failed$/);
  });

  it("names the file that reports no test, and counts it once", () => {
    const { totals, problems } = runFolder({ "e2e/a.test.ts": PASSING, "e2e/x.test.ts": EMPTY });
    assert.equal(totals, "1 passed, 1 failed");
    assert.equal(problems.length, 1);
    assert.match(problems[0] ?? "", /e2e\/x\.test\.ts reported no test/);
  });

  it("fails if there is no test file", () => {
    const { code, totals } = runFolder({ "readme.md": "" });
    assert.deepEqual({ code, totals }, { code: 1, totals: "0 passed, 1 failed" });
  });
});

describe("a machine that has neither a browser nor Python nor a keychain", () => {
  it("passes the tests that need them, all skipped, with one line for each that says what to install", () => {
    const folder = mkdtempSync(join(tmpdir(), "toolmux-runner-"));
    try {
      const files = ["e2e/dashboard-page", "e2e/python", "e2e/keychain"];
      const bare = { TOOLMUX_TEST_BARE: "1" };
      const { code, totals, missing } = runTests(["--output", folder, ...files], bare);
      assert.equal(code, 0);
      assert.match(totals, /^\d+ passed, 0 failed, [1-9]\d* skipped$/);
      assert.equal(missing.length, files.length);
      for (const line of missing) assert.match(line, /apt-get install \w/);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
