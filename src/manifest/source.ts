import type { UnplacedProblem } from "./problems.ts";
import type { ServerConfig, FileConfig } from "./file-config.ts";

/** One file, or the environment variable in place of one, with its content. */
export interface ConfigSource {
  /** Absolute, or the name of the variable. */
  readonly file: string;
  /** Absolute. */
  readonly baseDir: string;
  readonly fileConfig: FileConfig;
}

/** A server with the last file that configures it. */
export interface SourcedServer {
  readonly name: string;
  readonly source: ConfigSource;
  readonly serverConfig: ServerConfig;
}

export interface SourcedProblem extends UnplacedProblem {
  readonly source: ConfigSource;
}
