import type { Piece } from "../../base/bytes.ts";
import { NO_CACHING } from "../../catalog/offer.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import { SkillMethod } from "../../catalog/skills.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import type { CancelledBy } from "../../base/events.ts";
import type { JsonMember } from "../../base/json.ts";
import type { Era } from "../../protocol/era.ts";
import { declaresTasks } from "../../protocol/extension.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { isAtLeast, type LogSeverity } from "../../protocol/log-level.ts";
import { addCacheHint, toModernEdits } from "../../protocol/translate.ts";
import type { Call, Caller, TaskLocation, RunningRequest } from "../../router/call.ts";
import type { ServerRequest } from "../../upstream/ask.ts";
import { readProgressTokens } from "../../protocol/notifications.ts";
import type { CancelReason } from "../../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../../upstream/sender.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { readId } from "../../jsonrpc/id.ts";
import {
  buildError,
  buildResult,
  type EncodedMessage,
  withResponseId,
  type Response,
  joinMessage,
} from "../../jsonrpc/message.ts";
import { cancelQuestion, retoken, writeInputRequired } from "./input.ts";
import type { Letter } from "./request.ts";
import { readLack } from "./lack.ts";
import { digestOf, type Parked, type Parking } from "./input-required.ts";
import { buildRefusal } from "./refusal.ts";
import type { WayBack } from "./wayback.ts";

/** Requests of a server that come within this many ms of each other go into one `input_required` result. */
const GATHER = 5;

/** Validates a request against its client's catalog. May throw. */
export type Check = (catalog: Catalog) => void;

/** What a call needs of its client. */
export interface VisitHost {
  readonly clock: Clock;
  readonly serverInfo: Implementation;
  readonly parking: Parking;
  /**
   * The answer to a legacy server's error that a modern client cannot be given but can act on; undefined: there is
   * none.
   */
  revisit(
    letter: Letter,
    response: Response,
    server: string,
    id: Piece,
  ): EncodedMessage | undefined;
  /** Adds the task that a call was made into to the client's tasks. @returns the answer with the client's task id */
  keep(answer: Response, place: TaskLocation): Response;
  /** Called once, when the call is over. */
  over(visit: Visit): void;
}

/** The methods whose results have cache hints (schema, CacheableResult). */
const CACHEABLE: ReadonlySet<string> = new Set([Method.resourcesRead, SkillMethod.get]);

/** Shared by the calls that no server has sent a request for, which are most. Never changed. */
const NONE = new Map<string, ServerRequest>();

/**
 * One request of a modern client in flight at a server. If the server sends a request meanwhile, the client is answered
 * with `input_required`, and the call goes on until the client sends the retry.
 */
export class Visit implements Caller, Parked {
  /** Its key in the client's table of calls; -1 before it runs. */
  place = -1;
  readonly #letter: Letter;
  readonly #host: VisitHost;
  readonly #check: Check | undefined;
  #running: RunningRequest | undefined;
  /** Responder and id of the client's open request; undefined while the client's retry is awaited. */
  #back: { readonly way: WayBack; readonly id: Piece } | undefined;
  /** Set once a retry has come, with its progress token. */
  #return: { readonly token: Piece | undefined } | undefined;
  /** The server's requests that are not answered, by their keys in `inputRequests`. */
  #open = NONE;
  #count = 0;
  /** The timer that collects requests for one `input_required` result runs. */
  #isGathering = false;
  /** The last server's answer in the form for this client. */
  #dressed: EncodedMessage | undefined;
  /** The error of a failed check against the catalog. */
  #refusal: EncodedMessage | undefined;
  /** The answer that came while the client's retry is awaited. */
  #held: EncodedMessage | undefined;
  /** The capabilities that the client lacks for the requests that the server was refused. */
  #lack: object | undefined;
  #isOver = false;
  #digest: string | undefined;

  constructor(letter: Letter, way: WayBack, host: VisitHost, check?: Check) {
    this.#letter = letter;
    this.#host = host;
    this.#check = check;
    this.#attach(letter, way);
  }

  get sender(): ClientDeclaration {
    return this.#letter.sender;
  }

  get digest(): string {
    this.#digest ??= digestOf(this.#letter);
    return this.#digest;
  }

  get call(): Call | undefined {
    return this.#running?.call;
  }

  /** The server that the call runs at; undefined before it is routed. */
  get server(): string | undefined {
    return this.call?.server;
  }

  /** The client's retry is awaited. */
  get isParked(): boolean {
    return this.#back === undefined;
  }

  run(running: RunningRequest): void {
    this.#running = running;
    running.run();
  }

  cancel(why: CancelReason, by: CancelledBy): void {
    this.#running?.cancel(why, by);
    this.#finish();
  }

  onListed(catalog: Catalog): void {
    try {
      this.#check?.(catalog);
    } catch (error) {
      this.#refusal = buildRefusal(this.#id, toHubError(error));
      throw error;
    }
  }

