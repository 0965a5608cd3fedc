import * as v from "valibot";
import { explainIssue, pathOf, type Issue } from "./issue.ts";
import { findKeyFaults } from "./keys.ts";
import type { Complaint, Path } from "./problems.ts";

export type Validated<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly complaints: readonly Complaint[] };

/** The part of the Standard Schema interface, version 1, that is needed to check options. */
export interface Checker<T> {
  readonly "~standard": { validate(value: unknown): Checked<T> | Promise<Checked<T>> };
}

type Checked<T> =
  { readonly value: T; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

/** Validates `input`, found under `base`, and reports all problems at once. */
export function validate<T>(
  schema: v.GenericSchema<unknown, T>,
  input: unknown,
  base: Path,
): Validated<T> {
  const result = v.safeParse(schema, input);
  const complaints = complain(schema, input, base, result.issues ?? []);
  if (result.success && complaints.length === 0) return { ok: true, value: result.output };
  return { ok: false, complaints };
}

/**
 * Validates the options of a plugin, found under `base`, with a schema of another copy of valibot or of another
 * library. Issues of valibot are worded as those of the manifest's schemas, and unknown keys are reported. No value is
 * shown. Rejects only if the schema throws.
 */
export async function validateOptions<T>(
  schema: Checker<T>,
  input: unknown,
  base: Path,
): Promise<Validated<T>> {
  const result = await schema["~standard"].validate(input);
  const complaints = complain(schema, input, base, result.issues ?? []);
  if (result.issues === undefined && complaints.length === 0)
    return { ok: true, value: result.value };
  return { ok: false, complaints };
}

function complain(
  schema: object,
  input: unknown,
  base: Path,
  issues: readonly Issue[],
): readonly Complaint[] {
  const isValibot = "kind" in schema && schema.kind === "schema";
  const complaints = isValibot ? [...findKeyFaults(schema, input, base)] : [];
  const seen = new Set(complaints.map(({ path }) => JSON.stringify(path)));
  for (const issue of issues) {
    const path = [...base, ...pathOf(issue)];
    const isTold = [...path, ""].some((_, length) =>
      seen.has(JSON.stringify(path.slice(0, length))),
    );
    if (!isTold) complaints.push(explainIssue(issue, path, input));
  }
  return complaints;
}
