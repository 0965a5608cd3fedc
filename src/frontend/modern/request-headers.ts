import { HubError } from "../../base/errors.ts";
import { propertyOf } from "../../base/json.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import { paramsOf, type Request } from "../../jsonrpc/message.ts";
import { Method } from "../../protocol/legacy.ts";
import { decodeHeaderText, mirroredParamsOf } from "../../protocol/param-headers.ts";
import { ModernTaskMethod } from "../../protocol/tasks.ts";
import { type ModernRequest, requestedVersionOf } from "./request.ts";

/** For each method: the member of `params` that the header `Mcp-Name` must repeat. */
const NAME_PARAMS: ReadonlyMap<string, string> = new Map([
  [Method.toolsCall, "name"],
  [Method.promptsGet, "name"],
  [Method.resourcesRead, "uri"],
  [ModernTaskMethod.get, "taskId"],
  [ModernTaskMethod.update, "taskId"],
  [ModernTaskMethod.cancel, "taskId"],
]);

/** What reads the headers of a request: those of HTTP, or of a message of NATS. */
export interface HeaderReader {
  /** @returns null if there is no such header */
  get(name: string): string | null;
}

/** The name in a request's params that `Mcp-Name` repeats; undefined if its method has none. */
export function requestNameOf(request: Request): string | undefined {
  const key = NAME_PARAMS.get(request.method);
  return key === undefined ? undefined : paramsOf(request).string(key);
}

/**
 * Checks that the headers that repeat parts of the JSON-RPC request have the same values (Streamable HTTP, standard
 * headers), because proxies may rely on the headers.
 * @throws {HubError} headerMismatch
 */
export function checkRequestHeaders(request: Request, headers: HeaderReader): void {
  const { method } = request;
  checkEqual("Mcp-Method", headers.get("Mcp-Method"), method);
  const name = requestNameOf(request);
  if (name !== undefined) checkEqual("Mcp-Name", decodeHeaderText(headers.get("Mcp-Name")), name);
  const version = requestedVersionOf(request);
  if (typeof version !== "string") return;
  checkEqual("MCP-Protocol-Version", headers.get("MCP-Protocol-Version"), version);
}

/**
 * Checks that the `Mcp-Param-*` headers, which the tool's input schema declares (`x-mcp-header`), equal the arguments.
 * @throws {HubError} headerMismatch
 */
export function checkParamHeaders(
  modernRequest: ModernRequest,
  headers: HeaderReader,
  catalog: Catalog,
): void {
  const { request, params } = modernRequest;
  if (request.method !== Method.toolsCall) return;
  const name = params.string("name") ?? "";
  // A client may also use the name that a tool has at its server. If several servers have a tool of that name, only the
  // router can choose between them, so the headers are not checked here.
  const [first, second] =
    catalog.tools.find(name) === undefined ? catalog.tools.findRemote(name) : [];
  const item = (catalog.tools.find(name) ?? (second === undefined ? first : undefined))?.item;
  const mirrored = item && mirroredParamsOf(item);
  if (mirrored === undefined || mirrored.length === 0) return;
  const argumentValues = params.value("arguments");
  for (const { header, path } of mirrored) {
    const value = path.reduce(propertyOf, argumentValues) ?? undefined;
    const headerValue = decodeHeaderText(headers.get(header));
    if (typeof value === "number")
      checkEqual(header, headerValue && String(Number(headerValue)), String(value));
    else if (typeof value === "string") checkEqual(header, headerValue, value);
    else if (typeof value === "boolean") checkEqual(header, headerValue, String(value));
    else if (value === undefined && headerValue !== undefined) throw headerMismatch(header);
  }
}

function checkEqual(header: string, actual: string | null | undefined, expected: string): void {
  if (actual !== expected) throw headerMismatch(header);
}

function headerMismatch(header: string): HubError {
  return new HubError(
    "headerMismatch",
    `The header ${header} does not match the body of the request.`,
  );
}
