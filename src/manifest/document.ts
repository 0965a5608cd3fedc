import type { UnplacedProblem, KeyPath, Position } from "./problems.ts";

/** Finds the position of a key, of its value, or of the nearest table around it. */
export type PositionFinder = (path: KeyPath, at: UnplacedProblem["at"]) => Position | undefined;

export type ParsedFile =
  | {
      readonly ok: true;
      /** Its tables have no prototype. */
      readonly root: unknown;
      /** Duplicate keys of one table, of which the last counts; TOML forbids them. */
      readonly duplicates: readonly UnplacedProblem[];
      /** Prepares finding positions. Costs a second parse, so it is done only to print problems. */
      readonly preparePositions: () => Promise<PositionFinder>;
    }
  | { readonly ok: false; readonly message: string; readonly position: Position | undefined };
