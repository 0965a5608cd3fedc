/**
 * manifest/files/: what is in files of manifests. `discover.ts` finds them, `read-file.ts` reads one of any format with
 * `manifest-file.ts` (toolmux's own schema) or `client-file.ts` (files of MCP clients, whose entries `client-entry.ts`
 * converts). Main type: `FileConfig`, below, the content of one file, which `../merge/merge.ts` merges with the others.
 * Start here, then read `manifest-file.ts`.
 */
import type { TemplateSyntax } from "../interpolate.ts";
import type { PackageSpec, Runner } from "../package.ts";
import type { KeyPath, Problem } from "../problems.ts";
import type { HubLimitsInput } from "../call-limits.ts";
import type { TelemetrySpec } from "../telemetry.ts";
import type { HttpToken } from "../manifest.ts";
import type { ModeConfig } from "../modes.ts";
import type { NamedClientConfig } from "../named-clients.ts";
import type {
  AgentFilesInput,
  AgentInput,
  FleetInput,
  HubInput,
  DefaultsInput,
  ModelInput,
  PluginInput,
  SecretSettings,
  ServerInput,
  ToolSearchInput,
} from "../schema.ts";
import type { ToolsetMappings } from "../toolsets.ts";

/** The file that settings come from. */
export interface SourceFile {
  /** The absolute path of the file, or the name of the environment variable that holds the settings. */
  readonly file: string;
  /** The folder where relative paths start; absolute. */
  readonly baseDir: string;
}

/** A server as configured in one file, before defaults and other files are applied. */
export type ServerConfig = SourceFile & {
  readonly name: string;
  readonly path: KeyPath;
} & (
    | {
        readonly kind: "stdio";
        readonly syntax: TemplateSyntax;
        readonly launch: LaunchConfig;
        readonly input: ServerInput;
      }
    | {
        readonly kind: "remote";
        readonly syntax: TemplateSyntax;
        readonly url: string;
        readonly input: ServerInput;
      }
    | {
        readonly kind: "plugin";
        /** The name of the plugin that provides the server. */
        readonly plugin: string;
        readonly input: ServerInput;
      }
    | {
        readonly kind: "fleet";
        /** The server of the fleet: its name, or `MACHINE/SERVER`. */
        readonly fleet: string;
        readonly input: ServerInput;
      }
    | {
        readonly kind: "unsupported";
        readonly enabled: boolean;
        readonly reason: string;
        /** The key of the file that the reason is about. */
        readonly faultPath: KeyPath;
      }
  );

/** The program that a server starts: a command, or the runner of a package. */
export type LaunchConfig =
  | { readonly kind: "command"; readonly command: string }
  | {
      readonly kind: "package";
      readonly package: PackageSpec;
      readonly runner: Runner | undefined;
    };

/** A plugin as configured in one file. */
export interface PluginConfig {
  readonly path: KeyPath;
  readonly input: PluginInput;
}

/** A model as configured in one file. */
export interface ModelConfig extends SourceFile {
  readonly name: string;
  readonly path: KeyPath;
  /** The validated table; undefined if it has problems. */
  readonly input: ModelInput | undefined;
}

/** The places of agent files, as configured in one file. Relative paths start at the folder of that file. */
export interface AgentFilesConfig extends SourceFile, Omit<AgentFilesInput, "toolsets"> {
  readonly toolsets?: ToolsetMappings;
}

/** The fleet, as configured in one file. Relative paths start at the folder of that file. */
export interface FleetConfig extends SourceFile, FleetInput {}

/** An agent as configured in one file. */
export interface AgentConfig extends SourceFile {
  readonly name: string;
  readonly path: KeyPath;
  /** The validated table; undefined if it has problems. */
  readonly input: AgentInput | undefined;
}

/**
 * The validated content of one file, or of the environment variable `TOOLMUX_SERVERS`, without the parts that have
 * problems.
 */
export interface FileConfig extends SourceFile {
  readonly hub: HubInput;
  /** `hub.httpToken`: the token that HTTP clients must send. */
  readonly httpToken?: HttpToken | undefined;
  /** `hub.pinFile`, absolute. */
  readonly pinFile?: string | undefined;
  readonly defaults: DefaultsInput;
  readonly registries?: readonly string[] | undefined;
  /** The table `toolSearch`; absent in files that are not manifests. */
  readonly toolSearch?: ToolSearchInput | undefined;
  /** The table `telemetry`; undefined if the file has none. */
  readonly telemetry?: TelemetrySpec | undefined;
  /** The table `limits`; absent in files that are not manifests. */
  readonly limits?: HubLimitsInput | undefined;
  /** The settings of the table `secrets`; absent in files that are not manifests. */
  readonly secrets?: SecretSettings;
  /** The servers by name. */
  readonly servers: ReadonlyMap<string, ServerConfig>;
  /** The models by name; absent in files that are not manifests. */
  readonly models?: ReadonlyMap<string, ModelConfig>;
  /** The agents by name; absent in files that are not manifests. */
  readonly agents?: ReadonlyMap<string, AgentConfig>;
  /** The places of agent files; undefined if the file does not set them. */
  readonly agentFiles?: AgentFilesConfig | undefined;
  readonly plugins: readonly PluginConfig[];
  /** The modes by name; absent in files that are not manifests. */
  readonly modes?: ReadonlyMap<string, ModeConfig>;
  /** The clients of the array `clients`; absent in files that are not manifests. */
  readonly clients?: readonly NamedClientConfig[];
  /** The table `fleet`; undefined if the file does not have it, or it has problems. */
  readonly fleet?: FleetConfig | undefined;
  readonly problems: readonly Problem[];
  /**
   * The problems of placeholders with unknown schemes. They count only if the manifest has no plugins, because a plugin
   * may know the scheme.
   */
  readonly schemeProblems: readonly Problem[];
  /** Notes for the user that do not make anything invalid. */
  readonly notes: readonly FileNote[];
}

/** A note about a file, or about the place at `path` in it. */
export interface FileNote {
  /** Empty: the whole file. */
  readonly path: KeyPath;
  /** Without the file's name and a final period. */
  readonly text: string;
}
