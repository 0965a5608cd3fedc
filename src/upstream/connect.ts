import { type Clock, abortable } from "../base/clock.ts";
import { type ConnectPhase, type ErrorCode, HubError, toHubError } from "../base/errors.ts";
import type { LogLevel, LogSource } from "../base/events.ts";
import type { CacheHints, ItemsByKind, Kind, ServerListing } from "../catalog/listing.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import type { DetectedEra } from "../snapshot/snapshots.ts";
import type { AuthChallenge } from "../transport/http/target.ts";
import type { MalformedOutput, Transport } from "../transport/transport.ts";
import type { AuthorizationRun } from "./authorization.ts";
import type { EarlyExit, NegotiationPlan } from "./negotiate.ts";
import type { ConnectionClients } from "./profile.ts";
import { Session } from "./session.ts";
import type { StartLimiter } from "./start-limiter.ts";

/** A server's listing. A kind is missing if it could not be listed: its items of the last listing stay. */
export type PartialListing = Partial<ServerListing>;

const OPTIONAL_KINDS = ["prompts", "resources", "resourceTemplates", "skills"] as const;

export interface ListOptions {
  readonly session: Pick<Session, "list" | "handshake" | "era" | "cacheHints" | "listMeta">;
  readonly signal: AbortSignal;
  /** Aborts the listing of all kinds but tools. */
  readonly optionalSignal: AbortSignal;
  /** Reports why a kind other than tools could not be listed. */
  warn(text: string): void;
}

/** Lists the items of all kinds of a server. @throws {HubError} if its tools cannot be listed */
export async function listServer(options: ListOptions): Promise<PartialListing> {
  const { session, signal } = options;
  const optionalSignal = AbortSignal.any([signal, options.optionalSignal]);
  const listOptional = async (kind: Kind): Promise<Partial<ItemsByKind> | Error> =>
    session.list(kind, optionalSignal).then((items) => ({ [kind]: items }), toHubError);
  // All kinds are listed concurrently.
  const optionalLists = Promise.all(OPTIONAL_KINDS.map(listOptional));
  const tools = await session.list("tools", signal);
  const listings: PartialListing[] = [];
  for (const result of await optionalLists) {
    if (result instanceof Error) options.warn(result.message);
    else listings.push(result);
  }
  const { instructions, declared } = session.handshake ?? {};
  const base = { tools, instructions, declared, ...readListMetadata(session) };
  return Object.assign(base, ...listings) as PartialListing;
}

/** The cache hints and the `_meta` of a server's lists. */
export function readListMetadata(
  session: Pick<Session, "era" | "cacheHints" | "listMeta">,
): Pick<ServerListing, "hints" | "metas"> {
  const { listMeta: metas } = session;
  return {
    hints: readCacheHints(session),
    metas: metas.size === 0 ? undefined : Object.fromEntries(metas),
  };
}

/** The cache hints of a server's lists (caching); undefined for a legacy server. */
function readCacheHints({
  era,
  cacheHints: hints,
}: Pick<Session, "era" | "cacheHints">): CacheHints | undefined {
  return era === "modern" ? Object.fromEntries(hints) : undefined;
}

/** What connection attempts need from the hub. */
export interface ConnectEnvironment {
  clientInfo(): Implementation;
  readonly clock: Clock;
  readonly startLimiter: StartLimiter;
  /** Resolves the `${…}` in the server's specification and creates the transport. @throws {HubError} valueMissing */
  openTransport(spec: RunnableServer): Promise<Transport>;
  /**
   * Obtains authorization for a server; absent: authorization cannot be obtained.
   * @throws {HubError} unauthorized, or the signal's reason
   */
  readonly authorize?: (
    spec: RunnableServer,
    challenge: AuthChallenge,
    run: AuthorizationRun,
  ) => Promise<void>;
}

/** What an attempt, and the session that it opens, reports to the connection. */
export interface ConnectEvents {
  /**
   * The session is open and listed.
   * @param changedKinds kinds for which `list_changed` arrived during the attempt: they must be listed again
   * @param duration of the attempt, in ms
   */
  opened(
    session: Session,
    listing: PartialListing,
    changedKinds: readonly Kind[],
    duration: number,
  ): void;
  /** The attempt has failed, or its session has ended. */
  lost(cause: HubError): void;
  /** The attempt continues after `connectTimeout` has passed. @param since when it began, in ms of the clock */
  late(since: number, reason: HubError): void;
  listChanged(kinds: readonly Kind[]): void;
  /** The server has answered 401 or 403, be it to one request or to the opening of the transport. */
  challenged(challenge: AuthChallenge): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  malformedOutput(output: MalformedOutput): void;
}

