import { maskEntry, unmaskEntry } from "../mask-entry.ts";
import { formatPath, type Position } from "../problems.ts";
import { manifestServerSchema } from "../schema.ts";
import { parseText } from "../syntax/parse.ts";
import { isTable, type Table } from "../table.ts";
import { validate } from "../validate.ts";
import { formatTomlKey, formatTomlPair } from "./change.ts";

/** What is wrong with an entry that a person edits. `position`: in its text, if it was given as text. */
export interface EntryProblem {
  /** The path of the key, such as `env.TOKEN`; empty: the whole entry. */
  readonly path: string;
  readonly message: string;
  readonly position: Position | undefined;
}

/** An entry as a person edits it: as a table, or as TOML. */
export type EditedEntry = { readonly entry: Table } | { readonly toml: string };

/** An edited entry that was read and checked. `entry` and `toml` have masks; both are absent if the text is no TOML. */
export interface EntryPreview {
  readonly entry: Table | undefined;
  readonly toml: string | undefined;
  readonly problems: readonly EntryProblem[];
}

/** A server's entry as TOML, without the header of its table: keys first, then tables. */
export function formatEntry(entry: Table): string {
  const pairs = Object.entries(entry);
  const isSection = ([, value]: readonly [string, unknown]): boolean =>
    isTable(value) && Object.keys(value).length > 0;
  const keys = pairs.filter((pair) => !isSection(pair)).map(formatTomlPair);
  const sections = pairs
    .filter(isSection)
    .flatMap(([key, table]) => [
      ...(keys.length === 0 ? [] : [""]),
      `[${formatTomlKey(key)}]`,
      ...Object.entries(table as Table).map(formatTomlPair),
    ]);
  return [...keys, ...sections].map((line) => `${line}\n`).join("");
}

/**
 * Reads and checks an entry that a person has edited, and writes nothing.
 * @param present the entry in the manifest; masks of the edited one stand for its values
 */
export async function previewEntry(edited: EditedEntry, present: Table): Promise<EntryPreview> {
  const none = { entry: undefined, toml: undefined };
  let entry: Table;
  let positionOf: (
    path: readonly (string | number)[],
    at: "key" | "value",
  ) => Position | undefined = () => undefined;
  if ("toml" in edited) {
    const parsed = await parseText(edited.toml, "toml");
    if (!parsed.ok) {
      const { message, position } = parsed;
      return { ...none, problems: [{ path: "", message, position }] };
    }
    positionOf = await parsed.preparePositions();
    entry = isTable(parsed.root) ? parsed.root : {};
  } else ({ entry } = edited);
  const checked = validate(manifestServerSchema, entry, { file: "", path: [] });
  const problems = (checked.ok ? [] : checked.problems).map(
    ({ path, at, message }): EntryProblem => ({
      path: formatPath(path),
      message,
      position: positionOf(path, at),
    }),
  );
  // An unknown mask is refused here, as it is when the entry is written.
  try {
    unmaskEntry(entry, present);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    problems.push({ path: "", message, position: undefined });
  }
  return { entry, toml: formatEntry(maskKnown(entry, present)), problems };
}

/** Masks an entry; what has a mask already stays as it is. */
function maskKnown(entry: Table, present: Table): Table {
  try {
    return maskEntry(unmaskEntry(entry, present));
  } catch {
    return maskEntry(entry);
  }
}
