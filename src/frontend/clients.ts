/**
 * The clients of the hub: MCP towards the programs that use it, over stdio, HTTP (`http/`) or in process, in both eras.
 * Main types: `Clients`, which accepts transports; `LegacyClient`, one client of the `initialize` era;
 * `modern/client.ts` for the other. Start here, then read `client-connection.ts` (which era a request belongs to) and
 * `legacy-client.ts`.
 */
import type { Clock } from "../base/clock.ts";
import type { PluginInstance } from "../plugin/instance.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { CallLog, Call } from "../router/call.ts";
import type { Deadlines } from "../router/deadlines.ts";
import { toHubError } from "../base/errors.ts";
import { Router } from "../router/router.ts";
import type { ServerSubset } from "../upstream/profile.ts";
import type { ClientView } from "../upstream/view.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { type ClientHost, LegacyClient } from "./legacy-client.ts";
import { ClientConnection } from "./client-connection.ts";
import { ModernListAnswers } from "./list-answers.ts";
import { AwaitingLimit } from "./modern/input-required.ts";
import { ModernClients } from "./modern/clients.ts";

export interface ClientsOptions {
  readonly deadlines: Deadlines;
  readonly callLog: CallLog;
  readonly clock: Clock;
  serverInfo(): Implementation;
  /**
   * The view of one client.
   * @param clientId undefined: clients that cannot be told apart
   * @param subset undefined: all servers
   */
  view(clientId: string | undefined, subset: ServerSubset | undefined): ClientView;
  /** The active plugins; undefined: none. */
  plugins(): PluginSet | undefined;
  /** Writes a warning to the log. */
  warn(text: string): void;
  /** Stops or resumes reading from all servers: backpressure while some client does not read. */
  pauseServers(paused: boolean): void;
}

/** Options for accepting a client that differs from the usual. */
interface AcceptOptions {
  /** The plugin that this client belongs to. */
  readonly plugin?: PluginInstance;
  /** The servers that the client sees; undefined: all. */
  readonly subset?: ServerSubset | undefined;
}

/** All connected clients of both eras, and the caches and limits that they share. */
export class Clients implements ClientHost {
  readonly #options: ClientsOptions;
  readonly #clients = new Map<
    LegacyClient,
    { transport: Transport; view: ClientView; onDisconnect: () => void }
  >();
  #count = 0;
  #isClosed = false;
  /** Clients that do not read at present. */
  readonly #notReading = new Set<LegacyClient>();
  readonly #modernClients = new Set<ModernClients>();
  readonly #listAnswers = new ModernListAnswers();
  readonly #awaitingLimit = new AwaitingLimit();

  constructor(options: ClientsOptions) {
    this.#options = options;
  }

  get serverInfo(): Implementation {
    return this.#options.serverInfo();
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
    const { deadlines, callLog } = this.#options;
    const plugins = (): PluginSet | undefined => this.#options.plugins();
    const id = `${plugin === undefined ? "client" : `plugin-${plugin.name}`}-${++this.#count}`;
    const view = this.#options.view(id, subset);
    const clientInfo = { id, name: undefined, version: undefined };
    const notify = (message: EncodedMessage): void => void transport.send(message);
    const owner = (): LegacyClient => client;
    const routerOptions = {
      view,
      deadlines,
      callLog,
      plugins,
      notify,
      excludedPlugin: plugin,
      clientChannel: owner,
    };
    const router = new Router(clientInfo, routerOptions);
    const client = new LegacyClient(transport, this, view, router, plugin !== undefined);
    // Plugins in this process speak the legacy era only.
    const events =
      plugin === undefined
        ? new ClientConnection(transport, client, this.createModernClients(id), subset)
        : client;
    const disconnected = new Promise<void>((onDisconnect) =>
      this.#clients.set(client, { transport, view, onDisconnect }),
    );
    try {
      await transport.open(events, signal);
    } catch (error) {
      events.closed(toHubError(error));
      throw error;
    }
    await disconnected;
  }

  /**
   * Serves requests of the modern era, each of which comes with its own responder.
   * @param clientId of the client that sends them; undefined: a client that cannot be told apart from others
   */
  createModernClients(clientId: string | undefined): ModernClients {
    const modernClients: ModernClients = new ModernClients({
      ...this.#options,
      listAnswers: this.#listAnswers,
      awaitingLimit: this.#awaitingLimit,
      clientId,
      onClose: (closed) => void this.#modernClients.delete(closed),
    });
    this.#modernClients.add(modernClients);
    return modernClients;
  }

  /** A server may have settled: its first listing is known, or it has failed. */
  serverSettled(): void {
    for (const { view } of this.#clients.values()) view.updateReadiness();
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
    await Promise.all([...this.#clients.values()].map(({ transport }) => transport.close()));
    for (const modernClients of this.#modernClients) modernClients.close();
  }

  backpressure(client: LegacyClient, isFull: boolean): void {
    const wasPaused = this.#notReading.size > 0;
    if (isFull) this.#notReading.add(client);
    else this.#notReading.delete(client);
    const isPaused = this.#notReading.size > 0;
    if (isPaused !== wasPaused) this.#options.pauseServers(isPaused);
  }

  warn(text: string): void {
    this.#options.warn(text);
  }

  onDisconnect(client: LegacyClient): void {
    this.backpressure(client, false);
    this.#clients.get(client)?.onDisconnect();
    this.#clients.delete(client);
  }
}
