import type { Package, Runner } from "./package.ts";
import type { Complaint, Path } from "./problem.ts";
import type { HubInput, LimitsInput, PluginInput, ServerInput } from "./schema.ts";
import type { SecretRules } from "./secrecy.ts";
import type { Syntax } from "./template.ts";

/** A server as one file has it, before defaults and the other files are known. */
export type Draft =
  | {
      readonly kind: "stdio";
      readonly syntax: Syntax;
      /** Where it stands in its file. */
      readonly path: Path;
      readonly program: Program;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "remote";
      readonly syntax: Syntax;
      readonly path: Path;
      readonly url: string;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "plugin";
      readonly path: Path;
      /** The name of the plugin that has it. */
      readonly plugin: string;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "unsupported";
      readonly enabled: boolean;
      readonly path: Path;
      readonly reason: string;
    };

/** What is started: a command, or what runs a package. */
export type Program =
  | { readonly kind: "command"; readonly command: string }
  | { readonly kind: "package"; readonly package: Package; readonly runner: Runner | undefined };

/** A plugin as one file has it. */
export interface PluginDraft {
  /** Where it stands in its file. */
  readonly path: Path;
  readonly input: PluginInput;
}

/** What one file says. Parts with a complaint are left out. */
export interface Reading {
  readonly hub: HubInput;
  /** What it says under `hub` that clients over HTTP have to bear. */
  readonly httpToken?: string | undefined;
  readonly defaults: LimitsInput;
  /** Where it says that servers are looked for. */
  readonly directories?: readonly string[] | undefined;
  /** Absent in what is no file of our own. */
  readonly secrets?: SecretRules;
  readonly servers: ReadonlyMap<string, Draft>;
  readonly plugins: readonly PluginDraft[];
  readonly complaints: readonly Complaint[];
  /** What is wrong as well if there is no plugin, which alone could fill it in. */
  readonly unclaimed: readonly Complaint[];
  /** What people should know although nothing is wrong, without the file's name and a full stop. */
  readonly notes: readonly string[];
}
