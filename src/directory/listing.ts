/* What directories say of servers. All of it was written by strangers: it is shown cleaned, and never run unseen. */

/** A value that whoever uses a server has to give, or may. */
export interface Input {
  /** Of a variable or a header; of an argument its option, empty if it has none. */
  readonly name: string;
  readonly description: string | undefined;
  readonly isRequired: boolean;
  readonly isSecret: boolean;
  /** As it is; parts in braces are names of `variables`. */
  readonly value: string | undefined;
  readonly fallback: string | undefined;
  readonly variables: ReadonlyMap<string, Input>;
}

/** A package that is the server, or one that there is no way to run. */
export interface PackageOffer {
  readonly kind: "package";
  /** As a manifest names it. */
  readonly name: string;
  readonly args: readonly Input[];
  readonly env: readonly Input[];
}

export interface RemoteOffer {
  readonly kind: "remote";
  readonly url: string;
  readonly transport: "http" | "sse";
  readonly headers: readonly Input[];
  /** What stands in braces in the URL. */
  readonly variables: ReadonlyMap<string, Input>;
}

export type Offer = PackageOffer | RemoteOffer;

/** A server that is listed in a directory. */
export interface Listing {
  /** The directory's name. */
  readonly directory: string;
  /** Its name there. */
  readonly name: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
  readonly version: string | undefined;
  /** A URL. */
  readonly repository: string | undefined;
  readonly homepage: string | undefined;
  /** How it can be had, as far as that is known. */
  readonly offers: readonly Offer[];
  /** Why some ways that are listed are no offers: whole sentences. */
  readonly omissions: readonly string[];
}

/** Where servers are listed. */
export interface Directory {
  readonly name: string;
  /**
   * What it finds, best first.
   * @param words not empty @param limit how many at most
   * @throws {HubError} unreachable, tlsFailed, serverFailed, serverRefused, unauthorized, messageTooLarge, or the signal's reason
   */
  search(words: readonly string[], limit: number, signal: AbortSignal): Promise<readonly Listing[]>;
  /** What it has under a name, with all that is known of it; undefined if there is nothing. @throws {HubError} as `search` */
  find(name: string, signal: AbortSignal): Promise<Listing | undefined>;
}
