import type { AuthorizationOptions } from "../auth/authorizer.ts";
import type { NameRules, Sha256 } from "../catalog/names.ts";
import type { Clock } from "../base/clock.ts";
import type { ClientStatus } from "../frontend/clients.ts";
import type { Alert, EventBus } from "../base/hub-events.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import { clientStateOf } from "../manifest/client-state.ts";
import type { Exposure } from "../manifest/exposures.ts";
import type {
  ExternalServer,
  FleetServer,
  HubSettings,
  Manifest,
  RemoteServer,
  RunnableServer,
} from "../manifest/manifest.ts";
import type { SchemeResolvers } from "../manifest/resolve.ts";
import type { MinimumApproval } from "../approval/policy.ts";
import type { RememberedApprovals } from "../approval/remembered.ts";
import type { QuotaStorage } from "../limits/quota-book.ts";
import type { PluginStatus } from "../plugin/instance.ts";
import type { BaselineStore } from "../pins/store.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { RunningCall } from "../router/call.ts";
import type { Snapshots } from "../snapshot/snapshots.ts";
import type { ResolveIdentity } from "../upstream/saved-listings.ts";
import type { ServerStatus } from "../upstream/status.ts";
import type { AuthChallenge, ConnectionCookies } from "../transport/http/target.ts";
import type { Transport } from "../transport/transport.ts";

/** Wraps the transport of a server, for example to record it. */
export type TransportWrapper = (transport: Transport, server: string) => Transport;

/** What the clients of a shared hub give to a server. */
export interface Filling {
  /** The client whose values fill in the specification; undefined: the hub's own environment. */
  readonly origin: ClientOrigin | undefined;
  /**
   * The folders in which commands are looked up after those of the hub's own PATH, joined by ":"; undefined: none.
   */
  readonly path: string | undefined;
}

/** The options of a hub, with the functions that have effects outside the process. */
export interface HubOptions {
  readonly manifest: Manifest;
  readonly bus: EventBus;
  readonly digest: Sha256;
  /** The saved listings of servers. */
  readonly snapshots: Snapshots;
  /**
   * Resolves the identity under which a server's listing is saved. Never rejects. `schemes`: the plugins' resolvers for
   * `${scheme:…}`.
   */
  resolveIdentity(
    spec: ExternalServer,
    schemes: SchemeResolvers,
    filling?: Filling,
  ): ReturnType<ResolveIdentity>;
  /**
   * Fills in the `${…}` of a specification and creates its transport, without opening it.
   * @param cookies the cookies of the connection to an HTTP server
   * @throws {HubError} valueMissing
   */
  openTransport(
    spec: ExternalServer,
    schemes: SchemeResolvers,
    cookies: ConnectionCookies,
    filling?: Filling,
  ): Promise<Transport>;
  /** Creates the transport to a server of the fleet; absent: the hub belongs to none. @throws {HubError} */
  readonly openFleetTransport?: ((spec: FleetServer) => Promise<Transport>) | undefined;
  readonly wrapTransport?: TransportWrapper | undefined;
  /**
   * Delay of the first start of a server whose saved listing is shown, in ms: the start would delay the answers to the
   * first requests of a client, which need no server. The answer to the first list, a call, another client or a command
   * ends the delay, and a listing that is shown only after a review does not begin it. Default: 0.
   */
  readonly startDelay?: number | undefined;
  /**
   * Obtains the authorization that a server demands, with a browser if needed; absent: no authorization can be
   * obtained.
   * @throws {HubError} unauthorized, or the signal's reason
   */
  readonly authorize?: (
    spec: RemoteServer,
    schemes: SchemeResolvers,
    challenge: AuthChallenge,
    options: AuthorizationOptions,
    filling?: Filling,
  ) => Promise<void>;
  /** The approval level of the command line, which can only raise the levels of the manifest; undefined: none. */
  readonly minimumApproval?: MinimumApproval | undefined;
  /** Advice to a user who was not asked about a call: the end of "Ask the user to …"; undefined: there is none. */
  readonly howToBeAsked?: string | undefined;
  /** Whether other programs can show pending approvals to a person: the hub has a control API. Default: false. */
  readonly isWatchable?: boolean | undefined;
  /** Opens the store of permanent approvals; absent: they are kept in memory. */
  readonly openApprovals?: () => Promise<RememberedApprovals>;
  /** Opens the storage of the calls that count for quotas; absent: they are kept in memory. */
  readonly openQuotas?: (() => Promise<QuotaStorage>) | undefined;
  /** The time, in ms since the epoch; by default that of the system. */
  readonly wallNow?: () => number;
  /** Opens the store of accepted definitions; absent: they are kept in memory. */
  readonly openBaselines?: () => Promise<BaselineStore>;
  /** Removes the secret values of all servers from a text. */
  readonly redact?: (text: string) => string;
  /** The name of a mode that all clients on stdio and HTTP are limited to; undefined: none. */
  readonly mode?: string | undefined;
  /**
   * Whether clients of several processes attach to the hub, and bring the values of servers' entries. Then `isolation`
   * "auto" keeps apart the clients of servers that keep a client's state. Default: false, whatever `hub.shared` says: a
   * private hub and one over HTTP are no shared hubs.
   */
  readonly isShared?: boolean | undefined;
  /** The exposure of `serve --expose`, in place of `hub.expose`; undefined: none. */
  readonly expose?: Exposure | undefined;
  /** The plugins of the manifest, already set up; undefined if the manifest has none. */
  readonly plugins?: PluginSet | undefined;
  readonly clock?: Clock;
  /** Returns a random number from 0 to 1, like `Math.random`. */
  readonly random?: () => number;
}

export interface HubSnapshot {
  readonly servers: readonly ServerStatus[];
  readonly calls: readonly RunningCall[];
  readonly clients: readonly ClientStatus[];
  readonly alerts: readonly Alert[];
  /** Number of tools that clients see. */
  readonly tools: number;
  readonly plugins: readonly PluginStatus[];
}

const decided = new WeakMap<RunnableServer, RunnableServer>();

/**
 * The specification of a server in a hub that clients of several processes share: `isolation` "auto" is decided. The same
 * object for the same server, because caches depend on it.
 */
export function withDecidedIsolation(spec: RunnableServer): RunnableServer {
  if (spec.isolation !== "auto" || clientStateOf(spec) === undefined) return spec;
  const own = decided.get(spec) ?? { ...spec, isolation: "perClient" };
  decided.set(spec, own);
  return own;
}

export function nameRulesOf({ separator, nameLimit, clientPrefix }: HubSettings): NameRules {
  return { separator, maxLength: nameLimit - clientPrefix.length };
}
