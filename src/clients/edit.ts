import { isTable, type Table } from "../manifest/table.ts";
import { parseText } from "../manifest/parse.ts";
import type { Change } from "./change.ts";
import type { Client } from "./client.ts";

/** The text with the change in it; `reason` says why it cannot be made there, as the end of a sentence. */
export type Edited =
  { readonly ok: true; readonly text: string } | { readonly ok: false; readonly reason: string };

/**
 * Changes a client's file and nothing else in it: comments, order and spelling of all that stays are as they were. What comes
 * out was parsed again, and says what it is to say.
 */
export async function editText(
  text: string,
  format: Client["format"],
  change: Change,
): Promise<Edited> {
  const edit = format === "json" ? await import("./json.ts") : await import("./toml.ts");
  const edited = edit.change(text, change);
  const [before, after] = await Promise.all([read(text, format), read(edited, format)]);
  const wanted = before && applyChange(before, change);
  const isRight = after !== undefined && spell(wanted) === spell(after);
  if (isRight) return { ok: true, text: edited };
  const where = change.keys.join(".");
  return { ok: false, reason: `${where} is written there in a way that cannot be edited safely` };
}

async function read(text: string, format: Client["format"]): Promise<Table | undefined> {
  if (text.trim() === "") return {};
  const parsed = await parseText(text, format);
  return parsed.ok && isTable(parsed.root) ? parsed.root : undefined;
}

/** The value with the change in it, in an order that says nothing of where things stand. */
function applyChange(root: Table, { keys, remove, put }: Change): unknown {
  const walk = (at: unknown, [key, ...rest]: readonly string[]): Table => {
    const table = isTable(at) ? at : {};
    if (key !== undefined) return { ...table, [key]: walk(table[key], rest) };
    const kept = Object.entries(table).filter(([name]) => !remove.includes(name));
    return { ...Object.fromEntries(kept), ...put };
  };
  return walk(root, keys);
}

/** The same text for the same value, whatever the order of its keys; a table without anything in it is as good as none. */
function spell(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spell).join()}]`;
  if (!isTable(value)) return JSON.stringify(value) ?? "";
  const members = Object.entries(value).map(([key, inner]) => [JSON.stringify(key), spell(inner)]);
  const kept = members.filter(([, inner]) => inner !== "{}").map((member) => member.join(":"));
  return `{${kept.toSorted().join()}}`;
}
