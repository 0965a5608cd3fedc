import type { Complaint } from "./problems.ts";
import type { Draft, Reading } from "./file-config.ts";

/** One file, or the environment variable in place of one, with its content. */
export interface Source {
  /** Absolute, or the name of the variable. */
  readonly file: string;
  /** Absolute. */
  readonly baseDir: string;
  readonly reading: Reading;
}

/** A server with the last file that configures it. */
export interface Placed {
  readonly name: string;
  readonly source: Source;
  readonly draft: Draft;
}

export interface Fault extends Complaint {
  readonly source: Source;
}
