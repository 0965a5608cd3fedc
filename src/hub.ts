import { Alerts } from "./alerts.ts";
import type { Catalog } from "./catalog/catalog.ts";
import { type Clock, systemClock } from "./clock.ts";
import type { EventKind, Listener } from "./events.ts";
import { Equipment } from "./hub/equipment.ts";
import { Herald } from "./hub/herald.ts";
import { type HubParts, type HubSnapshot, namesOf, serversOf } from "./hub/parts.ts";
import { Clients } from "./frontend/clients.ts";
import type { Parties } from "./frontend/modern/parties.ts";
import { type LogEntry, Logbook } from "./logbook.ts";
import { describeInvalid } from "./manifest/problem.ts";
import {
  type HubSettings,
  type InvalidServer,
  isRunnable,
  type Manifest,
  type RunnableServer,
} from "./manifest/schema.ts";
import type { PluginSet } from "./plugin/set.ts";
import type { Implementation } from "./protocol/legacy.ts";
import { Deadlines } from "./router/deadline.ts";
import { Ledger } from "./router/ledger.ts";
import { sessionOf } from "./upstream/account.ts";
import { Gate } from "./upstream/gate.ts";
import { Pool } from "./upstream/pool.ts";
import { ANYBODY, profileOf } from "./upstream/profile.ts";
import type { Scope } from "./upstream/scope.ts";
import { Recollection } from "./upstream/recollection.ts";
import { Showcase } from "./upstream/showcase.ts";
import { invalidStatus, type ServerStatus, type Settled, settledOf } from "./upstream/status.ts";
import { View } from "./upstream/view.ts";
import { VERSION } from "./version.ts";
import { within } from "./wire/grace.ts";
import type { Link, Vitals } from "./wire/link.ts";

/** How long a slow disk can hold up the end, in ms: less than servers can. */
const FLUSH_LIMIT = 1000;

/** What models are told where no server is right: they can tell the person who can mend it. */
function noticeOf(invalid: readonly InvalidServer[]): string {
  const lines = invalid.map((spec) => `- ${describeInvalid(spec)}`).join("\n");
  return `No tools are available: every server in the manifest of toolmux has a problem.\n\n${lines}\n\nWhen the manifest is corrected, the tools appear by themselves.`;
}

function addVitals(sum: Vitals | undefined, more: Vitals): Vitals {
  if (sum === undefined) return more;
  return {
    pid: sum.pid,
    processes: sum.processes + more.processes,
    memory: sum.memory + more.memory,
    each: [...sum.each, ...more.each],
  };
}

/** The composition root: knows all parts, and what can be done with them. Names of servers that there are not are refused (`usage`). */
export class Hub {
  readonly #parts: HubParts;
  readonly #clock: Clock;
  #settings: HubSettings;
  readonly #alerts: Alerts;
  readonly #logbook: Logbook;
  readonly #gate: Gate;
  readonly #pool: Pool;
  readonly #showcase: Showcase;
  readonly #clients: Clients;
  readonly #deadlines: Deadlines;
  readonly #memory: Recollection;
  readonly equipment: Equipment;
  readonly #herald: Herald;
  /** Those who wait until every server has settled; with `isPatient` also the late ones. */
  #settledWaiters: readonly { readonly isPatient: boolean; readonly resolve: () => void }[] = [];
  #closing: Promise<void> | undefined;
  /** The servers of the manifest whose tables have problems, and the names of all, in its order. */
  #invalid: readonly InvalidServer[] = [];
  #names: readonly string[] = [];

