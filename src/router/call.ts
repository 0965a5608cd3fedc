import type { Edit, Piece, Range } from "../bytes.ts";
import type { Catalog } from "../catalog/catalog.ts";
import { isUi, writeTemplate } from "../catalog/locator.ts";
import { isNamed } from "../catalog/shape.ts";
import { isWithin, rootOf } from "../catalog/skills.ts";
import { renameInResult, type RenameUri } from "../catalog/renamed-uris.ts";
import type { Route } from "../catalog/section.ts";
import { HubError } from "../errors.ts";
import type { CancelledBy } from "../events.ts";
import type { Era } from "../protocol/era.ts";
import { Method } from "../protocol/legacy.ts";
import { isAtLeast, type Severity } from "../protocol/severity.ts";
import type { Ask, Question } from "../upstream/ask.ts";
import type { Attendee, Occasion } from "../upstream/audience.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Rewrite } from "../upstream/pending.ts";
import type { Withdrawal } from "../upstream/withdrawal.ts";
import type { Sender } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { View } from "../upstream/view.ts";
import { revise } from "../wire/frame.ts";
import {
  buildError,
  type Message,
  type Notification,
  type Request,
  type Response,
  substitute,
} from "../wire/jsonrpc.ts";
import type { Deadlines, Timed } from "./deadline.ts";
import { answerAbsence, answerLate, describeDelay } from "./late.ts";
import type { CallEnd, Ledger, RunningCall } from "./ledger.ts";
import type { Links } from "./links.ts";

/** Where a call's answer and its progress go. */
export interface Caller extends Ask {
  readonly sender: Sender;
  /** What it asks for is listed only now. @throws {HubError} if it is not as it should be */
  admit?(catalog: Catalog): void;
  /**
   * A server's answer as the client is to get it.
   * @param from the era of the server
   * @param edits what makes an answer of the legacy era of a modern server's, for a client of that era
   */
  address(response: Response, from: Era, edits?: readonly Edit[]): Message;
  /**
   * Takes over the task that a call was made into, for a client that knows what to do with one.
   * @returns the answer that tells the client of it; undefined if it does not know tasks
   * @throws {HubError} invalidRequest if it has as many as it may have
   */
  keep?(answer: Response, place: Place): Response | undefined;
  /** A server was refused a question for its sake, because the client has not said that it can do this. */
  lacks?(needed: object): void;
  /** Called exactly once; undefined if the call was cancelled, and nothing may be sent for it. */
  respond(message: Message | undefined): void;
  notify(message: Message): void;
}

/** Where a task is that a call was made into. */
export interface Place {
  readonly session: Session;
  readonly connection: Connection;
  readonly route: Route;
}

/** Something that a client's request has set going. */
export interface Running {
  run(): void;
  cancel(why: Withdrawal, by: CancelledBy): void;
  /** The call, once it is known which one it is. */
  readonly call: Call | undefined;
}

/** What every call is made from. */
export interface CallCore {
  readonly request: Request;
  readonly route: Route;
  /** The client's progress token as it spelled it, if it gave one. */
  readonly token: Piece | undefined;
  readonly caller: Caller;
  /** When the request came, in ms of the clock. */
  readonly began: number;
  readonly deadlines: Deadlines;
  readonly ledger: Pick<Ledger, "next" | "started" | "ended" | "isRead">;
  /** Where resources are remembered that results point to. */
  readonly links: Links;
  /** What its client sees. */
  readonly view: View;
}

/** What one is made from that goes to whatever session the server has. */
export interface CallParts extends CallCore {
  readonly rewrite: Rewrite;
  readonly connection: Connection;
}

const SHUTDOWN: CallEnd = { by: "shutdown" };

/** One request in flight to a server, from the client's request to the one answer that it gets; how it gets that is left open. */
export abstract class Call<Parts extends CallCore = CallCore> implements Timed, Occasion {
  readonly number: number;
  deadline: number;
  slot: number | undefined;
  protected readonly parts: Parts;
  /** It has got its answer, or will get none. */
  isOver = false;
  #latest: number;
  /** How much of it waits for servers that wait for a client, and since when its time stands still. */
  #halts = 0;
  #haltedAt = 0;

