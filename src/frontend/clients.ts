/**
 * The hub as an MCP server for its clients, over stdio, HTTP (`http/`) or in process, in both eras of the protocol.
 * Main types: `Clients`, which accepts transports; `LegacyClient`, one client of the legacy era; `ModernClient`
 * (`modern/client.ts`), one of the modern era. Start here, then read `client-connection.ts` (which era a request
 * belongs to) and `legacy-client.ts`.
 */
import { delimiter, isAbsolute } from "node:path";
import type { Approvals } from "../approval/approvals.ts";
import type { Clock } from "../base/clock.ts";
import type { ApprovalLevel } from "../manifest/manifest.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { PluginInstance } from "../plugin/instance.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { ApprovalAsks } from "../router/approval-gate.ts";
import type { CallLog, Call } from "../router/call.ts";
import type { Deadlines } from "../router/deadlines.ts";
import { toHubError } from "../base/errors.ts";
import type { ClientEvent } from "../base/hub-events.ts";
import type { Era } from "../protocol/modern.ts";
import { ANONYMOUS_CLIENTS, type ClientLimits, NO_LIMITS } from "../views/client-modes.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import type { ServerSubset } from "../upstream/profile.ts";
import type { ClientView } from "../views/client-view.ts";
import type { TransportEvents, Transport } from "../transport/transport.ts";
import type { LimitedClient, Limits } from "../limits/limits.ts";
import { LegacyClient } from "./legacy-client.ts";
import { ClientConnection } from "./client-connection.ts";
import { ModernListAnswers } from "./list-answers.ts";
import { ClientExposure, type ExposureStatus } from "./tool-search/client-exposure.ts";
import type { ToolSearch } from "./tool-search/tool-search.ts";
import { AwaitingLimit } from "./modern/input-required.ts";
import { ModernClients } from "./modern/clients.ts";

export interface ClientsOptions {
  readonly deadlines: Deadlines;
  readonly callLog: CallLog;
  readonly approvals: Approvals;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly serverInfo: () => Implementation;
  /**
   * Makes the view of one client.
   * @param clientId undefined for clients that cannot be told apart (modern HTTP clients without a token)
   * @param subset the servers that the client sees; undefined for all
   */
  view(
    clientId: string | undefined,
    subset: ServerSubset | undefined,
    limits: ClientLimits,
    origin?: ClientOrigin,
  ): ClientView;
  /** The members `mode` and `modes` of a client's status. */
  modesOf(clientId: string, limits: ClientLimits): Pick<ClientStatus, "mode" | "modes">;
  /** The settings for how clients get their tools, and what clients share for that. */
  readonly toolSearch: ToolSearch;
  /** The active plugins; undefined if there are none. */
  readonly plugins: () => PluginSet | undefined;
  /** Called when a client has connected, has disconnected, or has sent its name and version. */
  onClient(event: Omit<ClientEvent, "kind">): void;
  /** Stops the servers that no open call needs, because the hub ends with the client that sends nothing more. */
  stopUnused(): void;
  /** Writes a warning to the log. */
  warn(text: string): void;
  /** Stops or resumes reading from all servers: backpressure while some client does not read. */
  pauseServers(paused: boolean): void;
}

/**
 * How a client is connected. `shared`: its process is attached to this hub, as others are; `nats`: it is on a machine of
 * the fleet; `memory`: it runs in this process; `control`: it is the operator, on the control API.
 */
export type ClientTransport = "stdio" | "shared" | "http" | "nats" | "memory" | "control";

/** The status of a client. Times are in ms since the epoch. */
export interface ClientStatus {
  readonly id: string;
  /** The name that the client gave itself; undefined if it gave none. */
  readonly name: string | undefined;
  readonly version: string | undefined;
  /** The protocol era of the client's requests; undefined until its first request. */
  readonly era: Era | undefined;
  readonly transport: ClientTransport;
  /** The id of the process that is attached to the hub for the client; absent if there is none. */
  readonly pid?: number;
  /** When the client connected; undefined for modern HTTP clients, whose requests belong to no connection. */
  readonly since: number | undefined;
  /** `calls`: number of requests to servers so far; `inFlight`: number of those that have not ended. */
  readonly calls: number;
  readonly inFlight: number;
  /** The kinds of requests that servers may send to the client: `elicitation`, `roots`, `sampling`. */
  readonly canBeAsked: readonly string[];
  /** The name of the principal to which the client's token belongs; undefined if it has no token. */
  readonly principal: string | undefined;
  /** `mode`: the mode that the operator has chosen for the client; `modes`: the names of all modes that limit it. */
  readonly mode: string;
  readonly modes: readonly string[];
  /** Limits of the client's token, URL or command line; absent: none. */
  readonly limits?: ClientLimitsStatus;
  /** The form in which the client gets its tools; undefined if it gets all in one list, whatever the settings are. */
  readonly exposure: ExposureStatus | undefined;
}

