import { createTable, isTable, type Table } from "../table.ts";

/** A change of the servers of a manifest. */
export type Change =
  | SingleChange
  /** All of them must be new; they are appended. */
  | { readonly kind: "addAll"; readonly servers: ReadonlyMap<string, Table> };

/** A change of one server. */
export type SingleChange =
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
export interface Splice {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** Why a text cannot be edited: text that follows the file's name, with what to do. */
export interface Refusal {
  readonly refusal: string;
}

/** Applies edits, which must not overlap. */
export function applySplices(text: string, splices: readonly Splice[]): string {
  let result = "";
  let from = 0;
  for (const splice of splices.toSorted((a, b) => a.from - b.from)) {
    result += text.slice(from, splice.from) + splice.text;
    from = splice.to;
  }
  return result + text.slice(from);
}

/**
 * The content of a file after a change of the servers under the key `serversKey`; undefined if the change does not
 * apply.
 */
export function applyChange(root: unknown, group: string, change: Change): Table | undefined {
  if (!isTable(root)) return undefined;
  const servers = root[group] ?? createTable<unknown>();
  if (!isTable(servers)) return undefined;
  if (change.kind === "addAll") {
    const added = [...change.servers];
    if (added.some(([name]) => servers[name] !== undefined)) return undefined;
    return copy(root, [[group, copy(servers, added)]]);
  }
  const own = servers[change.name];
  if (change.kind === "add" ? own !== undefined && change.isNew === true : own === undefined) {
    return undefined;
  }
  return copy(root, [[group, changeServers(servers, change)]]);
}

function changeServers(servers: Table, change: SingleChange): Table {
  const { name } = change;
  switch (change.kind) {
    case "add":
      return copy(servers, [[name, change.entry]]);
    case "remove":
      return copy(servers, [[name, undefined]]);
    case "rename":
      return copy(servers, [
        [name, undefined],
        [change.to, servers[name]],
      ]);
    case "set": {
      const server = servers[name];
      const before = isTable(server) ? server : {};
      return copy(servers, [[name, copy(before, [[change.key, change.value]])]]);
    }
  }
}

function copy(table: Table, changes: readonly (readonly [string, unknown])[]): Table {
  const made = createTable<unknown>();
  const all = new Map([...Object.entries(table), ...changes]);
  for (const [key, value] of all) if (value !== undefined) made[key] = value;
  return made;
}
