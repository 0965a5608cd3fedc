import { matchesGlob } from "../catalog/names.ts";
import { secretsOf } from "../manifest/interpolate.ts";
import { missingPluginProblem } from "../manifest/merge/plugins.ts";
import { isPrefix } from "../manifest/merge/merge.ts";
import { addPositionsLater } from "../manifest/syntax/positions.ts";
import { findNearest, type Problem } from "../manifest/problems.ts";
import type { Manifest, PluginServer, ServerSpec } from "../manifest/manifest.ts";
import type { Transport } from "../transport/transport.ts";
import type { PluginInstance } from "./instance.ts";
import type { ClientInfo, OpenServer, PluginServer as DeclaredServer } from "./plugin.ts";

/** A problem of a plugin's server or secret scheme, which therefore cannot be used. */
export interface PluginResourceProblem {
  readonly member: PluginInstance;
  readonly message: string;
}

/** A problem of one server's entry. */
export interface ServerProblem extends Problem {
  readonly server: string;
}

/** The manifest with the servers of the given problems marked as invalid. */
export async function markServersInvalid(
  manifest: Manifest,
  serverProblems: readonly ServerProblem[],
): Promise<Manifest> {
  if (serverProblems.length === 0) return manifest;
  const servers = manifest.servers.map(async (spec): Promise<ServerSpec> => {
    const own = serverProblems.filter(({ server }) => server === spec.name);
    if (own.length === 0) return spec;
    const { name, enabled, prefix } = spec;
    const problems = await addPositionsLater(own);
    return { kind: "invalid", name, enabled, prefix, problems, secrets: secretsOf(spec) };
  });
  return { ...manifest, servers: await Promise.all(servers) };
}

/** The problems of the manifest's servers whose plugin does not exist. `names` are the plugins' own names. */
export function findUnknownServers(
  { servers }: Manifest,
  names: readonly string[],
): readonly ServerProblem[] {
  return servers.flatMap((spec) => {
    if (spec.kind !== "plugin" || names.includes(spec.plugin)) return [];
    return [{ server: spec.name, ...missingPluginProblem(spec.plugin, spec.origin, names) }];
  });
}

/** The problems of the manifest's servers whose plugin exists, but that no plugin provides. */
export function findMissingServers(
  { servers }: Manifest,
  members: readonly PluginInstance[],
): readonly ServerProblem[] {
  return servers.flatMap((spec) => {
    const member = members.find(({ name }) => spec.kind === "plugin" && name === spec.plugin);
    const isMade = members.some(({ hooks: parts }) =>
      Object.hasOwn(parts.servers ?? {}, spec.name),
    );
    if (spec.kind !== "plugin" || member === undefined || isMade) return [];
    const { file, path } = spec.origin;
    const nearest = findNearest(spec.name, Object.keys(member.hooks.servers ?? {}));
    const guess = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
    const message = `plugin "${spec.plugin}" has no server "${spec.name}"${guess}`;
    return [{ file, server: spec.name, path, at: "key", message }];
  });
}

/**
 * The manifest's servers, followed by the plugins' servers that the manifest does not mention. The latter get the
 * manifest's default settings, and their names as prefixes.
 * @param set the number of the plugin set
 */
export function addPluginServers(
  { hub, servers, defaults }: Manifest,
  plugins: readonly PluginInstance[],
  set: number,
): {
  readonly servers: readonly ServerSpec[];
  readonly problems: readonly PluginResourceProblem[];
} {
  const allServers = servers.map((spec) => {
    if (spec.kind !== "plugin") return spec;
    const member = plugins.find(({ name }) => name === spec.plugin);
    const isolation = isolationOf(member, spec.name) ?? spec.isolation;
    return { ...spec, set, isolation, tools: withOwnApproval(member, spec) };
  });
  const problems: PluginResourceProblem[] = [];
  const owners = new Map<string, PluginInstance>();
  for (const member of plugins) {
    for (const name of Object.keys(member.hooks.servers ?? {})) {
      const addProblem = (message: string): void => void problems.push({ member, message });
      const owner = owners.get(name);
      const configured = allServers.find((spec) => spec.name === name);
      const isTaken = allServers.some((spec) => spec.enabled && spec.prefix === name);
      const advice = `add it under [servers.NAME] with plugin = "${member.name}"`;
      if (name === "") {
        addProblem("one of its servers has no name");
      } else if (owner !== undefined) {
        addProblem(`its server "${name}" is also one of plugin "${owner.name}"`);
      } else if (configured === undefined && (isTaken || !isPrefix(name, hub.separator))) {
        addProblem(
          `its server "${name}" needs another prefix; ${advice.replace("NAME", name)} and prefix = "…"`,
        );
      } else if (
        configured !== undefined &&
        configured.kind !== "invalid" &&
        !(configured.kind === "plugin" && configured.plugin === member.name)
      ) {
        addProblem(`its server "${name}" has the name of another server of the manifest`);
      } else if (configured === undefined) {
        allServers.push(specOf(name, member, set, defaults));
      }
      owners.set(name, owner ?? member);
    }
  }
  return { servers: allServers, problems };
}

/** Makes the transport to a server. @param client the only client of the server; undefined if clients share it */
export function openPluginServer(
  server: OpenServer | DeclaredServer,
  client: ClientInfo | undefined,
): Transport | Promise<Transport> {
  return typeof server === "function" ? server() : server.open(client);
}

/** The plugin's settings for its server; undefined if the plugin has none, so that the manifest decides. */
function declaredServer(
  plugin: PluginInstance | undefined,
  server: string,
): DeclaredServer | undefined {
  const own = plugin?.hooks.servers?.[server];
  return typeof own === "object" ? own : undefined;
}

function isolationOf(
  plugin: PluginInstance | undefined,
  server: string,
): PluginServer["isolation"] | undefined {
  return declaredServer(plugin, server)?.isolation;
}

/**
 * The manifest's rules for the server's tools, plus the plugin's approval rules for tools that have none in the
 * manifest.
 */
function withOwnApproval(
  plugin: PluginInstance | undefined,
  { name, tools }: Pick<PluginServer, "name" | "tools">,
): PluginServer["tools"] {
  const own = Object.entries(declaredServer(plugin, name)?.approval ?? {});
  const rules = Object.keys(tools.approval ?? {});
  const added = own.filter(([tool]) => !rules.some((rule) => matchesGlob(rule, tool)));
  if (added.length === 0) return tools;
  return { ...tools, approval: { ...Object.fromEntries(added), ...tools.approval } };
}

function specOf(
  name: string,
  member: PluginInstance,
  set: number,
  defaults: Manifest["defaults"],
): PluginServer {
  const {
    name: plugin,
    spec: { origin },
  } = member;
  const prompts = { allow: undefined, deny: [], rename: {} };
  const tools = withOwnApproval(member, { name, tools: { ...prompts, timeout: {} } });
  const isolation = isolationOf(member, name) ?? "auto";
  const common = { enabled: true, prefix: name, isolation, lazy: false } as const;
  const settings = { ...common, era: "auto" } as const;
  return { kind: "plugin", name, plugin, origin, set, ...settings, ...defaults, tools, prompts };
}
