import { type Edit, type Range, utf8 } from "../bytes.ts";
import { HubError, toHubError } from "../errors.ts";
import { lastMember, type Member, skipSpace } from "../json.ts";
import { RelayedAnswer, Sendable } from "../plugin/answer.ts";
import type { Answer, ClientInfo } from "../plugin/plugin.ts";
import type { Member as PluginMember } from "../plugin/member.ts";
import type { PluginSet, Way } from "../plugin/set.ts";
import type { Passage, PassingCall } from "../plugin/weave.ts";
import { Method } from "../protocol/legacy.ts";
import type { Visitor } from "../upstream/connection.ts";
import type { Pending, Rewrite, Withdrawal } from "../upstream/pending.ts";
import type { Session } from "../upstream/session.ts";
import type { Message, Notification, Request, Response } from "../wire/jsonrpc.ts";
import { Call, type CallParts, explainUnready, goneError } from "./call.ts";
import type { CallEnd } from "./ledger.ts";
import { Passing } from "./passing.ts";

export interface InterceptedParts extends CallParts {
  readonly plugins: PluginSet;
  readonly way: Way;
  readonly client: ClientInfo;
  /** Of the request's `params`. */
  readonly members: readonly Member[];
}

/** A call that plugins see: they answer it, or send it, once or several times, as it is or changed. */
export class InterceptedCall extends Call implements Passage {
  readonly holders: PluginMember[] = [];
  latest: Promise<Answer> | undefined;
  readonly #more: InterceptedParts;
  readonly #trips = new Set<Trip>();
  #controller: AbortController | undefined;
  /** Why nothing more is done for it. */
  #ended: HubError | undefined;

  constructor(parts: InterceptedParts) {
    super(parts);
    this.#more = parts;
  }

  /** Sends the call to the server, as the plugins have made it. */
  relay(call: PassingCall): Promise<Answer> {
    const sent = new Promise<Answer>((resolve, reject) => {
      if (this.#ended !== undefined) throw this.#ended;
      for (const limit of call.limits) limit.throwIfAborted();
      const trip = new Trip(this.parts, this.#rewrite(call.changed), {
        resolve,
        reject,
        progress: (notification, tokens) => this.progress(notification, tokens),
        over: () => this.#trips.delete(trip),
      });
      this.#trips.add(trip);
      for (const limit of call.limits) {
        const give = (): void => trip.giveUp("Cancelled by a plugin of the hub.", limit.reason);
        limit.addEventListener("abort", give, { once: true });
        trip.undo.push(() => limit.removeEventListener("abort", give));
      }
      trip.run();
    });
    // A plugin that has lost interest in it need not take its failure.
    sent.catch(() => {});
    return sent;
  }

  protected begin(): void {
    const { plugins, way, client, members, request } = this.#more;
    plugins.enter();
    const passing = new Passing({
      tool: way.tool,
      client,
      number: this.number,
      request,
      members,
      passage: this,
      signal: () => this.#signal(),
    });
    way.pass(passing).then(
      (answer) => this.#answer(answer),
      (error: unknown) => this.fail(toHubError(error)),
    );
  }

  protected withdraw(why: Withdrawal, error: HubError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#giveUp(why, error);
    this.#controller?.abort(error);
  }

  protected explainWait(seconds: number): string | undefined {
    if ([...this.#trips].some(({ isSent }) => isSent)) return undefined;
    const holder = this.#trips.size === 0 ? this.holders.at(-1) : undefined;
    if (holder === undefined) return explainUnready(seconds);
    holder.fail("call", new Error("it did not end before the call's deadline"));
    return `was held by plugin "${holder.name}", which was not done within ${seconds} seconds.`;
  }

  protected override finish(message: Message | undefined, end: CallEnd): void {
    if (this.isOver) return;
    super.finish(message, end);
    // Plugins may still be at it, but nothing that they send is of use any more.
    this.#ended ??= new HubError("cancelled", "The call has ended.");
    this.#giveUp("The call was answered.", this.#ended);
    this.#more.plugins.leave();
  }

  #answer(answer: Answer): void {
    const { id } = this.parts.request;
    if (answer instanceof Sendable) this.finish(answer.under(id.slice), "answered");
  }

  #signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.isOver) this.#controller.abort(this.#ended);
    }
    return this.#controller.signal;
  }

  #giveUp(why: Withdrawal, error: HubError): void {
    for (const trip of this.#trips) trip.giveUp(why, error);
  }

  #rewrite(changed: string | undefined): Rewrite {
    const { rewrite, members, request } = this.#more;
    const edits = [...rewrite.edits];
    if (changed !== undefined) edits.push(...argumentEdits(request, members, changed));
    return { edits, tokens: rewrite.tokens };
  }
}

/** Puts other arguments into a request: in every place where it has some, as servers' parsers differ on which counts. */
function argumentEdits(request: Request, members: readonly Member[], json: string): Edit[] {
  const by = utf8(json);
  if (lastMember(members, "arguments") !== undefined) {
    return members.filter(({ key }) => key === "arguments").map((it) => ({ ...it, by }));
  }
  // A call has at least the name of its tool in its params.
  const at = skipSpace(request.bytes, request.params?.start ?? 0) + 1;
  return [{ start: at, end: at, by: utf8(`"arguments":${json},`) }];
}

interface TripEvents {
  resolve(answer: Answer): void;
  reject(reason: unknown): void;
  progress(notification: Notification, tokens: readonly Range[]): void;
  over(): void;
}

/** One request on its way to the server and back, of a call that may make several. */
class Trip implements Pending, Visitor {
  readonly method = Method.toolsCall;
  readonly isRelayed = true;
  readonly name: string;
  /** What has to be undone when it is over. */
  readonly undo: (() => void)[] = [];
  readonly #parts: CallParts;
  readonly #rewrite: Rewrite;
  readonly #events: TripEvents;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  #isOver = false;
  #waited = false;

  constructor(parts: CallParts, rewrite: Rewrite, events: TripEvents) {
    this.#parts = parts;
    this.#rewrite = rewrite;
    this.#events = events;
    this.name = parts.route.remoteName;
  }

  get isSent(): boolean {
    return this.#sent !== undefined;
  }

  run(): void {
    this.#parts.connection.visit(this);
    this.#waited = this.#sent === undefined;
  }

  enter(session: Session): void {
    if (this.#isOver) return;
    const { route, connection, request } = this.#parts;
    if (this.#waited && !connection.lists(route.remoteName)) {
      this.fail(goneError(route));
      return;
    }
    this.#sent = { session, id: session.relay(this, request, this.#rewrite) };
  }

  settle(response: Response): void {
    if (this.#end()) this.#events.resolve(new RelayedAnswer(response));
  }

  fail(error: HubError): void {
    if (this.#end()) this.#events.reject(error);
  }

  progress(notification: Notification, tokens: readonly Range[]): void {
    if (!this.#isOver) this.#events.progress(notification, tokens);
  }

  /** Nobody wants its answer any more; the server is told. */
  giveUp(why: Withdrawal, reason: unknown): void {
    if (!this.#end()) return;
    if (this.#sent !== undefined) this.#sent.session.cancel(this.#sent.id, why);
    else this.#parts.connection.leave(this);
    this.#events.reject(reason);
  }

  /** @returns whether it was not over yet */
  #end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#events.over();
    for (const undo of this.undo) undo();
    return true;
  }
}
