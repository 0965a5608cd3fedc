import type { ByteRange, Piece } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import type { EncodedMessage, Notification, Response } from "../jsonrpc/message.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import type { Isolation } from "../manifest/isolations.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { Capabilities, ExtensionSettings } from "../protocol/capabilities.ts";
import type { Implementation, ServerRequestMethod } from "../protocol/legacy.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";

/** The servers that a client uses. All other servers are invisible to the client. */
export interface ServerSubset {
  /** Equal subsets have equal keys. */
  readonly key: string;
  /** Whether the subset is exactly one server and stays so. If so, names need no prefix. */
  readonly isSingle: boolean;
  /** The names of the servers; undefined: all servers. */
  readonly names: readonly string[] | undefined;
  has(server: string): boolean;
}

/** All servers, including those that are added later. */
export const ALL_SERVERS: ServerSubset = {
  key: "",
  isSingle: false,
  names: undefined,
  has: () => true,
};

/** Makes a subset of the servers with these names. The servers need not exist. */
export function subsetOf(servers: readonly string[]): ServerSubset {
  const names = new Set(servers);
  return {
    key: JSON.stringify([...names].sort()),
    isSingle: names.size === 1,
    names: [...names],
    has: (server) => names.has(server),
  };
}

/** The servers that are in both subsets. */
export function intersectSubsets(a: ServerSubset, b: ServerSubset): ServerSubset {
  if (a.names === undefined) return b;
  if (b.names === undefined) return a;
  return subsetOf(a.names.filter((name) => b.has(name)));
}

/** Returns the prefix of the exposed names of a server's tools and prompts in a subset; "" for no prefix. */
export function namePrefixOf(
  { isSingle }: ServerSubset,
  { prefix }: Pick<RunnableServer, "prefix">,
): string {
  return isSingle ? "" : prefix;
}

/** Determines which servers and connections a client uses, and what the servers are told about the client. */
export interface ClientProfile {
  /**
   * The client's era, which the hub also uses with the servers that support it. "legacy" until the client has sent its
   * first message.
   */
  readonly era: Era;
  /**
   * The client's capability class. Each class has its own connections, because a server may list different tools for
   * clients with other capabilities.
   */
  readonly capabilities: string;
  /** The client's id, for servers with a connection per client; undefined if the client cannot be identified. */
  readonly client: string | undefined;
  /** The keys of the client's connections to servers, for each isolation, without the client's values. */
  readonly keys: Readonly<Record<Isolation, string>>;
  /**
   * The channel for servers' messages to the client. Undefined until the client has declared its capabilities, and
   * always for plugins and status commands.
   */
  readonly channel: ClientChannel | undefined;
  /**
   * Whether the client uses any connection of a shared server if there is none for its capabilities, so that no extra
   * process is started. True if there is no `channel`, and for clients of the operator.
   */
  readonly usesAnyConnection: boolean;
  /** The servers that the client uses. Connections are shared with clients that use other subsets. */
  readonly subset: ServerSubset;
  /** Undefined if the hub's own folder and environment count. */
  readonly origin: ClientOrigin | undefined;
}

export function profileOf(
  capabilities: string,
  client: string | undefined,
  channel?: ClientChannel,
  subset: ServerSubset = ALL_SERVERS,
  usesAnyConnection = channel === undefined,
  origin?: ClientOrigin,
  era: Era = channel?.era ?? "legacy",
): ClientProfile {
  const shared = era === "legacy" ? capabilities : `${era} ${capabilities}`;
  const perClient = JSON.stringify([shared, client ?? null]);
  return {
    era,
    capabilities,
    client,
    keys: { auto: shared, shared, perClient, one: "" },
    channel,
    usesAnyConnection,
    subset,
    origin,
  };
}

/** The profile that stands for no particular client, and so has no capabilities. */
export const SHARED_PROFILE: ClientProfile = profileOf("", undefined);

