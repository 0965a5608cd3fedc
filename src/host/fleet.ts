import { createHash, randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { settlesWithin, systemClock } from "../base/clock.ts";
import { describeFault, HubError, toHubError } from "../base/errors.ts";
import type { FleetEvent, LogLevel } from "../base/hub-events.ts";
import { expandHome } from "../base/paths.ts";
import { VERSION } from "../base/version.ts";
import { compileGlobs } from "../catalog/filter.ts";
import { matchesGlob } from "../catalog/names.ts";
import { KINDS } from "../catalog/listing.ts";
import type { ExportedServer } from "../fleet/announcements.ts";
import type { Bus, BusEvent } from "../fleet/bus.ts";
import { type BusLogin, type BusTarget, connectBus } from "../fleet/nats-bus.ts";
import { inboxPrefixOf, Subject } from "../fleet/subjects.ts";
import { Exporter, type FleetUser } from "../frontend/nats/exporter.ts";
import type { Hub } from "../hub/hub.ts";
import { secretSchemes } from "../hub/http-clients.ts";
import { DEFAULT_TENANT } from "../manifest/merge/merge.ts";
import type { FleetServer, FleetSettings, Manifest } from "../manifest/manifest.ts";
import { resolveHttpToken } from "../manifest/resolve.ts";
import { subsetOf } from "../upstream/profile.ts";
import { type FleetChange, FleetPeers } from "../transport/nats/peers.ts";
import { NatsTransport } from "../transport/nats/transport.ts";
import type { HostContext } from "./context.ts";
import { chooseImports, type Imports, MAX_IMPORTS } from "./fleet-imports.ts";

/** Time between two attempts to connect to NATS for the first time, in ms: doubled each time up to `max`. */
const RETRY = { min: 1_000, max: 30_000 };
/** Time for which changes of what is exported or imported are collected, in ms. */
const SETTLE = 50;
/** Time that a hub of the same name has to answer when this hub joins the fleet, in ms. */
const NAME_TIMEOUT = 500;
/** Time after which a server that no hub exports any more is removed, in ms. */
const VANISH = 30_000;
const NO_BYTES = new Uint8Array();

export interface FleetOptions {
  readonly context: HostContext;
  readonly manifest: Manifest;
  readonly log: (level: LogLevel, text: string) => void;
  readonly emit: (event: FleetEvent) => void;
  /** Adds values to redact. */
  readonly addSecrets: (secrets: readonly string[]) => void;
}

/** What a hub is to its fleet while it is connected to NATS. */
export interface Membership {
  readonly settings: FleetSettings;
  readonly bus: Bus;
  readonly peers: FleetPeers;
  /** The name of this hub in the fleet, and the name that the manifest wants. */
  readonly name: string;
  readonly wanted: string;
  /** Undefined for a command that only uses servers of the fleet. */
  readonly exporter: Exporter | undefined;
}

/** One hub as a member of its fleet: connects to NATS, exports servers of this hub and imports those of others. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #instance = randomBytes(9).toString("base64url");
  readonly #abort = new AbortController();
  #manifest: Manifest;
  #connecting: Promise<Membership> | undefined;
  #membership: Membership | undefined;
  #hub: Hub | undefined;
  #cancelTimer: () => void = () => {};
  #cancelRetry: () => void = () => {};
  #isScheduled = false;
  readonly #unsubscribe: (() => void)[] = [];
  /** The servers that were added because other hubs export them, with the time since which none does. */
  readonly #imported = new Map<string, number | undefined>();
  readonly #denied = new Set<string>();
  #fault: HubError | undefined;
  #isClosed = false;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#manifest = options.manifest;
  }

  /**
   * Creates the transport to a server of the fleet, connecting to NATS first if need be.
   * @throws {HubError} notSupported, unreachable, unauthorized, tlsFailed or valueMissing
   */
  async openTransport(spec: FleetServer): Promise<NatsTransport> {
    const { peers } = await this.#connect();
    if (peers.all.length === 0) await peers.firstAnswer;
    const { name: server, fleet: remote, machine: hub, spread, maxMessage, isFound } = spec;
    const isConventional = hub === undefined && !isFound;
    return new NatsTransport(peers, { server, remote, hub, spread, isConventional, maxMessage });
  }

  /** Joins the fleet for a hub that serves clients: connects in the background, however long that takes. */
  join(hub: Hub): void {
    this.#hub = hub;
    // Other hubs want to know what the exported servers offer before one of them calls.
    const exported = this.#exportedBy(hub);
    if (exported.length > 0) hub.startEarly(subsetOf(exported));
    this.#unsubscribe.push(
      hub.subscribe(() => this.#schedule(), ["catalog", "state", "server", "manifest"]),
    );
    this.#joinLater(0, RETRY.min);
  }

  /** Applies a new manifest to the hub that has joined, or joins now. */
  async configure(manifest: Manifest, hub: Hub): Promise<void> {
    this.#manifest = manifest;
    if (this.#hub === undefined) {
      if (manifest.fleet !== undefined) this.join(hub);
      return;
    }
    const { settings } = this.#membership ?? {};
    if (settings !== undefined && !hasSameConnection(settings, manifest.fleet)) {
      await this.#leave();
      if (manifest.fleet !== undefined) this.#joinLater(0, RETRY.min);
    } else if (settings === undefined && manifest.fleet !== undefined)
      this.#joinLater(0, RETRY.min);
    this.#schedule();
  }

  /** Connects to NATS without joining the fleet, and says how it is. Never rejects. */
  async probe(): Promise<{
    readonly connected?: string;
    readonly error?: string;
    readonly denied: readonly string[];
    readonly maxPayload?: number;
  }> {
    try {
      const { bus } = await this.#connect();
      // NATS answers after what it does not permit.
      await settlesWithin(NAME_TIMEOUT, bus.roundTrip());
      return { connected: bus.server, denied: this.denied, maxPayload: bus.maxPayload };
    } catch (error) {
      return { error: toHubError(error).message, denied: [] };
    }
  }

  /** The settings in force; undefined if the manifest has no table `fleet`. */
  get settings(): FleetSettings | undefined {
    return this.#manifest.fleet;
  }

  get membership(): Membership | undefined {
    return this.#membership;
  }

  /** Why the hub is not connected to NATS; undefined if it is, or is still connecting. */
  get fault(): HubError | undefined {
    return this.#fault;
  }

  /** The subjects that NATS does not permit. */
  get denied(): readonly string[] {
    return [...this.#denied];
  }

  /** Leaves the fleet, as far as others see it: the requests that are open may end, within a limited time. */
  async stopExporting(): Promise<void> {
    this.#isClosed = true;
    this.#abort.abort();
    this.#cancelTimer();
    this.#cancelRetry();
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    await this.#membership?.exporter?.close();
  }

  async close(): Promise<void> {
    await this.stopExporting();
    await this.#leave();
  }

  #joinLater(delay: number, nextDelay: number): void {
    this.#cancelRetry();
    if (this.#isClosed || this.#membership !== undefined) return;
    this.#cancelRetry = systemClock.after(delay, () => {
      this.#connect().then(
        () => this.#schedule(),
        (thrown: unknown) => {
          if (this.#isClosed) return;
          const error = toHubError(thrown);
          if (this.#fault?.message !== error.message) this.#options.log("error", error.message);
          this.#fault = error;
          this.#joinLater(nextDelay, Math.min(nextDelay * 2, RETRY.max));
        },
      );
    });
  }

  /** @throws {HubError} */
  #connect(): Promise<Membership> {
    if (this.#connecting === undefined) {
      const connecting = this.#open();
      this.#connecting = connecting;
      connecting.catch(() => {
        if (this.#connecting === connecting) this.#connecting = undefined;
      });
    }
    return this.#connecting;
  }

  async #open(): Promise<Membership> {
    const settings = this.settings;
    if (settings === undefined) {
      const text = "The manifest has no table fleet, which says how to reach the fleet.";
      throw new HubError("notSupported", text);
    }
    const { tenant = DEFAULT_TENANT, user = "_" } = settings;
    const wanted = settings.name ?? machineName();
    const target = await this.#targetOf(settings, wanted, tenant, user);
    const bus = await connectBus(target, this.#abort.signal);
    bus.onEvent((event) => this.#onBusEvent(event, bus));
    const instance = this.#instance;
    const peers = new FleetPeers({ bus, clock: systemClock, tenant, user, instance });
    peers.onChange((change) => this.#onFleetChange(change));
    const isMember = this.#hub !== undefined;
    const name = isMember ? await freeName(bus, wanted) : wanted;
    if (name !== wanted) {
      const text = `Another hub of the fleet is named "${wanted}": this one is "${name}". Set another fleet.name.`;
      this.#options.log("warn", text);
    }
    const membership: Membership = {
      settings,
      bus,
      peers,
      name,
      wanted,
      exporter: this.#hub && this.#openExporter(this.#hub, bus, name),
    };
    if (this.#isClosed) {
      await disconnect(membership);
      throw new HubError("cancelled", "The hub is closing.");
    }
    this.#membership = membership;
    this.#fault = undefined;
    this.#options.log("info", `connected to NATS at ${bus.server} as "${name}"`);
    return membership;
  }

  async #targetOf(
    settings: FleetSettings,
    name: string,
    tenant: string,
    user: string,
  ): Promise<BusTarget> {
    const { file, baseDir, credentials, nkey, password, token, login = user, tls } = settings;
    const { context } = this.#options;
    const read = async (path: string, what: string): Promise<string> => {
      const absolute = resolve(baseDir, expandHome(path, context.env));
      try {
        return await readFile(absolute, "utf8");
      } catch (cause) {
        const text = `The file of fleet.${what} cannot be read: ${absolute}.`;
        throw new HubError("valueMissing", text, { cause });
      }
    };
    const fill = (text: string, what: string): Promise<string> =>
      resolveHttpToken(
        { text, file, baseDir },
        context.env,
        secretSchemes(context),
        `fleet.${what}`,
      );
    let busLogin: BusLogin = { kind: "none" };
    const secrets: string[] = [];
    if (credentials !== undefined) {
      const creds = await read(credentials, "credentials");
      secrets.push(
        ...creds.split("\n").filter((line) => /^[A-Za-z0-9_.=-]{40,}$/.test(line.trim())),
      );
      busLogin = { kind: "creds", creds };
    } else if (nkey !== undefined) busLogin = { kind: "nkey", seed: await fill(nkey, "nkey") };
    else if (password !== undefined)
      busLogin = { kind: "password", user: login, password: await fill(password, "password") };
    else if (token !== undefined) busLogin = { kind: "token", token: await fill(token, "token") };
    if (busLogin.kind === "nkey") secrets.push(busLogin.seed);
    if (busLogin.kind === "password") secrets.push(busLogin.password);
    if (busLogin.kind === "token") secrets.push(busLogin.token);
    this.#options.addSecrets(secrets);
    const urls = [settings.url].flat();
    const isTls = urls.some((url) => url.startsWith("tls:")) || tls !== undefined;
    return {
      urls,
      name: `toolmux ${name}`,
      inboxPrefix: inboxPrefixOf(tenant, user),
      login: busLogin,
      tls: isTls
        ? {
            ...(tls?.ca !== undefined && { ca: await read(tls.ca, "tls.ca") }),
            ...(tls?.cert !== undefined && { cert: await read(tls.cert, "tls.cert") }),
            ...(tls?.key !== undefined && { key: await read(tls.key, "tls.key") }),
          }
        : undefined,
    };
  }

  #onBusEvent(event: BusEvent, bus: Bus): void {
    const { log } = this.#options;
    if (this.#isClosed || this.#membership?.bus !== bus) {
      if (event.kind !== "denied") return;
    }
    switch (event.kind) {
      case "disconnected":
        log("warn", `the connection to NATS at ${bus.server} is lost; it is made again`);
        return;
      case "reconnected":
        log("info", `connected to NATS at ${bus.server} again`);
        this.#membership?.exporter?.announce();
        return;
      case "denied":
        if (this.#denied.has(event.subject) || this.#denied.size >= MAX_DENIED) return;
        this.#denied.add(event.subject);
        log("warn", `NATS does not permit this hub to ${event.operation} "${event.subject}"`);
        return;
      case "fault":
        log("error", `a message from NATS could not be handled: ${describeFault(event.error)}`);
        return;
      case "closed":
        log("error", `the connection to NATS has ended${event.reason && `: ${event.reason}`}`);
        void this.#leave().then(() => this.#hub && this.#joinLater(RETRY.min, RETRY.min * 2));
    }
  }

  #onFleetChange(change: FleetChange): void {
    const { log } = this.#options;
    if (change.kind === "joined" || change.kind === "left") {
      const { kind, hub: machine, servers } = change;
      const reason = change.kind === "left" ? change.reason : undefined;
      const more = reason !== undefined && { reason };
      this.#options.emit({ kind: "fleet", change: kind, machine, servers, ...more });
    }
    if (change.kind === "joined" && change.hub === this.#membership?.name) this.#rename(change.hub);
    if (change.kind === "interrupted")
      log("warn", "NATS does not answer: the requests that were under way are lost");
    if (change.kind === "recovered") this.#reconnectServers();
    this.#schedule();
  }

  /** Two hubs have joined at the same time under one name: one of them, the same for both, takes another. */
  #rename(name: string): void {
    const { peers, exporter } = this.#membership ?? {};
    const other = peers?.peer(name)?.instance ?? "";
    if (exporter === undefined || this.#instance < other) return;
    void this.#leave().then(() => this.#joinLater(0, RETRY.min));
  }

  /** Connects the servers of the fleet that wait for their next attempt. */
  #reconnectServers(): void {
    const hub = this.#hub;
    const { peers } = this.#membership ?? {};
    if (hub === undefined || peers === undefined) return;
    for (const { server, connections } of hub.status()) {
      const spec = hub.specs.find(({ name }) => name === server);
      if (spec?.kind !== "fleet" || peers.replicasOf(spec.fleet).length === 0) continue;
      const isWaiting = connections.some(
        ({ state }) => state === "reconnecting" || state === "failed",
      );
      if (isWaiting) hub.reconnect(server);
    }
  }

  /** Adapts what is exported and imported to the manifest, this hub and the fleet, a moment later. */
  #schedule(): void {
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    this.#cancelTimer();
    this.#cancelTimer = systemClock.after(SETTLE, () => {
      this.#isScheduled = false;
      this.#export();
      this.#import();
      this.#reconnectServers();
    });
  }

  #openExporter(hub: Hub, bus: Bus, name: string): Exporter {
    return new Exporter({
      hub,
      bus,
      clock: systemClock,
      name,
      instance: this.#instance,
      version: VERSION,
      warn: (text) => this.#options.log("warn", text),
    });
  }

  #export(): void {
    const membership = this.#membership;
    const hub = this.#hub;
    if (membership === undefined || hub === undefined) return;
    const { clients = [] } = this.settings ?? {};
    const users = clients.map(({ user, mode, servers, approval, askCaller = false }): FleetUser => {
      return { user, mode, servers, approval, askCaller };
    });
    membership.exporter?.setUsers(users);
    const exported = this.#exportedBy(hub).map((server) => exportedServerOf(hub, server));
    membership.exporter?.setServers(exported);
  }

  /** The names of the servers of this hub that others may use. */
  #exportedBy({ specs }: Hub): readonly string[] {
    const isExported = compileGlobs(this.settings?.export ?? []);
    // A server of another hub is not passed on: requests could go in circles.
    return specs
      .filter(({ name, kind, enabled }) => enabled && kind !== "fleet" && isExported(name))
      .map(({ name }) => name);
  }

  /** Adds the servers of other hubs that `fleet.import` names, and removes those that are gone for some time. */
  #import(): void {
    const hub = this.#hub;
    const membership = this.#membership;
    if (hub === undefined) return;
    const { import: globs = [], tenant = DEFAULT_TENANT } = this.settings ?? {};
    const imports = chooseImports(
      membership?.peers.all ?? [],
      globs,
      new Set(this.#imported.keys()),
    );
    const found = new Map<string, FleetServer>();
    for (const [fleet, machine] of imports.servers)
      found.set(fleet, this.#specOf(fleet, tenant, machine));
    hub.setImportAlerts(alertsOf(imports));
    const now = systemClock.now();
    const own = new Map(hub.specs.map((spec) => [spec.name, spec]));
    for (const [name, spec] of found) {
      const known = own.get(name);
      if (known === undefined || (known.kind === "fleet" && known.isFound)) {
        hub.add(spec);
        this.#imported.set(name, undefined);
      } else if (!this.#imported.has(name)) {
        this.#imported.set(name, undefined);
        const text = `server "${name}" of the fleet is not used, because this hub has a server of that name`;
        this.#options.log("info", text);
      }
    }
    let next: number | undefined;
    for (const [name, goneSince] of this.#imported) {
      if (found.has(name)) continue;
      const since = goneSince ?? now;
      this.#imported.set(name, since);
      const isWanted = globs.some((glob) => isImportedBy(name, glob));
      const left = isWanted ? since + VANISH - now : 0;
      if (left > 0) {
        next = Math.min(next ?? left, left);
        continue;
      }
      this.#imported.delete(name);
      const known = own.get(name);
      if (known?.kind === "fleet" && known.isFound) hub.remove(name);
    }
    if (next !== undefined) {
      this.#cancelTimer();
      this.#cancelTimer = systemClock.after(next, () => this.#import());
    }
  }

  #specOf(fleet: string, tenant: string, machine: string | undefined): FleetServer {
    const { defaults } = this.#manifest;
    return {
      kind: "fleet",
      ...defaults,
      name: fleet,
      enabled: true,
      prefix: fleet,
      isolation: "auto",
      era: "modern",
      lazy: false,
      tools: { allow: undefined, deny: [], rename: {}, timeout: {} },
      prompts: { allow: undefined, deny: [], rename: {} },
      fleet,
      tenant,
      machine,
      spread: "sticky",
      isFound: true,
    };
  }

  async #leave(): Promise<void> {
    this.#cancelRetry();
    this.#cancelTimer();
    this.#isScheduled = false;
    const connecting = this.#connecting;
    this.#connecting = undefined;
    const membership = this.#membership;
    this.#membership = undefined;
    const left = membership ?? (await connecting?.catch(() => undefined));
    if (left !== undefined) await disconnect(left);
  }
}

