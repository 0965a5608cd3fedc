/**
 * The clients of the hub: MCP towards the programs that use it, over stdio, HTTP (`http/`) or in process, in both eras.
 * Main types: `Clients`, which accepts transports; `LegacyClient`, one client of the `initialize` era;
 * `modern/client.ts` for the other. Start here, then read `client-connection.ts` (which era a request is of) and
 * `legacy-client.ts`.
 */
import type { Clock } from "../base/clock.ts";
import type { PluginInstance } from "../plugin/instance.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { Call } from "../router/call.ts";
import type { Deadlines } from "../router/deadlines.ts";
import type { CallLog } from "../router/ledger.ts";
import { toHubError } from "../base/errors.ts";
import { Router } from "../router/router.ts";
import type { ServerSubset } from "../upstream/scope.ts";
import type { ClientView } from "../upstream/view.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { Client, type Host } from "./legacy-client.ts";
import { Door } from "./client-connection.ts";
import { Editions } from "./editions.ts";
import { Lot } from "./modern/input-required.ts";
import { Parties } from "./modern/clients.ts";

export interface ClientsParts {
  readonly deadlines: Deadlines;
  readonly ledger: CallLog;
  readonly clock: Clock;
  serverInfo(): Implementation;
  /**
   * The view of one client.
   * @param clientId undefined: clients that cannot be told apart
   * @param subset undefined: all servers
   */
  view(client: string | undefined, scope: ServerSubset | undefined): ClientView;
  /** The active plugins; undefined: none. */
  plugins(): PluginSet | undefined;
  /** Writes a warning to the log. */
  warn(text: string): void;
  /** Stops or resumes reading from all servers: backpressure of a client that does not read. */
  hold(held: boolean): void;
}

/** Which client is accepted, if it differs from the usual. */
interface Standing {
  /** The plugin whose client this is. */
  readonly plugin?: PluginInstance;
  /** The servers that the client sees; undefined: all. */
  readonly scope?: ServerSubset | undefined;
}

/** All connected clients of both eras, and the limits that they share. */
export class Clients implements Host {
  readonly #parts: ClientsParts;
  readonly #clients = new Map<Client, { link: Transport; view: ClientView; left: () => void }>();
  #count = 0;
  #isClosed = false;
  /** Clients that do not read at present. */
  readonly #full = new Set<Client>();
  readonly #parties = new Set<Parties>();
  readonly #editions = new Editions();
  readonly #lot = new Lot();

  constructor(parts: ClientsParts) {
    this.#parts = parts;
  }

  get serverInfo(): Implementation {
    return this.#parts.serverInfo();
  }

  /** All calls in flight. */
  get calls(): readonly Call[] {
    return [...this.#clients.keys(), ...this.#parties].flatMap(({ calls }) => calls);
  }

  /**
   * Serves a client on a transport; settles when the client has disconnected.
   * @throws {HubError} what the transport's `open` throws
   */
  async accept(
    link: Transport,
    signal: AbortSignal,
    { plugin, scope }: Standing = {},
  ): Promise<void> {
    if (this.#isClosed) {
      await link.close();
      return;
    }
    const { deadlines, ledger } = this.#parts;
    const plugins = (): PluginSet | undefined => this.#parts.plugins();
    const id = `${plugin === undefined ? "client" : `plugin-${plugin.name}`}-${++this.#count}`;
    const view = this.#parts.view(id, scope);
    const who = { id, name: undefined, version: undefined };
    const notify = (message: EncodedMessage): void => void link.send(message);
    const owner = (): Client => client;
    const parts = {
      view,
      deadlines,
      callLog: ledger,
      plugins,
      notify,
      excludedPlugin: plugin,
      clientChannel: owner,
    };
    const router = new Router(who, parts);
    const client = new Client(link, this, view, router, plugin !== undefined);
    // Plugins in this process speak the legacy era only.
    const events = plugin === undefined ? new Door(link, client, this.gather(id), scope) : client;
    const gone = new Promise<void>((left) => this.#clients.set(client, { link, view, left }));
    try {
      await link.open(events, signal);
    } catch (error) {
      events.closed(toHubError(error));
      throw error;
    }
    await gone;
  }

  /**
   * Serves requests of the modern era, each of which comes with its own responder.
   * @param clientId of the client that sends them; undefined: it cannot be told from others
   */
  gather(client: string | undefined): Parties {
    const parties: Parties = new Parties({
      ...this.#parts,
      editions: this.#editions,
      lot: this.#lot,
      client,
      ended: (ended) => void this.#parties.delete(ended),
    });
    this.#parties.add(parties);
    return parties;
  }

  /** A server may have settled: its first listing is known, or it has failed. */
  settle(): void {
    for (const { view } of this.#clients.values()) view.settle();
    for (const parties of this.#parties) parties.settle();
  }

  /** The catalog may have changed. */
  catalogChanged(): void {
    for (const client of this.#clients.keys()) client.catalogChanged();
    for (const parties of this.#parties) parties.catalogChanged();
  }

  /** Disconnects all clients, and refuses new ones. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const parties of this.#parties) parties.stop();
    await Promise.all([...this.#clients.values()].map(({ link }) => link.close()));
    for (const parties of this.#parties) parties.close();
  }

  pressure(client: Client, full: boolean): void {
    const held = this.#full.size > 0;
    if (full) this.#full.add(client);
    else this.#full.delete(client);
    const hold = this.#full.size > 0;
    if (hold !== held) this.#parts.hold(hold);
  }

  warn(text: string): void {
    this.#parts.warn(text);
  }

  left(client: Client): void {
    this.pressure(client, false);
    this.#clients.get(client)?.left();
    this.#clients.delete(client);
  }
}
