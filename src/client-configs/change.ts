import type { Table } from "../manifest/table.ts";

/** A change of a table of servers in a client's file: the entries that are removed, added or replaced. */
export interface ServerTableChange {
  /** The path of the table. */
  readonly keys: readonly string[];
  readonly remove: readonly string[];
  readonly set: Readonly<Record<string, Table>>;
}
