import { systemClock } from "../base/clock.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { BUILT_IN_PLUGINS, type PluginLoaders } from "../plugin/load.ts";
import type { ClientAgents } from "./agent-tools.ts";

/** Whether toolmux contains a plugin of this name. */
export function isBuiltInPlugin(name: string): boolean {
  return name === "agents" || Object.hasOwn(BUILT_IN_PLUGINS, name);
}

/**
 * The loaders of the built-in plugins. The plugin `agents` is made here, because it needs parts of toolmux that
 * plugins may not import.
 * @param manifest the manifest in force
 * @param open opens the agents when one of the plugin's tools is first called
 */
export function pluginLoaders(
  manifest: () => Manifest,
  open: () => Promise<ClientAgents>,
): PluginLoaders {
  const agents = async () => {
    const { makeAgentsPlugin } = await import("./plugin.ts");
    const plugin = makeAgentsPlugin({
      clock: systemClock,
      agents: () => manifest().agents ?? new Map<string, never>(),
      open,
    });
    return { default: plugin };
  };
  return { ...BUILT_IN_PLUGINS, agents };
}
