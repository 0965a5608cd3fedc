import type { Complaint } from "./problem.ts";
import type { Draft, Reading } from "./reading.ts";

/** One file (or the variable that stands for one) with what it says. */
export interface Source {
  /** Absolute, or the name of the variable. */
  readonly file: string;
  /** Absolute. */
  readonly baseDir: string;
  readonly reading: Reading;
}

/** A server in the source that has the last word on it. */
export interface Placed {
  readonly name: string;
  readonly source: Source;
  readonly draft: Draft;
}

export interface Fault extends Complaint {
  readonly source: Source;
}
