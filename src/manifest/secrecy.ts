import * as v from "valibot";
import { flag } from "./fields.ts";
import { describeValue, findNearest, type UnplacedProblem } from "./problems.ts";
import { isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/* The manifest's table `secrets`: where `${secret:NAME}` is looked up, and whether `${cmd:…}` may be used. */

/** All secret sources, in the default order of look-up. */
export const SECRET_SOURCES = ["environment", "file", "keychain"] as const;

export type SecretSource = (typeof SECRET_SOURCES)[number];

const SOURCE_NAMES = SECRET_SOURCES.map((name) => `"${name}"`).join(", ");

export const secretsSchema = v.strictObject({
  sources: v.exactOptional(
    v.pipe(
      v.array(v.picklist(SECRET_SOURCES, `one of ${SOURCE_NAMES}`), `an array of ${SOURCE_NAMES}`),
      v.nonEmpty(`at least one of ${SOURCE_NAMES}`),
    ),
  ),
  commands: v.exactOptional(flag),
});

/** The secret settings of one file. */
export interface SecretSettings {
  /** undefined: not set. */
  readonly sources: readonly SecretSource[] | undefined;
  /** Whether servers of this file may use `${cmd:…}`. */
  readonly commands: boolean;
}

export const DEFAULT_SECRET_SETTINGS: SecretSettings = { sources: undefined, commands: false };

/** Reads the table `secrets` of a manifest. */
export function readSecretSettings(table: Table): {
  readonly settings: SecretSettings;
  readonly problems: readonly UnplacedProblem[];
} {
  const checked = validate(secretsSchema, table["secrets"] ?? {}, ["secrets"]);
  if (checked.ok) {
    const { sources, commands = false } = checked.value;
    const duplicates = findDuplicates(sources ?? []);
    return { settings: { sources, commands }, problems: duplicates };
  }
  const problems = checked.problems.map((problem) => suggestSource(problem, table["secrets"]));
  // Commands stay allowed whatever else is invalid.
  const commands = isTable(table["secrets"]) && table["secrets"]["commands"] === true;
  return { settings: { sources: undefined, commands }, problems };
}

function findDuplicates(sources: readonly SecretSource[]): readonly UnplacedProblem[] {
  return sources.flatMap((name, at) =>
    sources.indexOf(name) === at
      ? []
      : [{ path: ["secrets", "sources", at], at: "value" as const, message: "stands there twice" }],
  );
}

/** Adds the source that was probably meant. */
function suggestSource(problem: UnplacedProblem, table: unknown): UnplacedProblem {
  const [, key, at] = problem.path;
  const sources = isTable(table) ? table["sources"] : undefined;
  if (key !== "sources" || typeof at !== "number" || !Array.isArray(sources)) return problem;
  const found: unknown = sources[at];
  const nearest = typeof found === "string" ? findNearest(found, SECRET_SOURCES) : undefined;
  if (nearest === undefined) return problem;
  return {
    ...problem,
    message: `expected one of ${SOURCE_NAMES}, found ${describeValue(found, true)}; did you mean "${nearest}"?`,
  };
}
