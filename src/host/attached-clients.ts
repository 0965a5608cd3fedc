import { Buffer } from "node:buffer";
import process from "node:process";
import {
  type AttachAnswer,
  type AttachRequest,
  HANDSHAKE_LIMITS,
  parseAttachRequest,
  parseVariables,
} from "../attach/handshake.ts";
import { type FirstLine, FirstLineInput } from "../attach/first-line.ts";
import type { ByteInput } from "../base/byte-streams.ts";
import type { Clock } from "../base/clock.ts";
import { describeFault, HubError, toHubError, usageError } from "../base/errors.ts";
import { count, formatSize } from "../base/format.ts";
import type { Env } from "../base/paths.ts";
import type { SocketConnection } from "../base/unix-socket.ts";
import { VERSION } from "../base/version.ts";
import type { AcceptedClient } from "../frontend/clients.ts";
import { type ClientStreams, StdioServerTransport } from "../frontend/stdio.ts";
import type { Hub } from "../hub/hub.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import { SlabPool } from "../jsonrpc/pipe.ts";
import { type Exposure, EXPOSURES } from "../manifest/exposures.ts";
import { checkServerNames } from "../manifest/problems.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import { checkNesting, type OuterHub, parseOuterHubs } from "../process/outer-hubs.ts";
import type { SentRequest } from "../transport/transport.ts";
import { type ServerSubset, subsetOf } from "../upstream/profile.ts";
import type { ClientLimits } from "../views/client-modes.ts";

/** `handshakes`: maximum number of connections whose first line has not arrived; `clients`: of attached clients. */
const LIMITS = { handshakes: 256, clients: 10_000 };
/** The least default of `AttachedClientsOptions.maxUnread`, in bytes. */
const MAX_UNREAD = 128 * 1024 * 1024;
/** Time without an open request after which a client moves to a newer hub, in ms. */
export const MOVE_DELAY = 10 * 60_000;
/** Interval at which a hub that drains looks for clients without an open request, in ms. */
const DRAIN_INTERVAL = 50;

export interface AttachedClientsOptions {
  readonly hub: Pick<Hub, "accept" | "modeFault" | "status">;
  readonly clock: Clock;
  /** Aborted when the hub ends. */
  readonly signal: AbortSignal;
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
  /**
   * Number of bytes that are kept for a client that does not read, beyond which it is disconnected; by default 128 MiB or
   * two messages of the maximum length.
   */
  readonly maxUnread?: number | undefined;
  /** The names of the variables that the servers of the manifest in force take from a client. */
  readonly variables: () => readonly string[];
  /** The hash of the manifest, by which a hub recognizes that it would serve itself. */
  readonly manifestId: string;
  readonly log: CommandLog;
  /** Called when the number of clients has changed. */
  onChange(): void;
}

/**
 * The clients that other processes attach to this hub: reads the first line of each connection, answers it, and serves
 * the rest of the connection as a client with limits and an origin of its own. A fault of one client ends only its own
 * connection.
 */
export class AttachedClients {
  readonly #options: AttachedClientsOptions;
  /** The connections whose first line has not arrived. */
  readonly #handshakes = new Set<AttachedClient>();
  readonly #clients = new Set<AttachedClient>();
  readonly #slabs = new SlabPool();
  #isDraining = false;

  constructor(options: AttachedClientsOptions) {
    this.#options = options;
  }

  /** Number of attached clients. */
  get size(): number {
    return this.#clients.size;
  }

