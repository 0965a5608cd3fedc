/**
 * limits/: how many calls the hub lets through. `limit-scope.ts` has the limits of one thing (the hub, a client, a server,
 * a tool), `token-bucket.ts` its rate, `quota.ts` its quota, `fair-queue.ts` the places of its calls and the calls that wait
 * for them; `quota-book.ts` exchanges quotas with other hubs. Main type: `Limits`. Start here; `../router/limit-gate.ts`
 * takes a call through them.
 */
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { LimitEvent } from "../base/hub-events.ts";
import { mostExactGlob } from "../catalog/names.ts";
import type { CallCount, CallLimitsInput } from "../manifest/call-limits.ts";
import type { Manifest, RunnableServer } from "../manifest/manifest.ts";
import { FairQueue } from "./fair-queue.ts";
import {
  ANONYMOUS,
  formatWait,
  type LimitedThing,
  type LimitKind,
  LimitScope,
  wordsOf,
} from "./limit-scope.ts";
import { Quota } from "./quota.ts";
import { QuotaBook, type QuotaStorage } from "./quota-book.ts";
import { AwaitedRetries } from "./awaited-retries.ts";

/** The client of a router, as far as its limits need it. */
export interface LimitedClient {
  /** Its name in the manifest; undefined if it has none. */
  readonly principal: string | undefined;
  /** Its id, if it has a connection of its own; undefined: it shares its limits with all clients of which none is known. */
  readonly connection: string | undefined;
}

/** The settings of limits: those of a manifest, and those of the servers of the hub. */
export interface LimitSettings extends Pick<Manifest, "limits" | "clients"> {
  readonly servers: readonly RunnableServer[];
}

/** Who has used most of a quota. */
export interface UsedQuota extends Pick<LimitedThing, "name"> {
  readonly kind: LimitedThing["kind"];
  /** Unique. */
  readonly key: string;
  /** A full sentence. */
  readonly text: string;
}

export interface LimitsOptions {
  readonly clock: Clock;
  /** The time, in ms since the epoch. */
  readonly wallNow: () => number;
  /** Opens the storage of quotas; undefined: they are kept in memory. */
  readonly openQuotas: (() => Promise<QuotaStorage>) | undefined;
  readonly emit: (event: LimitEvent) => void;
  /** Called when other quotas are used by 80 %. */
  readonly onUsedQuotas: (used: readonly UsedQuota[]) => void;
  readonly warn: (text: string) => void;
}

/** The scopes of a call of a tool besides its client, as `ActiveLimits.scopesOf` gives them. */
export interface ToolScopes {
  /** Those of all calls: the hub. */
  readonly hub: readonly LimitScope[];
  /** Those at the server: the server, and the rule for the tool. */
  readonly server: readonly LimitScope[];
  readonly all: readonly LimitScope[];
}

const NONE: readonly LimitScope[] = [];
/** Maximum number of tools whose scopes are kept for one server. */
const MAX_TOOLS = 10_000;

const NONE_REFUSED: Readonly<Record<LimitKind, number>> = { rate: 0, quota: 0, queue: 0 };

/** The limits of a hub. */
export class Limits {
  /** Undefined while the manifest sets no limits. */
  active: ActiveLimits | undefined;
  readonly #options: LimitsOptions;
  #made: ActiveLimits | undefined;

  constructor(options: LimitsOptions) {
    this.#options = options;
  }

