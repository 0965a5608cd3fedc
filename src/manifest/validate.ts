import * as v from "valibot";
import { describeValue, type KeyPath, maySecretBeAt, type UnplacedProblem } from "./problems.ts";

export type ValidationResult<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly UnplacedProblem[] };

/**
 * Validates `input`, found under `base`, with one of the manifest's own schemas, and reports all problems at once. The
 * schemas consist of those of `fields.ts`, and of schemas of valibot with a message that is the expected value.
 */
export function validate<T>(
  schema: v.GenericSchema<unknown, T>,
  input: unknown,
  base: KeyPath,
): ValidationResult<T> {
  const result = v.safeParse(schema, input);
  return result.success
    ? { ok: true, value: result.output }
    : { ok: false, problems: result.issues.map((issue) => problemOfIssue(issue, base)) };
}

/**
 * The problem of an issue: "expected MESSAGE, found VALUE". Messages about keys, and those of `v.rawCheck`, are whole
 * already.
 */
function problemOfIssue(
  { type, input, message, path: issuePath }: v.BaseIssue<unknown>,
  base: KeyPath,
): UnplacedProblem {
  const steps: readonly v.IssuePathItem[] = issuePath ?? [];
  const path = [...base, ...steps.map(({ key }) => (typeof key === "number" ? key : String(key)))];
  const at = steps.at(-1)?.origin === "key" ? "key" : "value";
  if (at === "key" || type === "raw_check") return { path, at, message };
  // A text in the place of a table may be meant for a key of the table, and that may be a secret.
  const isShown = type !== "strict_object" && !maySecretBeAt(path);
  return { path, at, message: `expected ${message}, found ${describeValue(input, isShown)}` };
}
