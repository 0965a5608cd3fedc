/** The two eras of the protocol: `legacy` begins with `initialize`, `modern` (from 2026-07-28 on) is stateless. A request belongs to one of them, not a link. */
export type Era = "legacy" | "modern";
