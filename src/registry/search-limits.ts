/** How many results a search of registries has: by default, at least and at most. */
export const SEARCH_LIMITS = { preset: 20, min: 1, max: 200 } as const;
