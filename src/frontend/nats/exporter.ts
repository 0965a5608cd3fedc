/**
 * frontend/nats/: the hub as an MCP server for machines of its fleet. `exporter.ts` subscribes to the requests for the
 * servers that the hub exports, checks them, and gives them to the code for modern clients; `response.ts` sends an
 * answer, and `control.ts` has the subscriptions by which its reader controls it. Main type: `Exporter`. Start here.
 */
import { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { type Clock, settlesWithin } from "../../base/clock.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import {
  type Announcement,
  encodeAnnouncement,
  type ExportedServer,
} from "../../fleet/announcements.ts";
import type { Bus, BusMessage } from "../../fleet/bus.ts";
import { Header, WIRE_VERSION } from "../../fleet/frames.ts";
import {
  agreesWithName,
  INBOX_ROOT,
  NO_NAME,
  parseRequestSubject,
  type ReceivedAddress,
  requestsTo,
  Subject,
} from "../../fleet/subjects.ts";
import type { Request } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { ApprovalLevel } from "../../manifest/manifest.ts";
import { type ServerSubset, subsetOf } from "../../upstream/profile.ts";
import type { ClientLimits } from "../../views/client-modes.ts";
import { principalOfUser } from "../../manifest/named-clients.ts";
import type { ModernRequestTarget } from "../modern/clients.ts";
import { buildModernError, ModernRequestReader } from "../modern/request.ts";
import {
  checkParamHeaders,
  checkRequestHeaders,
  type HeaderReader,
  requestNameOf,
} from "../modern/request-headers.ts";
import { ControlSubjects } from "./control.ts";
import { NatsResponse, refuse } from "./response.ts";

/** A user of the fleet, and the limits of its requests. */
export interface FleetUser {
  /** `tenant/user`. */
  readonly user: string;
  /** The name of a mode that limits what the user sees; undefined: none. */
  readonly mode: string | undefined;
  /** The names of the servers that the user may use, of those that are exported; undefined: all. */
  readonly servers: readonly string[] | undefined;
  readonly approval: ApprovalLevel | undefined;
  /** Whether the user itself is asked to allow its calls, besides those who watch pending approvals here. */
  readonly askCaller: boolean;
}

/** The parts of a hub that an exporter needs. */
export interface ExportingHub {
  /** Makes a handler of requests. @param client undefined for users that cannot be told apart */
  createModernClients(
    client: string | undefined,
    limits: ClientLimits,
    kind: "nats",
  ): ModernRequestTarget;
}

export interface ExporterOptions {
  readonly hub: ExportingHub;
  readonly bus: Bus;
  readonly clock: Clock;
  /** The name of this hub in the fleet, and the random name of this start of it. */
  readonly name: string;
  readonly instance: string;
  readonly version: string;
  /** Writes a warning to the log. */
  warn(text: string): void;
}

/** Maximum numbers of requests in flight: of all users, and of one, so that nobody can take the place of all others. */
const MAX_IN_FLIGHT = 10_000;
const MAX_OF_USER = 5_000;
/** Time that requests have to end after the hub has left the fleet, in ms. */
const DRAIN_LIMIT = 10_000;
/** The queue group of the hubs that export a server of the same name. */
const QUEUE = "toolmux";
/** The name as a service of NATS. */
const SERVICE = "toolmux";
const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;
const BUSY = -31015;

/** What a hub has done as a member of its fleet since it started. */
export interface ExportStats {
  readonly requests: number;
  readonly refused: number;
  readonly inFlight: number;
}

/** Serves the servers that a hub exports to the machines of its fleet. */
export class Exporter {
  readonly #options: ExporterOptions;
  readonly #requestReader = new ModernRequestReader();
  readonly #responses = new IdMap<NatsResponse>();
  readonly #control: ControlSubjects;
  /** Number of requests in flight by `tenant/user`, as the subjects say it. */
  readonly #openOfUser = new Map<string, number>();
  /** Handlers of requests, by user; undefined is the key for users that cannot be told apart. */
  readonly #clients = new Map<string | undefined, ModernRequestTarget>();
  /** The functions that end the subscriptions for each exported server. */
  readonly #subscriptions = new Map<string, () => void>();
  readonly #subsets = new Map<string, ServerSubset>();
  /** A cache of `parseRequestSubject`. */
  readonly #addresses = new Map<string, ReceivedAddress>();
  readonly #unsubscribe: (() => void)[] = [];
  #users: ReadonlyMap<string, FleetUser> = new Map();
  #servers: readonly ExportedServer[] = [];
  #isIdle: PromiseWithResolvers<void> | undefined;
  #nextKey = 0;
  #requests = 0;
  #refused = 0;
  readonly #startedAt = new Date().toISOString();
  readonly #warned = new Set<string>();
  #hasAnnounced = false;
  #isClosed = false;

