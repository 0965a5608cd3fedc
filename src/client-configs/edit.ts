import { isTable, type Table } from "../manifest/table.ts";
import { parseText } from "../manifest/syntax/parse.ts";
import { applyTextEdits, type ServerChange } from "../manifest/edit/change.ts";
import { computeEdits } from "../manifest/edit/edit.ts";
import type { ClientApp, ServerTableChange } from "./clients.ts";

/** The edited text, or the reason why the file cannot be changed as requested. `reason` is the end of a sentence. */
export type ClientEditResult =
  { readonly ok: true; readonly text: string } | { readonly ok: false; readonly reason: string };

/**
 * Changes a client's file and keeps everything else: comments, order and formatting. The result is parsed again and
 * compared with the intended value.
 */
export async function editClientFile(
  text: string,
  format: ClientApp["format"],
  change: ServerTableChange,
): Promise<ClientEditResult> {
  const { keys, remove, set } = change;
  const changes = [
    ...remove.map((name): ServerChange => ({ kind: "remove", name })),
    ...Object.entries(set).map(([name, entry]): ServerChange => ({ kind: "add", name, entry })),
  ];
  let edited = text.trim() === "" && format === "json" ? `{}${text || "\n"}` : text;
  for (const each of changes) {
    const edits = await computeEdits(edited, format, keys, each);
    if ("reason" in edits) return { ok: false, reason: edits.reason };
    edited = applyTextEdits(edited, edits);
  }
  const [before, after] = await Promise.all([parseTable(text, format), parseTable(edited, format)]);
  const wanted = before && applyChange(before, change);
  const isRight = after !== undefined && canonicalText(wanted) === canonicalText(after);
  if (isRight) return { ok: true, text: edited };
  const where = change.keys.join(".");
  return { ok: false, reason: `${where} is written there in a way that cannot be edited safely` };
}

async function parseTable(text: string, format: ClientApp["format"]): Promise<Table | undefined> {
  if (text.trim() === "") return {};
  const parsed = await parseText(text, format);
  return parsed.ok && isTable(parsed.root) ? parsed.root : undefined;
}

/** The file's parsed content with the change applied; the order of keys does not matter. */
function applyChange(root: Table, { keys, remove, set: put }: ServerTableChange): unknown {
  const walk = (at: unknown, [key, ...rest]: readonly string[]): Table => {
    const table = isTable(at) ? at : {};
    if (key !== undefined) return { ...table, [key]: walk(table[key], rest) };
    const kept = Object.entries(table).filter(([name]) => !remove.includes(name));
    return { ...Object.fromEntries(kept), ...put };
  };
  return walk(root, keys);
}

/** Canonical text of a value: independent of the order of keys; an empty table counts as absent. */
function canonicalText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalText).join()}]`;
  if (!isTable(value)) return JSON.stringify(value) ?? "";
  const members = Object.entries(value).map(([key, inner]) => [
    JSON.stringify(key),
    canonicalText(inner),
  ]);
  const kept = members.filter(([, inner]) => inner !== "{}").map((member) => member.join(":"));
  return `{${kept.toSorted().join()}}`;
}
