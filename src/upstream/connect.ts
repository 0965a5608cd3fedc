import { formatDuration } from "../base/format.ts";
import { type Clock, abortable, pause, withTimeLimit } from "../base/clock.ts";
import { type ConnectPhase, type ErrorCode, HubError, toHubError } from "../base/errors.ts";
import type { CacheHints, ItemsByKind, Kind, ServerListing } from "../catalog/listing.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import { displayNameOf, type RunnableServer } from "../manifest/manifest.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import type { DetectedEra } from "../snapshot/snapshots.ts";
import type { AuthChallenge, ConnectionCookies } from "../transport/http/target.ts";
import { describeWithStderr, lastLinesWithError } from "../transport/stderr-error.ts";
import type { Transport } from "../transport/transport.ts";
import type { AuthorizationRun } from "./authorization.ts";
import type { EarlyExit, NegotiationPlan } from "./negotiate.ts";
import type { ConnectionClients } from "./profile.ts";
import { addressOf } from "../telemetry/request-attributes.ts";
import type { OwnRequest } from "../telemetry/tracer.ts";
import { Session, type SessionEvents } from "./session.ts";
import type { StartLimiter } from "./start-limiter.ts";
import type { Subscriptions } from "./subscriptions.ts";
import type { ServerTasks } from "./tasks.ts";

/** A server's listing without the kinds of items that could not be listed. Their last known items stay in use. */
export type PartialListing = Partial<ServerListing>;

const OPTIONAL_KINDS = ["prompts", "resources", "resourceTemplates", "skills"] as const;

export interface ListOptions {
  readonly session: ListMetadataSource & Pick<Session, "list" | "handshake">;
  readonly signal: AbortSignal;
  /** Aborts the listing of all kinds but tools. */
  readonly optionalSignal: AbortSignal;
  /** Reports the reason why a kind other than tools could not be listed. */
  warn(text: string): void;
}

