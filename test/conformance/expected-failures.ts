/** A check that fails through the hub for a reason outside of the hub. */
export interface ExpectedFailure {
  readonly suite: string;
  readonly scenario: string;
  readonly check: string;
  /** Why it is not a fault of the hub. */
  readonly reason: string;
}

/** The suites that reach the hub over stdio through test/conformance/stdio-adapter.ts, as modern clients. */
const MODERN_STDIO = ["2026-07-28-legacy-stdio", "2026-07-28-modern-stdio"];

/** The expected failures. An entry that passes must be removed. */
export const EXPECTED: readonly ExpectedFailure[] = [
  ...["2026-07-28-legacy", "2026-07-28-legacy-stdio"].map((suite) => ({
    suite,
    scenario: "input-required-result-basic-elicitation",
    check: "sep-2322-elicitation-incomplete",
    reason:
      "it wants the question under a key of the fixture's own, and a server of the legacy era asks without any key",
  })),
  ...MODERN_STDIO.flatMap((suite) =>
    ["reject-invalid-param-chars", "reject-param-mismatch", "validate-param-match"].map(
      (check) => ({
        suite,
        scenario: "http-custom-header-server-validation",
        check: `sep-2243-server-${check}`,
        reason:
          "stdio has no headers, and the adapter knows no tool whose arguments a header would repeat; the suites over HTTP make these checks",
      }),
    ),
  ),
];
