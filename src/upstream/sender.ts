import type { Era } from "../protocol/era.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { LogSeverity } from "../protocol/log-level.ts";

/** Who a request is from, as far as servers that keep nothing between requests have to be told with each (basic/versioning). */
export interface ClientDeclaration {
  /** Of the request: a modern one says the rest itself. */
  readonly era: Era;
  readonly info: Implementation;
  /** What it can be asked for, as it is declared. */
  readonly declared: object;
  /** From which level on it wants log messages; undefined: none. */
  readonly level: LogSeverity | undefined;
  /** The hub brings tasks to their end for it. */
  readonly isDriven?: true;
}

/** Who has said nothing yet. Those of the legacy era who set no level leave it to the server: this is what one is told that decides nothing. */
export const NO_DECLARATION: ClientDeclaration = {
  era: "legacy",
  info: { name: "", version: "" },
  declared: {},
  level: "info",
};
