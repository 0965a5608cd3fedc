import type { Capabilities, Settings } from "../protocol/capabilities.ts";
import type { Era } from "../protocol/era.ts";
import type { Severity } from "../protocol/severity.ts";
import type { Message } from "../wire/jsonrpc.ts";
import type { Ask } from "./ask.ts";

/** A client, as far as a server can reach it. */
export interface Attendee extends Ask {
  /** The same for all that one client is to servers; undefined: its requests may be those of different clients. */
  readonly id?: string | undefined;
  readonly era: Era;
  /** What it declares beside what it can be asked for. */
  readonly settings?: Settings | undefined;
  /** From which level on it wants servers' log messages; undefined: it has not said so. */
  readonly level: Severity | undefined;
  /** A server was refused a question, because the client has not said that it can do this. */
  lacks?(server: string, needed: object): void;
  /** Sends what a server has to say to it. */
  tell(server: string, message: Message): void;
  /** Sends a line of a server's log, if the client wants it. */
  tellLog(server: string, severity: Severity, message: Message): void;
}

/** A client's request, as the way to its client: what its server says on a stream of its own belongs to nobody else. */
export interface Occasion extends Ask {
  /** Whose it is; undefined: somebody whom servers cannot tell anything. */
  readonly attendee: Attendee | undefined;
  /** The server was refused a question, because the client has not said that it can do this. */
  lacks?(needed: object): void;
  /** The server has a line of its log for whoever asked. */
  log(severity: Severity, message: Message): void;
}

/** The clients that one connection is for. */
export interface Audience {
  /** What each of them speaks. */
  readonly era: Era;
  /** What each of them can be asked for, and the extensions and experimental capabilities that servers are told of. */
  readonly capabilities: Capabilities & Partial<Settings>;
  /** Those that are there now. */
  clients(): readonly Attendee[];
}

export const NOBODY: Audience = { era: "legacy", capabilities: {}, clients: () => [] };

/** Who alone is there: what the server says can belong to no other. */
export function onlyOne(audience: Audience): Attendee | undefined {
  const [client, ...others] = audience.clients();
  return others.length === 0 ? client : undefined;
}
