import type { ByteRange, Piece } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import type { EncodedMessage, Notification, Response } from "../jsonrpc/message.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { Capabilities, ExtensionSettings } from "../protocol/capabilities.ts";
import type { Implementation, ServerRequestMethod } from "../protocol/legacy.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";

/** The servers that a client uses. It sees nothing of the others. */
export interface ServerSubset {
  /** Identifies the subset: equal subsets have equal keys. */
  readonly key: string;
  /** The subset is exactly one server, permanently: names need no prefix. */
  readonly isSingle: boolean;
  has(server: string): boolean;
}

/** All servers, including those that are added later. */
export const ALL_SERVERS: ServerSubset = { key: "", isSingle: false, has: () => true };

/** The subset of the servers with these names, whether or not they exist. */
export function subsetOf(servers: readonly string[]): ServerSubset {
  const names = new Set(servers);
  return {
    key: JSON.stringify([...names].sort()),
    isSingle: names.size === 1,
    has: (server) => names.has(server),
  };
}

/** The prefix of the exposed names of a server's tools and prompts in a subset; empty: no prefix. */
export function namePrefixOf(
  { isSingle }: ServerSubset,
  { prefix }: Pick<RunnableServer, "prefix">,
): string {
  return isSingle ? "" : prefix;
}

/** What servers are told about a client; decides which connection it uses. */
export interface ClientProfile {
  /**
   * The client's era; its servers are spoken to in this era if they support it. Legacy until the client has sent its
   * first message.
   */
  readonly era: Era;
  /** The client's capability class: servers may list other tools for a client with more capabilities. */
  readonly capabilities: string;
  /** The client's id, for servers with a connection per client; undefined if the client cannot be identified. */
  readonly client: string | undefined;
  /** The key of the connection that the client uses, by the server's `isolation` ("shared" or "perClient"). */
  readonly keys: Readonly<Record<RunnableServer["isolation"], string>>;
  /**
   * How servers reach the client. Undefined for a client that has not declared its capabilities yet, or never will
   * (plugins, status commands): it may use any connection of a shared server.
   */
  readonly channel: ClientChannel | undefined;
  /** The servers that the client uses. Connections are shared with clients that use other subsets. */
  readonly subset: ServerSubset;
}

export function profileOf(
  capabilities: string,
  client: string | undefined,
  channel?: ClientChannel,
  subset: ServerSubset = ALL_SERVERS,
): ClientProfile {
  const era = channel?.era ?? "legacy";
  const shared = era === "legacy" ? capabilities : `${era} ${capabilities}`;
  const perClient = JSON.stringify([shared, client ?? null]);
  return { era, capabilities, client, keys: { shared, perClient }, channel, subset };
}

/** The profile for use without a particular client: it has no capabilities. */
export const SHARED_PROFILE: ClientProfile = profileOf("", undefined);

/** How servers send requests and notifications to one client. */
export interface ClientChannel extends ServerRequestTarget {
  /** Identifies the client among the server's clients; undefined: its requests may come from different clients. */
  readonly id?: string | undefined;
  readonly era: Era;
  /** Extensions and experimental capabilities that the client declares. */
  readonly settings?: ExtensionSettings | undefined;
  /** The lowest level of log messages that the client wants; undefined: it has not set one. */
  readonly level: LogSeverity | undefined;
  /** A server's request was refused because the client does not declare the needed capability. */
  onMissingCapability?(server: string, requiredCapabilities: object): void;
  /** Sends a server's notification to the client. */
  notify(server: string, message: EncodedMessage): void;
  /** Sends a log message of a server, if the client wants that level. */
  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void;
}

/**
 * A client's request, as a way to reach its client: what a server sends on the response stream of a request concerns
 * that client only.
 */
export interface ClientRequest extends ServerRequestTarget {
  /** The client that has sent it; undefined: a client that servers cannot send notifications to. */
  readonly channel: ClientChannel | undefined;
  /** A server's request was refused because the client does not declare the needed capability. */
  onMissingCapability?(requiredCapabilities: object): void;
  /** Sends the client a log message that the server has sent on the response stream of this request. */
  log(severity: LogSeverity, message: EncodedMessage): void;
}

/** The clients that one connection serves. */
export interface ConnectionClients {
  /** The era that all these clients speak. */
  readonly era: Era;
  /**
   * The capabilities that all these clients have, and the extensions and experimental capabilities that are declared to
   * the server.
   */
  readonly capabilities: Capabilities & Partial<ExtensionSettings>;
  /** The clients that are present now. */
  current(): readonly ClientChannel[];
}

export const NO_CLIENTS: ConnectionClients = { era: "legacy", capabilities: {}, current: () => [] };

/** The client, if the connection has only one present client: then everything that the server sends concerns it. */
export function onlyClientOf(clients: ConnectionClients): ClientChannel | undefined {
  const [client, ...others] = clients.current();
  return others.length === 0 ? client : undefined;
}

/** A request of a server to a client (sampling, elicitation, roots), which gets one response. */
export interface ServerRequest {
  readonly server: string;
  readonly method: ServerRequestMethod;
  /** The params, byte for byte. @param token replaces the progress token, if the server gave one */
  params(token: Piece): readonly Piece[] | undefined;
  /** The client has responded. @param body the value of the response's `result` or `error` */
  answer(outcome: Response["outcome"], body: Uint8Array): void;
  /** No response will come. */
  fail(error: HubError): void;
  /** The client reports progress. @param tokens ranges of the progress token in the notification's bytes */
  progress(notification: Notification, tokens: readonly ByteRange[]): void;
}

/** Accepts requests of servers of either era for a client of either era. */
export interface ServerRequestTarget {
  /**
   * Sends a request. Then either its `answer` or its `fail` is called, once, unless the request is cancelled.
   * @returns a function that cancels it
   */
  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void;
}

/** The sender of a request, which servers without sessions must be told with each request (basic/versioning). */
export interface ClientDeclaration {
  /** The era of the request. A modern request carries the rest of the declaration itself. */
  readonly era: Era;
  readonly info: Implementation;
  /** The client's capabilities as declared. */
  readonly declaredCapabilities: object;
  /** The lowest log level that the client wants; undefined: no log messages. */
  readonly level: LogSeverity | undefined;
  /** The hub polls tasks to their end for this client. */
  readonly hubPollsTasks?: true;
}

/**
 * The declaration of a client that has declared nothing. If a legacy client sets no log level, the server chooses one;
 * a server that has no default is sent this level.
 */
export const NO_DECLARATION: ClientDeclaration = {
  era: "legacy",
  info: { name: "", version: "" },
  declaredCapabilities: {},
  level: "info",
};
