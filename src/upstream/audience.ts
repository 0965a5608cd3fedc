import type { Capabilities } from "../protocol/capabilities.ts";

/** A client, as far as a server can reach it. */
export interface Attendee {}

/** The clients that one connection is for. */
export interface Audience {
  /** What each of them can be asked for. */
  readonly capabilities: Capabilities;
  /** Those that are there now. */
  clients(): readonly Attendee[];
}

export const NOBODY: Audience = { capabilities: {}, clients: () => [] };
