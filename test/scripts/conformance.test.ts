import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { EXPECTED, type ExpectedFailure } from "../conformance/expected-failures.ts";
import {
  type Check,
  withoutRepeatedPasses,
  evaluateChecks,
  readChecks,
} from "../conformance/results.ts";

const GOOD: Check = { scenario: "ping", id: "ping", status: "SUCCESS", message: "answers" };
const BAD: Check = { scenario: "tools", id: "call", status: "FAILURE", message: "no answer" };
const reason = "the scenario asks for what the protocol forbids";
const EXPECTATION: ExpectedFailure = { suite: "one", scenario: "tools", check: "call", reason };

describe("a conformance suite", () => {
  it("is passed if everything passes", () => {
    assert.deepEqual(evaluateChecks([GOOD, GOOD], 2, []), { passed: 2, failed: 0, problems: [] });
  });

  it("is not passed if a check fails that is not expected to", () => {
    for (const other of [{ check: "another" }, { scenario: "another" }]) {
      const expected = { ...EXPECTATION, ...other };
      const { failed, problems } = evaluateChecks([GOOD, BAD], 2, [expected]);
      const stale = `${expected.scenario}: ${expected.check} did not fail as expected`;
      assert.deepEqual([failed, ...problems], [1, "tools: call: no answer", stale]);
    }
  });

  it("is not passed if it warns", () => {
    const { problems } = evaluateChecks([GOOD, { ...BAD, status: "WARNING" }], 2, []);
    assert.deepEqual(problems, ["tools: call: no answer"]);
  });

  it("is passed if only that fails which is expected to", () => {
    assert.deepEqual(evaluateChecks([GOOD, BAD], 2, [EXPECTATION]).problems, []);
  });

  it("is not passed if an expected failure passes, or is not there at all", () => {
    const stale = ["tools: call did not fail as expected"];
    const passing: Check = { ...BAD, status: "SUCCESS" };
    assert.deepEqual(evaluateChecks([GOOD, passing], 2, [EXPECTATION]).problems, stale);
    assert.deepEqual(evaluateChecks([GOOD], 1, [EXPECTATION]).problems, stale);
  });

  it("is not passed if it makes fewer checks than are known", () => {
    const info: Check = { ...GOOD, status: "INFO" };
    const { problems } = evaluateChecks([GOOD, info], 2, []);
    assert.deepEqual(problems, ["only 1 checks were made, not 2"]);
    assert.equal(evaluateChecks([], 1, []).problems.length, 1);
  });

  it("counts what passed several times once, where that is a matter of time, and all that failed", () => {
    const other: Check = { ...GOOD, id: "another" };
    assert.deepEqual(withoutRepeatedPasses([GOOD, other, GOOD, BAD, BAD]), [GOOD, other, BAD, BAD]);
  });
});

describe("the results of a conformance suite", () => {
  it("are read by scenario, and a scenario without results has failed", () => {
    const folder = mkdtempSync(join(tmpdir(), "toolmux-conformance-"));
    const at = "2026-01-02T03-04-05-678Z";
    const found = [
      { id: "call", name: "Call", status: "FAILURE", description: "calls", errorMessage: "no" },
      { id: "list", name: "List", status: "SUCCESS", description: "lists" },
      { id: "note", name: "Note", status: "INFO" },
    ];
    try {
      mkdirSync(join(folder, `server-tools-2020-12-${at}`));
      mkdirSync(join(folder, `server-ping-${at}`));
      mkdirSync(join(folder, "auth", `login-${at}`), { recursive: true });
      const file = join(folder, `server-tools-2020-12-${at}`, "checks.json");
      writeFileSync(file, JSON.stringify(found));
      const checks = readChecks(folder).toSorted((a, b) => (a.id < b.id ? -1 : 1));
      const message = "it was broken off";
      assert.deepEqual(checks, [
        { scenario: "auth/login", id: "auth/login", status: "FAILURE", message },
        { scenario: "tools-2020-12", id: "call", status: "FAILURE", message: "no" },
        { scenario: "tools-2020-12", id: "list", status: "SUCCESS", message: "lists" },
        { scenario: "tools-2020-12", id: "note", status: "INFO", message: "" },
        { scenario: "ping", id: "ping", status: "FAILURE", message },
      ]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it("are none where there is no folder", () => {
    assert.deepEqual(readChecks(join(tmpdir(), "toolmux-conformance-missing")), []);
  });
});

it("an expected failure has a reason", () => {
  const without = EXPECTED.filter((each) => each.reason.trim().split(/\s+/).length < 3);
  assert.deepEqual(without, []);
});
