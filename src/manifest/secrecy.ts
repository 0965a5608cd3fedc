import * as v from "valibot";
import { flag } from "./fields.ts";
import { describe, findNearest, type Complaint } from "./problems.ts";
import { isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/* The manifest's table `secrets`: where `${secret:NAME}` is looked up, and whether `${cmd:…}` may be used. */

/** All secret sources, in the default order of look-up. */
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

/** The secret settings of one file. */
export interface SecretRules {
  /** undefined: not set. */
  readonly sources: readonly SecretSource[] | undefined;
  /** Whether servers of this file may use `${cmd:…}`. */
  readonly commands: boolean;
}

export const NO_RULES: SecretRules = { sources: undefined, commands: false };

/** Reads the table `secrets` of a manifest. */
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
  // Commands stay allowed whatever else is invalid.
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

/** Adds the source that was probably meant. */
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