  constructor(parts: Parts) {
    const { began, route } = parts;
    const { limits } = route;
    this.parts = parts;
    this.number = parts.ledger.next();
    this.#latest = began + limits.maxTimeout;
    this.deadline = Math.min(began + limits.timeout, this.#latest);
  }

  run(): void {
    const { deadlines, ledger, route } = this.parts;
    deadlines.add(this);
    if (route.kind === "tools") ledger.started(this.number, route);
    // Whoever heard of it may have ended it.
    if (!this.isOver) this.begin();
  }

  get call(): Call {
    return this;
  }

  /** What is told of it while it runs. */
  describe(): RunningCall {
    const { route, began, deadlines } = this.parts;
    const duration = deadlines.now() - began;
    return { call: this.number, server: route.server, tool: route.remoteName, duration };
  }

  fail(error: HubError): void {
    const { request } = this.parts;
    const end: CallEnd = error.code === "serverStopped" ? SHUTDOWN : { cause: error };
    const message =
      error.code === "answerLost"
        ? answerAbsence(request, error)
        : buildError(request.id, error.toRpc());
    this.finish(message, end);
  }

  /** Somebody at work ends it: the server is told, and the client gets an error. */
  abort(): void {
    const error = new HubError("cancelled", "The call was cancelled by the operator of the hub.");
    this.withdraw("Cancelled by the operator of the hub.", error);
    this.finish(buildError(this.parts.request.id, error.toRpc()), { by: "operator" });
  }

  progress(notification: Notification, tokens: readonly Range[]): void {
    const { token, caller } = this.parts;
    this.touch();
    if (token === undefined) return;
    caller.notify(substitute(notification, tokens, token));
  }

  /** It is being worked at: it has its time again, but for the total. */
  touch(): void {
    const { route, deadlines } = this.parts;
    if (this.#halts > 0) this.#makeUp();
    this.deadline = Math.min(deadlines.now() + route.limits.timeout, this.#latest);
  }

  /** The server has a line of its log for whoever asked. Of the legacy era, who has set no level gets what comes. */
  log(severity: Severity, message: Message): void {
    const { caller } = this.parts;
    const { era } = caller.sender;
    const level = era === "legacy" ? (this.attendee?.level ?? "debug") : caller.sender.level;
    if (level !== undefined && isAtLeast(severity, level)) caller.notify(message);
  }

  /** The server that it is for. */
  get server(): string {
    return this.parts.route.server;
  }

  get attendee(): Attendee | undefined {
    return this.parts.view.attendee;
  }

  /** Asks its client on its own way. */
  ask(question: Question): (why: Withdrawal) => void {
    return this.parts.caller.ask(question);
  }

  lacks(needed: object): void {
    const { caller, route } = this.parts;
    if (caller.lacks === undefined) this.attendee?.lacks?.(route.server, needed);
    else caller.lacks(needed);
  }

  /** Lets its time stand still while the server waits for an answer of a client, or go on. */
  halt(halted: boolean): void {
    const { deadlines } = this.parts;
    if (halted && this.#halts++ === 0) {
      this.#haltedAt = deadlines.now();
      deadlines.remove(this);
    } else if (!halted && --this.#halts === 0) {
      this.#makeUp();
      if (!this.isOver) deadlines.add(this);
    }
  }

  /** The client does not want the answer any more, or has left: the server is told, the client is not answered. */
  cancel(why: Withdrawal, by: CancelledBy): void {
    this.withdraw(why, new HubError("cancelled", "The call was cancelled."));
    this.finish(undefined, { by });
  }

  /** The deadline has passed: the model gets an answer that it can act on. */
  expire(): void {
    const text = this.#describeDelay();
    this.withdraw("The call took too long.", new HubError("callTimeout", text));
    this.finish(answerLate(this.parts.request, text), { by: "deadline" });
  }

  /** Takes its time away: from now on it may take as long as it likes. */
  suspend(): void {
    this.parts.deadlines.remove(this);
    this.deadline = this.#latest = Infinity;
  }

  /** Gives it its time again, all of it. */
  resume(): void {
    const { deadlines, route } = this.parts;
    this.#latest = deadlines.now() + route.limits.maxTimeout;
    this.deadline = Math.min(deadlines.now() + route.limits.timeout, this.#latest);
    deadlines.add(this);
  }

  /** Sets it going. */
  protected abstract begin(): void;

  /** Gives up whatever is under way for it. `error` is for those who would wait in vain. */
  protected abstract withdraw(why: Withdrawal, error: HubError): void;

  /** Why it has got nowhere yet, in words that name the time limit; undefined if the server is at it. */
  protected abstract explainWait(seconds: number): string | undefined;

  /** Remembers what resources a server's answer points to, and what URLs its client is to open. */
  learn(session: Session, response: Response): void {
    if (response.outcome === "error") session.voice.refused(response, this.parts.view.attendee);
    else if (session.met?.hasResources === true) this.parts.links.learn(session.server, response);
    const { request, route, links } = this.parts;
    const isApp = route.kind === "resources" && isUi(route.remoteName);
    if (isApp && response.outcome !== "error" && request.method === Method.resourcesRead)
      links.giveApp(session.server);
  }

  /** What makes the URIs that its client knows of those of the server; undefined if all are the same. */
  protected get rename(): RenameUri | undefined {
    const { view, route } = this.parts;
    const { server, name, remoteName } = route;
    const rename = view.catalog.uris.of(server);
    if (name === remoteName || isNamed(route.kind)) return rename;
    // What was asked for under a URI that names the server is answered under it, and so is what is in it.
    if (name !== writeTemplate(server, remoteName)) return rename;
    const root = rootOf(remoteName) ?? remoteName;
    return (uri) => rename?.(uri) ?? (isWithin(uri, root) ? writeTemplate(server, uri) : undefined);
  }

  /**
   * A server's answer with the URIs under which its client can read what it names. The very same if none differ.
   * @param result where the result of the method is in it
   */
  protected renameUris(response: Response, result: Range = response.body): Response {
    const { rename } = this;
    if (rename === undefined || response.outcome === "error") return response;
    return revise(response, renameInResult(response.bytes, result, rename));
  }

  protected finish(message: Message | undefined, end: CallEnd): void {
    if (this.isOver) return;
    this.isOver = true;
    const { deadlines, ledger, caller, route } = this.parts;
    deadlines.remove(this);
    if (ledger.isRead && route.kind === "tools") ledger.ended(this.describe(), end);
    caller.respond(message);
  }

  /** Adds the time that stood still. */
  #makeUp(): void {
    const now = this.parts.deadlines.now();
    const stood = now - this.#haltedAt;
    this.#haltedAt = now;
    this.#latest += stood;
    this.deadline += stood;
  }

  #describeDelay(): string {
    const { route, deadlines } = this.parts;
    const isTotal = deadlines.now() >= this.#latest;
    const seconds = (isTotal ? route.limits.maxTimeout : route.limits.timeout) / 1000;
    return describeDelay(route, { isTotal, seconds, wait: this.explainWait(seconds) });
  }
}
