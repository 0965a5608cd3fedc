import type { TemplateSyntax } from "./interpolate.ts";
import type { PackageSpec, Runner } from "./package.ts";
import type { KeyPath, UnplacedProblem } from "./problems.ts";
import type { HubInput, LimitsInput, PluginInput, SecretSettings, ServerInput } from "./schema.ts";

/** A server as configured in one file, before defaults and other files are applied. */
export type ServerConfig =
  | {
      readonly kind: "stdio";
      readonly syntax: TemplateSyntax;
      /** The path of the server's table in the file. */
      readonly path: KeyPath;
      readonly launch: LaunchConfig;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "remote";
      readonly syntax: TemplateSyntax;
      readonly path: KeyPath;
      readonly url: string;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "plugin";
      readonly path: KeyPath;
      /** The name of the plugin that provides the server. */
      readonly plugin: string;
      readonly input: ServerInput;
    }
  | {
      readonly kind: "unsupported";
      readonly enabled: boolean;
      readonly path: KeyPath;
      readonly reason: string;
    };

/** What is started: a command, or the runner of a package. */
export type LaunchConfig =
  | { readonly kind: "command"; readonly command: string }
  | {
      readonly kind: "package";
      readonly package: PackageSpec;
      readonly runner: Runner | undefined;
    };

/** A plugin as configured in one file. */
export interface PluginConfig {
  /** The path of the plugin's table in the file. */
  readonly path: KeyPath;
  readonly input: PluginInput;
}

/** The validated content of one file, without the parts that have problems. */
export interface FileConfig {
  readonly hub: HubInput;
  /** `hub.httpToken`: the token that HTTP clients must send. */
  readonly httpToken?: string | undefined;
  readonly defaults: LimitsInput;
  /** The registries to search. */
  readonly registries?: readonly string[] | undefined;
  /** Absent in files that are not manifests. */
  readonly secrets?: SecretSettings;
  readonly servers: ReadonlyMap<string, ServerConfig>;
  readonly plugins: readonly PluginConfig[];
  readonly problems: readonly UnplacedProblem[];
  /** Placeholders that only a plugin could resolve: they are problems only if the manifest has no plugin. */
  readonly schemeProblems: readonly UnplacedProblem[];
  /** Notes for the user that do not make anything invalid; without the file's name and a final period. */
  readonly notes: readonly string[];
}

/** A manifest file, or the environment variable `TOOLMUX_SERVERS`, with its validated content. */
export interface ConfigSource {
  /** Absolute, or the name of the variable. */
  readonly file: string;
  /** Absolute. */
  readonly baseDir: string;
  readonly fileConfig: FileConfig;
}

/** A server with the last file that configures it, which is the one that counts. */
export interface SourcedServer {
  readonly name: string;
  readonly source: ConfigSource;
  readonly serverConfig: ServerConfig;
}

export interface SourcedProblem extends UnplacedProblem {
  readonly source: ConfigSource;
}
