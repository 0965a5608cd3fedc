/** Which calls a person has to approve: none, calls of tools that are not known to be read-only, or all. */
export const APPROVAL_LEVELS = ["never", "auto", "always"] as const;
