import type { ByteRange, Piece } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import type { EncodedMessage, Notification, Response } from "../jsonrpc/message.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Capabilities, ExtensionSettings } from "../protocol/capabilities.ts";
import type { Implementation, ServerRequestMethod } from "../protocol/legacy.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { ClientTask, TaskMethodName } from "../protocol/tasks.ts";

/** The servers that a client has to do with; of all others it neither sees nor hears anything. */
export interface ServerSubset {
  /** The same for the same servers. */
  readonly key: string;
  /** There is one, and never another: its names need no prefix. */
  readonly isSingle: boolean;
  has(server: string): boolean;
}

/** All servers, whichever there are. */
export const ALL_SERVERS: ServerSubset = { key: "", isSingle: false, has: () => true };

/** These servers alone, whether or not there are such. */
export function subsetOf(servers: readonly string[]): ServerSubset {
  const names = new Set(servers);
  return {
    key: JSON.stringify([...names].sort()),
    isSingle: names.size === 1,
    has: (server) => names.has(server),
  };
}

/** What a server's names begin with there; empty if there is nothing. */
export function namePrefixOf(
  { isSingle }: ServerSubset,
  { prefix }: Pick<RunnableServer, "prefix">,
): string {
  return isSingle ? "" : prefix;
}

/** For whom a connection is: what tells one from another, beside the server. */
export interface ClientProfile {
  /** What the client speaks, and its servers with it if they can. Who has not said anything yet counts as of old. */
  readonly era: Era;
  /** The class of what the client can do: servers may offer other tools to one that can do more. */
  readonly capabilities: string;
  /** The client, for servers that every client has for itself; undefined where nobody can say who it is. */
  readonly client: string | undefined;
  /** Under which of a server's connections it finds its own, if clients share the server and if they do not. */
  readonly keys: Readonly<Record<RunnableServer["isolation"], string>>;
  /**
   * How servers reach the client. Who has not said yet what it can do, or never will (plugins, those who only look),
   * is reached by none: of servers that clients share it takes whatever connection there is.
   */
  readonly attendee: ClientChannel | undefined;
  /** The servers that there are for it. It shares their connections with those for whom there are others. */
  readonly scope: ServerSubset;
}

export function profileOf(
  capabilities: string,
  client: string | undefined,
  attendee?: ClientChannel,
  scope: ServerSubset = ALL_SERVERS,
): ClientProfile {
  const era = attendee?.era ?? "legacy";
  const shared = era === "legacy" ? capabilities : `${era} ${capabilities}`;
  const perClient = JSON.stringify([shared, client ?? null]);
  return { era, capabilities, client, keys: { shared, perClient }, attendee, scope };
}

/** Nobody in particular, who can do nothing in particular. */
export const SHARED_PROFILE: ClientProfile = profileOf("", undefined);

/** How servers reach one client. */
export interface ClientChannel extends ServerRequestTarget {
  /** Identifies the client among the clients of servers; undefined: its requests may come from different clients. */
  readonly id?: string | undefined;
  readonly era: Era;
  /** Extensions and experimental capabilities that the client declares. */
  readonly settings?: ExtensionSettings | undefined;
  /** The lowest level of log messages that it wants; undefined: it has not set one. */
  readonly level: LogSeverity | undefined;
  /** A server's request was refused because the client does not declare the needed capability. */
  onMissingCapability?(server: string, requiredCapabilities: object): void;
  /** Sends a server's notification to the client. */
  notify(server: string, message: EncodedMessage): void;
  /** Sends a log message of a server, if the client wants that level. */
  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void;
}

/**
 * A client's request, as the way to its client: what a server sends on the response stream of a request concerns that
 * client only.
 */
export interface ClientRequest extends ServerRequestTarget {
  /** The client that has sent it; undefined: one that servers cannot send notifications to. */
  readonly channel: ClientChannel | undefined;
  /** A server's request was refused because the client does not declare the needed capability. */
  onMissingCapability?(requiredCapabilities: object): void;
  /** The server has sent a log message on the stream of this request. */
  log(severity: LogSeverity, message: EncodedMessage): void;
}

/** The clients that one connection serves. */
export interface ConnectionClients {
  /** The era that all of them speak. */
  readonly era: Era;
  /**
   * The capabilities that all of them have, and the extensions and experimental capabilities that the server is told
   * of.
   */
  readonly capabilities: Capabilities & Partial<ExtensionSettings>;
  /** Those that are present now. */
  current(): readonly ClientChannel[];
}

export const NO_CLIENTS: ConnectionClients = { era: "legacy", capabilities: {}, current: () => [] };

/** The client, if it is the only one: everything that the server sends concerns it. */
export function onlyClientOf(clients: ConnectionClients): ClientChannel | undefined {
  const [client, ...others] = clients.current();
  return others.length === 0 ? client : undefined;
}

/**
 * A request of a server's to a client (sampling, elicitation, roots, or about a task), which waits for one response.
 */
export interface ServerRequest {
  readonly server: string;
  readonly method: ServerRequestMethod | TaskMethodName;
  /** The params as the server wrote them. @param token replaces the progress token, if the server gave one */
  params(token: Piece): readonly Piece[] | undefined;
  /**
   * The client has responded.
   * @param body the bare result or error
   * @returns the task that the client has created instead of a result, if any
   */
  answer(outcome: Response["outcome"], body: Uint8Array): ClientTask | undefined;
  /** No response will come. */
  fail(error: HubError): void;
  /** The client reports progress. @param tokens ranges of the progress token in the notification's bytes */
  progress(notification: Notification, tokens: readonly ByteRange[]): void;
}

/** Takes requests of servers of either era for a client of either era. */
export interface ServerRequestTarget {
  /**
   * Sends a request. Calls either its `answer` or its `fail`, once, unless it is cancelled.
   * @returns a function that cancels it
   */
  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void;
}

/** Who a request is from, as far as servers that keep nothing between requests have to be told with each (basic/versioning). */
export interface ClientDeclaration {
  /** Of the request: a modern one says the rest itself. */
  readonly era: Era;
  readonly info: Implementation;
  /** What it can be asked for, as it is declared. */
  readonly declared: object;
  /** From which level on it wants log messages; undefined: none. */
  readonly level: LogSeverity | undefined;
  /** The hub brings tasks to their end for it. */
  readonly isDriven?: true;
}

/** Who has said nothing yet. Those of the legacy era who set no level leave it to the server: this is what one is told that decides nothing. */
export const NO_DECLARATION: ClientDeclaration = {
  era: "legacy",
  info: { name: "", version: "" },
  declared: {},
  level: "info",
};
