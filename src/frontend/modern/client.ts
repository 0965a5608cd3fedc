/**
 * Clients of the modern era (2026-07-28): stateless requests, each with its own envelope in `_meta`. Main type:
 * `ModernClient`, all requests of one client with the same capabilities. Start here; `call.ts` is one request in
 * flight, `input-required.ts` the retries with answers, `subscription.ts` is `subscriptions/listen`.
 */
import { IdTable } from "../../base/id-table.ts";
import { utf8 } from "../../base/bytes.ts";
import type { Kind } from "../../catalog/listing.ts";
import { NO_CACHING } from "../../catalog/offer.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import type { PluginSet } from "../../plugin/plugin-set.ts";
import { readAllExtensionSettings, type ExtensionSettings } from "../../protocol/capabilities.ts";
import type { Implementation } from "../../protocol/legacy.ts";
import { readCursorParam } from "../../catalog/cursor.ts";
import { discoverResult, ModernMethod, stampResultBytes } from "../../protocol/modern.ts";
import { lowestSeverityOf, type LogSeverity } from "../../protocol/log-level.ts";
import type { Call, TaskLocation } from "../../router/call.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ModernClientTasks } from "../../router/modern-tasks.ts";
import type { CallLog } from "../../router/ledger.ts";
import { Router } from "../../router/router.ts";
import type { AnyMethodSpec } from "../../router/params.ts";
import { sessionOf } from "../../upstream/account.ts";
import type { ServerRequest } from "../../upstream/ask.ts";
import type { ClientChannel } from "../../upstream/audience.ts";
import type { ClientView } from "../../upstream/view.ts";
import { buildResult, type EncodedMessage, type Response } from "../../jsonrpc/message.ts";
import type { Editions } from "../editions.ts";
import { checkState, checkTasks, type Letter, textIn } from "./request.ts";
import { LISTED, RELAYED } from "./methods.ts";
import { Listening } from "./subscription.ts";
import { invalidState, type Lot, Parking } from "./input-required.ts";
import { buildRevisit } from "./revisit.ts";
import { type Check, Visit, type VisitHost } from "./call.ts";
import type { WayBack } from "./wayback.ts";

export interface PartyParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly ledger: CallLog;
  readonly editions: Editions;
  readonly lot: Lot;
  /** Id of the client; undefined: it cannot be told from others, and may not use servers that are per client. */
  readonly client: string | undefined;
  serverInfo(): Implementation;
  plugins(): PluginSet | undefined;
}

/** The modern requests of one client with the same capability class. To legacy servers it is one client. */
export class Party implements ClientChannel, VisitHost {
  readonly era = "modern";
  readonly clock: Clock;
  readonly parking: Parking;
  readonly #parts: PartyParts;
  readonly #view: ClientView;
  readonly #keeping: ModernClientTasks;
  readonly #router: Router;
  readonly #visits = new IdTable<Visit>();
  readonly #listenings = new Set<Listening>();
  /** Cancel functions of requests that wait for lists or instructions. */
  readonly #waits = new Set<() => void>();
  /**
   * The lowest log level that any request has asked for: it only ever falls, so servers are not told for each request.
   */
  level: LogSeverity | undefined;
  /** When it was last used, in ms of the clock. */
  lastUse: number;

  readonly settings: ExtensionSettings;

