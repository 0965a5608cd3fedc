import type { Complaint, Path, Position } from "./problem.ts";

/** Finds the place of a key or of its value, or of the nearest table around it. */
export type Locate = (path: Path, at: Complaint["at"]) => Position | undefined;

export type ParseResult =
  | {
      readonly ok: true;
      /** Tables in it have no prototype. */
      readonly root: unknown;
      /** Keys that stand twice in one table, where the last one counts; TOML has none. */
      readonly doubled: readonly Complaint[];
      /** Prepares finding positions, which costs time and is needed only to print problems. */
      readonly locate: () => Promise<Locate>;
    }
  | { readonly ok: false; readonly message: string; readonly position: Position | undefined };
