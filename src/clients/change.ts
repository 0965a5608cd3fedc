import type { Table } from "../manifest/table.ts";

/** What is to become of a table of servers: some go, one comes or is another. */
export interface Change {
  /** The keys of the table. */
  readonly keys: readonly string[];
  readonly remove: readonly string[];
  readonly put: Readonly<Record<string, Table>>;
}