const MAX_STDERR_LINES = 10;
/**
 * Maximum time for the answer to `server/discover`: in ms, and as a share of `connectTimeout`. After it the server is
 * taken for a legacy server.
 */
const MAX_PROBE_TIMEOUT = 3000;
const PROBE_TIME_SHARE = 0.4;
/**
 * A remote server whose connection was just lost may be restarting: the attempt is repeated every `pause` ms for up to
 * `limit` ms.
 */
const RESTART_RETRY = { pause: 200, limit: 10_000 };
/** The codes of errors that mean that the server cannot be reached, perhaps because it is still starting. */
const UNAVAILABLE_CODES: ReadonlySet<ErrorCode> = new Set([
  "unreachable",
  "serverFailed",
  "notDelivered",
  "answerLost",
  "connectionLost",
]);
/** The share of `connectTimeout` that listing the optional kinds (all but tools) may take. */
const OPTIONAL_LISTS_TIME_SHARE = 0.5;

/**
 * One attempt to connect: waits for a slot of the start limiter, creates and opens the transport, negotiates the
 * protocol version and lists the server's items. Also owns the session that it has opened.
 */
export class ConnectAttempt {
  readonly #spec: RunnableServer;
  readonly #clients: ConnectionClients;
  readonly #environment: ConnectEnvironment;
  readonly #eraMemory: EraMemory;
  /** The server is remote and was connected until just now. */
  readonly #wasConnected: boolean;
  readonly #events: ConnectEvents;
  readonly #abort = new AbortController();
  #connectPhase: ConnectPhase = "resolve";
  #session: Session | undefined;
  #transport: Transport | undefined;
  #status: "opening" | "open" | "closed" = "opening";
  readonly #changedKinds = new Set<Kind>();
  readonly #stderrTail: string[] = [];
  /** Releases the slot of the start limiter. */
  #releaseSlot: () => void = () => {};
  /** Why the first process exited during negotiation, if a second one had to be started. */
  #earlyExit: EarlyExit | undefined;

  constructor(
    spec: RunnableServer,
    clients: ConnectionClients,
    environment: ConnectEnvironment,
    eraMemory: EraMemory,
    wasConnected: boolean,
    events: ConnectEvents,
  ) {
    this.#spec = spec;
    this.#clients = clients;
    this.#environment = environment;
    this.#eraMemory = eraMemory;
    this.#wasConnected = wasConnected && spec.kind === "remote";
    this.#events = events;
  }

  /** The session, from the creation of the transport until the attempt or its session is over. */
  get session(): Session | undefined {
    return this.#status === "closed" ? undefined : this.#session;
  }

  /**
   * Tries to connect once `ready` has settled. Timeouts count from when the start limiter grants a slot: after
   * `connectTimeout` the attempt is late, after `startLimit` it is aborted. Never rejects.
   */
  async run(ready: Promise<unknown>): Promise<void> {
    const { startLimiter, clock } = this.#environment;
    const { signal } = this.#abort;
    let cancelTimer = (): void => {};
    try {
      await ready;
      this.#releaseSlot = await startLimiter.acquire(signal);
      const began = clock.now();
      cancelTimer = this.#startTimers(began);
      const listing = await this.#connectAndList(signal);
      this.#onListed(listing, clock.now() - began);
    } catch (error) {
      this.#onLost(toHubError(error));
    } finally {
      this.#releaseSlot();
      cancelTimer();
    }
  }

