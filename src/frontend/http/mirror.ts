import type { Catalog } from "../../catalog/catalog.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, scanObject, readString, parseRange } from "../../base/json.ts";
import { ModernTaskMethod } from "../../protocol/extension.ts";
import { Method } from "../../protocol/legacy.ts";
import { decodeHeaderText, argumentAt, mirroredParamsOf } from "../../protocol/param-headers.ts";
import type { Request as RpcRequest } from "../../jsonrpc/message.ts";
import { type Letter, textIn, versionOf } from "../modern/request.ts";
import type { Fields } from "./http1/messages.ts";

/** The member of params that the header `Mcp-Name` repeats, by method. */
const NAMED: ReadonlyMap<string, string> = new Map([
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
export function checkHeaders(request: RpcRequest, fields: Fields): void {
  const { method, params, bytes } = request;
  check("Mcp-Method", fields.get("Mcp-Method"), method);
  const key = NAMED.get(method);
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const name = key === undefined ? undefined : readString(bytes, lastMember(members, key));
  if (name !== undefined) check("Mcp-Name", decodeHeaderText(fields.get("Mcp-Name")), name);
  const version = versionOf(request);
  if (typeof version !== "string") return;
  check("MCP-Protocol-Version", fields.get("MCP-Protocol-Version"), version);
}

/**
 * Checks the headers that repeat a tool's arguments, as its input schema declares (`x-mcp-header`).
 * @throws {HubError} headerMismatch
 */
export function checkArguments(letter: Letter, fields: Fields, catalog: Catalog): void {
  const { request, members } = letter;
  if (request.method !== Method.toolsCall) return;
  const name = textIn(letter, "name") ?? "";
  // A name without prefix is looked up if one server has it; if several do, only the router can choose.
  const [bare, another] =
    catalog.tools.find(name) === undefined ? catalog.tools.findRemote(name) : [];
  const item = (catalog.tools.find(name) ?? (another === undefined ? bare : undefined))?.item;
  const mirrored = item && mirroredParamsOf(item);
  if (mirrored === undefined || mirrored.length === 0) return;
  const member = lastMember(members, "arguments");
  const given = member && parseRange(request.bytes, member);
  for (const { header, path } of mirrored) {
    const value = path.reduce(argumentAt, given) ?? undefined;
    const said = decodeHeaderText(fields.get(header));
    if (typeof value === "number") check(header, said && String(Number(said)), String(value));
    else if (typeof value === "string") check(header, said, value);
    else if (typeof value === "boolean") check(header, said, String(value));
    else if (value === undefined && said !== undefined) throw mismatch(header);
  }
}

function check(header: string, said: string | null | undefined, meant: string): void {
  if (said !== meant) throw mismatch(header);
}

function mismatch(header: string): HubError {
  return new HubError("headerMismatch", `The header ${header} does not say what the request says.`);
}
