import { createTable, isTable, type Table } from "../table.ts";

/** A change of the servers of a manifest. */
export type ManifestChange =
  | ServerChange
  /** All of them must be new; they are appended. */
  | { readonly kind: "addAll"; readonly servers: ReadonlyMap<string, Table> };

/** A change of one server. */
export type ServerChange =
  /** Appends the server, or replaces the one of that name unless `isNew`. */
  | {
      readonly kind: "add";
      readonly name: string;
      readonly entry: Table;
      readonly isNew?: boolean;
    }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "set"; readonly name: string; readonly key: string; readonly value: unknown }
  | { readonly kind: "rename"; readonly name: string; readonly to: string };

/** A range of a text and its replacement; offsets in UTF-16 units. */
export interface TextEdit {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** Why a text cannot be edited: text that follows the file's name, with what to do. */
export interface EditRefusal {
  readonly reason: string;
}

/** Applies edits, which must not overlap. */
export function applyTextEdits(text: string, edits: readonly TextEdit[]): string {
  let result = "";
  let from = 0;
  for (const edit of edits.toSorted((a, b) => a.from - b.from)) {
    result += text.slice(from, edit.from) + edit.text;
    from = edit.to;
  }
  return result + text.slice(from);
}

/**
 * The content of a file after a change of the servers under the key `serversKey`; undefined if the change does not
 * apply.
 */
export function applyChange(
  root: unknown,
  serversKey: string,
  change: ManifestChange,
): Table | undefined {
  if (!isTable(root)) return undefined;
  const servers = root[serversKey] ?? createTable<unknown>();
  if (!isTable(servers)) return undefined;
  if (change.kind === "addAll") {
    const added = [...change.servers];
    if (added.some(([name]) => servers[name] !== undefined)) return undefined;
    return withChanges(root, [[serversKey, withChanges(servers, added)]]);
  }
  const server = servers[change.name];
  if (
    change.kind === "add" ? server !== undefined && change.isNew === true : server === undefined
  ) {
    return undefined;
  }
  return withChanges(root, [[serversKey, changeServers(servers, change)]]);
}

function changeServers(servers: Table, change: ServerChange): Table {
  const { name } = change;
  switch (change.kind) {
    case "add":
      return withChanges(servers, [[name, change.entry]]);
    case "remove":
      return withChanges(servers, [[name, undefined]]);
    case "rename":
      return withChanges(servers, [
        [name, undefined],
        [change.to, servers[name]],
      ]);
    case "set": {
      const server = servers[name];
      const before = isTable(server) ? server : {};
      return withChanges(servers, [[name, withChanges(before, [[change.key, change.value]])]]);
    }
  }
}

function withChanges(table: Table, changes: readonly (readonly [string, unknown])[]): Table {
  const result = createTable<unknown>();
  const all = new Map([...Object.entries(table), ...changes]);
  for (const [key, value] of all) if (value !== undefined) result[key] = value;
  return result;
}
