import { createTable, isTable, type Table } from "../table.ts";

/** What is to become of servers of a manifest. */
export type Change =
  | SingleChange
  /** All of them are new, and come last. */
  | { readonly kind: "addAll"; readonly servers: ReadonlyMap<string, Table> };

/** What is to become of one of them. */
export type SingleChange =
  /** Comes last; in the place of one of that name, if there is one and it need not be new. */
  | {
      readonly kind: "add";
      readonly name: string;
      readonly entry: Table;
      readonly isNew?: boolean;
    }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "set"; readonly name: string; readonly key: string; readonly value: unknown }
  | { readonly kind: "rename"; readonly name: string; readonly to: string };

/** A part of a text, and what stands there instead. */
export interface Splice {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** Why a text cannot be changed: what goes behind the file's name, with what to do. */
export interface Refusal {
  readonly refusal: string;
}

/** Puts all of them in. They may not overlap. */
export function applySplices(text: string, splices: readonly Splice[]): string {
  let result = "";
  let from = 0;
  for (const splice of splices.toSorted((a, b) => a.from - b.from)) {
    result += text.slice(from, splice.from) + splice.text;
    from = splice.to;
  }
  return result + text.slice(from);
}

/** What the content of a file is after a change, with the servers under `group`; undefined if the change makes no sense there. */
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