  /** The hubs above the processes of the clients, each once. */
  get outerHubs(): readonly OuterHub[] {
    const hubs = new Map<string, OuterHub>();
    for (const { outerHubs } of this.#clients)
      for (const hub of outerHubs) hubs.set(`${hub.pid}:${hub.manifest}`, hub);
    return [...hubs.values()];
  }

  /** Serves a connection. */
  accept(connection: SocketConnection): void {
    const { clock } = this.#options;
    const client = new AttachedClient(connection, this.#slabs, clock.now());
    if (this.#handshakes.size >= LIMITS.handshakes) {
      client.discard();
      return;
    }
    let cancelTimer = (): void => {};
    /**
     * @param use called with the next line; throws what the client is refused with
     * @param refuse called with that
     */
    const nextLine = (use: (line: string) => void, refuse: (error: HubError) => void): void => {
      const finish = (line: FirstLine | HubError): void => {
        if (!this.#handshakes.delete(client)) return;
        cancelTimer();
        // The other side has only looked whether somebody listens.
        if (line === "ended") {
          client.discard();
          return;
        }
        try {
          if (line instanceof HubError) throw line;
          if (line === "tooLong") throw tooLongError();
          use(line.line);
        } catch (error) {
          refuse(toHubError(error));
        }
      };
      this.#handshakes.add(client);
      client.readLine(finish);
      // After a time in which the whole process stood still, the line may have arrived and is only not read yet: one turn
      // of the event loop reads it.
      cancelTimer = clock.after(HANDSHAKE_LIMITS.timeout, () => {
        cancelTimer = clock.after(0, () =>
          finish(new HubError("invalidRequest", "The first line of an attached client is late.")),
        );
      });
    };
    nextLine(
      (first) => {
        const request = parseAttachRequest(first);
        const admitted = this.#admit(request);
        const answer = { ok: true, hub: { pid: process.pid, version: VERSION } } as const;
        if (request.env !== undefined) {
          client.answer(answer);
          this.#serve(client, request, request.env, admitted);
          return;
        }
        const { maxMessage } = this.#options;
        const variables = this.#options.variables();
        client.answer({ ...answer, variables, maxMessage });
        if (variables.length === 0) this.#serve(client, request, {}, admitted);
        else
          nextLine(
            (line) => this.#serve(client, request, parseVariables(line), admitted),
            // After the answer there are only messages for the client: the reason would be taken for one.
            ({ message }) => {
              client.discard();
              this.#options.log("warn", `Process ${request.pid} was not attached: ${message}`);
            },
          );
      },
      (error) => client.refuse(error),
    );
  }

  /** Checks what a client's first line asks for. @throws {HubError} usage, hubLoop, hubBusy */
  #admit(request: AttachRequest): Admitted {
    this.#checkLoop(request);
    if (this.#isDraining) throw new HubError("hubBusy", "The shared hub ends: connect again.");
    if (this.#clients.size >= LIMITS.clients) {
      const text = `The shared hub has ${count(LIMITS.clients, "client")}, and takes no more.`;
      throw new HubError("hubBusy", text);
    }
    const subset = this.#subsetOf(request);
    return { subset, limits: this.#limitsOf(request, subset) };
  }

  /** Serves a client that was accepted. */
  #serve(
    client: AttachedClient,
    request: AttachRequest,
    env: Env,
    { subset, limits }: Admitted,
  ): void {
    const { hub, log, maxMessage, signal, clock } = this.#options;
    const { maxUnread = Math.max(MAX_UNREAD, 2 * maxMessage) } = this.#options;
    const { cwd, path, pid } = request;
    client.outerHubs = parseOuterHubs(request.hubs);
    const transport = new AttachedTransport(client, maxMessage, maxUnread, (text) =>
      log("warn", text),
    );
    client.transport = transport;
    client.idleSince = clock.now();
    this.#clients.add(client);
    this.#options.onChange();
    const left = (): void => {
      this.#clients.delete(client);
      this.#options.onChange();
    };
    const served = hub.accept(transport, signal, {
      kind: "shared",
      subset,
      limits,
      pid,
      origin: { cwd, env, path: absoluteFolders(path) },
      accepted: (_, accepted) => (client.accepted = accepted),
    });
    void served.then(
      () => {
        left();
        if (transport.fault === undefined) return;
        const text = `The connection of an attached client (process ${pid}) was ended: ${transport.fault}`;
        log("error", text);
      },
      (error: unknown) => {
        left();
        client.discard();
        log("error", `A client could not be attached (process ${pid}): ${describeFault(error)}`);
      },
    );
  }

  /** Refuses a client that a server of this hub has started: each would start the other without end. */
  #checkLoop({ hubs }: AttachRequest): void {
    const { manifestId } = this.#options;
    const outer = parseOuterHubs(hubs).map((hub) =>
      hub.pid === process.pid ? { ...hub, manifest: manifestId } : hub,
    );
    checkNesting(outer, manifestId, 0);
  }

  /** @throws {HubError} usage if there is no such server */
  #subsetOf({ servers: names }: AttachRequest): ServerSubset | undefined {
    if (names === undefined) return undefined;
    checkServerNames(
      names,
      this.#options.hub.status().map(({ server }) => server),
    );
    return subsetOf(names);
  }

  /** The limits that the client's own command line sets. @throws {HubError} usage */
  #limitsOf(
    { mode, approval, expose }: AttachRequest,
    subset: ServerSubset | undefined,
  ): ClientLimits {
    const fault = mode === undefined ? undefined : this.#options.hub.modeFault(mode);
    if (fault !== undefined) throw usageError(fault);
    const exposure = expose === undefined ? undefined : exposureOf(expose);
    const modes = mode === undefined ? [] : [mode];
    return {
      modes: () => modes,
      hasOperatorMode: true,
      expose: () => exposure,
      ...(approval !== undefined && { approval }),
      ...(subset !== undefined && { servers: () => subset }),
    };
  }

  /**
   * Called once a minute.
   * @param isReplaced whether there is a newer hub: clients without an open request for `MOVE_DELAY` are disconnected, and
   * find it with their next message
   */
  check(isReplaced: boolean): void {
    const now = this.#options.clock.now();
    for (const client of this.#clients) {
      if (client.wasUsed()) client.idleSince = now;
      if (isReplaced && now - client.idleSince >= MOVE_DELAY) void client.transport?.close();
    }
  }

