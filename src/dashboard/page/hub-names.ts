import { nameOfClient } from "../../base/client-name.ts";
import { isSharedHub, SHARED_ENDPOINT } from "../../base/hub-endpoints.ts";
import type { ClientDocuments, HubEntry } from "./documents.ts";

/** The clients of each hub, by the hub's id. */
export type HubClients = ReadonlyMap<string, ClientDocuments>;

/**
 * The name of each hub, by its id: that of the client that has started it (`Cursor`), or what it serves (`shared`,
 * `HTTP :8700`). Equal names get the folder of the hub or, if that is not enough, its process id.
 */
export function hubNames(
  hubs: readonly HubEntry[],
  clients: HubClients,
): ReadonlyMap<string, string> {
  const names = new Map(hubs.map((hub) => [hub.id, baseName(hub, clients.get(hub.id) ?? [])]));
  for (const more of [({ cwd }: HubEntry) => lastPart(cwd), ({ pid }: HubEntry) => String(pid)]) {
    const uses = Map.groupBy(hubs, ({ id }) => names.get(id));
    for (const same of uses.values()) {
      if (same.length < 2) continue;
      const isDistinct = new Set(same.map(more)).size > 1;
      if (isDistinct)
        for (const hub of same) names.set(hub.id, `${names.get(hub.id)} · ${more(hub)}`);
    }
  }
  return names;
}

function baseName({ name, pid, endpoints }: HubEntry, clients: ClientDocuments): string {
  if (isSharedHub({ endpoints })) return SHARED_ENDPOINT;
  const starter = clients.find(({ transport }) => transport === "stdio");
  if (starter !== undefined) return nameOfClient(starter);
  const url = endpoints.find((endpoint) => URL.canParse(endpoint));
  if (url !== undefined) return `HTTP :${new URL(url).port}`;
  return name === "toolmux" ? `toolmux ${pid}` : name;
}

function lastPart(path: string): string {
  return path.split(/[\\/]/).findLast((part) => part !== "") ?? path;
}