  /** Starts the timers of `connectTimeout` and `startLimit`. @returns a function that cancels them */
  #startTimers(began: number): () => void {
    const { clock } = this.#environment;
    const { connectTimeout, startLimit = connectTimeout } = this.#spec;
    if (startLimit <= connectTimeout)
      return clock.after(connectTimeout, () => this.#onStartLimit());
    let cancelTimer = clock.after(connectTimeout, () => {
      cancelTimer = clock.after(startLimit - connectTimeout, () => this.#onStartLimit());
      this.#onConnectTimeout(began);
    });
    return () => cancelTimer();
  }

  /** Aborts the attempt, or closes its session, within a limited time. No event is reported afterwards. */
  async close(reason: HubError): Promise<void> {
    this.#status = "closed";
    this.#abort.abort(reason);
    await this.#session?.close();
  }

  async #connectAndList(signal: AbortSignal): Promise<PartialListing> {
    const environment = this.#environment;
    const { era, connectTimeout } = this.#spec;
    const probeTimeout = Math.min(MAX_PROBE_TIMEOUT, connectTimeout * PROBE_TIME_SHARE);
    const plan = (): NegotiationPlan => ({
      era,
      clientEra: this.#clients.era,
      knownEra: this.#eraMemory.knownEra,
      probeTimeout,
    });
    const first = this.#wasConnected
      ? await this.#openAfterRestart(plan, signal)
      : await this.#openSession(plan(), signal);
    if (first === undefined) this.#eraMemory.onProbeExit();
    const session = first ?? (await this.#openSession(plan(), signal));
    if (session === undefined) throw this.#error("connectionLost", "It ended when it was met.");
    this.#connectPhase = "list";
    const optionalListsAbort = new AbortController();
    const text = `Server "${this.#spec.name}" takes too long to list all that it has.`;
    const cancelTimer = environment.clock.after(
      this.#spec.connectTimeout * OPTIONAL_LISTS_TIME_SHARE,
      () => {
        optionalListsAbort.abort(new HubError("connectTimeout", text));
      },
    );
    const warn = (reason: string): void => this.#log("warn", "server", reason);
    try {
      return await listServer({ session, signal, optionalSignal: optionalListsAbort.signal, warn });
    } finally {
      cancelTimer();
    }
  }

  /** Tries repeatedly to open a session with a remote server whose connection was just lost. */
  async #openAfterRestart(
    plan: () => NegotiationPlan,
    signal: AbortSignal,
  ): Promise<Session | undefined> {
    const { clock } = this.#environment;
    const limit = clock.now() + RESTART_RETRY.limit;
    for (;;) {
      try {
        return await this.#openSession(plan(), signal);
      } catch (error) {
        const isTimeOver = signal.aborted || clock.now() >= limit;
        if (isTimeOver || !(error instanceof HubError && UNAVAILABLE_CODES.has(error.code)))
          throw error;
      }
      // The wait must not occupy a slot of the start limiter.
      this.#releaseSlot();
      await this.#session?.close();
      const pause = new Promise<void>((resolve) => clock.after(RESTART_RETRY.pause, resolve));
      await abortable(pause, signal);
    }
  }

  /**
   * Creates a transport and opens a session over it.
   * @returns undefined if the server exited when it was sent `server/discover`; the session is already closed then
   */
  async #openSession(plan: NegotiationPlan, signal: AbortSignal): Promise<Session | undefined> {
    const environment = this.#environment;
    this.#connectPhase = "resolve";
    this.#stderrTail.length = 0;
    const transport = await abortable(environment.openTransport(this.#spec), signal);
    this.#transport = transport;
    this.#connectPhase = this.#spec.kind === "remote" ? "dial" : "spawn";
    const session = new Session({
      server: this.#spec.name,
      transport,
      clients: this.#clients,
      clock: environment.clock,
      events: {
        listChanged: (kinds) => this.#listChanged(kinds),
        log: (level, source, text) => this.#log(level, source, text),
        malformedOutput: (output) => this.#events.malformedOutput(output),
        challenged: (challenge) => this.#onChallenged(challenge),
        closed: (cause) => this.#onLost(cause),
      },
    });
    this.#session = session;
    const earlyExit = await session.open(environment.clientInfo(), plan, signal, () => {
      this.#connectPhase = "handshake";
    });
    if (earlyExit === undefined) return session;
    this.#earlyExit = earlyExit;
    await session.close();
    return undefined;
  }

  #onListed(listing: PartialListing, duration: number): void {
    if (this.#status !== "opening" || this.#session === undefined) return;
    this.#status = "open";
    this.#events.opened(this.#session, listing, [...this.#changedKinds], duration);
  }

  #onChallenged(challenge: AuthChallenge): void {
    if (this.#status !== "closed") this.#events.challenged(challenge);
  }

  /**
   * Reports why the attempt failed or its session ended; only the first cause counts. If the session was not open yet,
   * the connect phase and the last lines of stderr are added to the error.
   */
  #onLost(cause: HubError): void {
    if (this.#status === "closed") return;
    if (this.#status === "opening" && cause.code === "unauthorized") {
      // Credentials that are known to be missing or expired fail before a request is sent: treated like a 401.
      this.#events.challenged({ status: 401, header: undefined });
      return;
    }
    const isEarly = this.#status === "opening" && cause.step === undefined;
    this.#status = "closed";
    const error = isEarly ? this.#error(cause.code, cause.message) : cause;
    // The message may quote text of the server that contains a secret.
    this.#events.lost(error.mapTexts((text) => this.#redact(text)));
  }

  /** Releases the slot, so that other servers can start, and reports the delay, so that calls stop waiting. */
  #onConnectTimeout(began: number): void {
    if (this.#status !== "opening") return;
    this.#releaseSlot();
    const text = `${this.#describeDelay(this.#spec.connectTimeout)} (connectTimeout). It goes on starting, and is there when it is ready.`;
    this.#events.late(began, this.#error("connectTimeout", text));
  }

  #onStartLimit(): void {
    const { connectTimeout, startLimit } = this.#spec;
    // The exit of the first process explains more than the timeout of the second.
    const cause = this.#earlyExit?.cause;
    if (cause !== undefined) {
      this.#abort.abort(this.#error(cause.code, cause.message));
      return;
    }
    const text =
      startLimit === undefined
        ? `${this.#describeDelay(connectTimeout)} (connectTimeout).`
        : `${this.#describeDelay(startLimit)}.`;
    this.#abort.abort(this.#error("connectTimeout", text));
  }

