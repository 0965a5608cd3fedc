import { buildCatalog, type Catalog, type Limits } from "./catalog/catalog.ts";
import type { Digest, NameRules } from "./catalog/names.ts";
import type { Bus } from "./events.ts";
import { Client, type Host } from "./frontend/client.ts";
import type { Manifest, StdioServer } from "./manifest/schema.ts";
import type { Implementation } from "./protocol/legacy.ts";
import { Deadlines } from "./router/deadline.ts";
import { Router } from "./router/router.ts";
import { Connection } from "./upstream/connection.ts";
import { VERSION } from "./version.ts";
import type { Link } from "./wire/link.ts";

/** What a hub is made of; the parts with effects are arguments. */
export interface HubParts {
  readonly manifest: Manifest;
  readonly bus: Bus;
  readonly digest: Digest;
  /** Fills in a specification's `${…}` and makes its link. @throws {HubError} valueMissing */
  makeLink(spec: StdioServer): Promise<Link>;
}

/** Changes that come within this many ms of each other make one notification. */
const NOTIFY_PAUSE = 50;

/** The composition root: knows all parts, and holds the one catalog that is in force. */
export class Hub implements Host {
  readonly serverInfo: Implementation;
  readonly router: Router;
  readonly #parts: HubParts;
  readonly #connections = new Map<string, Connection>();
  readonly #clients = new Map<Client, { link: Link; left: () => void }>();
  readonly #full = new Set<Client>();
  readonly #names: NameRules;
  readonly #deadlines = new Deadlines();
  #catalog: Catalog | undefined;
  #notifying = false;
  #started = false;
  /** Whether a list may be answered; before that, who waits for it. */
  #listable = false;
  readonly #waiting = new Set<(catalog: Catalog) => void>();
  /** Who waits until every server has settled. */
  readonly #settledWaiters: (() => void)[] = [];
  readonly #remarked = new Set<string>();
  #stopped: Promise<void> | undefined;

  constructor(parts: HubParts) {
    const { hub, servers } = parts.manifest;
    this.#parts = parts;
    this.serverInfo = { name: hub.name, version: VERSION };
    this.#names = { separator: hub.separator, limit: hub.nameLimit - hub.clientPrefix.length };
    this.router = new Router({
      catalog: () => this.catalog,
      connection: (server) => this.#connections.get(server),
      unlisted: (name) => this.#unlisted(name),
      deadlines: this.#deadlines,
    });
    for (const spec of servers) {
      if (spec.kind === "stdio" && spec.enabled)
        this.#connections.set(spec.name, this.#connect(spec));
    }
  }

  /** The catalog in force; built when it is first needed after a change. */
  get catalog(): Catalog {
    return (this.#catalog ??= this.#build());
  }

  /** Every server that is switched on, in manifest order. */
  get connections(): readonly Connection[] {
    return [...this.#connections.values()];
  }

  /** Starts every server, once. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    for (const connection of this.#connections.values()) connection.start();
    const timer = setTimeout(() => this.#openList(), this.#parts.manifest.hub.listWait);
    timer.unref();
    this.#settle();
  }

  /** Serves a client on a link. @returns when the client has left. */
  async accept(link: Link, signal: AbortSignal): Promise<void> {
    const client = new Client(link, this);
    const gone = new Promise<void>((left) => this.#clients.set(client, { link, left }));
    await link.open(client, signal);
    await gone;
  }

  /** Settles when every server has connected or failed, however long that takes (each has its connectTimeout). */
  settled(): Promise<void> {
    return new Promise((resolve) => {
      this.#settledWaiters.push(resolve);
      this.#settle();
    });
  }

  /** Stops every server and drops every client; repeated calls join the first. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  arrived(): void {
    this.start();
  }

  whenListed(callback: (catalog: Catalog) => void): () => void {
    if (this.#listable) callback(this.catalog);
    else this.#waiting.add(callback);
    return () => void this.#waiting.delete(callback);
  }

  pressure(client: Client, full: boolean): void {
    const held = this.#full.size > 0;
    if (full) this.#full.add(client);
    else this.#full.delete(client);
    const hold = this.#full.size > 0;
    if (hold === held) return;
    this.#deadlines.hold(hold);
    for (const connection of this.#connections.values()) connection.hold(hold);
  }

  left(client: Client): void {
    this.pressure(client, false);
    this.#clients.get(client)?.left();
    this.#clients.delete(client);
  }

  async #stop(): Promise<void> {
    const clients = [...this.#clients.values()];
    await Promise.all([
      ...this.connections.map((connection) => connection.stop()),
      ...clients.map(({ link }) => link.close()),
    ]);
  }

  #connect(spec: StdioServer): Connection {
    return new Connection({
      spec,
      clientInfo: this.serverInfo,
      bus: this.#parts.bus,
      makeLink: (own) => this.#parts.makeLink(own),
      changed: () => this.#changed(),
      settled: () => this.#settle(),
    });
  }

  #unlisted(name: string): Connection[] {
    return this.connections.filter(
      ({ items, spec: { prefix } }) =>
        items === undefined && (prefix === "" || name.startsWith(prefix + this.#names.separator)),
    );
  }

  #settle(): void {
    if (!this.#started) return;
    for (const connection of this.#connections.values()) if (connection.pending) return;
    this.#openList();
    for (const resolve of this.#settledWaiters.splice(0)) resolve();
  }

  #openList(): void {
    if (this.#listable) return;
    this.#listable = true;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const callback of waiting) callback(this.catalog);
  }

  #changed(): void {
    this.#catalog = undefined;
    if (this.#notifying) return;
    this.#notifying = true;
    setTimeout(() => {
      this.#notifying = false;
      for (const client of this.#clients.keys()) client.catalogChanged(this.catalog);
    }, NOTIFY_PAUSE).unref();
  }

  #build(): Catalog {
    const sources = this.connections.map(({ spec, items }) => ({
      server: spec.name,
      items: items ?? [],
      rules: { prefix: spec.prefix, ...spec.tools },
      limits: (remoteName: string) => limitsOf(spec, remoteName),
    }));
    const catalog = buildCatalog(sources, this.#names, this.#parts.digest);
    const { bus } = this.#parts;
    for (const { kind, server, remoteName, text } of catalog.remarks) {
      const line = `Tool "${remoteName}" of server "${server}": ${text}`;
      if (kind === "filtered" || this.#remarked.has(line)) continue;
      this.#remarked.add(line);
      bus.emit({
        kind: "log",
        level: kind === "shortened" ? "info" : "warn",
        source: "hub",
        text: line,
      });
    }
    return catalog;
  }
}

function limitsOf({ tools, callTimeout, maxCallTimeout }: StdioServer, remoteName: string): Limits {
  const own = Object.hasOwn(tools.timeout, remoteName) ? tools.timeout[remoteName] : undefined;
  return own === undefined
    ? { timeout: callTimeout, maxTimeout: maxCallTimeout }
    : { timeout: own, maxTimeout: Math.max(own, maxCallTimeout) };
}
