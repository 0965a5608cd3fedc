import { Buffer } from "node:buffer";
import { bufferOf } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { parseRange, readString } from "../base/json.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { ListedItem } from "../catalog/listing.ts";
import type { ListedRoute } from "../catalog/section.ts";
import {
  decodeUri,
  encodeUriTemplate,
  encodeUri,
  schemeOf,
  uiResourcesOf,
  uriPatternOf,
} from "../catalog/uris.ts";
import { bytesOf, type Response } from "../jsonrpc/message.ts";

export interface ResourceLocation {
  readonly server: string;
  readonly uri: string;
}

/** The facts about a client that `locateResource` needs. */
export interface LookupHints {
  /** The resource links in the results that the client has received. */
  readonly links: ResourceLinks;
  /**
   * Whether all links were given to one client. If so, links take precedence over servers' listings. If several clients
   * that cannot be told apart share the links, links have only the rank of templates, so that one client's links do not
   * decide for another client.
   */
  readonly isOneClient: boolean;
  /** Whether the client may use the server, even if it is stopped. Links of other servers are ignored. */
  hasServer(name: string): boolean;
}

/**
 * Finds the server of a resource that is not listed. Tries in this order: a URI that names the server, a listed skill
 * that contains the URI, resource links, templates and tools' UI resources, the URI's scheme.
 * @returns undefined if no server is found
 * @throws {HubError} invalidParams if several servers are found
 */
export function locateResource(
  uri: string,
  catalog: Catalog,
  hints: LookupHints,
): ResourceLocation | undefined {
  const encoded = decodeUri(uri);
  if (encoded !== undefined) return encoded;
  const owner = catalog.uris.skills.ownerOf(uri);
  if (owner !== undefined) return { server: owner, uri };
  const linked = hints.links.serversLinkingTo(uri).filter((server) => hints.hasServer(server));
  if (hints.isOneClient && linked.length > 0) return onlyServer(uri, linked);
  return (
    onlyServer(uri, [...linked, ...serversWithMatch(uri, catalog)]) ??
    onlyServer(uri, serversOfScheme(uri, catalog))
  );
}

/**
 * Finds the server of a skill that is not listed: by the URI itself, by the skill or resource that contains the URI, or
 * as the only server with skills (ext-skills, Getting a Skill).
 * @param servers the servers that declare skills
 * @returns undefined if no server is found
 * @throws {HubError} invalidParams if several servers are found
 */
export function locateSkill(
  uri: string,
  catalog: Catalog,
  servers: readonly string[],
): ResourceLocation | undefined {
  const encoded = decodeUri(uri);
  const server =
    encoded?.server ?? catalog.uris.skills.ownerOf(uri) ?? catalog.resources.find(uri)?.server;
  if (server === undefined) return onlyServer(uri, servers, encodeUriTemplate);
  return servers.includes(server) ? { server, uri: encoded?.uri ?? uri } : undefined;
}

/**
 * Returns the servers with a matching template, or with a tool whose UI resource has the URI. The URI is matched with
 * the servers' original templates, because the catalog exposes a template under another URI if there is a conflict.
 */
function serversWithMatch(uri: string, { resourceTemplates, tools }: Catalog): readonly string[] {
  const routes = resourceTemplates.routes.filter(({ item }) => uriPatternOf(item).matches(uri));
  if (!uri.startsWith("ui://")) return serversOf(routes);
  return serversOf([...routes, ...tools.routes.filter(({ item }) => isUiResourceOf(item, uri))]);
}

/** The servers that list a resource or template whose URI has the same scheme. */
function serversOfScheme(
  uri: string,
  { resources, resourceTemplates }: Catalog,
): readonly string[] {
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

function onlyServer(
  uri: string,
  candidates: readonly string[],
  encode = encodeUri,
): ResourceLocation | undefined {
  const servers = [...new Set(candidates)].sort();
  const [server, ...more] = servers;
  if (server === undefined) return undefined;
  if (more.length === 0) return { server, uri };
  const names = servers.map((name) => `"${name}"`).join(", ");
  const forms = servers.map((name) => encode(name, uri)).join(" or ");
  const text = `Several servers may have the resource "${uri}": ${names}. Use one of these URIs: ${forms}.`;
  throw new HubError("invalidParams", text);
}

function isUiResourceOf(item: ListedItem, uri: string): boolean {
  return uiResourcesOf(item).some((range) => readString(item.bytes, range) === uri);
}

/** Maximum number of URIs that are kept per server. `MAX_URI_LENGTH`: in UTF-16 units; longer URIs are not kept. */
const MAX_URIS_PER_SERVER = 1000;
const MAX_URI_LENGTH = 2048;
const LINK_TYPE_BYTES = Buffer.from('"resource_link"');

/**
 * Remembers the resource links in one client's results, by server, and the servers whose UI resources the client has
 * read.
 */
export class ResourceLinks {
  /**
   * The URIs by server, ordered by last use, so that the least recently used is dropped first. The limit is per server,
   * so that no server can displace another server's links.
   */
  readonly #uris = new Map<string, Set<string>>();
  readonly #uiServers = new Set<string>();

  record(server: string, response: Response): void {
    if (response.outcome === "error" || !mayContainLinks(response)) return;
    for (const uri of readLinks(response)) this.#add(server, uri);
  }

  /** Records that the client has read a UI resource of that server (MCP Apps). */
  addUiServer(server: string): void {
    this.#uiServers.add(server);
  }

  hasUiServer(server: string): boolean {
    return this.#uiServers.has(server);
  }

  serversLinkingTo(uri: string): readonly string[] {
    return [...this.#uris].filter(([, uris]) => uris.has(uri)).map(([server]) => server);
  }

  #add(server: string, uri: string): void {
    if (uri.length > MAX_URI_LENGTH) return;
    const uris = this.#uris.get(server) ?? new Set();
    this.#uris.set(server, uris);
    uris.delete(uri);
    uris.add(uri);
    const [oldest] = uris;
    if (uris.size > MAX_URIS_PER_SERVER && oldest !== undefined) uris.delete(oldest);
  }
}

/**
 * Whether a response may contain resource links. A long response is searched slice by slice: reading `bytes` would join
 * the slices, which costs more than the search.
 */
function mayContainLinks(response: Response): boolean {
  const { shape, body } = response;
  if (shape.kind === "scanned" || shape.slices === undefined)
    return bytesOf(response).includes(LINK_TYPE_BYTES);
  return shape
    .slices(body.start, body.end)
    .some((slice) => bufferOf(slice).includes(LINK_TYPE_BYTES));
}

/** The resource links in a tool's result or in a prompt's messages (schema, ResourceLink). */
function readLinks({ bytes, body }: Response): readonly string[] {
  let result: unknown;
  try {
    result = parseRange(bytes, body);
  } catch {
    return [];
  }
  const messages = arrayAt(result, "messages").map((message) => propertyOf(message, "content"));
  return [...arrayAt(result, "content"), ...messages.flat()].flatMap((block) => {
    const uri = propertyOf(block, "type") === "resource_link" && propertyOf(block, "uri");
    return typeof uri === "string" ? [uri] : [];
  });
}

function arrayAt(value: unknown, key: string): readonly unknown[] {
  const list = propertyOf(value, key);
  return Array.isArray(list) ? list : [];
}

function propertyOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Readonly<Record<string, unknown>>)[key]
    : undefined;
}