  /** Applies settings. What does not change keeps its calls. */
  configure(settings: LimitSettings): void {
    const isOn = hasLimits(settings);
    if (!isOn && this.#made === undefined) return;
    this.#made ??= new ActiveLimits(this.#options);
    this.#made.configure(settings);
    this.active = isOn ? this.#made : undefined;
  }

  /** The limits and what counts against them. */
  get status(): readonly LimitStatus[] {
    return this.active?.status ?? [];
  }

  /**
   * Forgets the calls of a client that count against its rate and its quota.
   * @returns undefined if it was done, else the names of the clients that have limits
   */
  async reset(client: string): Promise<readonly string[] | undefined> {
    return this.active === undefined ? [] : this.active.reset(client);
  }

  /** Number of calls that wait for places. */
  get queueLength(): number {
    return this.#made?.queue.length ?? 0;
  }

  /** Numbers of calls that were refused since the start of the hub, by the kind of the limit. */
  get refused(): Readonly<Record<LimitKind, number>> {
    return this.#made?.refused ?? NONE_REFUSED;
  }

  /** Called when a client with a connection of its own has left. */
  forgetClient(connection: string): void {
    this.#made?.forgetClient(connection);
  }

  /** Stores the calls that count for quotas. */
  async close(): Promise<void> {
    await this.#made?.close();
  }
}

/** Whether any calls are limited. */
function hasLimits({ limits = {}, servers, clients = [] }: LimitSettings): boolean {
  const has = (table: object | undefined): boolean => Object.keys(table ?? {}).length > 0;
  return (
    Object.values(limits).some((value) => typeof value !== "object" || has(value)) ||
    servers.some((spec) => has(spec.limits) || has(spec.tools.limits)) ||
    clients.some((client) => client.kind === "client" && has(client.limits))
  );
}

/** A limit with what counts against it. Times are in ms since the epoch, lengths of time in ms. */
export interface LimitStatus {
  readonly kind: LimitedThing["kind"];
  readonly client?: string;
  readonly server?: string;
  readonly tool?: string;
  readonly rate?: CallCount & { readonly burst: number; readonly left: number };
  readonly quota?: CallCount & { readonly used: number; readonly endsAt?: number };
  readonly maxConcurrent?: number;
  readonly running: number;
  readonly maxQueued?: number;
  readonly queued: number;
  readonly refused: number;
}

/** The limits of a hub whose manifest sets some. */
export class ActiveLimits {
  readonly queue = new FairQueue();
  readonly quotas: QuotaBook;
  readonly retries: AwaitedRetries;
  /** Numbers of calls that were refused, by the kind of the limit. */
  readonly refused: Record<LimitKind, number> = { ...NONE_REFUSED };
  readonly #options: LimitsOptions;
  readonly #hub = new LimitScope({ kind: "hub", name: "" });
  readonly #clients = new Map<string, LimitScope>();
  readonly #servers = new Map<string, ServerScopes>();
  /** The settings of clients with a name, and those of all others. */
  #named: ReadonlyMap<string, CallLimitsInput | undefined> = new Map();
  #others: CallLimitsInput = {};
  #hubScopes = NONE;
  /** Cache: the scopes that were asked for last. Many calls are of the same tool as the one before. */
  #lastScopes:
    { readonly server: string; readonly tool: string; readonly scopes: ToolScopes } | undefined;
  /** The quotas that are used by 80 %, as they were told last. */
  #told = "[]";

  constructor(options: LimitsOptions) {
    this.#options = options;
    this.retries = new AwaitedRetries(options.clock);
    this.quotas = new QuotaBook({
      clock: options.clock,
      wallNow: options.wallNow,
      open: options.openQuotas,
      onSync: () => this.#tellUsedQuotas(),
      onFailure: options.warn,
    });
  }

