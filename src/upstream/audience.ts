import type { Capabilities, ExtensionSettings } from "../protocol/capabilities.ts";
import type { Era } from "../protocol/era.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import type { ServerRequestTarget } from "./ask.ts";

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
