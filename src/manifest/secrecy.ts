import * as v from "valibot";
import { flag } from "./fields.ts";
import { describe, findNearest, type Complaint } from "./problem.ts";
import { isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/* What a manifest says of secrets: where those of `${secret:NAME}` are looked for, and whether `${cmd:…}` may be used in it. */

/** Where secrets can be, in the order in which they are looked for if nothing else is said. */
export const SECRET_SOURCES = ["environment", "file", "keychain"] as const;

export type SecretSource = (typeof SECRET_SOURCES)[number];

const NAMES = SECRET_SOURCES.map((name) => `"${name}"`).join(", ");

export const secretsSchema = v.strictObject({
  sources: v.exactOptional(
    v.pipe(
      v.array(v.picklist(SECRET_SOURCES, `one of ${NAMES}`), `an array of ${NAMES}`),
      v.nonEmpty(`at least one of ${NAMES}`),
    ),
  ),
  commands: v.exactOptional(flag),
});

/** What one file says of secrets. */
export interface SecretRules {
  /** undefined: nothing. */
  readonly sources: readonly SecretSource[] | undefined;
  /** Whether servers of this file may use `${cmd:…}`. */
  readonly commands: boolean;
}

export const NO_RULES: SecretRules = { sources: undefined, commands: false };

/** Reads the table `secrets` of a file of our own. */
export function readSecrets(table: Table): {
  readonly rules: SecretRules;
  readonly complaints: readonly Complaint[];
} {
  const checked = validate(secretsSchema, table["secrets"] ?? {}, ["secrets"]);
  if (checked.ok) {
    const { sources, commands = false } = checked.value;
    const twice = findTwice(sources ?? []);
    return { rules: { sources, commands }, complaints: twice };
  }
  const complaints = checked.complaints.map((complaint) => suggest(complaint, table["secrets"]));
  // Whether commands are allowed is another question than what is wrong beside it.
  const commands = isTable(table["secrets"]) && table["secrets"]["commands"] === true;
  return { rules: { sources: undefined, commands }, complaints };
}

function findTwice(sources: readonly SecretSource[]): readonly Complaint[] {
  return sources.flatMap((name, at) =>
    sources.indexOf(name) === at
      ? []
      : [{ path: ["secrets", "sources", at], at: "value" as const, message: "stands there twice" }],
  );
}

/** What may have been meant by a source that there is not. */
function suggest(complaint: Complaint, table: unknown): Complaint {
  const [, key, at] = complaint.path;
  const sources = isTable(table) ? table["sources"] : undefined;
  if (key !== "sources" || typeof at !== "number" || !Array.isArray(sources)) return complaint;
  const found: unknown = sources[at];
  const nearest = typeof found === "string" ? findNearest(found, SECRET_SOURCES) : undefined;
  if (nearest === undefined) return complaint;
  return {
    ...complaint,
    message: `expected one of ${NAMES}, found ${describe(found, true)}; did you mean "${nearest}"?`,
  };
}
