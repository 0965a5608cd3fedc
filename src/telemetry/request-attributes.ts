import { HubError } from "../base/errors.ts";
import { bodyOf, errorCodeOf, type Response } from "../jsonrpc/message.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { Attributes } from "./span.ts";

/*
 * What the spans of requests say: of those of clients, of the attempts at servers, and of the hub's own.
 */

/** How a peer is connected. */
export interface PeerNetwork {
  readonly transport: "pipe" | "tcp" | "unix" | undefined;
  readonly protocol?: { readonly name: string; readonly version: string } | undefined;
}

/** How a request has failed. */
export interface RequestFailure {
  /** A JSON-RPC code as text, `tool_error`, or the code of one of the hub's errors. */
  readonly type: string;
  /** Whole, and with the secrets that a peer has written into it. */
  readonly message: string;
  /** The JSON-RPC code, if a peer has sent one. */
  readonly rpcCode?: string | undefined;
}

/** The type of an error of a peer without a code. */
export const UNKNOWN_ERROR = "_OTHER";

/** How a request has failed whose answer is an error. */
export function failureOfError(response: Response): RequestFailure {
  const code = errorCodeOf(response);
  const message = bodyOf(response).string("message") ?? "";
  if (typeof code !== "number") return { type: UNKNOWN_ERROR, message };
  return { type: String(code), message, rpcCode: String(code) };
}

/** How a request has failed that got no answer. @param thrown an error of the hub, or the reason of an abort */
export function failureOfThrown(thrown: unknown): RequestFailure {
  return thrown instanceof HubError
    ? { type: thrown.code, message: thrown.message }
    : { type: "cancelled", message: "The request was cancelled." };
}

/** What is known of a request to a server. */
export interface AttemptTarget {
  readonly server: string;
  readonly method: string;
  /** The server's own name of the tool or prompt, or the URI of the resource; undefined for other requests. */
  readonly name: string | undefined;
  readonly network: PeerNetwork;
  readonly address: PeerAddress | undefined;
  readonly protocolVersion: string | undefined;
  /** A digest of the id of the session over HTTP. */
  readonly sessionId: string | undefined;
}

export interface PeerAddress {
  readonly host: string;
  readonly port: number;
}

/** The address of a remote server, as its entry says; undefined if it has `${…}` there, or there is none. */
export function addressOf(spec: RunnableServer): PeerAddress | undefined {
  if (spec.kind !== "remote") return undefined;
  const known = addresses.get(spec);
  if (known !== undefined) return known.address;
  const url = URL.parse(spec.url);
  const port = url === null || url.port === "" ? undefined : Number(url.port);
  const usual = url?.protocol === "https:" ? 443 : 80;
  const isPlain = url !== null && !/[${}%]/.test(url.hostname);
  const address = isPlain ? { host: url.hostname, port: port ?? usual } : undefined;
  addresses.set(spec, { address });
  return address;
}
const addresses = new WeakMap<RunnableServer, { readonly address: PeerAddress | undefined }>();

/** The attributes of a request to a server. @param id the id of the request there */
export function attemptAttributes(
  { method, name, network, address, protocolVersion, sessionId, server }: AttemptTarget,
  id: number,
  failure: RequestFailure | undefined,
): Attributes {
  return {
    ...attributesOf(method, name),
    "jsonrpc.request.id": String(id),
    ...optional("mcp.protocol.version", protocolVersion),
    ...optional("mcp.session.id", sessionId),
    ...networkAttributes(network),
    ...optional("server.address", address?.host),
    ...(address?.port !== undefined && { "server.port": address.port }),
    "toolmux.server": server,
    ...failureAttributes(failure),
  };
}

/** The method without a span: it would outnumber all others. */
export const PING = "ping";

/** A member of the params by which each method names what the request is about, and the attribute for it. */
export const TARGETS: Readonly<
  Record<string, { readonly key: string; readonly attribute: string; readonly isInName: boolean }>
> = {
  "tools/call": { key: "name", attribute: "gen_ai.tool.name", isInName: true },
  "prompts/get": { key: "name", attribute: "gen_ai.prompt.name", isInName: true },
  "resources/read": { key: "uri", attribute: "mcp.resource.uri", isInName: false },
  "resources/subscribe": { key: "uri", attribute: "mcp.resource.uri", isInName: false },
  "resources/unsubscribe": { key: "uri", attribute: "mcp.resource.uri", isInName: false },
};
/** What one of the hub's own requests is about: see `AttemptTarget.name`. */
export function targetOf(method: string, params: object | undefined): string | undefined {
  const target = TARGETS[method];
  const value: unknown = target && (params as Record<string, unknown> | undefined)?.[target.key];
  return typeof value === "string" ? value : undefined;
}

/** The only method with arguments and a result that spans can have. */
export const TOOL_CALL = "tools/call";
/** What a request is about. @param target see `AttemptTarget.name` */
export function attributesOf(method: string, target: string | undefined): Attributes {
  return {
    "mcp.method.name": method,
    ...(method === TOOL_CALL && { "gen_ai.operation.name": "execute_tool" }),
    ...optional(TARGETS[method]?.attribute ?? "", target),
  };
}

/** Maximum length of the name of a span, in characters. */
const MAX_NAME = 256;

/** The name of a request's span. URIs are not in it, because names are meant to be few. */
export function shownName(
  method: string,
  target: string | undefined,
  redact: (text: string) => string,
): string {
  const isNamed = TARGETS[method]?.isInName === true && target !== undefined;
  return redact(isNamed ? `${method} ${target}` : method)
    .slice(0, MAX_NAME)
    .toWellFormed();
}

export function networkAttributes({ transport, protocol }: PeerNetwork): Attributes {
  return {
    ...optional("network.transport", transport),
    ...optional("network.protocol.name", protocol?.name),
    ...optional("network.protocol.version", protocol?.version),
  };
}

export function failureAttributes(failure: RequestFailure | undefined): Attributes {
  return {
    ...optional("error.type", failure?.type),
    ...optional("rpc.response.status_code", failure?.rpcCode),
  };
}

export function optional(name: string, value: string | undefined): Attributes {
  return value === undefined || name === "" ? {} : { [name]: value };
}
