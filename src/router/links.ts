import { Buffer } from "node:buffer";
import { bufferOf } from "../bytes.ts";
import { valueOf } from "../json.ts";
import { type Response, bytesOf } from "../wire/jsonrpc.ts";

/** So many of one server are remembered, the last ones; and none that is longer, in UTF-16 units. */
const MOST = 1000;
const LONGEST = 2048;
const SIGN = Buffer.from('"resource_link"');

/** The resources that results have pointed one client to, and the servers that did; also whose user interfaces it has read. */
export class Links {
  /**
   * The URIs by server; of each server the one that was learned last comes last. The bound is one of each server, so that
   * no server makes the hub forget what another has linked to.
   */
  readonly #uris = new Map<string, Set<string>>();
  readonly #apps = new Set<string>();

  /** Looks into a result, if it seems to have links in it. */
  learn(server: string, response: Response): void {
    if (response.outcome === "error" || !hasSign(response)) return;
    for (const uri of readLinks(response)) this.#add(server, uri);
  }

  /** The client has read a user interface of that server (MCP Apps). */
  giveApp(server: string): void {
    this.#apps.add(server);
  }

  /** Whether the client was given a user interface of that server. */
  hasApp(server: string): boolean {
    return this.#apps.has(server);
  }

  /** The servers whose results have pointed to it. */
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

/** What is long is looked at as it came: its `bytes` would be joined for that, which costs more than it is worth. */
function hasSign(response: Response): boolean {
  const { shape, body } = response;
  if (shape.at === "scanned" || shape.chunks === undefined) return bytesOf(response).includes(SIGN);
  return shape.chunks(body.start, body.end).some((slice) => bufferOf(slice).includes(SIGN));
}

/** The links in a tool's result, or in a prompt's messages (schema, ResourceLink). */
function readLinks({ bytes, body }: Response): readonly string[] {
  let result: unknown;
  try {
    result = valueOf(bytes, body);
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
