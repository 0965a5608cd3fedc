import type { Manifest, RemoteServer } from "../../manifest/schema.ts";
import { resolveRemote, type ResolvedRemote } from "../../manifest/resolve.ts";
import type { CommandContext } from "../command.ts";
import { openSchemeResolvers } from "../transport-factory.ts";
import { suggestName, usageError } from "../args.ts";

/** The servers of a manifest that one can be authorized for, or those of them that are named. @throws {HubError} usage */
export function pickRemoteServers(
  { servers }: Manifest,
  names: readonly string[],
): readonly RemoteServer[] {
  for (const name of names) {
    const found = servers.find((spec) => spec.name === name);
    if (found === undefined) {
      const known = servers.map((spec) => spec.name);
      const near = suggestName(name, known) || " toolmux check shows what there is.";
      throw usageError(`There is no server "${name}" in the manifest.${near}`);
    }
    if (found.kind !== "remote") {
      throw usageError(`Server "${name}" has no url: what it bears is set in its env.`);
    }
  }
  return servers.filter(
    (spec) => spec.kind === "remote" && (names.length === 0 || names.includes(spec.name)),
  ) as readonly RemoteServer[];
}

/** Fills in what the manifest says of a server. @throws {HubError} valueMissing, notSupported */
export function resolveRemoteSpec(
  spec: RemoteServer,
  world: CommandContext,
): Promise<ResolvedRemote> {
  const { env, cwd } = world;
  return resolveRemote(spec, env, cwd, openSchemeResolvers(world)(spec, new Map()));
}
