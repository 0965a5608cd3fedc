import type { RunnableServer } from "../manifest/schema.ts";

/** The servers that a client has to do with; of all others it neither sees nor hears anything. */
export interface ServerSubset {
  /** The same for the same servers. */
  readonly key: string;
  /** There is one, and never another: its names need no prefix. */
  readonly isSingle: boolean;
  has(server: string): boolean;
}

/** All servers, whichever there are. */
export const ALL_SERVERS: ServerSubset = { key: "", isSingle: false, has: () => true };

/** These servers alone, whether or not there are such. */
export function subsetOf(servers: readonly string[]): ServerSubset {
  const names = new Set(servers);
  return {
    key: JSON.stringify([...names].sort()),
    isSingle: names.size === 1,
    has: (server) => names.has(server),
  };
}

/** What a server's names begin with there; empty if there is nothing. */
export function namePrefixOf(
  { isSingle }: ServerSubset,
  { prefix }: Pick<RunnableServer, "prefix">,
): string {
  return isSingle ? "" : prefix;
}