  configure({ limits = {}, servers, clients = [] }: LimitSettings): void {
    const { client: others = {}, ...ofHub } = limits;
    this.#others = others;
    this.#named = new Map(
      clients.flatMap((client) => (client.kind === "client" ? [[client.name, client.limits]] : [])),
    );
    this.#configure(this.#hub, ofHub);
    this.#hubScopes = this.#hub.isLimited ? [this.#hub] : NONE;
    this.#lastScopes = undefined;
    // A client with a quota has a scope before its first call, so that its calls are read and shown.
    for (const name of this.#named.keys()) this.#scopeOfClient(name, false);
    for (const scope of this.#clients.values()) this.#configure(scope, this.#settingsOf(scope));
    const specs = new Map(servers.map((spec) => [spec.name, spec]));
    for (const [name, spec] of specs) {
      if (spec.limits !== undefined || spec.tools.limits !== undefined) this.#scopesAt(name);
    }
    for (const [name, scopes] of this.#servers)
      scopes.configure(specs.get(name), this.#hubScopes, (scope, settings) =>
        this.#configure(scope, settings),
      );
    this.quotas.setQuotas(this.#scopes.flatMap(({ quota }) => quota ?? []));
    this.#tellUsedQuotas();
    this.queue.admit();
  }

  /** The scope of a client; always the same one until `forgetClient`. */
  clientScope({ principal, connection }: LimitedClient): LimitScope {
    const isNamed = principal !== undefined && this.#named.has(principal);
    if (isNamed) return this.#scopeOfClient(principal, false);
    return connection === undefined
      ? this.#scopeOfClient(ANONYMOUS, false)
      : this.#scopeOfClient(connection, true);
  }

  /** The scopes of the calls of a tool, by its own name at its server. */
  scopesOf(server: string, tool: string): ToolScopes {
    const last = this.#lastScopes;
    if (last?.server === server && last.tool === tool) return last.scopes;
    const scopes = this.#scopesAt(server).scopesOf(tool);
    this.#lastScopes = { server, tool, scopes };
    return scopes;
  }

  /**
   * Counts a call against the rates of a client and of other scopes.
   * @returns the error if one of them does not allow it; then it counts nowhere
   */
  takeRate(client: LimitScope | undefined, shared: readonly LimitScope[]): HubError | undefined {
    const now = this.#options.clock.now();
    let refusing: LimitScope | undefined;
    let longest = 0;
    for (let at = -1; at < shared.length; at++) {
      const scope = at < 0 ? client : shared[at];
      if (scope?.bucket === undefined) continue;
      const wait = scope.bucket.wait(now);
      if (wait <= longest) continue;
      longest = wait;
      refusing = scope;
    }
    if (refusing?.bucket !== undefined)
      return this.#refuse(refusing, "rate", longest, refusing.bucket.rate);
    client?.bucket?.take(now);
    for (let at = 0; at < shared.length; at++) shared[at]?.bucket?.take(now);
    return undefined;
  }

  /** Does the same for quotas, which must be loaded (`quotas`). */
  takeQuota(client: LimitScope | undefined, shared: readonly LimitScope[]): HubError | undefined {
    let refusing: LimitScope | undefined;
    let longest = 0;
    let now = 0;
    for (let at = -1; at < shared.length; at++) {
      const scope = at < 0 ? client : shared[at];
      if (scope?.quota === undefined) continue;
      if (now === 0) now = this.#options.wallNow();
      const wait = scope.quota.wait(now);
      if (wait <= longest) continue;
      longest = wait;
      refusing = scope;
    }
    // No scope has a quota.
    if (now === 0) return undefined;
    if (refusing?.quota !== undefined)
      return this.#refuse(refusing, "quota", longest, refusing.quota.limit);
    let hasChanged = client?.quota?.take(now) === true;
    for (let at = 0; at < shared.length; at++)
      if (shared[at]?.quota?.take(now) === true) hasChanged = true;
    if (hasChanged) this.#tellUsedQuotas();
    return undefined;
  }

  /** The error for a call that may not wait, because as many wait as may. */
  refuseQueued(scope: LimitScope): HubError {
    return this.#refuse(scope, "queue", QUEUE_RETRY, undefined);
  }

  get status(): readonly LimitStatus[] {
    const now = this.#options.clock.now();
    const wall = this.#options.wallNow();
    return this.#scopes
      .filter(({ isLimited, queued, refused }) => isLimited || queued > 0 || refused > 0)
      .map((scope) => statusOf(scope, now, wall));
  }

  async reset(client: string): Promise<readonly string[] | undefined> {
    const scope = this.#clients.get(client);
    if (scope === undefined) return [...this.#clients.keys()];
    scope.bucket?.reset();
    if (scope.quota !== undefined) await this.quotas.reset(scope.quota);
    return undefined;
  }

  forgetClient(connection: string): void {
    const scope = this.#clients.get(connection);
    // The scope still counts for calls that have not ended.
    if (scope?.isConnection !== true) return;
    this.#clients.delete(connection);
    this.retries.dropOf(scope);
  }

  get clock(): Clock {
    return this.#options.clock;
  }

  close(): Promise<void> {
    this.retries.close();
    return this.quotas.close();
  }

  get #scopes(): readonly LimitScope[] {
    const ofServers = [...this.#servers.values()].flatMap(({ scopes }) => scopes);
    return [this.#hub, ...this.#clients.values(), ...ofServers];
  }

  #scopeOfClient(name: string, isConnection: boolean): LimitScope {
    const known = this.#clients.get(name);
    if (known !== undefined) return known;
    const scope = new LimitScope({ kind: "client", name }, isConnection);
    this.#clients.set(name, scope);
    this.#configure(scope, this.#settingsOf(scope));
    if (scope.quota !== undefined)
      this.quotas.setQuotas(this.#scopes.flatMap(({ quota }) => quota ?? []));
    return scope;
  }

  #settingsOf({ name, isConnection }: LimitScope): CallLimitsInput {
    if (!isConnection) return this.#named.get(name) ?? this.#others;
    const { quota: _, ...settings } = this.#others;
    return settings;
  }

  #scopesAt(server: string): ServerScopes {
    let scopes = this.#servers.get(server);
    if (scopes === undefined) {
      scopes = new ServerScopes(server);
      scopes.configure(undefined, this.#hubScopes, () => {});
      this.#servers.set(server, scopes);
    }
    return scopes;
  }

  #configure(scope: LimitScope, settings: CallLimitsInput): void {
    const { quota: limit } = settings;
    let quota: Quota | undefined;
    if (limit !== undefined) {
      quota = scope.quota ?? new Quota(quotaKeyOf(scope), limit);
      quota.limit = limit;
    }
    scope.configure(settings, quota);
  }

  #refuse(
    scope: LimitScope,
    kind: LimitKind,
    wait: number,
    limit: CallCount | undefined,
  ): HubError {
    const { clock, emit } = this.#options;
    this.refused[kind]++;
    const retryAfterMs = wait < 1000 ? Math.ceil(wait) : Math.ceil(wait / 1000) * 1000;
    const server = scope.kind === "server" || scope.kind === "tool" ? scope.name : undefined;
    const what =
      limit === undefined
        ? `Too many calls wait for ${scope.words}`
        : `Over the limit of ${wordsOf(limit)} for ${scope.words}`;
    if (scope.refuse(kind, clock.now())) {
      const { kind: of, name, tool } = scope;
      emit({
        kind: "limit",
        limit: kind,
        of,
        ...(of === "client" && { client: name }),
        ...(server !== undefined && { server }),
        ...(tool !== undefined && { tool }),
        retryAfter: retryAfterMs,
        text: `${what}: calls are refused for ${formatWait(retryAfterMs)}.`,
      });
    }
    const data = {
      retryAfterMs,
      ...(limit !== undefined && { limit: limit.count, remaining: 0 }),
    };
    const text = `${what}. Try again in ${formatWait(retryAfterMs)}.`;
    return new HubError("overLimit", text, { server, data });
  }

  #tellUsedQuotas(): void {
    const now = this.#options.wallNow();
    const used = this.#scopes.flatMap((scope): readonly UsedQuota[] => {
      const { quota, kind, name } = scope;
      const level = quota?.level(now) ?? "some";
      const end = quota?.end(now);
      if (quota === undefined || end === undefined || level === "some") return [];
      const share = level === "all" ? "all" : "80 %";
      const until = new Date(end).toISOString().slice(0, 16).replace("T", " ");
      const rest = level === "all" ? " Until then its calls are refused." : "";
      const whose = scope.words.replace(/^./, (letter) => letter.toUpperCase());
      const text = `${whose}: ${share} of ${wordsOf(quota.limit)} are used. They count anew from ${until} UTC.${rest}`;
      return [{ kind, name, key: quota.key, text }];
    });
    const told = JSON.stringify(used);
    if (told === this.#told) return;
    this.#told = told;
    this.#options.onUsedQuotas(used);
  }
}

/** After this time a call may be tried again that could not wait, in ms. */
const QUEUE_RETRY = 1000;

/** The scopes of the calls at one server. */
class ServerScopes {
  readonly #server: LimitScope;
  /** The scopes of the rules for tools, by their names and globs. */
  readonly #rules = new Map<string, LimitScope>();
  #globs: readonly string[] = [];
  #hub = NONE;
  /** Cache: by the tool's own name. */
  readonly #ofTools = new Map<string, ToolScopes>();