/** The channel over which servers send requests and notifications to one client. */
export interface ClientChannel extends ServerRequestTarget {
  /** The client's id; undefined if the requests may come from different clients. */
  readonly id?: string | undefined;
  readonly era: Era;
  readonly settings?: ExtensionSettings | undefined;
  /** The lowest level of log messages that the client wants; undefined if the client has not set one. */
  readonly level: LogSeverity | undefined;
  /**
   * Whether the client sees anything of a server now; undefined if that is not known before the server has listed its
   * items. A server of which the client sees nothing sends it nothing.
   */
  sees(server: string): boolean | undefined;
  /** Called when a server's request was refused because the client has not declared the needed capability. */
  onMissingCapability?(server: string, requiredCapabilities: object): void;
  notify(server: string, message: EncodedMessage): void;
  /** Sends a server's log message to the client, if the client wants that level. */
  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void;
}

/** A client's request, as a channel to the client: messages of servers are sent on the request's response stream. */
export interface ClientRequest extends ServerRequestTarget {
  /** The client that has sent the request; undefined if servers cannot send notifications to it. */
  readonly channel: ClientChannel | undefined;
  /** The id of the legacy task that the request, or the call of which it is a part, has become. */
  readonly taskId: string | undefined;
  /** Called when a server's request was refused because the client has not declared the needed capability. */
  onMissingCapability?(requiredCapabilities: object): void;
  /** Sends the client a log message that a server has sent on the response stream of this request. */
  log(severity: LogSeverity, message: EncodedMessage): void;
}

/** The clients that one connection serves. */
export interface ConnectionClients {
  readonly era: Era;
  /** Whether the server is told no capabilities of any client, and can ask none (`isolation` "one"). */
  readonly isForEverybody: boolean;
  /**
   * The capabilities that are declared to the server: those that all clients of the connection have, including
   * extensions and experimental capabilities.
   */
  readonly capabilities: Capabilities & Partial<ExtensionSettings>;
  current(): readonly ClientChannel[];
}

export const NO_CLIENTS: ConnectionClients = {
  era: "legacy",
  isForEverybody: false,
  capabilities: {},
  current: () => [],
};

/**
 * Returns the only client of a connection, to which all messages of the server belong; undefined if the connection has
 * no client or several.
 */
export function onlyClientOf(clients: ConnectionClients): ClientChannel | undefined {
  const [client, ...others] = clients.current();
  return others.length === 0 ? client : undefined;
}

/** A server's request to a client (sampling, elicitation, roots), which gets one response. */
export interface ServerRequest {
  readonly server: string;
  readonly method: ServerRequestMethod;
  /** Returns the params, byte for byte. @param token the token that replaces the server's progress token, if any */
  params(token: Piece): readonly Piece[] | undefined;
  /** Called with the client's response. @param body the value of the response's `result` or `error` */
  answer(outcome: Response["outcome"], body: Uint8Array): void;
  /** Called when no response will come. */
  fail(error: HubError): void;
  /** Called when the client reports progress. @param tokens ranges of the progress token in the notification's bytes */
  progress(notification: Notification, tokens: readonly ByteRange[]): void;
}

/** Sends servers' requests of either era to a client of either era. */
export interface ServerRequestTarget {
  /**
   * Sends a request. Later, its `answer` or its `fail` is called once, unless the request is cancelled.
   * @returns a function that cancels the request
   */
  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void;
}

/**
 * The facts about a request's sender that servers must be told. Modern servers get them with each request
 * (basic/versioning).
 */
export interface ClientDeclaration {
  /** The era of the sender. A modern request itself contains the other members of the declaration. */
  readonly era: Era;
  readonly info: Implementation;
  readonly declaredCapabilities: object;
  /** The lowest log level that the client wants; undefined: no log messages. */
  readonly level: LogSeverity | undefined;
  /** Whether the hub polls tasks to their end for this client. */
  readonly hubPollsTasks?: true;
  /**
   * Whether the client is a part of toolmux, which cannot read an answer that is not JSON. Other clients get every
   * answer unread.
   */
  readonly isOwn?: true;
}

/**
 * The declaration of a client that has declared nothing. It contains a `level`, because a modern server sends no log
 * messages for a request without a level, whereas a legacy server chooses a level itself if the client sets none.
 */
export const NO_DECLARATION: ClientDeclaration = {
  era: "legacy",
  info: { name: "", version: "" },
  declaredCapabilities: {},
  level: "info",
};
