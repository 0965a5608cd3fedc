import { type Edit, utf8 } from "../base/bytes.ts";
import type { Route } from "../catalog/section.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { lastMember, type JsonMember, skipWhitespace } from "../base/json.ts";
import { Sendable } from "../plugin/answer.ts";
import type { Member as PluginMember } from "../plugin/instance.ts";
import type { Answer, ClientInfo, ToolInfo } from "../plugin/plugin.ts";
import type { PluginSet, Way } from "../plugin/plugin-set.ts";
import type { PassingCall } from "../plugin/call-chain.ts";
import type { Connection } from "../upstream/connection.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import {
  bytesOf,
  joinMessage,
  type EncodedMessage,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { Call, type Caller, type CallParts } from "./call.ts";
import type { Deadlines } from "./deadlines.ts";
import type { Detour } from "./plugin-task-result.ts";
import { wrapAnswer } from "./input-required.ts";
import { explainUnready } from "./timeouts.ts";
import type { CallEnd } from "./ledger.ts";
import { Passing, type Substance } from "./passing.ts";
import type { Traveller } from "./traveller.ts";
import { Trip } from "./trip.ts";

/** What a plugin call has in addition to every call's context. */
export interface Interception {
  readonly plugins: PluginSet;
  readonly way: Way;
  readonly client: ClientInfo;
  /** The plugin that makes the call, if one does; it does not see the call itself. */
  readonly except: PluginMember | undefined;
  /** Of the request's `params`. */
  readonly members: readonly JsonMember[];
  /** Set if the call is task-augmented. */
  readonly detour: Detour | undefined;
}

/** A call that plugins see: they answer it, or send it once or several times, unchanged or changed. */
export class InterceptedCall extends Call<CallParts> implements Substance, Traveller {
  latest: Promise<Answer> | undefined;
  readonly #own: Interception;
  /** The requests in flight; rarely more than one. */
  #trips: readonly Trip[] = NONE;
  #holders: readonly PluginMember[] = NONE;
  /** The response of its only request is the answer, unseen by plugins. */
  #isDirect = false;
  /** Whether the request was written to the server at least once. */
  #wasSent = false;
  #controller: AbortController | undefined;
  #ended: HubError | undefined;

  constructor(parts: CallParts, own: Interception) {
    super(parts);
    this.#own = own;
  }

  get tool(): ToolInfo {
    return this.#own.way.tool;
  }

  get client(): ClientInfo {
    return this.#own.client;
  }

  get except(): PluginMember | undefined {
    return this.#own.except;
  }

  get held(): number {
    return this.#holders.length;
  }

  get detour(): Detour | undefined {
    return this.#own.detour;
  }

  get members(): readonly JsonMember[] {
    return this.#own.members;
  }

  get request(): Request {
    return this.parts.request;
  }

  get route(): Route {
    return this.parts.route;
  }

  get connection(): Connection {
    return this.parts.connection;
  }

  get sender(): ClientDeclaration {
    return this.parts.caller.sender;
  }

  get caller(): Caller {
    return this.parts.caller;
  }

