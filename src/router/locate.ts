import type { Catalog } from "../catalog/catalog.ts";
import { interfacesOf } from "../catalog/interfaces.ts";
import type { Item } from "../catalog/item.ts";
import { patternOf, readLocator, schemeOf, writeLocator } from "../catalog/locator.ts";
import type { ListedRoute } from "../catalog/section.ts";
import { HubError } from "../errors.ts";
import { stringOf } from "../json.ts";
import type { Links } from "./links.ts";

/** Where a resource is: at that server, under that URI. */
export interface Place {
  readonly server: string;
  readonly uri: string;
}

/**
 * Finds the one server that a URI is for: by what it says itself, by the listed templates, by what results and tools have
 * pointed to, and then by its scheme. What is listed under that very URI comes before all that, and is not looked for here.
 * @returns undefined if there is none
 * @throws {HubError} invalidParams if there are several
 */
export function locate(uri: string, catalog: Catalog, links: Links): Place | undefined {
  const own = readLocator(uri);
  if (own !== undefined) return own;
  const { tools, resources, resourceTemplates } = catalog;
  // Those that are exposed under another name are what such URIs are made from that name their server.
  const templates = resourceTemplates.routes.filter(
    ({ name, remoteName, item }) => name === remoteName && patternOf(item).matches(uri),
  );
  const pointing = tools.routes.filter(({ item }) => pointsTo(item, uri));
  const scheme = schemeOf(uri);
  const related = [...resources.routes, ...resourceTemplates.routes].filter(
    ({ remoteName }) => scheme !== undefined && schemeOf(remoteName) === scheme,
  );
  return (
    choose(uri, serversOf(templates)) ??
    choose(uri, new Set([...(links.find(uri) ?? []), ...serversOf(pointing)])) ??
    choose(uri, serversOf(related))
  );
}

function serversOf(routes: readonly ListedRoute[]): ReadonlySet<string> {
  return new Set(routes.map(({ server }) => server).sort());
}

function choose(uri: string, servers: ReadonlySet<string>): Place | undefined {
  const [server, ...more] = servers;
  if (server === undefined) return undefined;
  if (more.length === 0) return { server, uri };
  const names = [...servers].map((name) => `"${name}"`).join(", ");
  const forms = [...servers].map((name) => writeLocator(name, uri)).join(" or ");
  const text = `Several servers may have "${uri}": ${names}. Ask for it as ${forms}.`;
  throw new HubError("invalidParams", text);
}

/** Whether a tool says that this is its user interface. */
function pointsTo(item: Item, uri: string): boolean {
  if (!uri.startsWith("ui://")) return false;
  return interfacesOf(item).some((spot) => stringOf(item.bytes, spot) === uri);
}