  /**
   * Refuses new clients, and disconnects each client as soon as it has no open request.
   * @param limit time after which all are disconnected, in ms
   * @returns a promise that settles when no client is left
   */
  async drain(limit: number): Promise<void> {
    const { clock } = this.#options;
    this.#isDraining = true;
    for (const client of this.#handshakes) client.discard();
    this.#handshakes.clear();
    const due = clock.now() + limit;
    while (this.#clients.size > 0) {
      const isDue = clock.now() >= due;
      const done = [...this.#clients].filter(({ openRequests }) => isDue || openRequests === 0);
      await Promise.all(done.map(async ({ transport }) => transport?.close()));
      if (this.#clients.size === 0 || isDue) return;
      await new Promise<void>((resolve) => clock.after(DRAIN_INTERVAL, resolve));
    }
  }
}

/** What a client that was accepted may do. */
interface Admitted {
  readonly subset: ServerSubset | undefined;
  readonly limits: ClientLimits;
}

/** One connection, from its first line on; the streams of its transport. */
class AttachedClient implements ClientStreams {
  readonly #connection: SocketConnection;
  /** The input after the lines that were read; undefined before the first. */
  #lineInput: FirstLineInput | undefined;
  readonly slabs: SlabPool;
  /** Whether a request was open when `wasUsed` was last called. */
  #wasBusy = false;
  transport: AttachedTransport | undefined;
  accepted: AcceptedClient | undefined;
  outerHubs: readonly OuterHub[] = [];
  /** The time since when the client has had no open request, in ms of the clock; at the latest the last check. */
  idleSince: number;

  constructor(connection: SocketConnection, slabs: SlabPool, now: number) {
    this.#connection = connection;
    this.slabs = slabs;
    this.idleSince = now;
  }

  get #input(): ByteInput {
    return this.#lineInput ?? this.#connection.input;
  }

  /** Reads the next line. @param onLine called once, unless the client is discarded */
  readLine(onLine: (line: FirstLine) => void): void {
    this.#lineInput = new FirstLineInput(this.#input, onLine);
  }

  get openRequests(): number {
    return this.accepted?.openRequests ?? 0;
  }

  /** Whether a request was open, or anything has arrived, since the last call or at it. */
  wasUsed(): boolean {
    const isBusy = this.openRequests > 0;
    const isUsed = isBusy || this.#wasBusy || this.#lineInput?.hasReceived === true;
    this.#wasBusy = isBusy;
    if (this.#lineInput !== undefined) this.#lineInput.hasReceived = false;
    return isUsed;
  }

  open(): ReturnType<ClientStreams["open"]> {
    return { input: this.#input, output: this.#connection.output };
  }

  isReaderGone(): boolean {
    return this.#connection.isPeerGone();
  }

  answer(answer: AttachAnswer): void {
    void this.#connection.output.write(Buffer.from(`${JSON.stringify(answer)}\n`));
  }

  refuse({ code, message }: HubError): void {
    this.answer({ ok: false, error: { code, message } });
    this.#connection.output.end();
    this.discard();
  }

  /** Ends the connection without an answer. */
  discard(): void {
    this.#lineInput?.drop();
    this.#connection.destroy();
  }

  close(): void {
    this.discard();
  }
}

/** The transport of one attached client. A client that does not read for too long is disconnected. */
class AttachedTransport extends StdioServerTransport {
  readonly #maxUnread: number;
  readonly #warn: (text: string) => void;
  #isFull = false;

  constructor(
    client: AttachedClient,
    maxMessage: number,
    maxUnread: number,
    warn: (text: string) => void,
  ) {
    super(maxMessage, client);
    this.#maxUnread = maxUnread;
    this.#warn = warn;
  }

  override send(message: EncodedMessage): SentRequest {
    const sent = super.send(message);
    if (!this.#isFull && this.queued > this.#maxUnread) {
      this.#isFull = true;
      const size = formatSize(this.queued);
      this.#warn(`An attached client has not read ${size}, so its connection was ended.`);
      void this.close();
    }
    return sent;
  }
}

function tooLongError(): HubError {
  const size = formatSize(HANDSHAKE_LIMITS.maxBytes);
  return new HubError(
    "messageTooLarge",
    `The first line of an attached client is longer than ${size}.`,
  );
}

function exposureOf(text: string): Exposure {
  const exposure = EXPOSURES.find((one) => one === text);
  if (exposure !== undefined) return exposure;
  throw usageError(`--expose must be one of ${EXPOSURES.join(", ")}, not "${text}".`);
}

/** The absolute folders of a PATH; undefined if it has none. */
function absoluteFolders(path: string | undefined): string | undefined {
  const folders = path?.split(":").filter((folder) => folder.startsWith("/")) ?? [];
  return folders.length === 0 ? undefined : folders.join(":");
}
