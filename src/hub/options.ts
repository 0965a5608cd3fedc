import type { AuthorizationOptions } from "../auth/authorizer.ts";
import type { NameRules, Sha256 } from "../catalog/names.ts";
import type { Clock } from "../base/clock.ts";
import type { Alert, EventBus } from "../base/events.ts";
import {
  type ExternalServer,
  type HubSettings,
  isRunnable,
  type Manifest,
  type RemoteServer,
  type RunnableServer,
} from "../manifest/schema.ts";
import type { SchemeResolvers } from "../manifest/resolve.ts";
import type { PluginStatus } from "../plugin/instance.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { RunningCall } from "../router/call.ts";
import type { Snapshots } from "../snapshot/snapshots.ts";
import type { ResolveIdentity } from "../upstream/saved-listings.ts";
import type { ServerStatus } from "../upstream/status.ts";
import type { AuthChallenge } from "../transport/http/target.ts";
import type { Transport } from "../transport/transport.ts";

/** Gives a link that does the same as this one to a server. */
export type TransportWrapper = (link: Transport, server: string) => Transport;

/** What a hub is made of; the parts with effects are arguments. */
export interface HubOptions {
  readonly manifest: Manifest;
  readonly bus: EventBus;
  readonly digest: Sha256;
  /** What is remembered of servers from one start to the next. */
  readonly snapshots: Snapshots;
  /** Never rejects. `schemes`: what plugins have for `${scheme:…}`. */
  identify(spec: ExternalServer, schemes: SchemeResolvers): ReturnType<ResolveIdentity>;
  /** Fills in a specification's `${…}` and makes its link. @throws {HubError} valueMissing */
  openTransport(spec: ExternalServer, schemes: SchemeResolvers): Promise<Transport>;
  /** Gives what stands in the place of a server's link, as to write down what crosses it. */
  readonly tap?: TransportWrapper | undefined;
  /**
   * Gets an authorization that a server wants, of a person if need be; absent: there is no way to get one.
   * @throws {HubError} unauthorized, or the signal's reason
   */
  readonly authorize?: (
    spec: RemoteServer,
    schemes: SchemeResolvers,
    challenge: AuthChallenge,
    proceeding: AuthorizationOptions,
  ) => Promise<void>;
  /** Takes out of a text what servers were given and must not be shown. */
  readonly redact?: (text: string) => string;
  /** The manifest's, set up; undefined if it has none. */
  readonly plugins?: PluginSet | undefined;
  readonly clock?: Clock;
  /** 0…1 */
  readonly random?: () => number;
}

/** All that can be told of a hub at a moment. */
export interface HubSnapshot {
  readonly servers: readonly ServerStatus[];
  readonly calls: readonly RunningCall[];
  readonly alerts: readonly Alert[];
  /** How many tools clients see. */
  readonly tools: number;
  readonly plugins: readonly PluginStatus[];
}

/** Those that can be run. */
export function runnableServersOf({ servers }: Manifest): readonly RunnableServer[] {
  return servers.filter(isRunnable);
}

/** How exposed names are made. */
export function nameRulesOf({ separator, nameLimit, clientPrefix }: HubSettings): NameRules {
  return { separator, maxLength: nameLimit - clientPrefix.length };
}
