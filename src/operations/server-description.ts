import type { CheckDocument } from "./documents.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import { installedCommand } from "../base/runtime.ts";
import { alternativeCommands } from "../manifest/package.ts";
import { maskArguments, maskCommandLine, maskSecretParts } from "../manifest/plaintext-secrets.ts";
import type { FleetServer, PluginSpec, RunnableServer, StdioServer } from "../manifest/manifest.ts";
import { locatePlugin } from "../plugin/load.ts";
import { isBuiltInPlugin } from "../agent-tools/built-in-plugins.ts";
import { resolveCommand } from "../process/path-lookup.ts";

/** The settings of a stdio server that say how its process is started. */
export type LaunchSpec = Pick<StdioServer, "command" | "args" | "env">;

/** Describes a server in one line: its command, URL or plugin. */
export function describeServer(spec: RunnableServer): string {
  switch (spec.kind) {
    case "stdio":
      return spec.package === undefined
        ? describeCommand(spec)
        : `${spec.package.name}, by ${describeCommand(spec)}`;
    case "remote":
      return describeUrl(spec.url);
    case "plugin":
      return `plugin ${spec.plugin}`;
    case "fleet":
      return describeFleetServer(spec);
  }
}

function describeFleetServer({ fleet, machine }: FleetServer): string {
  return machine === undefined ? `"${fleet}" of the fleet` : `"${fleet}" of machine "${machine}"`;
}

/**
 * The command line of a server as the manifest has it: placeholders (`${…}`) are not resolved, and values that look
 * like secrets are masked. Environment variables are shown by name only.
 */
export function describeCommand({ command, args, env }: StdioServer | LaunchSpec): string {
  const variables = Object.keys(env).map((name) => `${name}=…`);
  return [...variables, quote(maskCommandLine(command)), ...maskArguments(args).map(quote)].join(
    " ",
  );
}

/** A URL as written, with parts that look like secrets masked. */
export function describeUrl(url: string): string {
  return maskSecretParts(url);
}

function quote(word: string): string {
  return /^[\w./:@%+=,•…${}~-]+$/u.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Origin of a plugin's code: built in, a file next to a manifest, or a package. */
export type PluginKind = "builtIn" | "file" | "package";

/** The absolute path of a plugin that toolmux does not contain; undefined if there is none. */
function pathOf(spec: PluginSpec): string | undefined {
  return isBuiltInPlugin(spec.use) ? spec.path : locatePlugin(spec);
}

export function pluginKindOf({ use, path }: PluginSpec): PluginKind {
  if (path !== undefined) return "file";
  return isBuiltInPlugin(use) ? "builtIn" : "package";
}

/** Describes a plugin and the path of its code. Loads nothing. */
export function describePlugin(spec: PluginSpec): string {
  const path = pathOf(spec);
  switch (pluginKindOf(spec)) {
    case "builtIn":
      return `${spec.use}: built in`;
    case "file":
      return `${spec.use}: code that is loaded from ${path}`;
    case "package":
      return path === undefined
        ? `${spec.use}: a package, which is not installed`
        : `${spec.use}: a package, code that is loaded from ${path}`;
  }
}

/** A plugin as JSON: `{use, path, kind}`. `path` is the absolute path of external code, null if there is none. */
export function pluginToJson(spec: PluginSpec): CheckDocument["plugins"][number] {
  return { use: spec.use, path: pathOf(spec) ?? null, kind: pluginKindOf(spec) };
}

/** The first of several commands that is installed; undefined if none is. */
export async function findInstalledRunner(
  commands: readonly string[],
  { env, cwd }: Pick<SystemEnvironment, "env" | "cwd">,
): Promise<string | undefined> {
  for (const command of commands) {
    const morePath = (): Promise<undefined> => Promise.resolve(undefined);
    const query = { server: "", command, cwd, path: env["PATH"], extraPath: morePath };
    const isThere = await resolveCommand(query).then(
      () => true,
      () => false,
    );
    if (isThere) return command;
  }
  return undefined;
}

/**
 * For a server that is started from a package: sets its command to that of the first installed program that can run
 * the package, such as npx or bunx. Returns other servers unchanged.
 */
export async function withInstalledRunner<Spec extends RunnableServer>(
  spec: Spec,
  context: Pick<SystemEnvironment, "env" | "cwd">,
): Promise<Spec> {
  if (spec.kind !== "stdio" || spec.package === undefined) return spec;
  const alternatives = alternativeCommands(spec.package, spec.args);
  const found = await findInstalledRunner(
    [spec.command, ...alternatives.map((alternative) => alternative.command)],
    context,
  );
  const alternative = alternatives.find(({ command }) => command === found);
  return alternative === undefined ? spec : { ...spec, ...alternative };
}

/** The entry for an MCP client's configuration that starts this program with these manifests, as JSON text. */
export function formatClientEntry(manifests: readonly string[], env: Env): string {
  const [command, ...firstArgs] = installedCommand(env);
  const args = [...firstArgs, "serve", ...manifests.flatMap((file) => ["--config", file])];
  return JSON.stringify({ mcpServers: { toolmux: { command, args } } }, null, 2);
}

/** The entry for an MCP client's configuration that connects to a hub at `url` with a bearer token, as JSON text. */
export function formatRemoteClientEntry(url: string, token: string): string {
  const headers = { Authorization: `Bearer ${token}` };
  return JSON.stringify({ mcpServers: { toolmux: { type: "http", url, headers } } }, null, 2);
}
