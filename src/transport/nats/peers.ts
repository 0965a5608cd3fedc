/**
 * transport/nats/: requests to servers on other machines of the fleet. `peers.ts` knows which hubs are there and what
 * they export, has the open requests at each, and notices when a hub or the connection to NATS is lost; `transport.ts`
 * is the transport to one server, which chooses a replica for each request; `open-request.ts` is a request until its
 * answer; `replica-listings.ts` has the lists of replicas that differ. Main type: `FleetPeers`. Start here.
 */
import { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { formatAge } from "../../base/format.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import { type Announcement, readAnnouncement } from "../../fleet/announcements.ts";
import type { Bus, BusEvent, BusMessage } from "../../fleet/bus.ts";
import { Header } from "../../fleet/frames.ts";
import { CONTROL_SUFFIX, hubOf, inboxForHub, requestHead, Subject } from "../../fleet/subjects.ts";
import type { OpenRequest } from "./open-request.ts";

/** Times of the watch over hubs that work at requests, in ms. */
export const WATCH = {
  /** Between two pings. */
  interval: 500,
  /** Between two looks at requests of which none is a call, such as subscriptions. */
  idleInterval: 5_000,
  /** The pings without an answer after which all hubs are suspected together: then NATS itself is asked. */
  suspect: 3,
  /** The pings without an answer after which a hub is lost. */
  lost: 6,
  /** Time that NATS has to answer. */
  natsTimeout: 1_000,
  /** Time that requests wait for the connection to NATS to come back. */
  reconnect: 2_000,
  /**
   * Time after which the hubs are asked, when the connection is there again, whether they still have the requests that
   * were open before: they, too, have to connect again.
   */
  settle: 1_500,
  /** Time that a command waits for the first hub to say what it exports. */
  firstAnswer: 500,
  /** Time between two questions to all hubs because one that was given up has answered. */
  askAgain: 1_000,
  /** Time between two pings of a hub that has said that it ends, and their number. */
  leaving: 1_000,
  leavingPings: 15,
} as const;

/** Maximum number of requests of this hub that are open at one other hub. */
export const MAX_OPEN = 1024;
/** Maximum numbers of hubs that are known, and of servers that they export together. */
const MAX_PEERS = 4096;
const MAX_SERVERS = 100_000;
const NO_BYTES = new Uint8Array();
/** In a ping: asks a hub what it exports, too. */
const WITH_SERVERS = utf8("servers");
/** Cancels a request whose id is not known any more. */
const GIVEN_UP = utf8(
  '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"The answer is not needed any more."}}',
);

/** Another hub of the fleet. Times are in ms of the clock. */
export interface Peer {
  readonly name: string;
  readonly instance: string;
  readonly version: string;
  /** The beginning of the subjects of this hub's requests to it. */
  readonly requestHead: string;
  /** Names this peer in the subjects of answers to pings. */
  readonly token: string;
  /** The beginning of the subjects of its answers to requests. */
  readonly inbox: string;
  /** Ends the subscription to its answers; undefined before the first request. */
  unsubscribe: (() => void) | undefined;
  /** The digests of the lists of the servers that it exports, by the server's name. */
  servers: ReadonlyMap<string, string | undefined>;
  /** Number of requests that are open there, without subscriptions. */
  open: number;
  /** The same for each of its servers. */
  readonly openOf: Map<string, number>;
  /** When it was last asked itself what it exports, because somebody said otherwise. */
  askedAt: number;
  /** Number of pings since the last sign of life. */
  missed: number;
  pingedAt: number;
  lastSeen: number;
  /** The time of the last ping until its answer; undefined before the first. */
  roundTrip: number | undefined;
  /** Whether it has said that it ends, and so gets no new requests if others can take them. */
  isLeaving: boolean;
}

/** What has changed in the fleet. */
export type FleetChange =
  | { readonly kind: "joined"; readonly hub: string; readonly servers: readonly string[] }
  | { readonly kind: "changed"; readonly hub: string }
  | {
      readonly kind: "left";
      readonly hub: string;
      readonly servers: readonly string[];
      readonly reason: string;
    }
  /** The connection to NATS is lost for longer than requests wait for it, or it is there again. */
  | { readonly kind: "interrupted" }
  | { readonly kind: "recovered" };

export interface FleetPeersOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly tenant: string;
  readonly user: string;
  /** The instance of this hub, which is no peer of itself. */
  readonly instance: string;
}

