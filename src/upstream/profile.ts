import type { StdioServer } from "../manifest/schema.ts";

/** For whom a connection is: what tells one from another, beside the server. */
export interface Profile {
  /** The class of what the client can do: servers may offer other tools to one that can do more. */
  readonly capabilities: string;
  /** The client, for servers that every client has for itself; undefined where nobody can say who it is. */
  readonly client: string | undefined;
}

/** Nobody in particular, who can do nothing in particular. */
export const ANYBODY: Profile = { capabilities: "", client: undefined };

/** What the pool keeps a connection under. Clients of a shared server that can do the same have the same one. */
export function keyOf(
  { name, isolation }: Pick<StdioServer, "name" | "isolation">,
  { capabilities, client }: Profile,
): string {
  return JSON.stringify([name, capabilities, isolation === "perClient" ? client : null]);
}
