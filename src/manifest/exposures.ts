/** The ways in which a client can get its tools, by name. */
export const EXPOSURES = ["direct", "search", "select", "auto"] as const;

/**
 * How a client gets its tools; it never changes which tools it may call. `direct`: all are listed. `search`: the hub's
 * tools for searching and calling tools are listed instead. `select`: those, and the tools that the client's session has
 * selected. `auto`: `direct` up to `hub.exposeBudget`, else `search`.
 */
export type Exposure = (typeof EXPOSURES)[number];
