import type { PluginSpec } from "../manifest/schema.ts";
import { BUILT_IN_PLUGINS } from "../plugin/builtin.ts";
import { locatePlugin } from "../plugin/load.ts";

/** Where the code of a plugin comes from: toolmux itself, a file beside a manifest, or a package. */
export type PluginKind = "builtIn" | "file" | "package";

export function pluginKindOf({ use, path }: PluginSpec): PluginKind {
  if (path !== undefined) return "file";
  return Object.hasOwn(BUILT_IN_PLUGINS, use) ? "builtIn" : "package";
}

/** A plugin, and which code is loaded for it. Loads nothing. */
export function describePlugin(spec: PluginSpec): string {
  const path = locatePlugin(spec);
  switch (pluginKindOf(spec)) {
    case "builtIn":
      return `${spec.use}: built in`;
    case "file":
      return `${spec.use}: code that is loaded from ${path}`;
    case "package":
      return path === undefined
        ? `${spec.use}: a package, which is not there`
        : `${spec.use}: a package, code that is loaded from ${path}`;
  }
}

/** `{use, path, kind}`; `path` is the absolute one of code that is not built in, null if there is none. */
export function pluginToJson(spec: PluginSpec): object {
  return { use: spec.use, path: locatePlugin(spec) ?? null, kind: pluginKindOf(spec) };
}
