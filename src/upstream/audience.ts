import type { Capabilities, Settings } from "../protocol/capabilities.ts";
import type { Era } from "../protocol/era.ts";
import type { Severity } from "../protocol/log-level.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import type { Ask } from "./ask.ts";

/** How servers reach one client. */
export interface Attendee extends Ask {
  /** Identifies the client among the clients of servers; undefined: its requests may come from different clients. */
  readonly id?: string | undefined;
  readonly era: Era;
  /** Extensions and experimental capabilities that the client declares. */
  readonly settings?: Settings | undefined;
  /** The lowest level of log messages that it wants; undefined: it has not set one. */
  readonly level: Severity | undefined;
  /** A server's request was refused because the client does not declare the needed capability. */
  lacks?(server: string, needed: object): void;
  /** Sends a server's notification to the client. */
  tell(server: string, message: EncodedMessage): void;
  /** Sends a log message of a server, if the client wants that level. */
  tellLog(server: string, severity: Severity, message: EncodedMessage): void;
}

/**
 * A client's request, as the way to its client: what a server sends on the response stream of a request concerns that
 * client only.
 */
export interface Occasion extends Ask {
  /** The client that has sent it; undefined: one that servers cannot send notifications to. */
  readonly attendee: Attendee | undefined;
  /** A server's request was refused because the client does not declare the needed capability. */
  lacks?(needed: object): void;
  /** The server has sent a log message on the stream of this request. */
  log(severity: Severity, message: EncodedMessage): void;
}

/** The clients that one connection serves. */
export interface Audience {
  /** The era that all of them speak. */
  readonly era: Era;
  /**
   * The capabilities that all of them have, and the extensions and experimental capabilities that the server is told
   * of.
   */
  readonly capabilities: Capabilities & Partial<Settings>;
  /** Those that are present now. */
  clients(): readonly Attendee[];
}

export const NOBODY: Audience = { era: "legacy", capabilities: {}, clients: () => [] };

/** The client, if it is the only one: everything that the server sends concerns it. */
export function onlyOne(audience: Audience): Attendee | undefined {
  const [client, ...others] = audience.clients();
  return others.length === 0 ? client : undefined;
}
