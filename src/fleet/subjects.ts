/**
 * fleet/: what hubs say to each other on NATS. `subjects.ts` has the subjects, `frames.ts` the headers and the frames of
 * an answer, `parts.ts` answers that are larger than one message, `announcements.ts` which hub exports which servers,
 * `bus.ts` the connection to NATS as the other files see it, `nats-bus.ts` the connection itself, and
 * `socket-transport.ts` its bytes on Bun. Nothing here is loaded unless the manifest has `[fleet]`. Start here.
 *
 * Permissions of NATS are given for subjects, so a subject says who asks whom for what, and the body of a request must
 * agree with it. Requests to any hub have the subjects of the convention of nats-mcp-gateway (wire version 1); requests
 * to one hub have the same tokens behind the hub's name.
 */
import { Buffer } from "node:buffer";
import { HubError } from "../base/errors.ts";

const ROOT = "mcp.v1";
/** The token of a method that has no name, and of a user that is not named. */
export const NO_NAME = "_";
/** The beginning of tokens that stand for texts which cannot be tokens themselves. */
const ESCAPE = "-x-";
const TOKEN = /^[A-Za-z0-9_-]+$/;
/** The longest token, in characters: a NATS server closes a connection that sends a line over 4 KiB. */
const MAX_TOKEN = 1024;

/** Replies are sent only to subjects with this beginning, so that nobody can make a hub publish to other subjects. */
export const INBOX_ROOT = "_INBOX_";
/** Appended to the subject of a reply: the subject on which its reader controls the answer. */
export const CONTROL_SUFFIX = ".ctl";

/** Whether a text can be one token of a subject, as the convention wants tokens. */
export function isToken(text: string): boolean {
  return text.length <= MAX_TOKEN && TOKEN.test(text);
}

/**
 * The token for a text, from which `decodeToken` gets the text back. A text that is a token stands for itself, except
 * `_` and those that look encoded.
 * @throws {HubError} messageTooLarge if the text is too long for a subject
 */
export function encodeToken(text: string): string {
  if (text !== NO_NAME && isToken(text) && !text.startsWith(ESCAPE)) return text;
  const token = ESCAPE + Buffer.from(text, "utf8").toString("base64url");
  if (token.length <= MAX_TOKEN) return token;
  throw new HubError("messageTooLarge", "A name is too long for a subject of NATS.");
}

/** The text that a token stands for; undefined if no text has this token. */
export function decodeToken(token: string): string | undefined {
  if (token === NO_NAME || !isToken(token)) return undefined;
  if (!token.startsWith(ESCAPE)) return token;
  const text = Buffer.from(token.slice(ESCAPE.length), "base64url").toString("utf8");
  try {
    return encodeToken(text) === token ? text : undefined;
  } catch {
    return undefined;
  }
}

/** Who asks which server for what. */
export interface RequestAddress {
  readonly tenant: string;
  /** The user that asks; `_`: no particular one. */
  readonly user: string;
  readonly server: string;
  /** The method of MCP, such as `tools/call`. */
  readonly method: string;
  /** The name of the tool or prompt, the URI of the resource, or the id of the task; undefined: the method has none. */
  readonly name: string | undefined;
}

/** The tokens of a request from the server on: equal for all users. Callers may keep the result. */
export function requestTail({
  server,
  method,
  name,
}: Pick<RequestAddress, "server" | "method" | "name">): string {
  return `${encodeToken(server)}.${method.replaceAll("/", ".")}.${nameToken(name)}`;
}

/** The methods for which the convention has a token for each name: permissions can be given for single ones. */
const NAMED_METHODS: ReadonlySet<string> = new Set(["tools/call", "prompts/get"]);

/** Like `requestTail`, for peers that know only the convention: it has `_` for names that are no tokens. */
export function conventionalTail({
  server,
  method,
  name = NO_NAME,
}: Pick<RequestAddress, "server" | "method" | "name">): string {
  const token = NAMED_METHODS.has(method) && isToken(name) ? name : NO_NAME;
  return `${encodeToken(server)}.${method.replaceAll("/", ".")}.${token}`;
}

function nameToken(name: string | undefined): string {
  return name === undefined ? NO_NAME : encodeToken(name);
}