  sendServerRequest(question: ServerRequest): () => void {
    if (this.#isOver) {
      question.fail(new HubError("notAsked", "The request that it was for is over."));
      return () => {};
    }
    const key = `input-${++this.#count}`;
    if (this.#open === NONE) this.#open = new Map();
    this.#open.set(key, question);
    this.#gather();
    return () => void this.#open.delete(key);
  }

  /** The server was refused a request that the client does not support. */
  onMissingCapability(needed: object): void {
    this.#lack = { ...this.#lack, ...needed };
  }

  toClientMessage(response: Response, from: Era): EncodedMessage {
    const other = from === "legacy" ? this.#replace(response) : undefined;
    this.#dressed = other ?? this.#dress(response, from);
    return this.#dressed;
  }

  addTask(answer: Response, place: TaskLocation): Response | undefined {
    return declaresTasks(this.sender.declared) ? this.#host.keep(answer, place) : undefined;
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    // Answers of the hub itself, or of a plugin, are in the form of the legacy era.
    const isReady = message === undefined || message === this.#dressed;
    const answer = isReady ? message : (this.#refusal ?? this.#own(message));
    if (this.#back === undefined) {
      this.#held = answer;
      if (answer !== undefined) return;
    }
    const way = this.#back?.way;
    this.#finish();
    way?.respond(answer);
  }

  /** Progress and log messages; those that come while a retry is awaited are dropped. */
  notify(message: EncodedMessage): void {
    const told = this.#return === undefined ? message : retoken(message, this.#return.token);
    if (told !== undefined) this.#back?.way.notify(told);
  }

  /** Whether the client asked for log messages of that level. */
  wants(severity: LogSeverity): boolean {
    const { level } = this.sender;
    return level !== undefined && isAtLeast(severity, level);
  }

  /** The responder of the client's open request; undefined while a retry is awaited. */
  get way(): WayBack | undefined {
    return this.#back?.way;
  }

  resume(letter: Letter, way: WayBack, answers: readonly JsonMember[]): void {
    const { request, members } = letter;
    const { bytes } = request;
    const token = readProgressTokens(bytes, members).at(-1);
    this.#return = { token: token && readId(bytes, token) };
    this.#attach(letter, way);
    for (const { key, start, end } of answers) {
      const question = this.#open.get(key);
      this.#open.delete(key);
      question?.answer("result", bytes.subarray(start, end));
    }
    if (this.#held === undefined) {
      this.#gather();
      return;
    }
    const frame = parseMessage(joinMessage(this.#held));
    this.#finish();
    way.respond(frame.kind === "response" ? withResponseId(frame, request.id) : undefined);
  }

  expire(): void {
    for (const question of this.#open.values()) cancelQuestion(question);
    this.#open.clear();
    this.cancel("The client has not come back with what it was asked for.", "client");
  }

  #attach({ request }: Letter, way: WayBack): void {
    this.#back = { way, id: request.id };
    way.whenGone((why, by) => this.cancel(why, by));
  }

  #gather(): void {
    if (this.#back === undefined || this.#open.size === 0 || this.#isGathering) return;
    this.#isGathering = true;
    this.#host.clock.after(GATHER, () => this.#park());
  }

  #park(): void {
    this.#isGathering = false;
    const back = this.#back;
    if (back === undefined || this.#open.size === 0) return;
    const state = this.#host.parking.park(this);
    if (state === undefined) {
      this.#refuse("As many requests as can be wait for their clients to come back.");
      return;
    }
    this.#back = undefined;
    const result = writeInputRequired(this.#open, state, this.#host.serverInfo);
    back.way.respond(buildResult(back.id, result));
  }

  get #id(): Piece {
    return this.#back?.id ?? this.#letter.request.id;
  }

  /**
   * What a modern client gets instead of a legacy server's answer, if it can act on it; undefined: the answer itself.
   */
  #replace(response: Response): EncodedMessage | undefined {
    if (this.#lack !== undefined) {
      const error = readLack(response, this.server ?? "", this.#lack);
      if (error !== undefined) return buildError(this.#id, error.toRpc());
    }
    return response.outcome === "error"
      ? this.#host.revisit(this.#letter, response, this.server ?? "", this.#id)
      : undefined;
  }

  #dress(response: Response, from: Era): EncodedMessage {
    const { request } = this.#letter;
    const cache = CACHEABLE.has(request.method) ? NO_CACHING : undefined;
    // Results of the base protocol have cache hints by their schema; those of an extension may not.
    const edits =
      from === "modern" && request.method === SkillMethod.get
        ? addCacheHint(response, NO_CACHING)
        : toModernEdits(response, from, this.#host.serverInfo, cache);
    return withResponseId(response, this.#id, edits);
  }

  #own(message: EncodedMessage): EncodedMessage {
    const frame = parseMessage(joinMessage(message));
    return frame.kind === "response" ? this.#dress(frame, "legacy") : message;
  }

  #refuse(text: string): void {
    if (this.#open.size === 0) return;
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const question of open) question.fail(new HubError("notAsked", text));
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#refuse("The request that it was for is over.");
    this.#host.over(this);
  }
}