/** Lists a server's items of all kinds. @throws {HubError} if the server's tools cannot be listed */
export async function listServer(options: ListOptions): Promise<PartialListing> {
  const { session, signal } = options;
  const optionalSignal = AbortSignal.any([signal, options.optionalSignal]);
  const listOptional = async (kind: Kind): Promise<Partial<ItemsByKind> | Error> =>
    session.list(kind, optionalSignal).then((items) => ({ [kind]: items }), toHubError);
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

type ListMetadataSource = Pick<Session, "era" | "cacheHints" | "listMeta" | "differing">;

/** Returns the cache hints and the `_meta` of a server's lists, and what other machines have instead. */
export function readListMetadata(
  session: ListMetadataSource,
): Pick<ServerListing, "hints" | "metas" | "differing"> {
  const { listMeta: metas, differing } = session;
  return {
    hints: readCacheHints(session),
    metas: metas.size === 0 ? undefined : Object.fromEntries(metas),
    ...(differing !== undefined && { differing }),
  };
}

/** Returns the cache hints of a server's lists (caching); undefined for a legacy server. */
function readCacheHints({
  era,
  cacheHints: hints,
}: Pick<Session, "era" | "cacheHints">): CacheHints | undefined {
  return era === "modern" ? Object.fromEntries(hints) : undefined;
}

export interface ConnectEnvironment {
  clientInfo(): Implementation;
  readonly clock: Clock;
  readonly startLimiter: StartLimiter;
  /** See `HubOptions`. */
  readonly startDelay?: number | undefined;
  /**
   * Fills in the `${…}` values in the server's specification, and then creates the transport.
   * @param client the id of the only client of the server; undefined if clients share it
   * @param cookies the cookies of the connection to an HTTP server
   * @param origin what fills in the values; undefined: the hub's own environment
   * @throws {HubError} valueMissing
   */
  openTransport(
    spec: RunnableServer,
    client: string | undefined,
    cookies: ConnectionCookies,
    origin: ClientOrigin | undefined,
  ): Promise<Transport>;
  /** Called when one of the hub's own requests to a server has ended. */
  requestEnded?(request: OwnRequest): void;
  /**
   * Obtains authorization for a server. Absent if that is not possible.
   * @throws {HubError} unauthorized, or the signal's reason
   */
  readonly authorize?: (
    spec: RunnableServer,
    challenge: AuthChallenge,
    run: AuthorizationRun,
    origin: ClientOrigin | undefined,
  ) => Promise<void>;
}

export interface ConnectOptions {
  readonly spec: RunnableServer;
  readonly clients: ConnectionClients;
  /** The id of the only client of the server; undefined if clients share it. */
  readonly client: string | undefined;
  /** The client whose values fill in the server's specification; undefined: the hub's own environment. */
  readonly origin: ClientOrigin | undefined;
  readonly cookies: ConnectionCookies;
  readonly subscriptions: Subscriptions;
  readonly tasks: ServerTasks;
  readonly environment: ConnectEnvironment;
  readonly eraMemory: EraMemory;
  /**
   * Whether the server was connected until just now. If so, a remote server may be restarting, and the attempt is
   * repeated for a while.
   */
  readonly wasConnected: boolean;
  /**
   * Settles when the attempt may begin: earlier processes have ended, and the saved listing is loaded or has taken too
   * long.
   */
  readonly ready: Promise<unknown>;
  /** Aborts the attempt. The caller must then close the session that `sessionMade` reported last. */
  readonly signal: AbortSignal;
  readonly events: ConnectEvents;
}

export interface ConnectEvents extends SessionEvents {
  /** Reports the session whose transport will be opened next; it replaces the attempt's previous session. */
  sessionMade(session: Session): void;
  /**
   * Called when the attempt has taken longer than `connectTimeout`. The attempt goes on.
   * @param since when the attempt began, in ms of the clock
   * @param reason the error for the calls that wait for the connection
   */
  late(since: number, reason: HubError): void;
}

export interface Connected {
  readonly session: Session;
  readonly listing: PartialListing;
  /** Duration of the attempt, in ms. */
  readonly duration: number;
}

/** Number of lines of stderr that are kept during an attempt, and of those that are in its error. */
const MAX_STDERR_LINES = 60;
const STDERR_LINES_IN_ERROR = 10;
/**
 * Maximum time for the answer to `server/discover`, in ms. If the share `PROBE_TIME_SHARE` of `connectTimeout` is
 * shorter, that share is the maximum. A server that has not answered by then is treated as a legacy server.
 */
const MAX_PROBE_TIMEOUT = 3000;
const PROBE_TIME_SHARE = 0.4;
/**
 * A remote server whose connection was lost may be restarting, so the attempt is repeated every `pause` ms for up to
 * `limit` ms.
 */
const RESTART_RETRY = { pause: 200, limit: 10_000 };
/** The codes of the errors for a server that cannot be reached, for example because it is still starting. */
const UNAVAILABLE_CODES: ReadonlySet<ErrorCode> = new Set([
  "unreachable",
  "serverFailed",
  "notDelivered",
  "answerLost",
  "connectionLost",
]);
/** Maximum time for listing all kinds but tools, as a share of `connectTimeout`. */
const OPTIONAL_LISTS_TIME_SHARE = 0.5;

interface Attempt extends Omit<ConnectOptions, "signal"> {
  /** Aborted by the caller, at `startLimit`, and when the session's transport closes. */
  readonly signal: AbortSignal;
  abort(cause: HubError): void;
  phase: ConnectPhase;
  session: Session | undefined;
  /** The last lines of stderr, without secrets. */
  readonly stderrTail: string[];
  /** The exit of the first process during negotiation; undefined if no second process was needed. */
  earlyExit: EarlyExit | undefined;
  /**
   * Whether the session is open and the server's items are known. If the transport closes before that, the attempt
   * fails.
   */
  isOpen: boolean;
  releaseSlot(): void;
  redact(text: string): string;
}

/**
 * Connects to a server, after `ready` has settled and the start limiter has granted a slot: creates and opens the
 * transport, negotiates the protocol version and lists the server's items. Two timeouts begin when the slot is granted:
 * after `connectTimeout`, calls no longer wait for the attempt; after `startLimit`, the attempt is aborted.
 * @throws {HubError} with the phase that failed and the last lines of stderr
 */
export async function connect(options: ConnectOptions): Promise<Connected> {
  const { environment, signal } = options;
  const { startLimiter, clock } = environment;
  const abort = new AbortController();
  const attempt: Attempt = {
    ...options,
    signal: AbortSignal.any([signal, abort.signal]),
    abort: (cause) => abort.abort(cause),
    phase: "resolve",
    session: undefined,
    stderrTail: [],
    earlyExit: undefined,
    isOpen: false,
    releaseSlot: () => {},
    redact: (text) => text,
  };
  let cancelTimer = (): void => {};
  try {
    await options.ready;
    attempt.releaseSlot = await startLimiter.acquire(attempt.signal);
    const began = clock.now();
    cancelTimer = startTimers(attempt, began);
    const session = await openAnySession(attempt);
    attempt.phase = "list";
    const listing = await listWithin(attempt, session);
    attempt.signal.throwIfAborted();
    attempt.isOpen = true;
    return { session, listing, duration: clock.now() - began };
  } catch (thrown) {
    throw describeFailure(attempt, toHubError(thrown));
  } finally {
    attempt.releaseSlot();
    cancelTimer();
  }
}

/** Starts the timers of `connectTimeout` and `startLimit`. @returns a function that cancels them */
function startTimers(attempt: Attempt, began: number): () => void {
  const { clock } = attempt.environment;
  const { connectTimeout, startLimit = connectTimeout } = attempt.spec;
  const end = (): void => attempt.abort(startLimitError(attempt));
  if (startLimit <= connectTimeout) return clock.after(connectTimeout, end);
  let cancelTimer = clock.after(connectTimeout, () => {
    cancelTimer = clock.after(startLimit - connectTimeout, end);
    // The attempt goes on, but other servers can use its slot, and calls no longer wait for the connection.
    attempt.releaseSlot();
    const text = `${describeDelay(attempt, connectTimeout)} (connectTimeout). It is still starting, and is used when it is ready.`;
    attempt.events.late(began, failure(attempt, "connectTimeout", text));
  });
  return () => cancelTimer();
}

/** The phase in which the transport of a server is opened, by the kind of the server. */
const OPEN_PHASES: Readonly<Record<RunnableServer["kind"], ConnectPhase>> = {
  stdio: "spawn",
  remote: "dial",
  plugin: "spawn",
  fleet: "dial",
};

/** Opens a session. If the process exits on `server/discover`, starts a second process. */
async function openAnySession(attempt: Attempt): Promise<Session> {
  const { spec, wasConnected, eraMemory } = attempt;
  const first =
    wasConnected && spec.kind === "remote"
      ? await openAfterRestart(attempt)
      : await openSession(attempt);
  if (first !== undefined) return first;
  eraMemory.onProbeExit();
  const second = await openSession(attempt);
  if (second === undefined)
    throw failure(
      attempt,
      "connectionLost",
      describeWithStderr("It exited during the MCP handshake.", attempt.stderrTail),
    );
  return second;
}

/** Repeats the attempt to open a session with a remote server whose connection was just lost. */
async function openAfterRestart(attempt: Attempt): Promise<Session | undefined> {
  const { environment, signal } = attempt;
  const { clock } = environment;
  const limit = clock.now() + RESTART_RETRY.limit;
  for (;;) {
    try {
      return await openSession(attempt);
    } catch (error) {
      const isTimeOver = signal.aborted || clock.now() >= limit;
      if (isTimeOver || !(error instanceof HubError && UNAVAILABLE_CODES.has(error.code)))
        throw error;
    }
    attempt.releaseSlot();
    await attempt.session?.close();
    await pause(clock, RESTART_RETRY.pause, signal);
  }
}

/**
 * Creates a transport and opens a session over it.
 * @returns undefined if the server exited on `server/discover`, in which case the session is already closed
 */
async function openSession(attempt: Attempt): Promise<Session | undefined> {
  const { spec, clients, subscriptions, tasks, environment, eraMemory, signal, events } = attempt;
  attempt.phase = "resolve";
  attempt.stderrTail.length = 0;
  const transport = await abortable(
    environment.openTransport(spec, attempt.client, attempt.cookies, attempt.origin),
    signal,
  );
  attempt.phase = OPEN_PHASES[spec.kind];
  const redact = (text: string): string => transport.redact?.(text) ?? text;
  attempt.redact = redact;
  const session: Session = new Session({
    server: spec.name,
    displayName: displayNameOf(spec),
    transport,
    clients,
    subscriptions,
    tasks,
    clock: environment.clock,
    events: {
      listChanged: (kinds) => events.listChanged(kinds),
      malformedOutput: (output) => events.malformedOutput?.(output),
      challenged: (challenge) => events.challenged(challenge),
      requestEnded: (ended) =>
        environment.requestEnded?.({ ...ended, server: spec.name, address: addressOf(spec) }),
      log: (level, source, raw) => {
        const text = redact(raw);
        const { isOpen, stderrTail } = attempt;
        if (source === "stderr" && !isOpen && stderrTail.push(text) > MAX_STDERR_LINES)
          stderrTail.shift();
        events.log(level, source, text);
      },
      closed: (cause) => {
        if (attempt.isOpen) events.closed(cause.mapTexts(redact));
        else if (session === attempt.session) attempt.abort(cause);
      },
    },
  });
  attempt.session = session;
  events.sessionMade(session);
  const { connectTimeout, era } = spec;
  const plan: NegotiationPlan = {
    era,
    clientEra: clients.era,
    knownEra: eraMemory.knownEra,
    probeTimeout: Math.min(MAX_PROBE_TIMEOUT, connectTimeout * PROBE_TIME_SHARE),
  };
  const earlyExit = await session.open(environment.clientInfo(), plan, signal, () => {
    attempt.phase = "handshake";
  });
  if (earlyExit === undefined) return session;
  attempt.earlyExit = earlyExit;
  await session.close();
  return undefined;
}

function listWithin(attempt: Attempt, session: Session): Promise<PartialListing> {
  const { spec, environment, signal } = attempt;
  const text = `Server "${spec.name}" takes too long to list all that it has.`;
  return withTimeLimit(
    {
      clock: environment.clock,
      after: spec.connectTimeout * OPTIONAL_LISTS_TIME_SHARE,
      signal,
      reason: () => new HubError("connectTimeout", text),
    },
    (optionalSignal) =>
      listServer({
        session,
        signal,
        optionalSignal,
        warn: (reason) => attempt.events.log("warn", "server", reason),
      }),
  );
}

function startLimitError(attempt: Attempt): HubError {
  const { spec, earlyExit } = attempt;
  // The exit of the first process is reported, because it explains more than the failure of the second.
  if (earlyExit !== undefined)
    return failure(attempt, earlyExit.cause.code, earlyExit.cause.message, earlyExit.cause.stderr);
  const { connectTimeout, startLimit } = spec;
  const text =
    startLimit === undefined
      ? `${describeDelay(attempt, connectTimeout)} (connectTimeout).`
      : `${describeDelay(attempt, startLimit)}.`;
  return failure(attempt, "connectTimeout", describeWithStderr(text, attempt.stderrTail));
}

function describeDelay({ spec, phase }: Attempt, limit: number): string {
  return `Server "${spec.name}" did not get beyond step "${phase}" within ${formatDuration(limit)}`;
}

/**
 * Adds the step and the last lines of stderr to an error that names no step. Redacts the texts of every error, because
 * an error may quote a server's text that contains a secret.
 */
function describeFailure(attempt: Attempt, cause: HubError): HubError {
  const error =
    cause.step === undefined ? failure(attempt, cause.code, cause.message, cause.stderr) : cause;
  return error.mapTexts((text) => attempt.redact(text));
}

/** @param known the last lines of stderr, if the transport has reported them with the error */
function failure(
  { spec, phase, stderrTail }: Attempt,
  code: ErrorCode,
  text: string,
  known: readonly string[] = [],
): HubError {
  const stderr = known.length > 0 ? known : lastLinesWithError(stderrTail, STDERR_LINES_IN_ERROR);
  return new HubError(code, text, { server: spec.name, step: phase, stderr });
}

/**
 * Remembers the detected era of one server after its process has ended, so that the era of the next process need not be
 * detected again.
 */
export class EraMemory {
  #detectedEra: DetectedEra | undefined;
  /** Whether one of the server's processes has exited on `server/discover`. */
  #hasExited = false;

  /** The detected era; undefined if it is not known reliably. */
  get detectedEra(): DetectedEra | undefined {
    return this.#detectedEra;
  }

  get knownEra(): Era | undefined {
    return this.#detectedEra?.era ?? (this.#hasExited ? "legacy" : undefined);
  }

  /** Called when the server has exited on `server/discover`. Only legacy servers may do that. */
  onProbeExit(): void {
    this.#detectedEra = undefined;
    this.#hasExited = true;
  }

  /** Adopts the era that an earlier run of the hub has saved, unless this run has already detected one. */
  loadSaved(detectedEra: DetectedEra | undefined): void {
    this.#detectedEra ??= detectedEra;
  }

  /** Remembers the era of an open session, unless the manifest prescribes it. */
  onConnected({ era, negotiation }: Session, spec: RunnableServer): void {
    const evidence = negotiation?.evidence ?? "known";
    if (spec.era !== "auto") this.#detectedEra = undefined;
    else if (evidence !== "known" || this.#detectedEra?.era !== era) {
      const isGuess = evidence === "assumed";
      this.#detectedEra = { era, detectedAt: Date.now(), ...(isGuess && { isGuess }) };
    }
  }

  /**
   * Forgets the era after a failed handshake, because the era may have been wrong. Unless the connection was lost, also
   * forgets that a process has exited on `server/discover`.
   */
  onHandshakeFailure({ code }: HubError): void {
    this.#detectedEra = undefined;
    if (code !== "connectionLost") this.#hasExited = false;
  }
}