  #describeDelay(limit: number): string {
    return `Server "${this.#spec.name}" did not get beyond step "${this.#connectPhase}" within ${limit} ms`;
  }

  #error(code: ErrorCode, text: string): HubError {
    const details = {
      server: this.#spec.name,
      step: this.#connectPhase,
      stderr: [...this.#stderrTail],
    };
    return new HubError(code, text, details);
  }

  #listChanged(kinds: readonly Kind[]): void {
    if (this.#status === "opening") for (const kind of kinds) this.#changedKinds.add(kind);
    else if (this.#status === "open") this.#events.listChanged(kinds);
  }

  #redact(text: string): string {
    return this.#transport?.redact?.(text) ?? text;
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    if (source === "stderr" && this.#status === "opening") {
      if (this.#stderrTail.push(text) > MAX_STDERR_LINES) this.#stderrTail.shift();
    }
    this.#events.log(level, source, this.#redact(text));
  }
}

/** The detected era of one server, kept between its processes, so that not each of them is probed. */
export class EraMemory {
  #detectedEra: DetectedEra | undefined;
  /** One of its processes exited when it was sent `server/discover`. */
  #hasExited = false;

  /** The server's era, as detected; undefined if not reliable. */
  get detectedEra(): DetectedEra | undefined {
    return this.#detectedEra;
  }

  get knownEra(): Era | undefined {
    return this.#detectedEra?.era ?? (this.#hasExited ? "legacy" : undefined);
  }

  /** The server exited when it was sent `server/discover`, as only legacy servers may. */
  onProbeExit(): void {
    this.#detectedEra = undefined;
    this.#hasExited = true;
  }

  /** Adopts the era that an earlier run of the hub has saved, unless this run has detected one. */
  loadSaved(detectedEra: DetectedEra | undefined): void {
    this.#detectedEra ??= detectedEra;
  }

  /** A session was opened. An era that the manifest prescribes is not a finding. */
  onConnected({ era, negotiation }: Session, spec: RunnableServer): void {
    const evidence = negotiation?.evidence ?? "known";
    if (spec.era !== "auto") this.#detectedEra = undefined;
    else if (evidence !== "known" || this.#detectedEra?.era !== era) {
      const isGuess = evidence === "assumed";
      this.#detectedEra = { era, askedAt: Date.now(), ...(isGuess && { isGuess }) };
    }
  }

  /**
   * A connection failed during the handshake: forgets the era, which may have been wrong. That a process exited on
   * `server/discover` stays remembered if this failure was an exit or a closed connection, too.
   */
  onHandshakeFailure({ code }: HubError): void {
    this.#detectedEra = undefined;
    if (code !== "connectionLost") this.#hasExited = false;
  }
}
