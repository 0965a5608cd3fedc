/**
 * The clients of the hub: MCP towards the programs that use it, over stdio, HTTP (`http/`) or in process, in both eras.
 * Main types: `Clients`, which accepts transports; `LegacyClient`, one client of the legacy era; `ModernClient`
 * (`modern/client.ts`), one of the modern era. Start here, then read `client-connection.ts` (which era a request
 * belongs to) and `legacy-client.ts`.
 */
import type { Clock } from "../base/clock.ts";
import { type Deferred, deferred } from "../base/deferred.ts";
import type { PluginInstance } from "../plugin/instance.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { CallLog, Call } from "../router/call.ts";
import type { Deadlines } from "../router/deadlines.ts";
import { toHubError } from "../base/errors.ts";
import type { ServerSubset } from "../upstream/profile.ts";
import type { ClientView } from "../upstream/view.ts";
import type { TransportEvents, Transport } from "../transport/transport.ts";
import { LegacyClient } from "./legacy-client.ts";
import { ClientConnection } from "./client-connection.ts";
import { ModernListAnswers } from "./list-answers.ts";
import { AwaitingLimit } from "./modern/input-required.ts";
import { ModernClients } from "./modern/clients.ts";

export interface ClientsOptions {
  readonly deadlines: Deadlines;
  readonly callLog: CallLog;
  readonly clock: Clock;
  readonly serverInfo: () => Implementation;
  /**
   * Makes the view of one client.
   * @param clientId undefined for clients that cannot be told apart
   * @param subset undefined for all servers
   */
  view(clientId: string | undefined, subset: ServerSubset | undefined): ClientView;
  /** The active plugins; undefined if there are none. */
  readonly plugins: () => PluginSet | undefined;
  /** Writes a warning to the log. */
  warn(text: string): void;
  /** Stops or resumes reading from all servers: backpressure while some client does not read. */
  pauseServers(paused: boolean): void;
}

/** Options for accepting a client; all may be left out. */
interface AcceptOptions {
  /** The plugin that this client belongs to. */
  readonly plugin?: PluginInstance;
  /** The servers that the client sees; undefined if it sees all. */
  readonly subset?: ServerSubset | undefined;
}

/** All connected clients of both eras, and the caches and limits that they share. */
export class Clients {
  readonly options: ClientsOptions;
  readonly listAnswers = new ModernListAnswers();
  readonly awaitingLimit = new AwaitingLimit();
  /** The clients of the legacy era. The value for each is settled when the client has disconnected. */
  readonly #clients = new Map<LegacyClient, Deferred<void>>();
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

  /**
   * Serves a client on a transport; settles when the client has disconnected.
   * @throws {HubError} what the transport's `open` throws
   */
  async accept(
    transport: Transport,
    signal: AbortSignal,
    { plugin, subset }: AcceptOptions = {},
  ): Promise<void> {
    if (this.#isClosed) {
      await transport.close();
      return;
    }
    const id = `${plugin === undefined ? "client" : `plugin-${plugin.name}`}-${++this.#count}`;
    const client = new LegacyClient(this, id, transport, this.options.view(id, subset), plugin);
    // The clients of plugins speak the legacy era only.
    const events: TransportEvents =
      plugin === undefined
        ? new ClientConnection(client, this.createModernClients(id), subset)
        : client;
    const disconnected = deferred();
    this.#clients.set(client, disconnected);
    try {
      await transport.open(events, signal);
    } catch (error) {
      events.closed(toHubError(error));
      throw error;
    }
    await disconnected.promise;
  }

  /**
   * Serves requests of the modern era, each of which comes with its own responder.
   * @param clientId the id of the client that sends them; undefined if it cannot be told apart from others
   */
  createModernClients(clientId: string | undefined): ModernClients {
    const modernClients = new ModernClients(this, clientId);
    this.#modernClients.add(modernClients);
    return modernClients;
  }

  /** Called when a server may have settled, that is, when its first listing is known or it has failed. */
  serverSettled(): void {
    for (const { view } of this.#clients.keys()) view.updateReadiness();
    for (const modernClients of this.#modernClients) modernClients.serverSettled();
  }

  /** The catalog may have changed. */
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
    const wasPaused = this.#notReading.size > 0;
    if (isFull) this.#notReading.add(client);
    else this.#notReading.delete(client);
    const isPaused = this.#notReading.size > 0;
    if (isPaused !== wasPaused) this.options.pauseServers(isPaused);
  }

  onDisconnect(client: LegacyClient): void {
    this.backpressure(client, false);
    this.#clients.get(client)?.resolve();
    this.#clients.delete(client);
  }

  onModernClosed(modernClients: ModernClients): void {
    this.#modernClients.delete(modernClients);
  }
}