/** `modes`: it sees only what all of them show; `servers`: it sees only these; `approval`: of its calls. */
export interface ClientLimitsStatus {
  readonly modes: readonly string[];
  readonly servers?: readonly string[];
  readonly approval?: ApprovalLevel;
}

/** Options for accepting a client; all may be left out. */
export interface AcceptOptions {
  /** How the client is connected. */
  readonly kind?: ClientTransport | undefined;
  /** The plugin that uses this client to call the hub; absent: the client belongs to no plugin. */
  readonly plugin?: PluginInstance;
  /** The servers that the client sees; undefined if it sees all. */
  readonly subset?: ServerSubset | undefined;
  /** The modes that limit the client. By default `limitsOn(kind)`: the operator's mode on stdio and HTTP, else none. */
  readonly limits?: ClientLimits | undefined;
  /** What the client's process gives to its servers. */
  readonly origin?: ClientOrigin | undefined;
  /** The id of the process that is attached to the hub for the client. */
  readonly pid?: number | undefined;
  /**
   * Called with the client's id before its transport is opened.
   * @param client tells what the client is doing
   */
  readonly accepted?: ((id: string, client: AcceptedClient) => void) | undefined;
}

/** A client that was accepted, as far as the owner of its transport needs it. */
export interface AcceptedClient {
  /** Number of requests of the client that are not answered, without open `subscriptions/listen`. */
  readonly openRequests: number;
}

/** The default limits of a client with this kind of transport. */
export function limitsOn(kind: ClientTransport): ClientLimits {
  return kind === "stdio" || kind === "shared" || kind === "http"
    ? { ...NO_LIMITS, hasOperatorMode: true, expose: () => undefined }
    : NO_LIMITS;
}

/** How a client of this kind is asked for approvals. @param id undefined: the client cannot be told apart from others */
export function approvalAsksOf(
  kind: ClientTransport,
  id: string | undefined,
  { principal, isAskedForApproval = true }: ClientLimits,
): ApprovalAsks {
  const isUnidentified = principal === undefined && (kind === "http" || id === undefined);
  const key = isUnidentified ? "unidentified" : (principal ?? id ?? "");
  // The clients of toolmux itself, in this process or on the control socket, ask in the terminal of their command.
  const own = kind === "memory" || kind === "control" ? "terminal" : "client";
  const form = isAskedForApproval ? own : "none";
  return { form, owner: { key: JSON.stringify([principal !== undefined, key]), isUnidentified } };
}

/** A client of this kind as its limits see it. @param id undefined: the client cannot be told apart from others */
export function limitedClientOf(
  kind: ClientTransport,
  id: string | undefined,
  principal: string | undefined,
): LimitedClient {
  return { principal, connection: kind === "http" ? undefined : id };
}

/** A client that has its own transport. Modern HTTP clients have none. */
interface ConnectedClient {
  /** Resolved when the client has disconnected. */
  readonly disconnected: PromiseWithResolvers<void>;
  readonly kind: ClientTransport;
  readonly pid: number | undefined;
  /** Handles the client's modern requests; undefined if the client is a plugin. */
  readonly modern: ModernClients | undefined;
  readonly since: number;
  readonly limits: ClientLimits;
  readonly origin: ClientOrigin | undefined;
}

/** All connected clients of both eras, and the caches and limits that they share. */
export class Clients {
  readonly options: ClientsOptions;
  readonly listAnswers = new ModernListAnswers();
  readonly awaitingLimit = new AwaitingLimit();
  /** The clients that have their own transport. */
  readonly #clients = new Map<LegacyClient, ConnectedClient>();
  #count = 0;
  #isClosed = false;
  /** Clients that do not read at present. */
  readonly #notReading = new Set<LegacyClient>();
  readonly #modernClients = new Set<ModernClients>();

  constructor(options: ClientsOptions) {
    this.options = options;
  }

