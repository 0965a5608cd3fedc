/**
 * Which tools a mode or an agent has: `"all"`, or a table with exactly one key. `servers` and `tools` hold globs of
 * names in the manifest and of the servers' own names; `ids` are `SERVER.TOOL` by the servers' own names; `names` are
 * exposed names; `pattern` is a regular expression that is found anywhere in the server's own name; `readOnly` takes
 * tools that do not change anything by their annotations. An empty `and` takes everything, an empty `or` nothing.
 */
export type Filter =
  | "all"
  | { readonly servers: readonly string[] }
  | { readonly tools: readonly string[] }
  | { readonly ids: readonly string[] }
  | { readonly names: readonly string[] }
  | { readonly pattern: string }
  | { readonly readOnly: true }
  | { readonly and: readonly Filter[] }
  | { readonly or: readonly Filter[] }
  | { readonly not: Filter };
