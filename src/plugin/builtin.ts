/** Functions that load plugins, by the plugin's name in the manifest. */
export type PluginLoaders = Readonly<Record<string, () => Promise<{ readonly default: unknown }>>>;

/** The plugins that toolmux contains; each is loaded when it is first used. */
export const BUILT_IN_PLUGINS: PluginLoaders = {
  "audit-log": () => import("../../plugins/audit-log/index.ts"),
  cache: () => import("../../plugins/cache/index.ts"),
  "result-limit": () => import("../../plugins/result-limit/index.ts"),
  "schema-repair": () => import("../../plugins/schema-repair/index.ts"),
};
