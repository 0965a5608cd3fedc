import { Buffer } from "node:buffer";
import { bufferOf } from "../base/bytes.ts";
import { parseRange } from "../base/json.ts";
import { type Response, bytesOf } from "../jsonrpc/message.ts";

/** Maximum number of remembered URIs per server, the most recent ones, and maximum length of one in UTF-16 units. */
const MOST = 1000;
const LONGEST = 2048;
const SIGN = Buffer.from('"resource_link"');

/**
 * The resource links that results have given to one client, by server, and the servers whose UI resources it has read.
 */
export class Links {
  /**
   * The URIs by server, the most recently seen last. The limit is per server, so that no server can displace another's
   * links.
   */
  readonly #uris = new Map<string, Set<string>>();
  readonly #apps = new Set<string>();

  /** Collects the resource links of a result. */
  learn(server: string, response: Response): void {
    if (response.outcome === "error" || !hasSign(response)) return;
    for (const uri of readLinks(response)) this.#add(server, uri);
  }

  /** The client has read a UI resource of that server (MCP Apps). */
  giveApp(server: string): void {
    this.#apps.add(server);
  }

  /** Whether the client has read a UI resource of that server. */
  hasApp(server: string): boolean {
    return this.#apps.has(server);
  }

  /** The servers that have linked to the URI. */
  find(uri: string): readonly string[] {
    return [...this.#uris].filter(([, uris]) => uris.has(uri)).map(([server]) => server);
  }

  #add(server: string, uri: string): void {
    if (uri.length > LONGEST) return;
    const uris = this.#uris.get(server) ?? new Set();
    this.#uris.set(server, uris);
    uris.delete(uri);
    uris.add(uri);
    const [oldest] = uris;
    if (uris.size > MOST && oldest !== undefined) uris.delete(oldest);
  }
}

/** Searches a long response slice by slice: reading `bytes` would join the slices, which costs more than the search. */
function hasSign(response: Response): boolean {
  const { shape, body } = response;
  if (shape.kind === "scanned" || shape.slices === undefined)
    return bytesOf(response).includes(SIGN);
  return shape.slices(body.start, body.end).some((slice) => bufferOf(slice).includes(SIGN));
}

/** The resource links in a tool's result or in a prompt's messages (schema, ResourceLink). */
function readLinks({ bytes, body }: Response): readonly string[] {
  let result: unknown;
  try {
    result = parseRange(bytes, body);
  } catch {
    return [];
  }
  const messages = listIn(result, "messages").map((message) => memberOf(message, "content"));
  return [...listIn(result, "content"), ...messages.flat()].flatMap((block) => {
    const uri = memberOf(block, "type") === "resource_link" && memberOf(block, "uri");
    return typeof uri === "string" ? [uri] : [];
  });
}

function listIn(value: unknown, key: string): readonly unknown[] {
  const list = memberOf(value, key);
  return Array.isArray(list) ? list : [];
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Readonly<Record<string, unknown>>)[key]
    : undefined;
}
