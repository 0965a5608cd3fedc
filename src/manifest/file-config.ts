import type { Package, Runner } from "./package.ts";
import type { Complaint, Path } from "./problems.ts";
import type { HubInput, LimitsInput, PluginInput, ServerInput } from "./schema.ts";
import type { SecretRules } from "./secrecy.ts";
import type { Syntax } from "./interpolate.ts";

/** A server as configured in one file, before defaults and other files are applied. */
export type Draft =
  | {
      readonly kind: "stdio";
      readonly syntax: Syntax;
      /** Its path in the file. */
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
      /** The name of the plugin that provides it. */
      readonly plugin: string;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "unsupported";
      readonly enabled: boolean;
      readonly path: Path;
      readonly reason: string;
    };

/** What is started: a command, or the runner of a package. */
export type Program =
  | { readonly kind: "command"; readonly command: string }
  | { readonly kind: "package"; readonly package: Package; readonly runner: Runner | undefined };

/** A plugin as configured in one file. */
export interface PluginDraft {
  /** Its path in the file. */
  readonly path: Path;
  readonly input: PluginInput;
}

/** The validated content of one file, without the parts that have problems. */
export interface Reading {
  readonly hub: HubInput;
  /** `hub.httpToken`: the token that HTTP clients must send. */
  readonly httpToken?: string | undefined;
  readonly defaults: LimitsInput;
  /** The registries to search. */
  readonly directories?: readonly string[] | undefined;
  /** Absent in files that are not manifests. */
  readonly secrets?: SecretRules;
  readonly servers: ReadonlyMap<string, Draft>;
  readonly plugins: readonly PluginDraft[];
  readonly complaints: readonly Complaint[];
  /** Problems that apply only if there is no plugin, because only a plugin could resolve the placeholder. */
  readonly unclaimed: readonly Complaint[];
  /** Notes for people that are no problems, without the file's name and a full stop. */
  readonly notes: readonly string[];
}