  /**
   * @param declared the capabilities that its first request declares
   * @param modernTasks the tasks of its client
   */
  constructor(
    view: ClientView,
    capabilities: string,
    declared: object,
    parts: PartyParts,
    keeping: ModernClientTasks,
  ) {
    this.settings = readAllExtensionSettings(declared);
    const { deadlines, ledger, clock, lot, client } = parts;
    this.#parts = parts;
    this.clock = clock;
    this.lastUse = clock.now();
    this.parking = new Parking(lot, clock);
    this.#view = view;
    this.#keeping = keeping;
    const who = { id: client ?? "anybody", name: undefined, version: undefined };
    const plugins = (): PluginSet | undefined => parts.plugins();
    const common = {
      view,
      deadlines,
      callLog: ledger,
      plugins,
      excludedPlugin: undefined,
      clientChannel: () => this,
    };
    const isAnonymous = client === undefined;
    this.#router = new Router(who, {
      ...common,
      modernTasks: keeping,
      isAnonymous,
      notify: () => {},
    });
    view.introduce(capabilities, this);
  }

  get id(): string | undefined {
    return this.#parts.client;
  }

  get serverInfo(): Implementation {
    return this.#parts.serverInfo();
  }

  get view(): ClientView {
    return this.#view;
  }

  /** The client's calls in flight. */
  get calls(): readonly Call[] {
    return this.#visits.values().flatMap(({ call }) => call ?? []);
  }

  get listenings(): number {
    return this.#listenings.size;
  }

  /** Whether a request, subscription, waiting call or task is in flight. */
  get isBusy(): boolean {
    const sets = [this.#visits, this.#listenings, this.#waits, this.parking];
    return sets.some(({ size }) => size > 0) || this.#keeping.hasOpenTasks(this);
  }

  /**
   * Handles a request.
   * @throws {HubError} methodNotFound, invalidParams, or the router's error for an unknown name
   */
  take(letter: Letter, way: WayBack, check?: Check): void {
    const { method } = letter.request;
    this.lastUse = this.clock.now();
    this.#tune(letter.sender.level);
    const manner = RELAYED.get(method);
    if (manner !== undefined) {
      checkState(letter);
      if (manner === "task") checkTasks(letter);
      if (!this.parking.resume(letter, way)) this.#relay(letter, way, manner, check);
      return;
    }
    const kind = LISTED.get(method);
    if (kind !== undefined) this.#list(kind, letter, way);
    else if (method === ModernMethod.discover) this.#discover(letter, way);
    else if (method === ModernMethod.listen) this.#listen(letter, way);
    else throw new HubError("methodNotFound", `There is no method "${method}".`);
  }

  /** The catalog was replaced. */
  catalogChanged(): void {
    for (const listening of this.#listenings) listening.compare(this.#view.catalog);
  }

  sendServerRequest(question: ServerRequest): () => void {
    const { server } = question;
    const [visit, ...others] = this.#asking(server);
    if (visit !== undefined && others.length === 0) return visit.sendServerRequest(question);
    const text =
      visit === undefined
        ? `There is no request running for which server "${server}" could ask.`
        : `Server "${server}" runs several requests of that client, and does not say for which one it asks: they have to be made one after another.`;
    question.fail(new HubError("notAsked", text, { server }));
    return () => {};
  }

  onMissingCapability(server: string, needed: object): void {
    const [visit, ...others] = this.#asking(server);
    if (others.length === 0) visit?.onMissingCapability(needed);
  }

  /** Modern clients get no notifications outside of a request. */
  notify(): void {}

  /**
   * A log message names no request. A client that cannot be told from others gets it only if it has the one call at
   * that server.
   */
  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void {
    const there = this.#at(server);
    if (this.#parts.client === undefined && there.length > 1) return;
    let isPiped = false;
    for (const visit of there) {
      const { way } = visit;
      if (way === undefined || !visit.wants(severity)) continue;
      // On a pipe all requests share one channel: the message is sent once.
      if (!way.isPipe || !isPiped) way.notify(message);
      isPiped ||= way.isPipe;
    }
  }

  keep(answer: Response, place: TaskLocation): Response {
    return this.#keeping.add(answer, place, this);
  }

  revisit(
    letter: Letter,
    response: Parameters<VisitHost["revisit"]>[1],
    server: string,
    id: Parameters<VisitHost["revisit"]>[3],
  ): EncodedMessage | undefined {
    const { serverInfo, parking } = this;
    const again = (next: Letter, way: WayBack): void => this.take(next, way);
    return buildRevisit(response, { letter, id, server, serverInfo, parking, again });
  }

  over(done: Visit | Listening): void {
    this.lastUse = this.clock.now();
    if (done instanceof Visit) this.#visits.remove(done.place);
    else this.#listenings.delete(done);
  }

  /** The hub stops: ends subscriptions with a final result. */
  stop(): void {
    for (const listening of this.#listenings) listening.stop();
  }

  /** The client has disconnected, or has been idle for too long. */
  close(): void {
    this.parking.close();
    for (const visit of this.#visits.values()) visit.cancel("The client has left.", "disconnect");
    for (const listening of this.#listenings) listening.end();
    for (const forget of this.#waits) forget();
    this.#waits.clear();
    this.#router.close();
    this.#view.close();
  }

  /**
   * The calls that a server's request may belong to, as it does not say which: those that run, else those that wait for
   * input.
   */
  #asking(server: string): readonly Visit[] {
    const there = this.#at(server);
    const working = there.filter(({ isParked }) => !isParked);
    return working.length > 0 ? working : there;
  }

  #at(server: string): readonly Visit[] {
    return this.#visits.filter((visit) => visit.server === server);
  }

  #relay(letter: Letter, way: WayBack, manner: AnyMethodSpec, check?: Check): void {
    const { name, version } = letter.sender.info;
    const { client } = this.#router;
    if (client.name !== name || client.version !== version) {
      this.#router.client = { ...client, name, version };
    }
    const visit = new Visit(this.#isolate(letter), way, this, check);
    const running = this.#router.route(letter.request, visit, manner);
    this.#checkState(letter, running.call);
    visit.place = this.#visits.add(visit);
    visit.run(running);
  }

  /**
   * Requests of clients that cannot be told apart each get a sender object of their own: none is taken for another's.
   */
  #isolate(letter: Letter): Letter {
    if (this.#parts.client !== undefined) return letter;
    return { ...letter, sender: { ...letter.sender } };
  }

  /** A `requestState` that is not the hub's own can only come from a modern server. */
  #checkState(letter: Letter, call: Call | undefined): void {
    if (call === undefined || textIn(letter, "requestState") === undefined) return;
    const connection = this.#view.connection(call.describe().server);
    const session = connection && sessionOf(connection.state);
    if (session?.era === "legacy") throw invalidState();
  }

  #list(kind: Kind, { request }: Letter, way: WayBack): void {
    const after = readCursorParam(kind, request);
    const { editions } = this.#parts;
    this.#wait(way, (callback) =>
      this.#view.whenListed((catalog) => {
        const { serverInfo } = this;
        const section = catalog[kind];
        callback(
          buildResult(
            request.id,
            after === undefined
              ? editions.of(section, serverInfo)
              : editions.page(section, after, serverInfo),
          ),
        );
      }),
    );
  }

  #discover({ request }: Letter, way: WayBack): void {
    this.#wait(way, (callback) =>
      this.#view.whenRecalled(({ instructions, capabilities: offered }) => {
        const result = utf8(JSON.stringify(discoverResult(instructions, offered)));
        callback(buildResult(request.id, stampResultBytes(result, this.serverInfo, NO_CACHING)));
      }),
    );
  }

  /** Responds when the answer is there, unless the request is cancelled before. */
  #wait(way: WayBack, begin: (callback: (message: EncodedMessage) => void) => () => void): void {
    let isOver = false;
    const end = (message: EncodedMessage | undefined): void => {
      if (isOver) return;
      isOver = true;
      this.#waits.delete(forget);
      way.respond(message);
    };
    const forget = (): void => {
      undo();
      end(undefined);
    };
    this.#waits.add(forget);
    const undo = begin(end);
    way.whenGone(forget);
  }

  #listen(letter: Letter, way: WayBack): void {
    const { clock, serverInfo } = this;
    const { catalog } = this.#view;
    const parts = { clock, serverInfo, catalog, router: this.#router };
    const over = (done: Listening): void => this.over(done);
    const listening = new Listening(letter, way, { ...parts, over });
    this.#listenings.add(listening);
    listening.begin();
  }

  /** Lowers the log level of the servers to what a request asks for. */
  #tune(level: LogSeverity | undefined): void {
    if (level === undefined || level === this.level) return;
    const before = this.level;
    this.level = lowestSeverityOf(before === undefined ? [level] : [level, before]);
    if (this.level !== before) this.#view.levelChanged();
  }
}
