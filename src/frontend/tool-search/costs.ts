import { Buffer } from "node:buffer";
import type { Catalog } from "../../catalog/catalog.ts";
import { estimateTokens } from "../../catalog/search/signature.ts";
import type { SeenServer } from "../../views/client-view.ts";
import { searchInstructions } from "./instructions.ts";
import { type ListForm, listTokens, type ToolSearch } from "./tool-search.ts";

/** The size of what a client gets before its first call, in tokens (bytes / 4). */
export interface ExposureCost {
  /** The list of tools. */
  readonly tools: number;
  readonly instructions: number;
}

export interface ExposureCosts {
  /** Number of tools of each server that are shown, and the tokens of their definitions. */
  readonly servers: readonly {
    readonly server: string;
    readonly tools: number;
    readonly tokens: number;
  }[];
  readonly exposures: Readonly<Record<ListForm, ExposureCost>>;
}

/** Measures the costs of each exposure. @param servers those that the clients see, in the order of the manifest */
export function exposureCosts(
  toolSearch: ToolSearch,
  catalog: Catalog,
  servers: readonly SeenServer[],
): ExposureCosts {
  const { tools } = catalog;
  const costOf = (form: ListForm): ExposureCost => {
    const list =
      form === "direct" ? tools : toolSearch.list(tools, { form, isAuto: false, showsApps: false });
    const instructions =
      form === "direct" ? catalog.instructions : searchInstructions(form, catalog, servers);
    return {
      tools: listTokens(list),
      instructions: estimateTokens(Buffer.byteLength(instructions ?? "")),
    };
  };
  const counts = Map.groupBy(tools.entries, ({ server }) => server);
  return {
    servers: servers.map(({ spec: { name: server } }) => ({
      server,
      tools: counts.get(server)?.length ?? 0,
      tokens: estimateTokens(tools.byteLengths.get(server) ?? 0),
    })),
    exposures: {
      direct: costOf("direct"),
      search: costOf("search"),
      select: costOf("select"),
    },
  };
}
