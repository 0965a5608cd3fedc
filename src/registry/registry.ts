/**
 * Registries of MCP servers: searching them, and turning an entry into a server of a manifest.
 * `Registry` is the interface of a registry; `official.ts` and `smithery.ts` implement it. `RegistryEntry` is a listed
 * server. Start here, then read `search.ts` (all registries at once) and `manifest-entry.ts`.
 */

/*
 * What registries say about servers. All of it is untrusted: it is sanitized before it is shown, and nothing of it is
 * run without the user seeing it.
 */

/** A value that the user of a server must or may supply. */
export interface RegistryInput {
  /** The name of a variable or header, or the option of an argument, empty if it is positional. */
  readonly name: string;
  readonly description: string | undefined;
  readonly isRequired: boolean;
  readonly isSecret: boolean;
  /** A fixed value; parts in braces name entries of `variables`. */
  readonly value: string | undefined;
  readonly fallback: string | undefined;
  readonly variables: ReadonlyMap<string, RegistryInput>;
}

/** A package that contains the server. */
export interface PackageOption {
  readonly kind: "package";
  /** A package in the manifest's notation. */
  readonly name: string;
  readonly args: readonly RegistryInput[];
  readonly env: readonly RegistryInput[];
}

export interface RemoteOption {
  readonly kind: "remote";
  readonly url: string;
  readonly transport: "http" | "sse";
  readonly headers: readonly RegistryInput[];
  /** The variables in braces in the URL. */
  readonly variables: ReadonlyMap<string, RegistryInput>;
}

export type ServerOption = PackageOption | RemoteOption;

/** A server that a registry lists. */
export interface RegistryEntry {
  /** The registry's name. */
  readonly directory: string;
  /** The server's name in the registry. */
  readonly name: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
  readonly version: string | undefined;
  /** A URL. */
  readonly repository: string | undefined;
  readonly homepage: string | undefined;
  /** The ways to run or reach it that toolmux supports. */
  readonly options: readonly ServerOption[];
  /** Why other listed ways are not supported: whole sentences. */
  readonly omissions: readonly string[];
}

/** A registry of MCP servers. */
export interface Registry {
  readonly name: string;
  /**
   * Searches the registry; best matches first.
   * @param words not empty
   * @param limit the maximum number of results
   * @throws {HubError} unreachable, tlsFailed, serverFailed, serverRefused, unauthorized, messageTooLarge, or the
   * signal's reason
   */
  search(
    words: readonly string[],
    limit: number,
    signal: AbortSignal,
  ): Promise<readonly RegistryEntry[]>;
  /** The entry with that name, in full detail; undefined if there is none. @throws {HubError} as `search` */
  find(name: string, signal: AbortSignal): Promise<RegistryEntry | undefined>;
}
