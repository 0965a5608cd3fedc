import type { Catalog } from "../../catalog/catalog.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, scanObject, readString, parseRange } from "../../base/json.ts";
import { ModernTaskMethod } from "../../protocol/extension.ts";
import { Method } from "../../protocol/legacy.ts";
import { decodeHeaderText, argumentAt, mirroredParamsOf } from "../../protocol/param-headers.ts";
import type { Request as RpcRequest } from "../../jsonrpc/message.ts";
import { type ModernRequest, textParam, requestedVersionOf } from "../modern/request.ts";
import type { RequestHeaders } from "./http1/messages.ts";

/** The member of params that the header `Mcp-Name` repeats, by method. */
const NAME_PARAMS: ReadonlyMap<string, string> = new Map([
  [Method.toolsCall, "name"],
  [Method.promptsGet, "name"],
  [Method.resourcesRead, "uri"],
  [ModernTaskMethod.get, "taskId"],
  [ModernTaskMethod.update, "taskId"],
  [ModernTaskMethod.cancel, "taskId"],
]);

/**
 * Checks that the headers that repeat the request equal it (Streamable HTTP, standard headers): proxies may rely on
 * them.
 * @throws {HubError} headerMismatch
 */
export function checkRequestHeaders(request: RpcRequest, headers: RequestHeaders): void {
  const { method, params, bytes } = request;
  checkEqual("Mcp-Method", headers.get("Mcp-Method"), method);
  const key = NAME_PARAMS.get(method);
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const name = key === undefined ? undefined : readString(bytes, lastMember(members, key));
  if (name !== undefined) checkEqual("Mcp-Name", decodeHeaderText(headers.get("Mcp-Name")), name);
  const version = requestedVersionOf(request);
  if (typeof version !== "string") return;
  checkEqual("MCP-Protocol-Version", headers.get("MCP-Protocol-Version"), version);
}

/**
 * Checks the headers that repeat a tool's arguments, as its input schema declares (`x-mcp-header`).
 * @throws {HubError} headerMismatch
 */
export function checkParamHeaders(
  modernRequest: ModernRequest,
  headers: RequestHeaders,
  catalog: Catalog,
): void {
  const { request, members } = modernRequest;
  if (request.method !== Method.toolsCall) return;
  const name = textParam(modernRequest, "name") ?? "";
  // A name without prefix is looked up if one server has it; if several do, only the router can choose.
  const [first, second] =
    catalog.tools.find(name) === undefined ? catalog.tools.findRemote(name) : [];
  const item = (catalog.tools.find(name) ?? (second === undefined ? first : undefined))?.item;
  const mirrored = item && mirroredParamsOf(item);
  if (mirrored === undefined || mirrored.length === 0) return;
  const member = lastMember(members, "arguments");
  const argumentValues = member && parseRange(request.bytes, member);
  for (const { header, path } of mirrored) {
    const value = path.reduce(argumentAt, argumentValues) ?? undefined;
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
  return new HubError("headerMismatch", `The header ${header} does not say what the request says.`);
}
