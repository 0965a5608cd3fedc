import { Buffer } from "node:buffer";
import type { Catalog } from "../../catalog/catalog.ts";
import type { Item } from "../../catalog/item.ts";
import { HubError } from "../../errors.ts";
import { lastMember, scanObject, stringOf, valueOf } from "../../json.ts";
import { TicketMethod } from "../../protocol/extension.ts";
import { Method } from "../../protocol/legacy.ts";
import type { Request as RpcRequest } from "../../wire/jsonrpc.ts";
import { type Letter, textIn, versionOf } from "../modern/letter.ts";

/** What of its params the header `Mcp-Name` of a request repeats. */
const NAMED: ReadonlyMap<string, string> = new Map([
  [Method.toolsCall, "name"],
  [Method.promptsGet, "name"],
  [Method.resourcesRead, "uri"],
  [TicketMethod.get, "taskId"],
  [TicketMethod.update, "taskId"],
  [TicketMethod.cancel, "taskId"],
]);

/**
 * Checks the headers that repeat what a request says, for those who read no bodies (Streamable HTTP, standard headers).
 * @throws {HubError} headerMismatch
 */
export function checkHeaders(request: RpcRequest, headers: Headers): void {
  const { method, params, bytes } = request;
  check("Mcp-Method", headers.get("Mcp-Method"), method);
  const key = NAMED.get(method);
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const name = key === undefined ? undefined : stringOf(bytes, lastMember(members, key));
  if (name !== undefined) check("Mcp-Name", decode(headers.get("Mcp-Name")), name);
  const version = versionOf(request);
  if (typeof version !== "string") return;
  check("MCP-Protocol-Version", headers.get("MCP-Protocol-Version"), version);
}

/** Checks the headers that repeat a tool's arguments, as its schema says. @throws {HubError} headerMismatch */
export function checkArguments(letter: Letter, headers: Headers, catalog: Catalog): void {
  const { request, members } = letter;
  if (request.method !== Method.toolsCall) return;
  const item = catalog.tools.find(textIn(letter, "name") ?? "")?.item;
  const mirrored = item === undefined ? NONE : mirroredBy(item);
  if (mirrored.length === 0) return;
  const member = lastMember(members, "arguments");
  const given = member && valueOf(request.bytes, member);
  for (const { header, path } of mirrored) {
    const value = path.reduce(lookUp, given) ?? undefined;
    const said = decode(headers.get(header));
    if (typeof value === "number") check(header, said && String(Number(said)), String(value));
    else if (typeof value === "string") check(header, said, value);
    else if (typeof value === "boolean") check(header, said, String(value));
    else if (value === undefined && said !== undefined) throw mismatch(header);
  }
}

/** An argument that a header repeats. */
interface Mirrored {
  readonly header: string;
  readonly path: readonly string[];
}

const NONE: readonly Mirrored[] = [];
const known = new WeakMap<Item, readonly Mirrored[]>();
const ANNOTATION = "x-mcp-header";

function mirroredBy(item: Item): readonly Mirrored[] {
  const found = known.get(item) ?? readMirrored(item);
  known.set(item, found);
  return found;
}

function readMirrored({ bytes }: Item): readonly Mirrored[] {
  if (!Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(ANNOTATION)) return NONE;
  const schema = lastMember(scanObject(bytes, 0)?.items ?? [], "inputSchema");
  return schema === undefined ? NONE : collect(valueOf(bytes, schema), []);
}

/** Only what is reached through `properties` alone can be repeated. */
function collect(schema: unknown, path: readonly string[]): readonly Mirrored[] {
  const properties = lookUp(schema, "properties");
  if (typeof properties !== "object" || properties === null) return NONE;
  return Object.entries(properties).flatMap(([key, property]: [string, unknown]) => {
    const name = lookUp(property, ANNOTATION);
    const own = [...path, key];
    const here = typeof name === "string" && isToken(name);
    return [
      ...(here ? [{ header: `Mcp-Param-${name}`, path: own }] : []),
      ...collect(property, own),
    ];
  });
}

/** What may be a part of a header's name. */
function isToken(name: string): boolean {
  return /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name);
}

function lookUp(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.getOwnPropertyDescriptor(value, key)?.value;
}

/** What a header says that may say it in Base64; undefined if it says nothing that can be read. */
function decode(value: string | null): string | undefined {
  const coded = /^=\?base64\?(.*)\?=$/.exec(value ?? "")?.[1];
  if (coded === undefined) return value ?? undefined;
  const bytes = Buffer.from(coded, "base64");
  // What is no Base64 is passed over in reading.
  return bytes.toString("base64") === coded ? bytes.toString() : undefined;
}

function check(header: string, said: string | null | undefined, meant: string): void {
  if (said !== meant) throw mismatch(header);
}

function mismatch(header: string): HubError {
  return new HubError("headerMismatch", `The header ${header} does not say what the request says.`);
}
