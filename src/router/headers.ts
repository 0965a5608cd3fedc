import type { ListedItem } from "../catalog/listing.ts";
import type { Route } from "../catalog/section.ts";
import { lastMember, scanObject, parseRange } from "../base/json.ts";
import { paramHeaders, mirroredParamsOf } from "../protocol/param-headers.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Request } from "../jsonrpc/message.ts";

export interface ParamHeadersOptions {
  readonly connection: Pick<Connection, "listing">;
  readonly route: Route;
  readonly request: Request;
}

const mirroredToolsCache = new WeakMap<readonly ListedItem[], ReadonlyMap<string, ListedItem>>();

/**
 * The `Mcp-Param-*` headers of a call, as declared by the server's listing (Streamable HTTP, custom headers).
 * @param changedArguments the arguments as JSON, if they are not those of the request
 */
export function paramHeadersOf(
  { connection, route, request }: ParamHeadersOptions,
  changedArguments?: string,
): Readonly<Record<string, string>> | undefined {
  const tools = connection.listing?.tools;
  const item = tools && mirroredToolsOf(tools).get(route.remoteName);
  if (route.kind !== "tools" || item === undefined) return undefined;
  return paramHeaders(
    item,
    changedArguments === undefined ? readArguments(request) : parseArguments(changedArguments),
  );
}

/** The tools with header parameters, by name. */
function mirroredToolsOf(tools: readonly ListedItem[]): ReadonlyMap<string, ListedItem> {
  const cached = mirroredToolsCache.get(tools);
  if (cached !== undefined) return cached;
  const mirrored = tools.filter((item) => mirroredParamsOf(item).length > 0);
  // Of two tools with the same name, the first one counts.
  const index = new Map(mirrored.toReversed().map((item) => [item.key, item]));
  mirroredToolsCache.set(tools, index);
  return index;
}

/** Arguments changed by plugins may be invalid JSON: the server rejects them. */
function parseArguments(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function readArguments({ bytes, params, members }: Request): unknown {
  const known = members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
  const args = lastMember(known, "arguments");
  return args && parseRange(bytes, args);
}
