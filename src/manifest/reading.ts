import type { Complaint, Path } from "./problem.ts";
import type { HubInput, LimitsInput, ServerInput } from "./schema.ts";
import type { Syntax } from "./template.ts";

/** A server as one file has it, before defaults and the other files are known. */
export type Draft =
  | {
      readonly kind: "stdio";
      readonly syntax: Syntax;
      /** Where it stands in its file. */
      readonly path: Path;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "unsupported";
      readonly enabled: boolean;
      readonly path: Path;
      readonly reason: string;
    };

/** What one file says. Parts with a complaint are left out. */
export interface Reading {
  readonly hub: HubInput;
  readonly defaults: LimitsInput;
  readonly servers: ReadonlyMap<string, Draft>;
  readonly complaints: readonly Complaint[];
  /** What people should know although nothing is wrong, without the file's name and a full stop. */
  readonly notes: readonly string[];
}
