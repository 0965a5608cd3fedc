import type { Capabilities } from "../protocol/capabilities.ts";
import type { Message } from "../wire/jsonrpc.ts";
import type { Ask } from "./ask.ts";

/** A client, as far as a server can reach it. */
export interface Attendee extends Ask {
  /** Sends what a server has to say to it. */
  tell(server: string, message: Message): void;
}

/** The clients that one connection is for. */
export interface Audience {
  /** What each of them can be asked for. */
  readonly capabilities: Capabilities;
  /** Those that are there now. */
  clients(): readonly Attendee[];
}

export const NOBODY: Audience = { capabilities: {}, clients: () => [] };

/** Who alone is there: what the server says can belong to no other. */
export function onlyOne(audience: Audience): Attendee | undefined {
  const [client, ...others] = audience.clients();
  return others.length === 0 ? client : undefined;
}