  constructor(options: ExporterOptions) {
    this.#options = options;
    const { bus, clock, name } = options;
    this.#control = new ControlSubjects(bus, clock);
    this.#unsubscribe.push(
      bus.subscribe(Subject.who, (message) => this.#answer(message)),
      bus.subscribe(Subject.ping(name), (message) => this.#answerPing(message)),
      bus.subscribe(`${bus.inbox}${GONE}*`, ({ subject, hasNoResponders }) => {
        const key = Number(subject.slice(bus.inbox.length + GONE.length));
        if (hasNoResponders) this.#responses.get(key)?.readerGone();
      }),
    );
    this.#serveDiscovery();
  }

  /** Answers those who look for services of NATS (ADR-32), such as `nats micro ls`. */
  #serveDiscovery(): void {
    const { bus, name, instance, version } = this.#options;
    const identity = {
      name: SERVICE,
      id: instance,
      version: serviceVersion(version),
      metadata: { hub: name },
    };
    const answers = {
      PING: () => ({ ...identity, type: "io.nats.micro.v1.ping_response" }),
      INFO: () => ({
        ...identity,
        type: "io.nats.micro.v1.info_response",
        description: "MCP servers of a toolmux",
        endpoints: this.#servers.map((server) => ({
          name: server.name,
          subject: requestsTo(server.name),
          queue_group: QUEUE,
          metadata: null,
        })),
      }),
      STATS: () => ({
        ...identity,
        type: "io.nats.micro.v1.stats_response",
        started: this.#startedAt,
        endpoints: [],
      }),
    };
    for (const [verb, answer] of Object.entries(answers)) {
      const respond = ({ reply }: BusMessage): void => {
        // Tools that look for services have ordinary inboxes, and get nothing that is not public.
        if (/^_INBOX[._]/.test(reply) && !/[\s*>]/.test(reply))
          bus.publish(reply, utf8(JSON.stringify(answer())));
      };
      for (const more of ["", `.${SERVICE}`, `.${SERVICE}.${instance}`])
        this.#unsubscribe.push(bus.subscribe(`$SRV.${verb}${more}`, respond));
    }
  }

  get stats(): ExportStats {
    return { requests: this.#requests, refused: this.#refused, inFlight: this.#responses.size };
  }

  get servers(): readonly ExportedServer[] {
    return this.#servers;
  }

  /** Sets the limits of users. Those that have changed end what their users have open. */
  setUsers(users: readonly FleetUser[]): void {
    const before = this.#users;
    this.#users = new Map(users.map((user) => [user.user, user]));
    for (const [key, clients] of this.#clients) {
      if (key === undefined) continue;
      if (JSON.stringify(before.get(key)) === JSON.stringify(this.#users.get(key))) continue;
      this.#clients.delete(key);
      clients.close();
    }
  }

  /** Sets what is exported, and tells the fleet if it has changed. */
  setServers(servers: readonly ExportedServer[]): void {
    if (this.#isClosed) return;
    const { bus, name } = this.#options;
    const before = this.#hasAnnounced ? JSON.stringify(this.#servers) : undefined;
    this.#hasAnnounced = true;
    this.#servers = servers;
    const names = new Set(servers.map((server) => server.name));
    for (const [server, unsubscribe] of this.#subscriptions) {
      if (names.has(server)) continue;
      unsubscribe();
      this.#subscriptions.delete(server);
    }
    for (const server of names) {
      if (this.#subscriptions.has(server)) continue;
      const receive = (message: BusMessage): void => this.#receive(server, message);
      const ends = [
        bus.subscribe(requestsTo(server), receive, QUEUE),
        bus.subscribe(requestsTo(server, name), receive),
      ];
      this.#subscriptions.set(server, () => {
        for (const end of ends) end();
      });
    }
    if (JSON.stringify(servers) !== before) this.announce();
  }

  /** Tells the fleet what this hub exports. */
  announce(): void {
    const { bus, name } = this.#options;
    if (!this.#isClosed) bus.publish(Subject.up(name), encodeAnnouncement(this.#announcement));
  }

  /** Leaves the fleet: takes no more requests, and gives those that are open some time to end. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    const { bus, name } = this.#options;
    this.#isClosed = true;
    for (const unsubscribe of this.#subscriptions.values()) unsubscribe();
    this.#subscriptions.clear();
    bus.publish(Subject.down(name), encodeAnnouncement(this.#announcement));
    for (const clients of this.#clients.values()) clients.stop();
    if (this.#responses.size > 0 && bus.isConnected) {
      this.#isIdle = Promise.withResolvers<void>();
      // Requests that were given up while this hub did not answer need not end.
      for (const response of this.#responses.values()) response.askReader();
      await settlesWithin(DRAIN_LIMIT, this.#isIdle.promise);
    }
    for (const response of this.#responses.values()) response.abort();
    for (const clients of this.#clients.values()) clients.close();
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#control.close();
  }

  get #announcement(): Announcement {
    const { name, instance, version } = this.#options;
    return { hub: name, instance, version, servers: this.#servers };
  }

  #answer({ reply }: BusMessage): void {
    if (this.#mayAnswer(reply))
      this.#options.bus.publish(reply, encodeAnnouncement(this.#announcement));
  }

  /** Answers a ping: without the servers, unless it asks for them by not being empty. */
  #answerPing({ reply, data }: BusMessage): void {
    if (!this.#mayAnswer(reply)) return;
    const all = this.#announcement;
    const announcement = data.length > 0 ? all : { ...all, servers: [] };
    this.#options.bus.publish(reply, encodeAnnouncement(announcement));
  }

  /** Whether a subject is one of an inbox. Whoever asks must not make this hub publish to other subjects. */
  #mayAnswer(reply: string): boolean {
    return reply.startsWith(INBOX_ROOT) && !/[\s*>]/.test(reply);
  }

  /** Whether a subject is one of an inbox of this tenant: nobody may make a hub write into those of others. */
  #isInboxOf(tenant: string, reply: string): boolean {
    const start = `${INBOX_ROOT}${tenant}`;
    const isOwn = reply.startsWith(`${start}_`) || reply.startsWith(`${start}.`);
    return isOwn || !this.#options.bus.isAuthenticated;
  }

  /** Handles a request. Never throws, because the connection to NATS would end. */
  #receive(server: string, message: BusMessage): void {
    const { reply } = message;
    if (!this.#mayAnswer(reply)) {
      this.#warnOnce(
        `A request over NATS was dropped: it wants its answer on "${reply.slice(0, 100)}", which is not below ${INBOX_ROOT}.`,
      );
      return;
    }
    this.#requests++;
    let id: Request["id"] | undefined;
    try {
      const address = this.#addressOf(message.subject);
      if (address === undefined || address.server !== server)
        throw new HubError("headerMismatch", "The subject is not one of a request.");
      if (!this.#isInboxOf(address.tenant, reply)) {
        this.#warnOnce(
          `A request of tenant "${address.tenant}" over NATS was dropped: it wants its answer in the inbox of another tenant.`,
        );
        return;
      }
      if (message.header(Header.wire) !== WIRE_VERSION) {
        const text = `Wire version ${WIRE_VERSION} is needed.`;
        this.#refuse(reply, undefined, { code: INVALID_REQUEST, message: text });
        return;
      }
      const { data } = message;
      const request = parseMessage(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
      if (request.kind !== "request") {
        const code = request.kind === "invalid" ? PARSE_ERROR : INVALID_REQUEST;
        this.#refuse(reply, undefined, { code, message: "The body has to be one request." });
        return;
      }
      id = request.id;
      const ofUser = this.#openOfUser.get(`${address.tenant}/${address.user}`) ?? 0;
      if (this.#responses.size >= MAX_IN_FLIGHT || ofUser >= MAX_OF_USER) {
        const isOfUser = ofUser >= MAX_OF_USER;
        const text = `This machine works at ${isOfUser ? `${MAX_OF_USER} requests of this user` : `${MAX_IN_FLIGHT} requests`} already.`;
        this.#refuse(reply, id, { code: BUSY, message: text, data: { code: "hubBusy" } });
        return;
      }
      this.#handle(address, request, message);
    } catch (thrown) {
      this.#refuse(reply, id, toHubError(thrown).toRpc());
    }
  }

  /** Reads the subject of a request. Most are like one before. */
  #addressOf(subject: string): ReceivedAddress | undefined {
    let address = this.#addresses.get(subject);
    if (address === undefined) {
      address = parseRequestSubject(subject);
      if (this.#addresses.size >= MAX_ADDRESSES) this.#addresses.clear();
      if (address !== undefined) this.#addresses.set(subject, address);
    }
    return address;
  }

  #handle(address: ReceivedAddress, request: Request, message: BusMessage): void {
    checkAgreement(address, request);
    const headers: HeaderReader = { get: (name) => message.header(name) || null };
    checkRequestHeaders(request, headers);
    const modernRequest = this.#requestReader.readModern(request);
    const { bus, clock } = this.#options;
    const key = this.#keyOf(address);
    const user = key === undefined ? undefined : this.#users.get(key);
    if (user?.servers !== undefined && !user.servers.includes(address.server)) {
      const text = `User "${key}" may not use server "${address.server}" of this machine.`;
      throw new HubError("accessDenied", text, { server: address.server });
    }
    const response = new NatsResponse({
      bus,
      clock,
      reply: message.reply,
      id: request.id,
      acceptsParts: message.header(Header.acceptParts) === "1",
      gone: `${bus.inbox}${GONE}${this.#nextKey}`,
      onEnd: this.#onEnd,
    });
    if (!this.#control.add(response)) {
      this.#warnOnce(
        "A request over NATS was dropped: it wants its answer on the subject of another one.",
      );
      return;
    }
    response.start();
    response.tableKey = this.#nextKey++;
    response.user = `${address.tenant}/${address.user}`;
    this.#openOfUser.set(response.user, (this.#openOfUser.get(response.user) ?? 0) + 1);
    this.#responses.set(response.tableKey, response);
    try {
      this.#clientsOf(key).handle(
        modernRequest,
        response,
        { subset: this.#subsetOf(address.server) },
        (catalog) => checkParamHeaders(modernRequest, headers, catalog),
      );
    } catch (thrown) {
      response.respond(buildModernError(request.id, toHubError(thrown)));
    }
  }

  /** The user that a request comes from; undefined if it cannot be told apart from others. */
  #keyOf({ tenant, user }: ReceivedAddress): string | undefined {
    // Without credentials anybody can publish to any subject.
    return user === NO_NAME || !this.#options.bus.isAuthenticated ? undefined : `${tenant}/${user}`;
  }

  #clientsOf(key: string | undefined): ModernRequestTarget {
    let clients = this.#clients.get(key);
    if (clients === undefined) {
      clients = this.#options.hub.createModernClients(
        key === undefined ? undefined : principalOfUser(key),
        this.#limitsOf(key),
        "nats",
      );
      this.#clients.set(key, clients);
    }
    return clients;
  }

  #limitsOf(key: string | undefined): ClientLimits {
    const user = (): FleetUser | undefined =>
      key === undefined ? undefined : this.#users.get(key);
    return {
      modes: () => [user()?.mode].filter((mode) => mode !== undefined),
      hasOperatorMode: true,
      principal: key === undefined ? undefined : principalOfUser(key),
      servers: () => subsetOf(user()?.servers ?? this.#servers.map(({ name }) => name)),
      isAskedForApproval: user()?.askCaller === true,
    };
  }

  #subsetOf(server: string): ServerSubset {
    const known = this.#subsets.get(server) ?? subsetOf([server]);
    this.#subsets.set(server, known);
    return known;
  }

  #refuse(reply: string, id: Request["id"] | undefined, error: Parameters<typeof refuse>[3]): void {
    this.#refused++;
    refuse(this.#options.bus, reply, id, error);
  }

  readonly #onEnd = (response: NatsResponse): void => {
    this.#control.remove(response);
    this.#responses.remove(response.tableKey);
    const { user } = response;
    const left = (this.#openOfUser.get(user) ?? 0) - 1;
    if (left > 0) this.#openOfUser.set(user, left);
    else this.#openOfUser.delete(user);
    if (this.#responses.size === 0) this.#isIdle?.resolve();
  };

  #warnOnce(text: string): void {
    if (this.#warned.size > MAX_WARNINGS || this.#warned.has(text)) return;
    this.#warned.add(text);
    this.#options.warn(text);
  }
}

const MAX_WARNINGS = 20;
/** Maximum number of subjects that are remembered. NATS allows up to 4 KiB for each. */
const MAX_ADDRESSES = 1000;
/**
 * Follows the inbox in the subjects on which NATS says that nobody reads an answer. They are not below the inbox: NATS
 * says it to one subscription only, which could be that of the importer.
 */
const GONE = "-gone.";

/**
 * Checks that a request is about what its subject says, because NATS permits subjects.
 * @throws {HubError} headerMismatch
 */
function checkAgreement(address: ReceivedAddress, request: Request): void {
  if (address.method === request.method && agreesWithName(address, requestNameOf(request))) return;
  throw new HubError("headerMismatch", "The subject does not match the body of the request.");
}

/** A version as services of NATS must have one (semver). */
function serviceVersion(version: string): string {
  return /^\d+\.\d+\.\d+/.test(version) ? version : "0.0.0";
}
