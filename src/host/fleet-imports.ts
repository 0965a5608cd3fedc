import { compileGlobs } from "../catalog/filter.ts";

/** Maximum numbers of servers that patterns of `fleet.import` take: of one hub, and of all together. */
export const MAX_IMPORTS = { ofHub: 256, all: 1024 } as const;

/** The names of servers that can be prefixes of tools. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

/** A hub, as far as it exports servers. */
interface ExportingPeer {
  readonly name: string;
  /** By name. */
  readonly servers: ReadonlyMap<string, unknown>;
}

/** The servers of the fleet that a hub imports. */
export interface Imports {
  /** The servers by name, each with the only machine whose server is used; undefined: any that exports it. */
  readonly servers: ReadonlyMap<string, string | undefined>;
  /** The hubs of which servers are left out, because of the limit of each; in order of name. */
  readonly limitedHubs: readonly string[];
  /** True if servers are left out because of the limit of all together. */
  readonly isLimited: boolean;
}

/**
 * Chooses the servers to import. What is named without a wildcard is always imported: others decide only how much comes
 * by patterns.
 * @param globs `fleet.import`
 * @param imported the servers that are imported already: nobody takes their place
 */
export function chooseImports(
  peers: readonly ExportingPeer[],
  globs: readonly string[],
  imported: ReadonlySet<string>,
): Imports {
  const isImported = compileGlobs(globs);
  const isNamed = compileGlobs(globs.filter((glob) => !/[*?]/.test(glob)));
  const servers = new Map<string, string | undefined>();
  /** The servers that come by a pattern, each with the hubs that export it. */
  const byPattern = new Map<string, { machine: string | undefined; hubs: string[] }>();
  for (const { name: hub, servers: exported } of peers) {
    for (const server of exported.keys()) {
      const isAny = isImported(server);
      const full = `${hub}/${server}`;
      if (!NAME.test(server) || (!isAny && !isImported(full))) continue;
      const machine = isAny ? undefined : hub;
      const known = byPattern.get(server);
      if (isNamed(server) || isNamed(full)) {
        if (!servers.has(server)) servers.set(server, machine);
      } else if (known === undefined) byPattern.set(server, { machine, hubs: [hub] });
      else if (known.machine === undefined) known.hubs.push(hub);
    }
  }
  const counts = new Map<string, number>();
  const limitedHubs = new Set<string>();
  let all = 0;
  let isLimited = false;
  const countOf = (hub: string): number => counts.get(hub) ?? 0;
  for (const isKept of [true, false]) {
    for (const [server, { machine, hubs }] of byPattern) {
      if (servers.has(server) || imported.has(server) !== isKept) continue;
      // A server counts for the hub that has the most room: others cannot use that up by the same name.
      let hub = hubs[0] as string;
      for (const other of hubs) if (countOf(other) < countOf(hub)) hub = other;
      if (countOf(hub) >= MAX_IMPORTS.ofHub) limitedHubs.add(hub);
      else if (all >= MAX_IMPORTS.all) isLimited = true;
      else {
        servers.set(server, machine);
        counts.set(hub, countOf(hub) + 1);
        all++;
      }
    }
  }
  return { servers, limitedHubs: [...limitedHubs].sort(), isLimited };
}