/** The other hubs of the fleet, and the requests that are open there. */
export class FleetPeers {
  readonly #options: FleetPeersOptions;
  readonly #peers = new Map<string, Peer>();
  readonly #byToken = new Map<string, Peer>();
  /** A cache of `replicasOf`. */
  readonly #replicas = new Map<string, readonly Peer[]>();
  readonly #requests = new IdMap<OpenRequest>();
  /** When hubs that have left were last seen, in ms since the epoch, by server. */
  readonly #lastSeen = new Map<string, { readonly hub: string; readonly at: number }>();
  readonly #listeners = new Set<(change: FleetChange) => void>();
  readonly #unsubscribe: (() => void)[] = [];
  readonly #firstAnswer = Promise.withResolvers<void>();
  readonly #inbox: string;
  /** The beginning of the subjects of requests that any peer may answer. */
  readonly #requestHead: string;
  #cancelBeat: (() => void) | undefined;
  #cancelReconnectTimer: () => void = () => {};
  /**
   * `waiting`: the connection to NATS is interrupted, and requests wait for it; `interrupted`: they no longer do.
   */
  #connection: "up" | "waiting" | "interrupted" = "up";
  /** Requests that are sent when the connection to NATS is there again. */
  #held: OpenRequest[] = [];
  #isAskingNats = false;
  /** When NATS last answered because it was asked. */
  #natsAnsweredAt = -Infinity;
  /** Number of requests that are open at any hub, without subscriptions. */
  #calls = 0;
  /** Number of servers that all hubs export together. */
  #serverCount = 0;
  #recoveredAt = -Infinity;
  #askedAgainAt = -Infinity;
  #nextInbox = 1;
  #isClosed = false;

