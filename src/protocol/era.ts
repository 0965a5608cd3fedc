/**
 * The two eras of the protocol: `legacy` begins with `initialize`; `modern` (since 2026-07-28) is stateless. The era
 * belongs to a request, not to a transport.
 */
export type Era = "legacy" | "modern";