  constructor(parts: HubParts) {
    const { manifest, bus, digest, clock = systemClock, random = Math.random } = parts;
    const { authorize } = parts;
    this.#parts = parts;
    this.#clock = clock;
    this.#settings = manifest.hub;
    this.#alerts = new Alerts(bus);
    this.#logbook = new Logbook(bus);
    this.#gate = new Gate(manifest.hub.parallelStarts, clock);
    this.equipment = new Equipment({
      clock,
      changed: () => this.#changed(),
      catalog: () => this.catalog,
      serverInfo: () => this.serverInfo,
      accept: (link, signal, plugin) => this.#clients.accept(link, signal, { plugin }),
      outside: parts,
    });
    this.equipment.exchange(parts.plugins);
    this.#memory = new Recollection(
      parts.snapshots,
      (spec) => this.equipment.identify(spec),
      this.#alerts,
      (text) => parts.redact?.(text) ?? text,
    );
    this.#pool = new Pool({
      surroundings: {
        clientInfo: () => this.serverInfo,
        clock,
        gate: this.#gate,
        makeLink: (spec) => this.equipment.makeLink(spec),
        ...(authorize && {
          authorize: (spec, challenge, passage) =>
            this.equipment.authorize(spec, (remote, schemes) =>
              authorize(remote, schemes, challenge, passage),
            ),
        }),
      },
      bus,
      alerts: this.#alerts,
      memory: this.#memory,
      random,
      changed: () => this.#changed(),
      settled: () => this.#settle(),
    });
    const { equipment } = this;
    const reviser = () => equipment.set && equipment.revise.bind(equipment);
    const shown = { pool: this.#pool, bus, alerts: this.#alerts, digest, reviser };
    this.#showcase = new Showcase(namesOf(manifest.hub), shown);
    this.#deadlines = new Deadlines(clock);
    this.#clients = new Clients({
      deadlines: this.#deadlines,
      ledger: new Ledger(bus),
      clock,
      serverInfo: () => this.serverInfo,
      view: (client, scope) => this.#see(client, scope),
      plugins: () => this.equipment.set,
      warn: (text) => bus.emit({ kind: "log", level: "warn", source: "hub", text }),
      hold: (held) => {
        this.#deadlines.hold(held);
        this.#pool.hold(held);
      },
    });
    this.#herald = new Herald(clock, () => {
      this.#showcase.announce();
      this.#clients.catalogChanged();
    });
    this.#pool.reconcile(serversOf(manifest));
    this.#takeInvalid(manifest);
  }

  /** The prefix of each server that there is and has not failed, by name. */
  get prefixes(): ReadonlyMap<string, string> {
    return new Map([...this.#running].map(([name, { prefix }]) => [name, prefix]));
  }

  get serverInfo(): Implementation {
    return { name: this.#settings.name, version: VERSION };
  }

  /** The catalog of what all clients share. */
  get catalog(): Catalog {
    return this.#showcase.catalog(ANYBODY);
  }

  /** Serves a client on a link, with all servers if it is not said with which. @returns when the client has left. */
  accept(link: Link, signal: AbortSignal, scope?: Scope): Promise<void> {
    return this.#clients.accept(link, signal, { scope });
  }

  /** Serves requests of the modern era that have no link in common. @param client who makes them, if it can be told */
  gather(client: string | undefined): Parties {
    return this.#clients.gather(client);
  }

  /**
   * Makes the servers what this manifest says. Who is the same keeps its process and all that runs.
   * @param plugins the manifest's, set up: those in force if they stay
   */
  reload(manifest: Manifest, plugins?: PluginSet): void {
    if (this.equipment.exchange(plugins)) this.#showcase.clear();
    this.#settings = manifest.hub;
    this.#gate.limit = manifest.hub.parallelStarts;
    this.#showcase.names = namesOf(manifest.hub);
    const running = this.#running;
    const servers = manifest.servers.flatMap((spec) => {
      if (isRunnable(spec)) return [spec];
      // It goes on as it was until its table is right again.
      const kept = spec.kind === "invalid" && spec.enabled ? running.get(spec.name) : undefined;
      return kept === undefined ? [] : [kept];
    });
    this.#whole(() => {
      this.#pool.reconcile(servers);
      this.#takeInvalid(manifest);
    });
    this.#parts.bus.emit({ kind: "manifest", outcome: "reloaded", servers: servers.length });
  }

  /** Tells that a manifest was not put into force; `problems` are whole lines. The hub goes on with what it has. */
  refuse(problems: string): void {
    this.#parts.bus.emit({ kind: "manifest", outcome: "refused", problems });
  }

  /** Adds a server, or gives it another specification; the same one again changes nothing. */
  add(spec: RunnableServer): void {
    this.#whole(() => this.#pool.add(spec));
  }

  /** Stops a server and forgets it. */
  remove(server: string): void {
    this.#whole(() => this.#pool.remove(server));
  }

  /** Starts every server that is not to be down, also those that only a call would start. */
  startAll(): void {
    this.#whole(() => this.#pool.startAll());
    this.#settle();
  }

  async startAllAndSettle(): Promise<Settled> {
    this.startAll();
    await this.settled();
    return settledOf(this.status());
  }

  /**
   * Settles when every server that shall be up has connected, has failed, or is late (each has its `connectTimeout`).
   * @param patience `untilStarted`: late servers are waited for, too (each has its `startLimit`)
   */
  settled(patience: "untilLate" | "untilStarted" = "untilLate"): Promise<void> {
    return new Promise((resolve) => {
      const waiter = { isPatient: patience === "untilStarted", resolve };
      this.#settledWaiters = [...this.#settledWaiters, waiter];
      this.#settle();
    });
  }

  start(server: string): void {
    this.#whole(() => this.#pool.start(server));
  }

  /** Stops a server until it is started; no call brings it back. @returns when nothing of it is left. */
  stop(server: string): Promise<void> {
    return this.#pool.stop(server);
  }

  /** Ends what there is of a server and starts it anew, also if it was stopped; an attempt that runs is left to run. */
  reconnect(server: string): void {
    this.#pool.reconnect(server);
  }

  /** Reconnects all that failed, or wait for their next attempt. @returns whom. */
  reconnectFailed(): readonly string[] {
    return this.#pool.reconnectFailed();
  }

  /** Gives up a server's present attempt, or the wait for its next one. */
  cancelAttempt(server: string): void {
    for (const connection of this.#pool.of(server)) connection.cancel();
  }

  /** Cancels one call by its number: its client gets an error. @returns whether it was running. */
  cancelCall(call: number): boolean {
    const found = this.#clients.calls.find(({ number }) => number === call);
    found?.abort();
    return found !== undefined;
  }

  /** Lists a server again. @returns when that is done. */
  async refresh(server: string): Promise<void> {
    await Promise.all(this.#pool.of(server).map((connection) => connection.refresh()));
  }

  /** @returns when nothing of any server is left. */
  stopAll(): Promise<void> {
    return this.#pool.stopAll();
  }

  /** In manifest order. */
  status(): readonly ServerStatus[] {
    const running = this.#pool.status;
    if (this.#invalid.length === 0) return running;
    const known = new Map(
      // One that runs goes on as it was.
      [...this.#invalid.map(invalidStatus), ...running].map((one) => [one.server, one]),
    );
    return this.#names.flatMap((name) => known.get(name) ?? []);
  }

  /** The servers that there are, by name, but for those that have failed. */
  get #running(): ReadonlyMap<string, RunnableServer> {
    const specs = new Map(this.#pool.specs.map((spec) => [spec.name, spec]));
    for (const { server, connections } of this.#pool.status) {
      const isFailed = ({ state }: { readonly state: string }): boolean => state === "failed";
      if (connections.length > 0 && connections.every(isFailed)) specs.delete(server);
    }
    return specs;
  }

  /** Servers whose tables have problems: they are shown as failed, and an alert says why. */
  #takeInvalid({ servers }: Manifest): void {
    const invalid = servers.flatMap((spec) =>
      spec.kind === "invalid" && spec.enabled ? [spec] : [],
    );
    for (const { name } of this.#invalid) {
      if (invalid.some((spec) => spec.name === name)) continue;
      this.#alerts.clear(name, ["manifestInvalid"]);
    }
    this.#invalid = invalid;
    this.#names = servers.map(({ name }) => name);
    for (const spec of invalid) {
      this.#alerts.admit(spec.name);
      const text = describeInvalid(spec);
      this.#alerts.raise({ kind: "manifestInvalid", server: spec.name, text });
    }
    const isNoneRight = invalid.length > 0 && !this.#pool.specs.some(({ enabled }) => enabled);
    this.#showcase.notice = isNoneRight ? noticeOf(invalid) : undefined;
    const running = new Set(this.#pool.specs.map(({ name }) => name));
    this.#showcase.invalid = invalid.filter(({ name }) => !running.has(name));
    this.#showcase.clear();
    this.#changed();
  }

  /** What runs for all connections of a server; undefined if nothing does, or none is connected. `pid` is the first one's. */
  async inspect(server: string): Promise<Vitals | undefined> {
    const sessions = this.#pool.of(server).flatMap(({ state }) => sessionOf(state) ?? []);
    const all = await Promise.all(sessions.map((session) => session.vitals()));
    const [first, ...others] = all.filter((vitals) => vitals !== undefined);
    return others.reduce(addVitals, first);
  }

  snapshot(): HubSnapshot {
    return {
      servers: this.status(),
      calls: this.#clients.calls.map((call) => call.describe()),
      alerts: this.#alerts.all,
      tools: this.catalog.tools.routes.length,
      plugins: this.equipment.set?.status ?? [],
    };
  }

  /** The last lines of a server's log, oldest first. */
  log(server: string): readonly LogEntry[] {
    return this.#logbook.of(server);
  }

  /** @returns the undo. */
  subscribe(listener: Listener, kinds?: readonly EventKind[]): () => void {
    return this.#parts.bus.subscribe(listener, kinds);
  }

  /** Stops every server and drops every client; repeated calls join the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#herald.end();
    const kept = within(FLUSH_LIMIT, this.#memory.flush());
    const stopped = this.#pool.end();
    // What plugins make of that is for clients who are still there.
    if (this.equipment.isBusy) await this.equipment.idle();
    await Promise.all([stopped, this.#clients.close(), kept]);
    await this.equipment.close();
    this.#deadlines.end();
  }

  /** No listener comes between the steps of what is done. */
  #whole<T>(work: () => T): T {
    return this.#parts.bus.whole(work);
  }

  #see(client: string | undefined, scope: Scope | undefined): View {
    const [pool, showcase, clock] = [this.#pool, this.#showcase, this.#clock];
    const listWait = (): number => this.#settings.listWait;
    return new View(profileOf("", client, undefined, scope), { pool, showcase, clock, listWait });
  }

  #settle(): void {
    this.#clients.settle();
    if (this.#settledWaiters.length === 0) return;
    const { all } = this.#pool;
    if (!all.every(({ isSettled }) => isSettled)) return;
    const isAnyLate = all.some(({ isLate }) => isLate);
    const waiters = this.#settledWaiters;
    this.#settledWaiters = waiters.filter(({ isPatient }) => isPatient && isAnyLate);
    for (const { isPatient, resolve } of waiters) if (!isPatient || !isAnyLate) resolve();
  }

  #changed(): void {
    this.#showcase.clear();
    this.#herald.changed();
  }
}