  constructor(name: string) {
    this.#server = new LimitScope({ kind: "server", name });
  }

  get scopes(): readonly LimitScope[] {
    return [this.#server, ...this.#rules.values()];
  }

  /** @param spec undefined: the server has no limits */
  configure(
    spec: RunnableServer | undefined,
    hub: readonly LimitScope[],
    configure: (scope: LimitScope, settings: CallLimitsInput) => void,
  ): void {
    const rules = spec?.tools.limits ?? {};
    this.#hub = hub;
    this.#ofTools.clear();
    this.#globs = Object.keys(rules);
    configure(this.#server, spec?.limits ?? {});
    const { name } = this.#server;
    for (const tool of this.#globs) {
      const scope = this.#rules.get(tool) ?? new LimitScope({ kind: "tool", name, tool });
      this.#rules.set(tool, scope);
      configure(scope, rules[tool] ?? {});
    }
    for (const tool of this.#rules.keys())
      if (!Object.hasOwn(rules, tool)) this.#rules.delete(tool);
  }

  scopesOf(tool: string): ToolScopes {
    const known = this.#ofTools.get(tool);
    if (known !== undefined) return known;
    const glob = mostExactGlob(this.#globs, tool);
    const rule = glob === undefined ? undefined : this.#rules.get(glob);
    // Calls that wait because of a rule for tools also count for the server.
    const server =
      rule !== undefined ? [this.#server, rule] : this.#server.isLimited ? [this.#server] : NONE;
    const scopes = { hub: this.#hub, server, all: [...this.#hub, ...server] };
    if (this.#ofTools.size >= MAX_TOOLS) this.#ofTools.clear();
    this.#ofTools.set(tool, scopes);
    return scopes;
  }
}

/** The name of a quota among those of one manifest. */
function quotaKeyOf({ kind, name, tool }: LimitedThing): string {
  const table = { hub: "limits", client: "clients", server: "servers", tool: "tools" }[kind];
  return JSON.stringify([table, name, ...(tool === undefined ? [] : [tool])]);
}

function statusOf(scope: LimitScope, now: number, wall: number): LimitStatus {
  const { kind, name, tool, settings, bucket, quota, running, queued, refused } = scope;
  const { maxConcurrent, maxQueued } = settings;
  const endsAt = quota?.end(wall);
  return {
    kind,
    ...(kind === "client" && { client: name }),
    ...((kind === "server" || kind === "tool") && { server: name }),
    ...(tool !== undefined && { tool }),
    ...(bucket && { rate: { ...bucket.rate, burst: bucket.burst, left: bucket.left(now) } }),
    ...(quota && {
      quota: { ...quota.limit, used: quota.used(wall), ...(endsAt !== undefined && { endsAt }) },
    }),
    ...(maxConcurrent !== undefined && { maxConcurrent }),
    running,
    ...(maxQueued !== undefined && { maxQueued }),
    queued,
    refused,
  };
}
