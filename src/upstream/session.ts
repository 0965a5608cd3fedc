import { applyEdits } from "../bytes.ts";
import type { Item, Kind } from "../catalog/item.ts";
import { NOUNS } from "../catalog/offer.ts";
import type { Clock } from "../clock.ts";
import { HubError } from "../errors.ts";
import type { LogLevel, LogSource } from "../events.ts";
import {
  allowsBatches,
  type Implementation,
  initializeParams,
  Method,
} from "../protocol/legacy.ts";
import { readEdges } from "../wire/frame.ts";
import {
  buildNotification,
  buildRequest,
  editsOf,
  type Frame,
  type Request,
  type Response,
} from "../wire/jsonrpc.ts";
import type { Link, LinkEvents, Vitals } from "../wire/link.ts";
import type { Audience } from "./audience.ts";
import { type Feature, type Handshake, readHandshake } from "./handshake.ts";
import { listAll } from "./pages.ts";
import { Jobs } from "./job.ts";
import { News } from "./news.ts";
import { type Pending, PendingTable, type Rewrite, type Withdrawal } from "./pending.ts";
import { Voice } from "./voice.ts";
import { misstep, readReply } from "./reply.ts";
import type { PeerInfo } from "./status.ts";
import type { Subscriptions } from "./subscriptions.ts";

/** What a session is made from. */
export interface SessionParts {
  readonly server: string;
  readonly link: Link;
  /** For whom it is. */
  readonly audience: Audience;
  readonly clock: Clock;
  readonly events: SessionEvents;
}

/** What a session tells its connection. */
export interface SessionEvents {
  /** What it lists of these kinds may be another. */
  listChanged(kinds: readonly Kind[]): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  closed(cause: HubError): void;
}

const ignore = (): void => {};
const PING: Pending = { method: Method.ping, settle: ignore, fail: ignore, progress: ignore };

/** MCP spoken with one server over an open Link, in the legacy dialect: the handshake, the table of pending requests, the listings. */
export class Session implements LinkEvents {
  readonly server: string;
  readonly #link: Link;
  readonly #audience: Audience;
  readonly #events: SessionEvents;
  readonly #pending: PendingTable;
  /** What the server says of its own accord. */
  readonly voice: Voice;
  /** What clients' calls were made into that does not end with its answer. */
  readonly jobs: Jobs;
  readonly #news: News;
  #handshake: Handshake | undefined;
  readonly #complaints = new Set<string>();
  /** Messages that ever came: what makes this grow proves that the server lives. */
  heard = 0;
  /** Clients' requests that were ever sent, and the tool of the last one. */
  calls = 0;
  lastTool: string | undefined;
  /** What clients have subscribed to. */
  subscriptions: Subscriptions | undefined;
  #ping: number | undefined;

