import type { Catalog } from "../catalog/catalog.ts";
import { interfacesOf } from "../catalog/interfaces.ts";
import type { Item } from "../catalog/item.ts";
import {
  patternOf,
  readLocator,
  schemeOf,
  writeLocator,
  writeTemplate,
} from "../catalog/locator.ts";
import type { ListedRoute } from "../catalog/section.ts";
import { HubError } from "../errors.ts";
import { stringOf } from "../json.ts";
import type { Links } from "./links.ts";

/** Where a resource is: at that server, under that URI. */
export interface Place {
  readonly server: string;
  readonly uri: string;
}

/** What a URI may be found by beside the catalog. */
export interface Hints {
  /** The links that results have given. */
  readonly links: Links;
  /**
   * Whether one client alone was given the links, so that they come before all that servers list. Those of clients that
   * cannot be told apart count as much as a template: one of them is not led by what another was given.
   */
  readonly isOneClient: boolean;
  /** Whether there is such a server for this client, be it stopped. A link of any other is not followed. */
  hasServer(name: string): boolean;
}

/**
 * Finds the one server that a URI is for, by the first of these that says anything: the URI itself, the links that this
 * client was given, the templates and tools that servers list, the scheme. Each is looked at only if those before it
 * say nothing. A resource that is listed under that very URI comes before all that, and is not looked for here.
 * @returns undefined if there is none
 * @throws {HubError} invalidParams if there are several
 */
export function locate(uri: string, catalog: Catalog, hints: Hints): Place | undefined {
  const own = readLocator(uri);
  if (own !== undefined) return own;
  const owner = catalog.uris.skills.ownerOf(uri);
  if (owner !== undefined) return { server: owner, uri };
  const linked = hints.links.find(uri).filter((server) => hints.hasServer(server));
  if (hints.isOneClient && linked.length > 0) return choose(uri, linked);
  return choose(uri, [...linked, ...claim(uri, catalog)]) ?? choose(uri, relate(uri, catalog));
}

/**
 * Finds the one server that a skill is at which is not listed: by its URI, by the skill or the resource that it is in, or as
 * the only one that has skills (ext-skills, Getting a Skill).
 * @param servers those that declare skills
 * @returns undefined if there is none
 * @throws {HubError} invalidParams if there are several
 */
export function locateSkill(
  uri: string,
  catalog: Catalog,
  servers: readonly string[],
): Place | undefined {
  const own = readLocator(uri);
  const server =
    own?.server ?? catalog.uris.skills.ownerOf(uri) ?? catalog.resources.find(uri)?.server;
  if (server === undefined) return choose(uri, servers, writeTemplate);
  return servers.includes(server) ? { server, uri: own?.uri ?? uri } : undefined;
}

/**
 * The servers that list a template that the URI matches, or a tool that has it as its user interface. A template counts
 * as its server wrote it, also where the catalog exposes it under a name of the hub because another server has the same.
 */
function claim(uri: string, { resourceTemplates, tools }: Catalog): readonly string[] {
  const routes = resourceTemplates.routes.filter(({ item }) => patternOf(item).matches(uri));
  if (!uri.startsWith("ui://")) return serversOf(routes);
  return serversOf([...routes, ...tools.routes.filter(({ item }) => pointsTo(item, uri))]);
}

/** The servers that list something of the same scheme. */
function relate(uri: string, { resources, resourceTemplates }: Catalog): readonly string[] {
  const scheme = schemeOf(uri);
  if (scheme === undefined) return [];
  return serversOf(
    [...resources.routes, ...resourceTemplates.routes].filter(
      ({ remoteName }) => schemeOf(remoteName) === scheme,
    ),
  );
}

function serversOf(routes: readonly ListedRoute[]): readonly string[] {
  return routes.map(({ server }) => server);
}

/** @param candidates the same server may be among them several times */
function choose(
  uri: string,
  candidates: readonly string[],
  write = writeLocator,
): Place | undefined {
  const servers = [...new Set(candidates)].sort();
  const [server, ...more] = servers;
  if (server === undefined) return undefined;
  if (more.length === 0) return { server, uri };
  const names = servers.map((name) => `"${name}"`).join(", ");
  const forms = servers.map((name) => write(name, uri)).join(" or ");
  const text = `Several servers may have "${uri}": ${names}. Ask for it as ${forms}.`;
  throw new HubError("invalidParams", text);
}

/** Whether a tool says that this is its user interface. */
function pointsTo(item: Item, uri: string): boolean {
  return interfacesOf(item).some((spot) => stringOf(item.bytes, spot) === uri);
}