/** The alerts about servers that are left out. Their texts have no numbers, so that each is told once. */
function alertsOf({ limitedHubs, isLimited }: Imports): readonly { key: string; text: string }[] {
  const advice =
    'The others are left out. Name those that you need in fleet.import, or add [servers.NAME] with fleet = "SERVER".';
  const ofHubs = limitedHubs.slice(0, MAX_IMPORT_ALERTS).map((hub) => ({
    key: `hub ${hub}`,
    text: `The machine "${hub}" exports more than the ${MAX_IMPORTS.ofHub} servers that patterns of fleet.import take from one machine. ${advice}`,
  }));
  if (!isLimited) return ofHubs;
  const text = `The fleet exports more than the ${MAX_IMPORTS.all} servers that patterns of fleet.import take in all. ${advice}`;
  return [...ofHubs, { key: "all", text }];
}

const MAX_IMPORT_ALERTS = 5;

/** Whether a pattern of `fleet.import` names a server, of whatever machine. */
function isImportedBy(name: string, glob: string): boolean {
  return matchesGlob(glob.slice(glob.indexOf("/") + 1), name);
}

const MAX_DENIED = 100;

async function disconnect({ exporter, peers, bus }: Membership): Promise<void> {
  await exporter?.close();
  peers.close();
  await bus.close();
}

