import type { Complaint, Path, Position } from "./problems.ts";

/** Finds the position of a key, of its value, or of the nearest table around it. */
export type Locate = (path: Path, at: Complaint["at"]) => Position | undefined;

export type ParseResult =
  | {
      readonly ok: true;
      /** Its tables have no prototype. */
      readonly root: unknown;
      /** Duplicate keys of one table, of which the last counts; TOML forbids them. */
      readonly doubled: readonly Complaint[];
      /** Prepares finding positions. Costs a second parse, so it is done only to print problems. */
      readonly locate: () => Promise<Locate>;
    }
  | { readonly ok: false; readonly message: string; readonly position: Position | undefined };