  constructor(options: FleetPeersOptions) {
    this.#options = options;
    const { bus } = options;
    this.#inbox = `${bus.inbox}.`;
    this.#requestHead = requestHead(options.tenant, options.user);
    this.#unsubscribe.push(
      bus.subscribe(`${bus.inbox}.>`, this.#receive),
      bus.subscribe(Subject.ups, this.#onUp),
      bus.subscribe(Subject.downs, this.#onDown),
      bus.onEvent(this.#onBusEvent),
    );
    this.askAll();
    this.clock.after(WATCH.firstAnswer, () => this.#firstAnswer.resolve());
  }

  /** Settles when the first hub has answered, or when that takes too long. */
  get firstAnswer(): Promise<void> {
    return this.#firstAnswer.promise;
  }

  get bus(): Bus {
    return this.#options.bus;
  }

  get clock(): Clock {
    return this.#options.clock;
  }

  get tenant(): string {
    return this.#options.tenant;
  }

  get user(): string {
    return this.#options.user;
  }

  /** All other hubs that are known, in order of name. */
  get all(): readonly Peer[] {
    return [...this.#peers.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Whether requests can be sent, or soon. */
  get isUsable(): boolean {
    return this.#connection !== "interrupted" && !this.#isClosed;
  }

  /** Whether the connection to NATS was lost a moment ago, so that other hubs may not be connected yet. */
  get isSettling(): boolean {
    return this.clock.now() - this.#recoveredAt < WATCH.settle * 2;
  }

  get openRequests(): number {
    return this.#requests.size;
  }

  /** The hubs that export a server, in order of name. */
  replicasOf(server: string): readonly Peer[] {
    let replicas = this.#replicas.get(server);
    if (replicas === undefined) {
      replicas = this.all.filter(({ servers }) => servers.has(server));
      this.#replicas.set(server, replicas);
    }
    return replicas;
  }

  /** The error for a server that no hub exports. @param leaving the hub that has just been found to export it no more */
  unreachableError(server: string, local: string, leaving?: string): HubError {
    const seen =
      leaving === undefined ? this.#lastSeen.get(server) : { hub: leaving, at: Date.now() };
    const last =
      seen === undefined ? "" : ` Last seen: ${seen.hub}, ${formatAge(Date.now() - seen.at)}.`;
    const text = `No machine of the fleet serves "${server}" now.${last}`;
    return new HubError("unreachable", text, { server: local });
  }

  /** @returns a function that ends this */
  onChange(listener: (change: FleetChange) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Asks all hubs what they export. */
  askAll(): void {
    this.bus.publish(Subject.who, NO_BYTES, { reply: `${this.#inbox}who` });
  }

  /** Asks all hubs what they export, but not more often than necessary, because others cause it. */
  #askAgain(): void {
    const now = this.clock.now();
    if (now - this.#askedAgainAt < WATCH.askAgain) return;
    this.#askedAgainAt = now;
    this.askAll();
  }

  /** Pings all hubs that are known, once. */
  pingAll(): void {
    for (const peer of this.#peers.values()) this.#ping(peer);
  }

  /** Adds a request and sends it, or keeps it until the connection to NATS is there again. */
  add(request: OpenRequest): void {
    request.key = this.#requests.add(request);
    request.reply = `${this.#inboxOf(request)}${request.key}`;
    if (this.#connection === "up") request.send();
    else this.#held.push(request);
    this.#count(request, request.hub, 1);
    this.#scheduleBeat();
  }

  /** Called when the request goes to another hub than before. */
  moved(request: OpenRequest, from: string | undefined): void {
    this.#count(request, from, -1);
    this.#count(request, request.hub, 1);
    request.reply = `${this.#inboxOf(request)}${request.key}`;
  }

  /** The beginning of the subject of a request's answer. */
  #inboxOf({ hub }: OpenRequest): string {
    const peer = hub === undefined ? undefined : this.#peers.get(hub);
    if (peer === undefined) return this.#inbox;
    peer.unsubscribe ??= this.bus.subscribe(`${peer.inbox}>`, (message) =>
      this.#onAnswer(message.subject.slice(peer.inbox.length), message),
    );
    return peer.inbox;
  }

  remove(request: OpenRequest): void {
    if (this.#requests.remove(request.key) === undefined) return;
    this.#count(request, request.hub, -1);
  }

  peer(hub: string): Peer | undefined {
    return this.#peers.get(hub);
  }

  /** The beginning of the subjects of requests. @param hub undefined: any peer may answer them */
  requestHead(hub: string | undefined): string {
    if (hub === undefined) return this.#requestHead;
    return this.#peers.get(hub)?.requestHead ?? requestHead(this.tenant, this.user, hub);
  }

  /**
   * Called when nobody has subscribed to a server of a hub: the hub is gone, or does not export the server any more.
   */
  notThere(hub: string, server: string): void {
    const peer = this.#peers.get(hub);
    if (peer === undefined || !peer.servers.has(server) || this.isSettling) return;
    const servers = new Map(peer.servers);
    servers.delete(server);
    this.#serverCount--;
    this.#remember(peer);
    peer.servers = servers;
    this.#emit({ kind: "changed", hub });
    this.#ping(peer);
  }

  close(): void {
    this.#isClosed = true;
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    for (const { unsubscribe } of this.#peers.values()) unsubscribe?.();
    this.#cancelBeat?.();
    this.#cancelReconnectTimer();
    this.#endAll(() => new HubError("connectionLost", "The hub is stopping."));
    this.#listeners.clear();
  }

  readonly #receive = (message: BusMessage): void => {
    const to = message.subject.slice(this.#inbox.length);
    if (to.startsWith(PING_TOKEN)) this.#onPong(to.slice(PING_TOKEN.length), message);
    else if (to.startsWith(OFFER_TOKEN)) this.#onOffer(to.slice(OFFER_TOKEN.length), message);
    else if (to === "who") {
      if (!message.hasNoResponders) this.#onHearsay(message);
    } else this.#onAnswer(to, message);
  };

  /** @param to the end of the subject: the key of a request, or a probe of it */
  #onAnswer(to: string, message: BusMessage): void {
    if (to.startsWith(PROBE_TOKEN)) {
      if (message.hasNoResponders || message.header(Header.frame) === "end")
        this.#requests.get(Number(to.slice(PROBE_TOKEN.length)))?.forgotten();
      return;
    }
    const request = this.#requests.get(Number(to));
    if (request === undefined) {
      // A hub still works at a request that was given up while it did not answer.
      if (message.header(Header.frame) === "ka")
        this.bus.publish(`${message.subject}${CONTROL_SUFFIX}`, GIVEN_UP);
      return;
    }
    if (request.hub !== undefined && !message.hasNoResponders) this.#heard(request.hub);
    request.receive(message);
  }

  readonly #onUp = ({ subject, data }: BusMessage): void => {
    const announcement = readAnnouncement(data);
    if (announcement !== undefined && announcement.hub === hubOf(subject))
      this.#onAnnouncement(announcement);
  };

  /**
   * An answer to the question who is there. Anybody who gets that question can answer it in the name of another hub, so
   * what contradicts the known is only a reason to ask that hub: NATS permits its subjects to nobody else.
   */
  #onHearsay({ data }: BusMessage): void {
    const announcement = readAnnouncement(data);
    if (announcement === undefined) return;
    const known = this.#peers.get(announcement.hub);
    if (known === undefined) this.#onAnnouncement(announcement);
    else if (
      known.instance !== announcement.instance ||
      !areEqual(known.servers, serversOf(announcement))
    )
      this.#askOffer(known);
  }

  /** Asks a hub itself what it exports, but not more often than necessary, because others cause it. */
  #askOffer(peer: Peer): void {
    const now = this.clock.now();
    if (now - peer.askedAt < WATCH.askAgain) return;
    peer.askedAt = now;
    const reply = `${this.#inbox}${OFFER_TOKEN}${Buffer.from(peer.name, "utf8").toString("base64url")}`;
    this.bus.publish(Subject.ping(peer.name), WITH_SERVERS, { reply });
  }

  #onOffer(token: string, message: BusMessage): void {
    const hub = Buffer.from(token, "base64url").toString("utf8");
    const peer = this.#peers.get(hub);
    if (message.hasNoResponders) {
      if (peer !== undefined && !this.isSettling) this.#lost(peer, "is not connected any more");
      return;
    }
    const announcement = readAnnouncement(message.data);
    if (announcement?.hub === hub) this.#onAnnouncement(announcement);
  }

  /** A hub says what it exports. */
  #onAnnouncement(announcement: Announcement): void {
    if (announcement.instance === this.#options.instance) return;
    const { hub, instance, version } = announcement;
    const servers = serversOf(announcement);
    const known = this.#peers.get(hub);
    if (known !== undefined && known.instance !== instance) this.#lost(known, "was started again");
    const peer = this.#peers.get(hub);
    if (peer !== undefined) {
      peer.lastSeen = this.clock.now();
      peer.missed = 0;
      peer.isLeaving = false;
      if (areEqual(peer.servers, servers)) return;
      if (!this.#hasRoomFor(servers.size - peer.servers.size)) return;
      this.#serverCount += servers.size - peer.servers.size;
      peer.servers = servers;
      this.#emit({ kind: "changed", hub });
      return;
    }
    if (this.#peers.size >= MAX_PEERS || !this.#hasRoomFor(servers.size)) return;
    this.#serverCount += servers.size;
    const added: Peer = {
      name: hub,
      instance,
      version,
      requestHead: requestHead(this.tenant, this.user, hub),
      token: `${instance}.${Buffer.from(hub, "utf8").toString("base64url")}`,
      inbox: `${inboxForHub(this.bus.inbox, this.#nextInbox++)}.`,
      unsubscribe: undefined,
      servers,
      askedAt: -Infinity,
      open: 0,
      openOf: new Map(),
      missed: 0,
      pingedAt: 0,
      lastSeen: this.clock.now(),
      roundTrip: undefined,
      isLeaving: false,
    };
    this.#peers.set(hub, added);
    this.#byToken.set(added.token, added);
    this.#firstAnswer.resolve();
    this.#emit({ kind: "joined", hub, servers: [...servers.keys()] });
  }

  #hasRoomFor(more: number): boolean {
    return more <= 0 || this.#serverCount + more <= MAX_SERVERS;
  }

  /** A hub says that it ends. That alone ends nothing, because others may say it: a ping decides. */
  readonly #onDown = ({ subject }: BusMessage): void => {
    const peer = this.#peers.get(hubOf(subject) ?? "");
    if (peer === undefined || peer.isLeaving) return;
    peer.isLeaving = true;
    let left: number = WATCH.leavingPings;
    const ask = (): void => {
      if (this.#isClosed || this.#peers.get(peer.name) !== peer || !peer.isLeaving) return;
      if (left-- === 0) {
        peer.isLeaving = false;
        return;
      }
      this.#ping(peer);
      this.clock.after(WATCH.leaving, ask);
    };
    ask();
  };

  #onPong(token: string, message: BusMessage): void {
    const peer = this.#byToken.get(token);
    if (peer === undefined) {
      // A hub that was given up because it stood still goes on, and answers the pings that have waited for it.
      if (!message.hasNoResponders) this.#askAgain();
      return;
    }
    if (message.hasNoResponders) {
      // It is decided by the next pings whether a hub comes back after an interruption of NATS.
      if (!this.isSettling) this.#lost(peer, "is not connected any more");
      return;
    }
    const announcement = readAnnouncement(message.data);
    if (announcement?.hub !== peer.name) return;
    if (announcement.instance !== peer.instance) {
      this.#lost(peer, "was started again");
      this.askAll();
      return;
    }
    peer.roundTrip = this.clock.now() - peer.pingedAt;
    this.#heard(peer.name);
  }

  #heard(hub: string): void {
    const peer = this.#peers.get(hub);
    if (peer === undefined) return;
    peer.missed = 0;
    peer.lastSeen = this.clock.now();
  }

  #ping(peer: Peer): void {
    peer.pingedAt = this.clock.now();
    const reply = `${this.#inbox}${PING_TOKEN}${peer.token}`;
    this.bus.publish(Subject.ping(peer.name), NO_BYTES, { reply });
  }

  #count({ isSubscription, remote }: OpenRequest, hub: string | undefined, change: number): void {
    const peer = hub === undefined ? undefined : this.#peers.get(hub);
    if (peer === undefined || isSubscription) return;
    if (peer.open === 0 && change > 0) {
      peer.missed = 0;
      if (this.#calls === 0) this.#cancelBeat?.();
    }
    peer.open += change;
    peer.openOf.set(remote, (peer.openOf.get(remote) ?? 0) + change);
    this.#calls += change;
  }

  #scheduleBeat(): void {
    if (this.#cancelBeat !== undefined || this.#isClosed) return;
    const interval = this.#calls > 0 ? WATCH.interval : WATCH.idleInterval;
    const cancel = this.clock.after(interval, () => {
      this.#cancelBeat = undefined;
      this.#beat();
    });
    this.#cancelBeat = () => {
      cancel();
      this.#cancelBeat = undefined;
    };
  }

  /** Pings the hubs that work at requests, and decides which of them are lost. */
  #beat(): void {
    const watched = [...this.#peers.values()].filter(({ open }) => open > 0);
    if (this.#connection === "up") {
      const areAllSilent =
        watched.length > 0 && watched.every((peer) => peer.missed >= WATCH.suspect);
      const isNatsKnown = this.clock.now() - this.#natsAnsweredAt < WATCH.natsTimeout;
      if (areAllSilent && !isNatsKnown && !this.#isAskingNats) void this.#askNats();
      for (const peer of watched) {
        if (peer.missed >= WATCH.lost && (!areAllSilent || isNatsKnown))
          this.#lost(peer, "does not answer any more");
        else {
          peer.missed++;
          this.#ping(peer);
        }
      }
    }
    for (const request of this.#requests.values()) request.checkInactivity();
    if (this.#requests.size > 0) this.#scheduleBeat();
  }

  /** Asks NATS for an answer, because no hub answers: the own connection may be the one that is lost. */
  async #askNats(): Promise<void> {
    this.#isAskingNats = true;
    const answered = this.bus.roundTrip().then(
      () => true,
      () => false,
    );
    const timeout = Promise.withResolvers<boolean>();
    const cancelTimer = this.clock.after(WATCH.natsTimeout, () => timeout.resolve(false));
    const isInTime = await Promise.race([answered, timeout.promise]);
    cancelTimer();
    this.#isAskingNats = false;
    if (isInTime) this.#natsAnsweredAt = this.clock.now();
    if (isInTime || this.#connection !== "up" || this.#isClosed) return;
    this.#onInterrupted();
    void answered.then((isAnswered) => isAnswered && this.#onRecovered());
  }

  readonly #onBusEvent = (event: BusEvent): void => {
    switch (event.kind) {
      case "disconnected":
        this.#onInterrupted();
        return;
      case "reconnected":
        this.#onRecovered();
        return;
      case "denied":
        for (const request of this.#requests.values()) request.denied(event.subject);
        return;
      case "closed":
        this.#onInterrupted();
        return;
      case "fault":
    }
  };

  #onInterrupted(): void {
    if (this.#connection !== "up" || this.#isClosed) return;
    this.#connection = "waiting";
    this.#cancelReconnectTimer = this.clock.after(WATCH.reconnect, () => {
      this.#connection = "interrupted";
      const { server } = this.bus;
      this.#endAll((request) => {
        const { hub } = request;
        const where = hub === undefined ? "" : ` while "${hub}" worked at it`;
        return request.isSent
          ? request.error(
              "answerLost",
              `The connection to NATS at ${server} was lost${where}. It may have run.`,
            )
          : request.error(
              "notDelivered",
              `The connection to NATS at ${server} is lost. It was not sent.`,
            );
      });
      this.#emit({ kind: "interrupted" });
    });
  }

  #onRecovered(): void {
    if (this.#connection === "up" || this.#isClosed) return;
    this.#cancelReconnectTimer();
    this.#connection = "up";
    for (const peer of this.#peers.values()) peer.missed = 0;
    const held = this.#held;
    this.#held = [];
    // An answer may have been sent while nobody could receive it.
    const before = this.#requests.values().filter(({ isSent }) => isSent);
    this.#recoveredAt = this.clock.now();
    this.clock.after(WATCH.settle, () => {
      for (const request of before)
        if (request.isOpen) request.probe(`${this.#inboxOf(request)}${PROBE_TOKEN}${request.key}`);
      this.askAll();
    });
    for (const request of held) if (request.isOpen) request.send();
    this.askAll();
    this.#emit({ kind: "recovered" });
  }

  #endAll(cause: (request: OpenRequest) => HubError): void {
    this.#held = [];
    for (const request of this.#requests.values()) request.fail(cause(request));
  }

  /** Removes a hub, and ends all requests that are open there: otherwise nobody would answer them. */
  #lost(peer: Peer, reason: string): void {
    this.#remember(peer);
    this.#peers.delete(peer.name);
    this.#serverCount -= peer.servers.size;
    this.#calls -= peer.open;
    peer.open = 0;
    this.#byToken.delete(peer.token);
    this.#replicas.clear();
    for (const request of this.#requests.values()) {
      if (request.hub !== peer.name) continue;
      request.fail(
        request.error(
          "answerLost",
          `The machine "${peer.name}" that worked at it left the fleet: it ${reason}. It may have run.`,
        ),
      );
    }
    peer.unsubscribe?.();
    this.#emit({ kind: "left", hub: peer.name, servers: [...peer.servers.keys()], reason });
  }

  #remember({ name, servers }: Peer): void {
    for (const server of servers.keys()) this.#lastSeen.set(server, { hub: name, at: Date.now() });
  }

  #emit(change: FleetChange): void {
    this.#replicas.clear();
    for (const listener of this.#listeners) listener(change);
  }
}

const PING_TOKEN = "ping.";
const PROBE_TOKEN = "probe.";
const OFFER_TOKEN = "offer.";

function serversOf({ servers }: Announcement): ReadonlyMap<string, string | undefined> {
  return new Map(servers.map(({ name, digest }) => [name, digest]));
}

function areEqual(
  a: ReadonlyMap<string, string | undefined>,
  b: ReadonlyMap<string, string | undefined>,
): boolean {
  return a.size === b.size && [...a].every(([key, value]) => b.has(key) && b.get(key) === value);
}