  get deadlines(): Deadlines {
    return this.parts.deadlines;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.isOver) this.#controller.abort(this.#why());
    }
    return this.#controller.signal;
  }

  /** Sends the call to the server, with the plugins' changes. */
  relay({ changed, limits }: PassingCall): Promise<Answer> {
    const trip = new Trip(this, this.#rewrite(changed), changed);
    this.#trips = [...this.#trips, trip];
    // The call may have ended in this very turn.
    const isOver = this.isOver || this.#ended !== undefined;
    if (isOver) trip.giveUp("The call has ended.", this.#why());
    else trip.run(limits);
    return trip;
  }

  arrived(trip: Pick<Trip, "isSent">): void {
    this.#wasSent ||= trip.isSent;
    this.#trips = this.#trips.filter((other) => other !== trip);
  }

  hold(member: PluginMember, at: number): void {
    this.#holders = this.#holders.toSpliced(at, 0, member);
  }

  release(member: PluginMember): void {
    const at = this.#holders.lastIndexOf(member);
    this.#holders = this.#holders.filter((_, i) => i !== at);
  }

  settle(response: Response): void {
    this.finish(this.parts.caller.address(this.renameUris(response), "legacy"), "answered");
  }

  protected begin(): void {
    const { plugins, way } = this.#own;
    plugins.enter();
    const answer = way.pass(new Passing(this));
    if (!(answer instanceof Trip)) {
      const end = answer.then(
        (it) => this.#answer(it),
        (error: unknown) => this.fail(toHubError(error)),
      );
      void end.then(() => plugins.leave());
    } else if (this.isOver) {
      plugins.leave();
    } else {
      // No plugin waits for the response: it goes straight to the client.
      this.#isDirect = true;
      answer.direct();
    }
  }

  protected withdraw(why: Withdrawal, error: HubError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#giveUp(why, error);
    this.#controller?.abort(error);
  }

  protected explainWait(seconds: number): string | undefined {
    if (this.#trips.some(({ isSent }) => isSent)) return undefined;
    const holder = this.#trips.length === 0 ? this.#holders.at(-1) : undefined;
    if (holder === undefined)
      return this.#wasSent ? undefined : explainUnready(seconds, this.parts.connection);
    holder.fail("call", new Error("it did not end before the call's deadline"));
    const held = `was held by plugin "${holder.name}", which was not done within ${seconds} seconds.`;
    if (!this.#wasSent) return held;
    return `${held} Its server was called before that: check what took effect before it is repeated.`;
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.isOver) return;
    super.finish(message && this.#fit(message), end);
    // Plugins may still run, but what they have in flight is of no use any more.
    if (this.#trips.length > 0) this.#giveUp("The call was answered.", this.#why());
    if (this.#isDirect) this.#own.plugins.leave();
  }

  /** Wraps a modern server's structured output, which has to be an object for a legacy client. */
  #fit(message: EncodedMessage): EncodedMessage {
    const { caller, route, view } = this.parts;
    const isMixed =
      caller.sender.era === "legacy" && view.catalog.tools.info.modernServers.has(route.server);
    return isMixed ? wrapAnswer(message, route.item) : message;
  }

  /** The same mapping of URIs for an answer of plugins, which may differ from the server's. */
  #renameUris(message: EncodedMessage): EncodedMessage {
    if (this.rename === undefined) return message;
    const frame = parseMessage(joinMessage(message));
    return frame.kind === "response" ? bytesOf(this.renameUris(frame)) : message;
  }

  #answer(answer: Answer): void {
    if (!Sendable.is(answer)) return;
    const message = answer.under(this.request.id);
    this.finish(this.#renameUris(message), "answered");
  }

  /** The error that pending work is rejected with; created lazily, as an Error is expensive. */
  #why(): HubError {
    this.#ended ??= new HubError("cancelled", "The call has ended.");
    return this.#ended;
  }

  #giveUp(why: Withdrawal, error: HubError): void {
    for (const trip of this.#trips) trip.giveUp(why, error);
  }

  #rewrite(changed: string | undefined): RequestRewrite {
    const { rewrite } = this.parts;
    const edits = [...rewrite.edits];
    if (changed !== undefined) edits.push(...argumentEdits(this.request, this.members, changed));
    return { edits, tokens: rewrite.tokens };
  }
}

const NONE: readonly never[] = [];

/** Replaces every `arguments` member of the request: servers' parsers differ on which duplicate counts. */
function argumentEdits(request: Request, members: readonly JsonMember[], json: string): Edit[] {
  const by = utf8(json);
  if (lastMember(members, "arguments") !== undefined) {
    return members
      .filter(({ key }) => key === "arguments")
      .map((it) => ({ ...it, replacement: by }));
  }
  // `params` is not empty: it has at least the tool's name.
  const at = skipWhitespace(request.bytes, request.params?.start ?? 0) + 1;
  return [{ start: at, end: at, replacement: utf8(`"arguments":${json},`) }];
}