  constructor({ server, link, audience, clock, events }: SessionParts) {
    this.server = server;
    this.#link = link;
    this.#audience = audience;
    this.#events = events;
    this.#pending = new PendingTable(server, link);
    this.jobs = new Jobs(server, this.#pending);
    this.voice = new Voice({
      server,
      link,
      audience,
      clock,
      pending: this.#pending,
      log: (text) => events.log("debug", "server", text),
      complain: (text) => this.#complain(text),
    });
    this.#news = new News({
      pending: this.#pending,
      jobs: this.jobs,
      voice: this.voice,
      subscriptions: () => this.subscriptions,
      listChanged: (kinds) => events.listChanged(kinds),
    });
  }

  /** Opens the link and shakes hands (lifecycle, initialization); `linked` is called between the two. @throws {HubError} handshakeFailed, or what the link says. */
  async open(clientInfo: Implementation, signal: AbortSignal, linked: () => void): Promise<void> {
    await this.#link.open(this, signal);
    linked();
    const params = initializeParams(clientInfo, this.#audience.capabilities);
    const response = await this.ask(Method.initialize, params, signal);
    const handshake = readHandshake(readReply(this.server, response, "handshake"));
    if (typeof handshake === "string") {
      const what = `answered with the unknown protocol version ${handshake}`;
      throw misstep(this.server, "handshake", what);
    }
    this.#handshake = handshake;
    this.#link.send(buildNotification(Method.initialized));
    this.voice.begin(this.can("logging"));
  }

  /** Who the server is; undefined before the handshake. */
  get peer(): PeerInfo | undefined {
    return this.#handshake?.peer;
  }

  /** Clients' requests that have not been answered. */
  get inFlight(): number {
    return this.#pending.relayed;
  }

  /** Clients wait for something that it does. */
  get isAtWork(): boolean {
    return this.inFlight > 0 || this.jobs.isBusy;
  }

  /** Everything of that kind that the server has; nothing if it offers none. @throws {HubError} handshakeFailed at step `list`, or the link's end. */
  async list(kind: Kind, signal: AbortSignal): Promise<readonly Item[]> {
    if (!this.offers(kind)) return [];
    return listAll({
      kind,
      ask: (method, params) => this.ask(method, params, signal),
      refuse: (response, isError) => {
        if (isError) readReply(this.server, response, "list");
        return misstep(this.server, "list", `sent a list of ${NOUNS[kind]}s that is malformed`);
      },
      complain: (text) => this.#events.log("warn", "server", text),
    });
  }

  offers(kind: Kind): boolean {
    return this.#handshake?.offers.has(kind) === true;
  }

  /** Whether it has resources, so that its results may point to some. */
  get hasResources(): boolean {
    return this.#handshake?.hasResources === true;
  }

  can(feature: Feature): boolean {
    return this.#handshake?.features.has(feature) === true;
  }

  /** What the server wants models to know. */
  get instructions(): string | undefined {
    return this.#handshake?.instructions;
  }

  /** Asks for a sign of life: whatever comes back shows in `heard`. A ping that was not answered is forgotten. */
  ping(): void {
    if (this.#ping !== undefined) this.#pending.take(this.#ping);
    const id = this.#pending.nextId();
    this.#pending.send(id, PING, buildRequest(id, Method.ping));
    this.#ping = id;
  }

  /** Settles when no client's request is in flight. */
  quiet(): Promise<void> {
    return this.#pending.quiet();
  }

  vitals(): Promise<Vitals | undefined> {
    return this.#link.vitals();
  }

  /** Sends a client's request on under an id of the session's own. @returns that id, for `cancel`. */
  relay(record: Pending, request: Request, { edits, tokens }: Rewrite): number {
    const id = this.#pending.nextId();
    this.calls++;
    if (record.method === Method.toolsCall) this.lastTool = record.name;
    const by = String(id);
    for (const { start, end } of tokens) edits.push({ start, end, by });
    for (const { start, end } of request.ids) edits.push({ start, end, by });
    this.#pending.send(id, record, applyEdits(request.bytes, edits));
    return id;
  }

  /** Asks something of the hub's own; cancelled with the signal. @throws {HubError} cancelled, or the link's end. */
  ask(method: string, params: object | undefined, signal: AbortSignal): Promise<Response> {
    return this.#pending.ask(method, params, signal, (id) => {
      // The handshake is never cancelled (cancellation, behavior requirements).
      if (method === Method.initialize) this.#pending.drop(id);
      else this.cancel(id, "The hub gave up.");
    });
  }

  /** Forgets a request and tells the server. Whoever waits for it is not called any more. */
  cancel(id: number, why: Withdrawal): void {
    const record = this.#pending.drop(id);
    if (record === undefined) return;
    if (record.isTask === true) this.jobs.giveUp(id);
    this.#link.send(
      typeof why === "string"
        ? buildNotification(Method.cancelled, { requestId: id, reason: why })
        : applyEdits(why.notification.bytes, editsOf(why.ids, String(id))),
    );
    this.voice.abandon();
  }

  pause(): void {
    this.#link.pause();
  }

  resume(): void {
    this.#link.resume();
  }

  /** Fails everything pending and ends the link, bounded in time. */
  close(): Promise<void> {
    const { server } = this;
    this.voice.close();
    const cause = new HubError("serverStopped", `Server "${server}" was stopped.`, { server });
    this.#pending.fail(cause);
    this.jobs.fail(cause);
    return this.#link.close();
  }

  frame(frame: Frame): void {
    this.heard++;
    switch (frame.kind) {
      case "response":
        this.#settle(frame);
        return;
      case "notification":
        this.#news.notified(frame);
        return;
      case "request":
        this.#news.asked(frame);
        return;
      case "batch":
        if (allowsBatches(this.#handshake?.version))
          for (const item of frame.items) this.frame(item);
        else this.#complain("A batch was dropped: this revision has none.");
        return;
      case "invalid":
        this.#complain(`A message was dropped: ${frame.reason}.`);
    }
  }

  log(level: LogLevel, source: LogSource, text: string): void {
    this.#events.log(level, source, text);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.heard++;
    const edges = readEdges(head, tail);
    const text = `Server "${this.server}" sent a message of ${size} bytes, which is over the limit (maxMessage).`;
    const id = edges?.kind === "response" ? Number(edges.id.key) : undefined;
    const pending = id === undefined ? undefined : this.#pending.take(id);
    if (pending === undefined) this.#events.log("warn", "stdout", text);
    else pending.fail(new HubError("messageTooLarge", text, { server: this.server }));
  }

  /** What a server does not read is bounded where it is sent: by the table of what is pending, and by its voice. */
  pressure(): void {}

  closed(cause: HubError): void {
    this.#pending.fail(cause);
    this.jobs.fail(cause);
    this.#events.closed(cause);
  }

  /** Said once: who does it once does it often. */
  #complain(text: string): void {
    if (this.#complaints.has(text)) return;
    this.#complaints.add(text);
    this.#events.log("warn", "stdout", text);
  }

  #settle(response: Response): void {
    const record = response.id === undefined ? undefined : this.#pending.take(response.id);
    if (record !== undefined) {
      record.settle(response);
      return;
    }
    this.jobs.late(response);
    // An answer after a cancel is usual; one that nobody asked for is the server's mistake.
    this.#events.log("debug", "stdout", "An answer that nobody waits for was dropped.");
  }
}
