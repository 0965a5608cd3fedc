import { Buffer } from "node:buffer";
import { bufferOf } from "../base/bytes.ts";
import { parseRange } from "../base/json.ts";
import { type Response, bytesOf } from "../jsonrpc/message.ts";

/** Maximum number of remembered URIs per server, the most recent ones, and maximum length of one in UTF-16 units. */
const MAX_URIS_PER_SERVER = 1000;
const MAX_URI_LENGTH = 2048;
const LINK_TYPE_BYTES = Buffer.from('"resource_link"');

/**
 * The resource links that results have given to one client, by server, and the servers whose UI resources it has read.
 */
export class ResourceLinks {
  /**
   * The URIs by server, the most recently seen last. The limit is per server, so that no server can displace another's
   * links.
   */
  readonly #uris = new Map<string, Set<string>>();
  readonly #uiServers = new Set<string>();

  /** Collects the resource links of a result. */
  record(server: string, response: Response): void {
    if (response.outcome === "error" || !mayContainLinks(response)) return;
    for (const uri of readLinks(response)) this.#add(server, uri);
  }

  /** The client has read a UI resource of that server (MCP Apps). */
  addUiServer(server: string): void {
    this.#uiServers.add(server);
  }

  /** Whether the client has read a UI resource of that server. */
  hasUiServer(server: string): boolean {
    return this.#uiServers.has(server);
  }

  /** The servers that have linked to the URI. */
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

/** Searches a long response slice by slice: reading `bytes` would join the slices, which costs more than the search. */
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
