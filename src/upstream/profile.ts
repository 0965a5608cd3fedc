import type { RunnableServer } from "../manifest/schema.ts";
import type { Era } from "../protocol/era.ts";
import type { ClientChannel } from "./audience.ts";
import { ALL_SERVERS, type ServerSubset } from "./scope.ts";

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