/** Whether a new manifest has the same connection to NATS, so that only what is exported and imported can differ. */
function hasSameConnection(before: FleetSettings, after: FleetSettings | undefined): boolean {
  const connectionOf = (settings: FleetSettings | undefined): string | undefined => {
    if (settings === undefined) return undefined;
    const { export: _, import: __, clients: ___, ...connection } = settings;
    return JSON.stringify(connection);
  };
  return connectionOf(before) === connectionOf(after);
}

function exportedServerOf(hub: Hub, name: string): ExportedServer {
  const catalog = hub.catalogOfServer(name);
  const hash = createHash("sha256");
  let count = 0;
  for (const kind of KINDS) {
    for (const { bytes } of catalog[kind].entries) {
      hash.update(kind).update(bytes);
      count++;
    }
  }
  return { name, digest: count === 0 ? undefined : hash.digest("base64url").slice(0, 22) };
}

/** The name of this machine, as a token of subjects where possible. */
function machineName(): string {
  const [first = ""] = hostname().split(".");
  return first === "" ? "hub" : first;
}

/** The first of the names `wanted`, `wanted-2`, … that no hub of the fleet has. */
async function freeName(bus: Bus, wanted: string): Promise<string> {
  for (let number = 1; ; number++) {
    const name = number === 1 ? wanted : `${wanted}-${number}`;
    if (!(await isTaken(bus, name))) return name;
  }
}

async function isTaken(bus: Bus, name: string): Promise<boolean> {
  // Not below the inbox, to which something else has subscribed.
  const reply = `${bus.inbox}-name`;
  const answer = Promise.withResolvers<boolean>();
  const unsubscribe = bus.subscribe(reply, ({ hasNoResponders }) =>
    answer.resolve(!hasNoResponders),
  );
  bus.publish(Subject.ping(name), NO_BYTES, { reply });
  const isAnswered = await settlesWithin(NAME_TIMEOUT, answer.promise);
  unsubscribe();
  return isAnswered && (await answer.promise);
}
