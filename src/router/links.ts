import { Buffer } from "node:buffer";
import { bufferOf } from "../bytes.ts";
import { valueOf } from "../json.ts";
import { type Response, bytesOf } from "../wire/jsonrpc.ts";

/** So many are remembered, the last ones; and none that is longer, in UTF-16 units. */
const MOST = 1000;
const LONGEST = 2048;
const SIGN = Buffer.from('"resource_link"');

/** The resources that results have pointed one client to, and the servers that did; also whose user interfaces it has read. */
export class Links {
  /** By URI; the one that was learned last comes last. */
  readonly #servers = new Map<string, ReadonlySet<string>>();
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

  find(uri: string): ReadonlySet<string> | undefined {
    return this.#servers.get(uri);
  }

  #add(server: string, uri: string): void {
    if (uri.length > LONGEST) return;
    const before = this.#servers.get(uri);
    this.#servers.delete(uri);
    this.#servers.set(uri, new Set([...(before ?? []), server]));
    const [oldest] = this.#servers.keys();
    if (this.#servers.size > MOST && oldest !== undefined) this.#servers.delete(oldest);
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