  /** All calls in flight. */
  get calls(): readonly Call[] {
    return [...this.#clients.keys(), ...this.#modernClients].flatMap(({ calls }) => calls);
  }

  /** The catalog that a client sees; undefined if there is no such client. */
  catalogOf(id: string): Catalog | undefined {
    const own = [...this.#clients.keys()].find((client) => client.id === id);
    if (own !== undefined) return own.view.catalog;
    return [...this.#modernClients].find(({ clientId = ANONYMOUS_CLIENTS }) => clientId === id)
      ?.catalog;
  }

  /**
   * The folders in the PATHs of all clients that bring one, in the order in which the clients connected, joined as in
   * PATH; undefined: none.
   */
  get path(): string | undefined {
    const paths = [...this.#clients.values()].flatMap(({ origin }) => origin?.path ?? []);
    const folders = paths.flatMap((path) => path.split(delimiter)).filter(isAbsolute);
    return folders.length === 0 ? undefined : [...new Set(folders)].join(delimiter);
  }

  /** A client as plugins see it; name and version are undefined if they are not known. */
  infoOf(id: string): ClientInfo {
    const status = this.#describeAll(false).find((client) => client.id === id);
    return {
      id,
      name: status?.name,
      version: status?.version,
      principal: status?.principal,
    };
  }

  /**
   * Serves a client on a transport; settles when the client has disconnected.
   * @throws {HubError} the error of the transport's `open`
   */
  async accept(
    transport: Transport,
    signal: AbortSignal,
    {
      plugin,
      subset,
      kind = "memory",
      limits = limitsOn(kind),
      origin,
      pid,
      accepted,
    }: AcceptOptions = {},
  ): Promise<void> {
    if (this.#isClosed) {
      await transport.close();
      return;
    }
    if (limits.approval !== undefined) this.options.approvals.require();
    const id = `${plugin === undefined ? "client" : `plugin-${plugin.name}`}-${++this.#count}`;
    const view = this.options.view(id, subset, limits, origin);
    const client = new LegacyClient(this, id, transport, view, {
      plugin,
      kind,
      asks: approvalAsksOf(kind, id, limits),
      limitedClient: limitedClientOf(kind, id, limits.principal),
      exposure: this.exposureOf(view, "legacy", limits),
    });
    // The clients of plugins speak the legacy era only.
    const modern =
      plugin === undefined ? this.createModernClients(id, limits, kind, origin) : undefined;
    const connection =
      modern === undefined ? undefined : new ClientConnection(client, modern, subset);
    const events: TransportEvents = connection ?? client;
    const disconnected = Promise.withResolvers<void>();
    const since = Date.now();
    this.#clients.set(client, { disconnected, kind, pid, modern, since, limits, origin });
    this.options.onClient({ client: id, change: "joined", ...principalOf(limits) });
    if (connection !== undefined) accepted?.(id, connection);
    try {
      await transport.open(events, signal);
    } catch (error) {
      events.closed(toHubError(error));
      throw error;
    }
    await disconnected.promise;
  }

  /**
   * The status of all clients: first those with a transport, in the order in which they connected; then those that send
   * modern requests over HTTP, with one entry for each token and one for all clients that cannot be told apart.
   */
  get status(): readonly ClientStatus[] {
    return this.#describeAll(true);
  }

  /** Number of entries of `status`. */
  get count(): number {
    return this.#describeAll(false).length;
  }

  /** @param withExposures whether `exposure` is determined, which takes long for many tools */
  #describeAll(withExposures: boolean): readonly ClientStatus[] {
    const connected = [...this.#clients].map(([client, connection]): ClientStatus => {
      const { kind, pid, modern, since, limits } = connection;
      const other = modern?.status;
      const isModern = client.version === undefined && other !== undefined;
      const { name, version, canBeAsked } = isModern ? other : client.status;
      return {
        id: client.id,
        name,
        version,
        era: isModern ? "modern" : client.version === undefined ? undefined : "legacy",
        transport: kind,
        ...(pid !== undefined && { pid }),
        since,
        calls: client.callCount + (other?.calls ?? 0),
        inFlight: client.calls.length + (other?.inFlight ?? 0),
        canBeAsked,
        principal: limits.principal,
        ...this.options.modesOf(client.id, limits),
        ...this.#limitsOf(limits),
        exposure: withExposures
          ? isModern
            ? modern?.exposure
            : client.exposure?.status
          : undefined,
      };
    });
    const ownModern = new Set([...this.#clients.values()].map(({ modern }) => modern));
    const shared = [...this.#modernClients].flatMap((modern): readonly ClientStatus[] => {
      const { status } = modern;
      if (ownModern.has(modern) || status === undefined) return [];
      const id = modern.clientId ?? ANONYMOUS_CLIENTS;
      return [
        {
          id,
          era: "modern",
          transport: modern.kind,
          since: undefined,
          ...status,
          principal: modern.limits.principal,
          ...this.options.modesOf(id, modern.limits),
          ...this.#limitsOf(modern.limits),
          exposure: withExposures ? modern.exposure : undefined,
        },
      ];
    });
    return [...connected, ...shared];
  }

  #limitsOf(limits: ClientLimits): Pick<ClientStatus, "limits"> {
    const { principal } = limits;
    const modes = limits.modes();
    const servers = limits.servers?.().names;
    const levels = this.options.approvals.settings.clients;
    const own = limits.approval === "all" ? "always" : limits.approval;
    const approval = own ?? (principal === undefined ? undefined : levels?.get(principal));
    if (modes.length === 0 && servers === undefined && approval === undefined) return {};
    return { limits: { modes, ...(servers && { servers }), ...(approval && { approval }) } };
  }

  /**
   * Makes the handler of a client's modern requests.
   * @param clientId undefined for clients that cannot be told apart (modern HTTP clients without a token)
   */
  createModernClients(
    clientId: string | undefined,
    limits: ClientLimits = limitsOn("http"),
    kind: ClientTransport = "http",
    origin?: ClientOrigin,
  ): ModernClients {
    const asks = approvalAsksOf(kind, clientId, limits);
    const limited = limitedClientOf(kind, clientId, limits.principal);
    const modernClients = new ModernClients(this, clientId, limits, asks, limited, kind, origin);
    this.#modernClients.add(modernClients);
    return modernClients;
  }

  /** Returns the form in which a client gets its tools; undefined: all in one list, whatever the settings are. */
  exposureOf(view: ClientView, era: Era, { expose }: ClientLimits): ClientExposure | undefined {
    const { toolSearch } = this.options;
    return expose && new ClientExposure({ toolSearch, view, era, requested: expose });
  }

  /**
   * Called when a server may have connected, failed or become late. Answers list requests that need not wait any more.
   */
  serverSettled(): void {
    for (const client of this.#clients.keys()) client.serverSettled();
    for (const modernClients of this.#modernClients) modernClients.serverSettled();
  }

  /** Called when the catalog may have changed. */
  catalogChanged(): void {
    for (const client of this.#clients.keys()) client.catalogChanged();
    for (const modernClients of this.#modernClients) modernClients.catalogChanged();
  }

  /** Disconnects all clients, and refuses new ones. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const modernClients of this.#modernClients) modernClients.stop();
    await Promise.all([...this.#clients.keys()].map(({ transport }) => transport.close()));
    for (const modernClients of this.#modernClients) modernClients.close();
  }

  backpressure(client: LegacyClient, isFull: boolean): void {
    // The transport of a client that shares the hub has a limit of its own: other clients' servers do not wait for it.
    if (this.#clients.get(client)?.kind === "shared") return;
    const wasPaused = this.#notReading.size > 0;
    if (isFull) this.#notReading.add(client);
    else this.#notReading.delete(client);
    const isPaused = this.#notReading.size > 0;
    if (isPaused !== wasPaused) this.options.pauseServers(isPaused);
  }

  onDisconnect(client: LegacyClient): void {
    this.backpressure(client, false);
    const connected = this.#clients.get(client);
    if (connected === undefined) return;
    this.#clients.delete(client);
    this.options.limits.forgetClient(client.id);
    const { limits } = connected;
    this.options.onClient({ client: client.id, change: "left", ...principalOf(limits) });
    connected.disconnected.resolve();
  }

  onModernClosed(modernClients: ModernClients): void {
    this.#modernClients.delete(modernClients);
    const { clientId, limits } = modernClients;
    // A client that is known by its token has no connection that could end: it counts as gone when its token is no
    // longer valid.
    if (clientId !== undefined && clientId === limits.principal && !this.#isClosed)
      this.options.onClient({ client: clientId, change: "left", ...principalOf(limits) });
  }
}

function principalOf({ principal }: ClientLimits): { readonly principal?: string } {
  return principal === undefined ? {} : { principal };
}
