import * as v from "valibot";
import { describeValue, maySecretBeAt, type Problem, type SpecSource } from "./problems.ts";

export type ValidationResult<T> =
  | { readonly ok: true; readonly value: T }
  | {
      readonly ok: false;
      readonly problems: readonly Problem[];
      /**
       * The validated value; present if every single key is valid, and only rules about several keys (`v.rawCheck`)
       * are broken.
       */
      readonly value?: T;
    };

/**
 * Validates `input`, found at `source`, with one of the manifest's own schemas, and reports all problems at once. The
 * message of each schema must describe the expected value, as in `fields.ts`.
 */
export function validate<T>(
  schema: v.GenericSchema<unknown, T>,
  input: unknown,
  source: SpecSource,
): ValidationResult<T> {
  const result = v.safeParse(schema, input);
  if (result.success) return { ok: true, value: result.output };
  const problems = result.issues.map((issue) => problemOfIssue(issue, source));
  const areKeysRight = result.typed && result.issues.every(({ type }) => type === "raw_check");
  return { ok: false, problems, ...(areKeysRight && { value: result.output }) };
}

/**
 * Converts an issue of valibot to a problem: "expected MESSAGE, found VALUE". Messages about keys, and those of
 * `v.rawCheck`, are used unchanged.
 */
function problemOfIssue(
  { type, input, message, path: issuePath }: v.BaseIssue<unknown>,
  { file, path: base }: SpecSource,
): Problem {
  const steps: readonly v.IssuePathItem[] = issuePath ?? [];
  const path = [...base, ...steps.map(({ key }) => (typeof key === "number" ? key : String(key)))];
  const at = steps.at(-1)?.origin === "key" ? "key" : "value";
  if (at === "key" || type === "raw_check") return { file, path, at, message };
  // A text in the place of a table may be a secret that was meant for one of the table's keys.
  const isShown = type !== "strict_object" && !maySecretBeAt(path);
  return { file, path, at, message: `expected ${message}, found ${describeValue(input, isShown)}` };
}
