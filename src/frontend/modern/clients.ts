import { HubError } from "../../base/errors.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import type { ApprovalAsks } from "../../router/approval-gate.ts";
import type { Call } from "../../router/call.ts";
import { ClientTasks } from "../../router/tasks.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import type { LimitedClient } from "../../limits/limits.ts";
import type { ClientLimits } from "../../views/client-modes.ts";
import type { ClientOrigin } from "../../manifest/client-values.ts";
import { ALL_SERVERS, type ServerSubset } from "../../upstream/profile.ts";
import { ModernMethod } from "../../protocol/modern.ts";
import type { ModernRequest, ModernResponder } from "./request.ts";
import { askableOf } from "../../protocol/capabilities.ts";
import type { Clients, ClientStatus, ClientTransport } from "../clients.ts";
import type { ExposureStatus } from "../tool-search/client-exposure.ts";
import { ModernClient } from "./client.ts";
import type { CatalogCheck } from "./call.ts";

/** `limit`: time for which an unused client is kept; `interval`: time between two checks; both in ms. */
const IDLE = { limit: 5 * 60_000, interval: 60_000 };
/** Maximum number of `ModernClient`s, and of open `subscriptions/listen`, in one `ModernClients`. */
const LIMITS = { clients: 32, subscriptions: 1024 };

/** The handler of the modern requests of one client. */
export type ModernRequestTarget = Pick<ModernClients, "handle" | "stop" | "close">;

/** The servers and the mode that a request is limited to. */
export interface ModernScope {
  readonly subset?: ServerSubset | undefined;
  /** The name of a mode, in addition to those that limit the client; undefined: none. */
  readonly mode?: string | undefined;
  /** The form in which the client gets its tools; undefined: as other settings say. */
  readonly expose?: Exposure | undefined;
}

const WHOLE: ModernScope = {};

/**
 * Handles the modern requests of one client, or of all clients that cannot be told apart. Has one `ModernClient` for
 * each combination of capability class, subset of servers and mode.
 */
export class ModernClients {
  /** All clients of the hub, with the caches and limits that they share. */
  readonly #all: Clients;
  readonly clientId: string | undefined;
  readonly limits: ClientLimits;
  readonly kind: ClientTransport;
  readonly #asks: ApprovalAsks;
  readonly #origin: ClientOrigin | undefined;
  readonly #limitedClient: LimitedClient;
  readonly #clients = new Map<string, ModernClient>();
  /** The client's tasks, shared by all its capability classes. */
  readonly #tasks: ClientTasks;
  /** Cache: the ModernClient of the last request. */
  #latest:
    | {
        readonly capabilityClass: string;
        readonly subset: ServerSubset;
        readonly mode: string | undefined;
        readonly expose: Exposure | undefined;
        readonly client: ModernClient;
      }
    | undefined;
  #cancelTimer: (() => void) | undefined;
  #isClosed = false;
  /** Sum of the call counts of the `ModernClient`s that were closed because they were idle. */
  #pastCalls = 0;

  /** @param clientId undefined for clients that cannot be told apart (HTTP clients without a token) */
  constructor(
    all: Clients,
    clientId: string | undefined,
    limits: ClientLimits,
    asks: ApprovalAsks,
    limitedClient: LimitedClient,
    kind: ClientTransport,
    origin?: ClientOrigin,
  ) {
    this.#all = all;
    this.#limitedClient = limitedClient;
    this.kind = kind;
    this.#asks = asks;
    this.#origin = origin;
    this.limits = limits;
    this.clientId = clientId;
    this.#tasks = new ClientTasks("modern", all.options.clock);
  }

