import { isObject, isSchema, type Schema } from "./keywords.ts";
import { ChangeNotes } from "./notes.ts";
import { findLimitViolation, analyze } from "./references.ts";
import {
  ANY_ARGUMENTS,
  flatten,
  resolveRootReference,
  moveInvalidNames,
  type RootResult,
  setObjectType,
} from "./root.ts";
import { SchemaRepairer } from "./repairer.ts";

export type RepairResult =
  | { readonly kind: "unchanged" }
  /**
   * `done`: the changes, for the log. `isMinor`: whether they are not worth a warning. `text`: the addition to the
   * tool's description.
   */
  | {
      readonly kind: "repaired";
      readonly schema: Schema;
      readonly done: string;
      readonly isMinor: boolean;
      readonly text: string;
    }
  | { readonly kind: "unrepairable"; readonly fault: string };

/** `arguments`: an input schema, read by models' providers; `results`: an output schema, read by clients only. */
export type Purpose = "arguments" | "results";

/** Maximum number of rounds. Several may be needed, because one repair can make another one necessary. */
const MAX_ROUNDS = 20;

/**
 * Repairs a schema so that clients and providers accept it. The result accepts all objects that the schema accepted,
 * and repairing it again changes nothing. Pure; takes time proportional to the schema's size.
 */
export function repair(given: unknown, purpose: Purpose): RepairResult {
  const notes = new ChangeNotes();
  const violation = findLimitViolation(given);
  if (violation !== undefined) return { kind: "unrepairable", fault: violation };
  if (purpose === "arguments" && (given === undefined || given === null || given === true)) {
    return {
      kind: "repaired",
      schema: ANY_ARGUMENTS,
      done: "a missing schema added",
      isMinor: false,
      text: "",
    };
  }
  if (!isObject(given)) {
    return {
      kind: "unrepairable",
      fault: isSchema(given) ? "it accepts nothing" : "it is no schema",
    };
  }
  const texts: string[] = [];
  let schema = given;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const next = repairOnce(schema, purpose, notes);
    if ("fault" in next) return { kind: "unrepairable", fault: next.fault };
    if (next.text !== undefined) texts.push(next.text);
    if (next.schema === schema) {
      if (schema === given) return { kind: "unchanged" };
      return {
        kind: "repaired",
        schema,
        done: notes.toString(),
        isMinor: notes.isMinor,
        text: texts.join("\n"),
      };
    }
    schema = next.schema;
  }
  return { kind: "unrepairable", fault: "there is always something left to repair" };
}

/** Runs one round of repairs; returns the same schema object if there was nothing to repair. */
function repairOnce(schema: Schema, purpose: Purpose, notes: ChangeNotes): RootResult {
  const isForModels = purpose === "arguments";
  const { $schema: dialect } = schema;
  const ignoresRefSiblings = typeof dialect === "string" && /\/draft-0[3-7]\//.test(dialect);
  const analysis = analyze(schema);
  if (typeof analysis === "string") return { fault: analysis };
  const repairAll = (
    areTargetsWider: boolean,
  ): { schema: unknown; notes: ChangeNotes; again: boolean } => {
    const own = new ChangeNotes();
    const walker = new SchemaRepairer({
      ...analysis,
      ignoresRefSiblings,
      areTargetsWider,
      isForModels,
      notes: own,
    });
    const outcome = walker.repair(schema, undefined);
    const again = walker.hasWidened && analysis.hasReferences && !areTargetsWider;
    return { schema: outcome.schema, notes: own, again };
  };
  const first = repairAll(false);
  const walked = first.again ? repairAll(true) : first;
  if (walked.schema !== schema) {
    notes.merge(walked.notes);
    return { schema: walked.schema as Schema };
  }
  const inlined = resolveRootReference(schema, notes);
  if (inlined !== schema) return { schema: inlined };
  const typed = setObjectType(schema, notes, isForModels);
  if ("fault" in typed || typed.schema !== schema || !isForModels) return typed;
  const flat = flatten(schema, notes);
  if ("fault" in flat || flat.schema !== schema) return flat;
  const renamed = moveInvalidNames(schema, notes);
  if (renamed !== schema) return { schema: renamed };
  if (isObject(schema["properties"])) return { schema };
  notes.add("missing properties added");
  return { schema: { ...schema, properties: {} } };
}