/** The beginning of the subjects of requests that any hub may answer, or the hub that is named. */
export function requestHead(tenant: string, user: string, hub?: string): string {
  const to = hub === undefined ? ROOT : `${ROOT}.hub.${encodeToken(hub)}`;
  return `${to}.req.${tenant}.${user}.`;
}

/** The subject to subscribe for requests to a server. @param hub undefined: the requests that any hub may answer */
export function requestsTo(server: string, hub?: string): string {
  return `${requestHead("*", "*", hub)}${encodeToken(server)}.>`;
}

/** A request's subject as received. */
export interface ReceivedAddress {
  readonly tenant: string;
  readonly user: string;
  readonly server: string;
  readonly method: string;
  /** The token in the place of the name. */
  readonly token: string;
  /** The hub that the request is addressed to; undefined: any. */
  readonly hub: string | undefined;
}

/** Reads the subject of a request. @returns undefined if it is none */
export function parseRequestSubject(subject: string): ReceivedAddress | undefined {
  const tokens = subject.split(".");
  const [mcp, version, kind, to] = tokens;
  if (`${mcp}.${version}` !== ROOT) return undefined;
  const isAddressed = kind === "hub";
  const hub = isAddressed ? decodeToken(to ?? "") : undefined;
  if (isAddressed && hub === undefined) return undefined;
  const rest = tokens.slice(isAddressed ? 4 : 2);
  const [req, tenant, user, serverToken, ...more] = rest;
  const token = more.pop();
  const server = decodeToken(serverToken ?? "");
  if (req !== "req" || tenant === undefined || user === undefined || server === undefined) return;
  if (token === undefined || more.length === 0 || !tokens.every(isToken)) return undefined;
  return { tenant, user, server, method: more.join("/"), token, hub };
}

/**
 * Whether the token of a received subject is that of a request's name. On subjects for any hub, `_` also stands for
 * names that have no token in the convention. A user who may call single tools may not publish there.
 */
export function agreesWithName(
  { token, hub, method }: ReceivedAddress,
  name: string | undefined,
): boolean {
  if (name === undefined) return token === NO_NAME;
  if (token !== NO_NAME) return decodeToken(token) === name;
  return hub === undefined && (name === NO_NAME || !isToken(name) || !NAMED_METHODS.has(method));
}

/** The subjects on which hubs find each other. */
export const Subject = {
  /** Asks all hubs what they export. */
  who: `${ROOT}.who`,
  /** Told by a hub: it exports servers, or others than before; it ends. */
  up: (hub: string): string => `${ROOT}.hub.${encodeToken(hub)}.up`,
  down: (hub: string): string => `${ROOT}.hub.${encodeToken(hub)}.down`,
  ups: `${ROOT}.hub.*.up`,
  downs: `${ROOT}.hub.*.down`,
  /** Asks one hub whether it is there. */
  ping: (hub: string): string => `${ROOT}.hub.${encodeToken(hub)}.ping`,
} as const;

/** The hub that a subject of `Subject` names; undefined if there is none. */
export function hubOf(subject: string): string | undefined {
  const [mcp, version, kind, hub] = subject.split(".");
  return `${mcp}.${version}.${kind}` === `${ROOT}.hub` ? decodeToken(hub ?? "") : undefined;
}

/**
 * The inbox of a connection for the answers of one hub. No other hub gets requests with it, so that hub can subscribe to
 * the control of all of them at once.
 */
export function inboxForHub(inbox: string, number: number): string {
  return `${inbox}${FOR_HUB}${number}`;
}

/** The inbox of a subject of an answer, if it is one that is for one hub alone. */
export function inboxOfHub(reply: string): string | undefined {
  const end = reply.lastIndexOf(".");
  const start = reply.lastIndexOf(".", end - 1);
  const mark = reply.indexOf(FOR_HUB, start);
  return start > 0 && mark >= 0 && mark < end ? reply.slice(0, end) : undefined;
}

const FOR_HUB = "-hub-";

/** The beginning of the subjects to which answers for a user are sent; each user has one of its own. */
export function inboxPrefixOf(tenant: string, user: string): string {
  return `${INBOX_ROOT}${tenant}_${user}`;
}
