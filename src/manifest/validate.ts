import * as v from "valibot";
import { problemOfIssue, pathOfIssue, type SchemaIssue } from "./issue.ts";
import { findUnknownKeys } from "./keys.ts";
import type { UnplacedProblem, KeyPath } from "./problems.ts";

export type ValidationResult<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly UnplacedProblem[] };

/** The part of the Standard Schema interface, version 1, that is needed to check options. */
export interface StandardSchema<T> {
  readonly "~standard": { validate(value: unknown): Checked<T> | Promise<Checked<T>> };
}

type Checked<T> =
  { readonly value: T; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/** Validates `input`, found under `base`, and reports all problems at once. */
export function validate<T>(
  schema: v.GenericSchema<unknown, T>,
  input: unknown,
  base: KeyPath,
): ValidationResult<T> {
  const result = v.safeParse(schema, input);
  const problems = problemsOf(schema, input, base, result.issues ?? []);
  if (result.success && problems.length === 0) return { ok: true, value: result.output };
  return { ok: false, problems };
}

/**
 * Validates the options of a plugin, found under `base`, with a schema of another copy of valibot or of another
 * library. Issues of valibot are worded as those of the manifest's schemas, and unknown keys are reported. No value is
 * shown. Rejects only if the schema throws.
 */
export async function validateOptions<T>(
  schema: StandardSchema<T>,
  input: unknown,
  base: KeyPath,
): Promise<ValidationResult<T>> {
  const result = await schema["~standard"].validate(input);
  const problems = problemsOf(schema, input, base, result.issues ?? []);
  if (result.issues === undefined && problems.length === 0)
    return { ok: true, value: result.value };
  return { ok: false, problems };
}

function problemsOf(
  schema: object,
  input: unknown,
  base: KeyPath,
  issues: readonly SchemaIssue[],
): readonly UnplacedProblem[] {
  const isValibot = "kind" in schema && schema.kind === "schema";
  const problems = isValibot ? [...findUnknownKeys(schema, input, base)] : [];
  const seen = new Set(problems.map(({ path }) => JSON.stringify(path)));
  for (const issue of issues) {
    const path = [...base, ...pathOfIssue(issue)];
    const isReported = [...path, ""].some((_, length) =>
      seen.has(JSON.stringify(path.slice(0, length))),
    );
    if (!isReported) problems.push(problemOfIssue(issue, path, input));
  }
  return problems;
}
