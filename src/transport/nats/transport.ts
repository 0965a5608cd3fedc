import { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import { parseRange } from "../../base/json.ts";
import type { BusHeaders, BusMessage } from "../../fleet/bus.ts";
import { FRAME_OVERHEAD, Header, WIRE_VERSION } from "../../fleet/frames.ts";
import {
  buildNotification,
  type EncodedMessage,
  joinMessage,
  type Message,
  type Response,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { encodeHeaderValue } from "../http/headers.ts";
import {
  type DifferingEntry,
  NO_OP_SENT_REQUEST,
  type NegotiatedProtocol,
  type SendOptions,
  type SentRequest,
  type ServerTransport,
  type TransportEvents,
} from "../transport.ts";
import {
  OpenRequest,
  ownedBy,
  RequestForm,
  type RequestOwner,
  requestStateOf,
} from "./open-request.ts";
import { type FleetChange, type FleetPeers, MAX_OPEN, type Peer } from "./peers.ts";
import {
  distinctReplicas,
  isListMethod,
  itemsOf,
  offerOf,
  ReplicaListings,
  type ReplicaList,
} from "./replica-listings.ts";

/** A server of the fleet, as this hub uses it. */
export interface FleetTarget {
  /** The server's name here, and its name in the fleet. */
  readonly server: string;
  readonly remote: string;
  /** The only hub whose server is used; undefined: any that exports it. */
  readonly hub: string | undefined;
  /**
   * `sticky`: a client keeps the replica that it used first, until that is lost; `call`: each call goes to the replica
   * with the fewest requests of this hub to the server.
   */
  readonly spread: "sticky" | "call";
  /** Whether requests are also sent if no hub is known that serves them: a peer may know only the convention. */
  readonly isConventional: boolean;
  /** The largest response, in bytes. */
  readonly maxMessage: number;
}

/** Maximum numbers of clients whose replica is remembered, and of tasks and rounds whose hub is remembered. */
const MAX_REMEMBERED = 10_000;
/** Maximum number of replicas that are compared for a call, so that its time does not grow with the fleet. */
const MAX_COMPARED = 64;
/** The longest name of a tool, prompt or resource for which headers are kept, in UTF-16 units. */
const MAX_KEPT_NAME = 256;
/** Maximum number of pages of a list that is merged with others. */
const MAX_PAGES = 1000;
const LIST_CHANGES = ["tools", "prompts", "resources"].map((kind) =>
  parseMessage(joinMessage(buildNotification(`notifications/${kind}/list_changed`))),
);
/** The methods that are about what a server offers: they are answered by the replica that is first in order of name. */
const DEFINING_METHODS: ReadonlySet<string> = new Set(["server/discover", "subscriptions/listen"]);
const TASK_METHODS = /^tasks\//;

/** A transport to a server that other hubs of the fleet export. */
export class NatsTransport implements ServerTransport, RequestOwner {
  readonly kind = "nats";
  readonly hasStreams = true;
  readonly peers: FleetPeers;
  readonly remote: string;
  readonly server: string;
  readonly maxMessage: number;
  readonly queued = 0;
  readonly #target: FleetTarget;
  readonly #requests = new Set<OpenRequest>();
  /** The hub that each client uses. */
  readonly #hubOfClient = new Map<string, string>();
  /** The hubs of tasks and of rounds of input. */
  readonly #owners = new Map<string, string>();
  /** The forms of requests without headers of their own, by method and name. */
  readonly #forms = new Map<string, Map<string | undefined, RequestForm>>();
  readonly #listings = new ReplicaListings();
  readonly #held: (readonly [OpenRequest, BusMessage])[] = [];
  #events: TransportEvents | undefined;
  #state: "new" | "open" | "closed" = "new";
  #protocol: NegotiatedProtocol | undefined;
  #unsubscribe: () => void = () => {};
  /** The hubs and digests of the replicas, as they were when lists were last read. */
  #offer = "";
  #turn = 0;
  isPaused = false;

  constructor(peers: FleetPeers, target: FleetTarget) {
    this.peers = peers;
    this.#target = target;
    this.remote = target.remote;
    this.server = target.server;
    this.maxMessage = target.maxMessage;
  }

  open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#state !== "new")
      return Promise.reject(new HubError("cancelled", "The connection was not opened."));
    const fault = this.#fault();
    if (fault !== undefined) return Promise.reject(fault);
    this.#events = events;
    this.#state = "open";
    this.#offer = this.#currentOffer;
    this.#unsubscribe = this.peers.onChange((change) => this.#onFleetChange(change));
    return Promise.resolve();
  }

  send(message: EncodedMessage, options?: SendOptions): SentRequest {
    // Protocol 2026-07-28 (modern) has no notifications from clients. A request is cancelled by `abandon`.
    if (this.#state !== "open" || options === undefined) return NO_OP_SENT_REQUEST;
    const body = joinMessage(message);
    const request = new OpenRequest(this, body, options, this.#formOf(options), undefined);
    this.#requests.add(request);
    try {
      this.#begin(request);
    } catch (error) {
      const cause = toHubError(error);
      queueMicrotask(() => request.fail(cause));
    }
    return request;
  }

  get differing(): readonly DifferingEntry[] {
    return this.#listings.differing;
  }

  adopt(protocol: NegotiatedProtocol): void {
    this.#protocol = protocol;
    this.#forms.clear();
  }

  redact(text: string): string {
    return text;
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
    while (!this.isPaused) {
      const next = this.#held.shift();
      if (next === undefined) return;
      next[0].release(next[1]);
    }
  }

  processStats(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    const text = `The connection to server "${this.server}" was closed.`;
    this.#close(new HubError("connectionLost", text, { server: this.server }));
    return Promise.resolve();
  }

  hold(request: OpenRequest, message: BusMessage): void {
    this.#held.push([request, message]);
  }

  notification(request: OpenRequest, message: Message): void {
    if (this.#state === "open") this.#events?.message(message, request);
  }

  response(request: OpenRequest, response: Response): void {
    this.#requests.delete(request);
    if (request.hub !== undefined)
      for (const text of ownedBy(response)) remember(this.#owners, text, request.hub);
    if (this.#state === "open") this.#events?.message(response, request);
  }

  oversized(request: OpenRequest, size: number): void {
    this.#requests.delete(request);
    const text = `Server "${this.server}" sent a message of ${size} bytes, which is over the limit (maxMessage).`;
    request.options.unanswered?.(request.error("messageTooLarge", text));
  }

  failed(request: OpenRequest, cause: HubError): void {
    this.#requests.delete(request);
    request.options.unanswered?.(cause);
  }

  /** Sends the request to the next replica. */
  notDelivered(request: OpenRequest): void {
    const { hub } = request;
    if (this.peers.isSettling) {
      const text = `Server "${this.server}" is not connected to NATS again.`;
      request.fail(request.error("notDelivered", text));
      return;
    }
    try {
      if (hub === undefined) throw this.peers.unreachableError(this.remote, this.server);
      request.resend(this.#choose(request.options, request.body, hub)?.name);
    } catch (error) {
      request.fail(toHubError(error));
    }
    // Afterwards, because the transport closes if this was the last replica.
    if (hub !== undefined) this.peers.notThere(hub, this.remote);
  }

  /** The replicas that may be used, in order of name. */
  get replicas(): readonly Peer[] {
    const { hub } = this.#target;
    const replicas = this.peers.replicasOf(this.remote);
    return hub === undefined ? replicas : replicas.filter(({ name }) => name === hub);
  }

  #begin(request: OpenRequest): void {
    const { method } = request.options;
    const limit = this.peers.bus.maxPayload - FRAME_OVERHEAD;
    if (request.body.length > limit) {
      const text = `A request of ${request.body.length} bytes is larger than NATS allows. Raise max_payload of the NATS server, for example to 8 MB.`;
      throw request.error("messageTooLarge", text);
    }
    const differing = isListMethod(method) ? distinctReplicas(this.replicas, this.remote) : [];
    if (differing.length > 1 && !hasCursor(request.body)) {
      void this.#listAll(request, differing);
      return;
    }
    const [only] = differing;
    if (only !== undefined) this.#listings.setOnly(method, only, this.remote);
    request.hub = this.#choose(request.options, request.body)?.name;
    this.peers.add(request);
  }

  /**
   * Chooses the replica for a request.
   * @param except a hub that does not serve the server any more
   * @returns undefined for the subject on which any peer may answer
   * @throws {HubError} unreachable, answerLost or hubBusy
   */
  #choose(
    { method, name, client }: SendOptions,
    body: Uint8Array,
    except?: string,
  ): Peer | undefined {
    const owner = this.#ownerOf(method, name, body);
    if (owner !== undefined) {
      const peer = this.peers.peer(owner);
      if (peer !== undefined && owner !== except) return peer;
      const text = `The machine "${owner}" that has this ${TASK_METHODS.test(method) ? "task" : "call"} left the fleet.`;
      throw new HubError("answerLost", text, { server: this.server });
    }
    const known = this.replicas;
    const all = except === undefined ? known : known.filter((replica) => replica.name !== except);
    if (all.length === 0) {
      if (this.#target.isConventional) return undefined;
      throw this.peers.unreachableError(this.remote, this.server, except);
    }
    const isStable = all.every(({ isLeaving }) => !isLeaving);
    const staying = isStable ? all : all.filter(({ isLeaving }) => !isLeaving);
    const candidates = staying.length > 0 ? staying : all;
    if (DEFINING_METHODS.has(method) || isListMethod(method)) return candidates[0];
    const equal = this.#listings.replicasFor(candidates, this.remote, method, name);
    if (equal.length === 0) {
      const text = `No machine of the fleet has "${name}" of server "${this.server}" as it was listed.`;
      throw new HubError("notDelivered", text, { server: this.server });
    }
    const isSticky = this.#target.spread === "sticky" && client !== undefined;
    const kept = isSticky
      ? equal.find(({ name: hub }) => hub === this.#hubOfClient.get(client))
      : undefined;
    const chosen = kept ?? this.#leastBusy(equal);
    if (chosen.open >= MAX_OPEN) {
      const text = `The machine "${chosen.name}" works at ${MAX_OPEN} requests of this hub already.`;
      throw new HubError("hubBusy", text, { server: this.server });
    }
    if (isSticky && kept === undefined) remember(this.#hubOfClient, client, chosen.name);
    return chosen;
  }

  /** The hub that an earlier answer binds a request to. */
  #ownerOf(method: string, name: string | undefined, body: Uint8Array): string | undefined {
    if (this.#owners.size === 0) return undefined;
    if (name !== undefined && TASK_METHODS.test(method)) return this.#owners.get(name);
    const state = requestStateOf(body);
    return state === undefined ? undefined : this.#owners.get(state);
  }

  /**
   * The replica with the fewest open requests to this server; of several, the one whose hub has the fewest in all, then the
   * next in turn. By those of the hub alone, servers that take one call after the other would wait for calls while their
   * replicas have several.
   */
  #leastBusy(replicas: readonly Peer[]): Peer {
    const { length } = replicas;
    const first = this.#turn++ % length;
    let chosen = replicas[first] as Peer;
    let least = chosen.openOf.get(this.remote) ?? 0;
    for (let next = 1; next < Math.min(length, MAX_COMPARED); next++) {
      const replica = replicas[(first + next) % length] as Peer;
      const open = replica.openOf.get(this.remote) ?? 0;
      if (open > least || (open === least && replica.open >= chosen.open)) continue;
      chosen = replica;
      least = open;
    }
    return chosen;
  }

  /** Lists all that any replica offers, because the replicas differ. */
  async #listAll(request: OpenRequest, replicas: readonly Peer[]): Promise<void> {
    const { method } = request.options;
    try {
      const results = await this.#listEach(request, replicas);
      if (!request.isOpen) return;
      const result = this.#listings.merge(method, results, results[0]?.first);
      const text = JSON.stringify({ jsonrpc: "2.0", id: request.options.id, result });
      const response = parseMessage(Buffer.from(text));
      request.isOpen = false;
      if (response.kind === "response") this.response(request, response);
    } catch (error) {
      request.fail(toHubError(error));
    }
  }

  /**
   * Lists what each replica offers. Those that fail, or answer much later than the first, are left out.
   * @throws {HubError} if none answers
   */
  async #listEach(
    request: OpenRequest,
    replicas: readonly Peer[],
  ): Promise<readonly (ReplicaList & { readonly first: unknown })[]> {
    const lists = new Map<Peer, ReplicaList & { readonly first: unknown }>();
    const { promise: isEnough, resolve } = Promise.withResolvers<void>();
    let cancelTimer: (() => void) | undefined;
    let cause: unknown;
    const all = replicas.map(async (replica) => {
      try {
        lists.set(replica, await this.#listOne(request, replica));
        cancelTimer ??= this.peers.clock.after(LATE_LIST, resolve);
      } catch (error) {
        cause ??= error;
      }
    });
    await Promise.race([Promise.all(all), isEnough]);
    cancelTimer?.();
    if (lists.size === 0) throw toHubError(cause);
    return replicas.flatMap((replica) => lists.get(replica) ?? []);
  }

  /** Lists what one replica offers. @throws {HubError} if it does not answer */
  async #listOne(
    { body, options }: OpenRequest,
    replica: Peer,
  ): Promise<ReplicaList & { readonly first: unknown }> {
    const { method } = options;
    const offer = offerOf(replica, this.remote);
    const items: unknown[] = [];
    let first: unknown;
    let cursor: unknown;
    for (let page = 0; page < MAX_PAGES; page++) {
      const result = await this.#ask(withCursor(body, cursor), options, replica.name);
      first ??= result;
      items.push(...itemsOf(method, result));
      cursor = (result as { readonly nextCursor?: unknown } | undefined)?.nextCursor;
      if (typeof cursor !== "string") break;
    }
    const machines = this.replicas
      .filter((other) => offerOf(other, this.remote) === offer)
      .map(({ name }) => name);
    return { offer, machines, items, first };
  }

  /** Sends a request of the transport itself. @returns its result @throws {HubError} */
  #ask(body: Uint8Array, { method }: SendOptions, hub: string): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const owner: RequestOwner = {
      peers: this.peers,
      remote: this.remote,
      server: this.server,
      maxMessage: this.maxMessage,
      isPaused: false,
      hold: () => {},
      notification: () => {},
      response: (_request, { bytes, body: range, outcome }) =>
        outcome === "result"
          ? resolve(parseRange(bytes, range))
          : reject(new HubError("serverRefused", `"${hub}" does not list "${this.remote}".`)),
      oversized: (request) =>
        reject(request.error("messageTooLarge", `The list of "${hub}" is too large.`)),
      failed: (_request, cause) => reject(cause),
      notDelivered: (request) =>
        request.fail(
          request.error("notDelivered", `"${hub}" does not serve "${this.remote}" now.`),
        ),
    };
    const options = { method, id: LIST_ID };
    const request = new OpenRequest(owner, body, options, this.#formOf(options), hub);
    this.peers.add(request);
    return promise;
  }

  #formOf(options: SendOptions): RequestForm {
    const { method, name, headers } = options;
    if (headers !== undefined || (name !== undefined && name.length > MAX_KEPT_NAME))
      return this.#makeForm(options);
    let forms = this.#forms.get(method);
    if (forms === undefined) {
      forms = new Map();
      remember(this.#forms, method, forms);
    }
    let form = forms.get(name);
    if (form === undefined) {
      form = this.#makeForm(options);
      remember(forms, name, form);
    }
    return form;
  }

  #makeForm(options: SendOptions): RequestForm {
    return new RequestForm(this.remote, options, this.#makeHeaders(options));
  }

  #makeHeaders({ method, name, headers }: SendOptions): BusHeaders {
    const own: (readonly [string, string])[] = [
      [Header.wire, WIRE_VERSION],
      [Header.method, encodeHeaderValue(method)],
      [Header.acceptParts, "1"],
    ];
    if (name !== undefined) own.push([Header.name, encodeHeaderValue(name)]);
    const version = this.#protocol?.version ?? headers?.[Header.version] ?? DEFAULT_VERSION;
    own.push([Header.version, version]);
    for (const [key, value] of Object.entries(headers ?? {}))
      if (key !== Header.version) own.push([key, encodeHeaderValue(value)]);
    return own;
  }

  #fault(): HubError | undefined {
    if (!this.peers.isUsable) {
      const text = `The connection to NATS at ${this.peers.bus.server} is lost.`;
      return new HubError("unreachable", text, { server: this.server });
    }
    if (this.replicas.length > 0 || this.#target.isConventional) return undefined;
    return this.peers.unreachableError(this.remote, this.server);
  }

  #onFleetChange(change: FleetChange): void {
    if (this.#state !== "open") return;
    if (change.kind === "interrupted") {
      const text = `The connection to NATS at ${this.peers.bus.server} was lost.`;
      this.#close(new HubError("connectionLost", text, { server: this.server }));
      return;
    }
    if (this.replicas.length === 0 && !this.#target.isConventional) {
      this.#close(this.peers.unreachableError(this.remote, this.server));
      return;
    }
    const offer = this.#currentOffer;
    if (offer === this.#offer) return;
    this.#offer = offer;
    for (const message of LIST_CHANGES) this.#events?.message(message);
  }

  /** What the replicas offer together, in order of name. */
  get #currentOffer(): string {
    const { replicas } = this;
    return JSON.stringify(
      distinctReplicas(replicas, this.remote).map((replica) => offerOf(replica, this.remote)),
    );
  }

  #close(cause: HubError): void {
    if (this.#state === "closed") return;
    const wasOpen = this.#state === "open";
    this.#state = "closed";
    this.#unsubscribe();
    this.#held.length = 0;
    for (const request of this.#requests) request.abandon();
    this.#requests.clear();
    if (wasOpen) this.#events?.closed(cause);
  }
}

/** Time that all replicas have to list what they offer after the first has, in ms. */
const LATE_LIST = 5_000;
/** The id of the requests by which a transport lists replicas. */
const LIST_ID = 0;
const DEFAULT_VERSION = "2026-07-28";

/** Sets a key of a map that forgets its oldest keys. */
function remember<Key, Value>(map: Map<Key, Value>, key: Key, value: Value): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= MAX_REMEMBERED) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}

function hasCursor(body: Uint8Array): boolean {
  return Buffer.from(body.buffer, body.byteOffset, body.byteLength).includes('"cursor"');
}

/** The request for a page of a list. @param cursor undefined: the first page */
function withCursor(body: Uint8Array, cursor: unknown): Uint8Array {
  const request = JSON.parse(Buffer.from(body).toString("utf8")) as {
    readonly params?: object;
  };
  const params = { ...request.params, ...(cursor !== undefined && { cursor }) };
  return utf8(JSON.stringify({ ...request, id: LIST_ID, params }));
}
