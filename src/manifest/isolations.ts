/** The ways in which clients can share a server's processes, by name. */
export const ISOLATIONS = ["auto", "shared", "perClient", "one"] as const;

/**
 * Which clients share a process of a server. `shared`: those with equal capabilities; `perClient`: none; `one`: all, and
 * the server is told no capabilities; `auto`: in a hub that clients of several processes share, `perClient` for a server
 * that is known to keep a client's state (`clientStateOf`), else `shared`. Clients never share a process that differs in
 * the values with which they fill in the server's entry.
 */
export type Isolation = (typeof ISOLATIONS)[number];