  /** All calls in flight. */
  get calls(): readonly Call[] {
    return [...this.#clients.values()].flatMap(({ calls }) => calls);
  }

  /** Number of open `subscriptions/listen`. */
  get subscriptions(): number {
    let count = 0;
    for (const { subscriptions } of this.#clients.values()) count += subscriptions;
    return count;
  }

  /** The status of the client that sent the latest request; undefined before the first request. */
  get status():
    Pick<ClientStatus, "name" | "version" | "calls" | "inFlight" | "canBeAsked"> | undefined {
    const last = this.#last;
    if (last === undefined) return undefined;
    const { name, version } = last.router.client;
    const clients = [...this.#clients.values()];
    const calls = clients.reduce((sum, { router }) => sum + router.callCount, this.#pastCalls);
    const canBeAsked = askableOf(last.declared);
    return { name, version, calls, inFlight: this.calls.length, canBeAsked };
  }

  /** The form in which the client that sent the latest request gets its tools; undefined before the first request. */
  get exposure(): ExposureStatus | undefined {
    return this.#last?.exposure?.status;
  }

  get #last(): ModernClient | undefined {
    return [...this.#clients.values()].sort((a, b) => a.lastUse - b.lastUse).at(-1);
  }

  /** The catalog of the client that sent the latest request; undefined before the first request. */
  get catalog(): Catalog | undefined {
    return this.#last?.view.catalog;
  }

  /**
   * Handles a request.
   * @param check validates the request against its client's catalog, and throws if the request is invalid; called again
   * if the request's tool is added to the catalog only later
   * @throws {HubError} if the request cannot be served
   */
  handle(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    scope: ModernScope = WHOLE,
    check?: CatalogCheck,
  ): void {
    if (this.#isClosed) throw new HubError("connectionLost", "The hub is stopping.");
    if (modernRequest.request.method === ModernMethod.listen) this.#checkSubscriptions();
    const client = this.#find(modernRequest, scope);
    client.handle(modernRequest, responder, check);
  }

  /**
   * Called when a server may have connected, failed or become late. Answers list requests that need not wait any more.
   */
  serverSettled(): void {
    for (const { router } of this.#clients.values()) router.serverSettled();
  }

  /** Called when the catalog may have changed. */
  catalogChanged(): void {
    for (const client of this.#clients.values()) client.catalogChanged();
  }

  /** Ends the subscriptions with a final result, because the hub stops. */
  stop(): void {
    for (const client of this.#clients.values()) client.stop();
  }

  /** Closes all `ModernClient`s, because the client has disconnected or the HTTP server has closed. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#cancelTimer?.();
    this.#tasks.close();
    for (const client of this.#clients.values()) client.close();
    this.#clients.clear();
    this.#all.onModernClosed(this);
  }

  #find(
    { capabilityClass, sender }: ModernRequest,
    { subset = ALL_SERVERS, mode, expose }: ModernScope,
  ): ModernClient {
    // Most requests come from the same client as the previous one.
    const latest = this.#latest;
    if (
      latest?.capabilityClass === capabilityClass &&
      latest.subset === subset &&
      latest.mode === mode &&
      latest.expose === expose
    )
      return latest.client;
    const { declaredCapabilities } = sender;
    const client = this.#findOrCreate(capabilityClass, declaredCapabilities, {
      subset,
      mode,
      expose,
    });
    this.#latest = { capabilityClass, subset, mode, expose, client };
    return client;
  }

  #findOrCreate(
    capabilityClass: string,
    declared: object,
    { subset, mode, expose }: ModernScope & { readonly subset: ServerSubset },
  ): ModernClient {
    const key = `${subset.key}\n${mode ?? ""}\n${expose ?? ""}\n${capabilityClass}`;
    const known = this.#clients.get(key);
    if (known !== undefined) return known;
    if (this.#clients.size >= LIMITS.clients) this.#evictOldest();
    const limits = withScope(this.limits, mode, expose);
    const view = this.#all.options.view(this.clientId, subset, limits, this.#origin);
    const client = new ModernClient(
      this.#all,
      this.clientId,
      view,
      declared,
      this.#tasks,
      this.#asks,
      this.#limitedClient,
      this.#all.exposureOf(view, "modern", limits),
      this.kind,
    );
    view.declareCapabilities(capabilityClass, client);
    this.#clients.set(key, client);
    if (this.#clients.size === 1) this.#scheduleIdleCheck();
    return client;
  }

  /** Closes the least recently used idle client. */
  #evictOldest(): void {
    const idle = [...this.#clients].filter(([, client]) => !client.isBusy);
    const [oldest] = idle.sort(([, a], [, b]) => a.lastUse - b.lastUse);
    if (oldest === undefined) {
      throw new HubError("invalidRequest", "Too many clients are connected.");
    }
    this.#closeClient(oldest);
  }

  #closeClient([key, client]: readonly [string, ModernClient]): void {
    this.#clients.delete(key);
    this.#pastCalls += client.router.callCount;
    this.#latest = undefined;
    client.close();
  }

  #scheduleIdleCheck(): void {
    this.#cancelTimer?.();
    const { clock } = this.#all.options;
    this.#cancelTimer = clock.after(IDLE.interval, () => {
      const threshold = clock.now() - IDLE.limit;
      for (const [key, client] of this.#clients) {
        if (!client.isBusy && client.lastUse <= threshold) this.#closeClient([key, client]);
      }
      if (this.#clients.size > 0) this.#scheduleIdleCheck();
    });
  }

  #checkSubscriptions(): void {
    if (this.subscriptions < LIMITS.subscriptions) return;
    throw new HubError(
      "invalidRequest",
      `At most ${LIMITS.subscriptions} subscriptions may be open.`,
    );
  }
}

/** The limits of a client, with the mode and the exposure that its URL names. */
function withScope(
  limits: ClientLimits,
  mode: string | undefined,
  expose: Exposure | undefined,
): ClientLimits {
  return {
    ...limits,
    ...(mode !== undefined && { modes: () => [...limits.modes(), mode] }),
    ...(expose !== undefined && limits.expose !== undefined && { expose: () => expose }),
  };
}
