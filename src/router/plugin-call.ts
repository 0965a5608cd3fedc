import { type Edit, utf8 } from "../base/bytes.ts";
import type { Route } from "../catalog/section.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { lastMember, type JsonMember, skipWhitespace } from "../base/json.ts";
import { PluginAnswer } from "../plugin/answer.ts";
import type { PluginInstance as PluginMember } from "../plugin/instance.ts";
import type { Answer, ClientInfo, ToolInfo } from "../plugin/plugin.ts";
import type { PluginSet, CallPath } from "../plugin/plugin-set.ts";
import type { ChainedCall } from "../plugin/call-chain.ts";
import type { Connection } from "../upstream/connection.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import {
  bytesOf,
  joinMessage,
  type EncodedMessage,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { Call, type Caller, type SessionCallContext } from "./call.ts";
import type { Deadlines } from "./deadlines.ts";
import type { TaskResultPluginCall } from "./plugin-task-result.ts";
import { wrapToolAnswer } from "./input-required.ts";
import { notReadyReason } from "./timeouts.ts";
import type { CallEnd } from "./ledger.ts";
import { PluginToolCall, type ToolCallContext } from "./passing.ts";
import type { UpstreamRequestOwner } from "./traveller.ts";
import { PluginUpstreamRequest } from "./trip.ts";

/** What a plugin call has in addition to every call's context. */
export interface PluginCallContext {
  readonly plugins: PluginSet;
  readonly callPath: CallPath;
  readonly client: ClientInfo;
  /** The plugin that makes the call, if one does; it does not see the call itself. */
  readonly excludedPlugin: PluginMember | undefined;
  /** Of the request's `params`. */
  readonly members: readonly JsonMember[];
  /** Set if the call is task-augmented. */
  readonly taskResultCall: TaskResultPluginCall | undefined;
}

/** A call that plugins see: they answer it, or send it once or several times, unchanged or changed. */
export class PluginCall
  extends Call<SessionCallContext>
  implements ToolCallContext, UpstreamRequestOwner
{
  latestAnswer: Promise<Answer> | undefined;
  readonly #pluginContext: PluginCallContext;
  /** The requests in flight; rarely more than one. */
  #requests: readonly PluginUpstreamRequest[] = EMPTY;
  #holders: readonly PluginMember[] = EMPTY;
  /** The response of its only request is the answer, unseen by plugins. */
  #isForwarded = false;
  /** Whether the request was written to the server at least once. */
  #wasSent = false;
  #controller: AbortController | undefined;
  #endError: HubError | undefined;

  constructor(context: SessionCallContext, pluginContext: PluginCallContext) {
    super(context);
    this.#pluginContext = pluginContext;
  }

  get tool(): ToolInfo {
    return this.#pluginContext.callPath.tool;
  }

  get client(): ClientInfo {
    return this.#pluginContext.client;
  }

  get excludedPlugin(): PluginMember | undefined {
    return this.#pluginContext.excludedPlugin;
  }

  get holderCount(): number {
    return this.#holders.length;
  }

  get taskResultCall(): TaskResultPluginCall | undefined {
    return this.#pluginContext.taskResultCall;
  }

  get members(): readonly JsonMember[] {
    return this.#pluginContext.members;
  }

  get request(): Request {
    return this.context.request;
  }

  get route(): Route {
    return this.context.route;
  }

  get connection(): Connection {
    return this.context.connection;
  }

  get sender(): ClientDeclaration {
    return this.context.caller.sender;
  }

  get caller(): Caller {
    return this.context.caller;
  }

  get deadlines(): Deadlines {
    return this.context.deadlines;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.isOver) this.#controller.abort(this.#endReason());
    }
    return this.#controller.signal;
  }

  /** Sends the call to the server, with the plugins' changes. */
  send({ changedArguments, cancelSignals }: ChainedCall): Promise<Answer> {
    const upstreamRequest = new PluginUpstreamRequest(
      this,
      this.#rewriteWith(changedArguments),
      changedArguments,
    );
    this.#requests = [...this.#requests, upstreamRequest];
    // The call may have ended in this very turn.
    const isOver = this.isOver || this.#endError !== undefined;
    if (isOver) upstreamRequest.cancel("The call has ended.", this.#endReason());
    else upstreamRequest.run(cancelSignals);
    return upstreamRequest;
  }

  onRequestEnd(upstreamRequest: Pick<PluginUpstreamRequest, "isSent">): void {
    this.#wasSent ||= upstreamRequest.isSent;
    this.#requests = this.#requests.filter((other) => other !== upstreamRequest);
  }

  addHolder(member: PluginMember, index: number): void {
    this.#holders = this.#holders.toSpliced(index, 0, member);
  }

  removeHolder(member: PluginMember): void {
    const index = this.#holders.lastIndexOf(member);
    this.#holders = this.#holders.filter((_, i) => i !== index);
  }

  onResponse(response: Response): void {
    this.finish(
      this.context.caller.toClientMessage(this.renameUris(response), "legacy"),
      "answered",
    );
  }

  protected start(): void {
    const { plugins, callPath } = this.#pluginContext;
    plugins.addUse();
    const answer = callPath.run(new PluginToolCall(this));
    if (!(answer instanceof PluginUpstreamRequest)) {
      const end = answer.then(
        (it) => this.#finishWith(it),
        (error: unknown) => this.fail(toHubError(error)),
      );
      void end.then(() => plugins.removeUse());
    } else if (this.isOver) {
      plugins.removeUse();
    } else {
      // No plugin waits for the response: it goes straight to the client.
      this.#isForwarded = true;
      answer.forward();
    }
  }

  protected cancelUpstream(reason: CancelReason, error: HubError): void {
    if (this.#endError !== undefined) return;
    this.#endError = error;
    this.#cancelRequests(reason, error);
    this.#controller?.abort(error);
  }

  protected waitReason(seconds: number): string | undefined {
    if (this.#requests.some(({ isSent }) => isSent)) return undefined;
    const holder = this.#requests.length === 0 ? this.#holders.at(-1) : undefined;
    if (holder === undefined)
      return this.#wasSent ? undefined : notReadyReason(seconds, this.context.connection);
    holder.recordFailure("call", new Error("it did not end before the call's deadline"));
    const held = `was held by plugin "${holder.name}", which was not done within ${seconds} seconds.`;
    if (!this.#wasSent) return held;
    return `${held} Its server was called before that: check what took effect before it is repeated.`;
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.isOver) return;
    super.finish(message && this.#wrapOutput(message), end);
    // Plugins may still run, but what they have in flight is of no use any more.
    if (this.#requests.length > 0)
      this.#cancelRequests("The call was answered.", this.#endReason());
    if (this.#isForwarded) this.#pluginContext.plugins.removeUse();
  }

  /** Wraps a modern server's structured output, which has to be an object for a legacy client. */
  #wrapOutput(message: EncodedMessage): EncodedMessage {
    const { caller, route, view } = this.context;
    const isMixed =
      caller.sender.era === "legacy" && view.catalog.tools.info.modernServers.has(route.server);
    return isMixed ? wrapToolAnswer(message, route.item) : message;
  }

  /** The same mapping of URIs for an answer of plugins, which may differ from the server's. */
  #renameAnswerUris(message: EncodedMessage): EncodedMessage {
    if (this.rename === undefined) return message;
    const parsed = parseMessage(joinMessage(message));
    return parsed.kind === "response" ? bytesOf(this.renameUris(parsed)) : message;
  }

  #finishWith(answer: Answer): void {
    if (!PluginAnswer.is(answer)) return;
    const message = answer.withId(this.request.id);
    this.finish(this.#renameAnswerUris(message), "answered");
  }

  /** The error that pending work is rejected with; created lazily, as an Error is expensive. */
  #endReason(): HubError {
    this.#endError ??= new HubError("cancelled", "The call has ended.");
    return this.#endError;
  }

  #cancelRequests(reason: CancelReason, error: HubError): void {
    for (const upstreamRequest of this.#requests) upstreamRequest.cancel(reason, error);
  }

  #rewriteWith(changedArguments: string | undefined): RequestRewrite {
    const { rewrite } = this.context;
    const edits = [...rewrite.edits];
    if (changedArguments !== undefined)
      edits.push(...argumentEdits(this.request, this.members, changedArguments));
    return { edits, tokens: rewrite.tokens };
  }
}

const EMPTY: readonly never[] = [];

/** Replaces every `arguments` member of the request: servers' parsers differ on which duplicate counts. */
function argumentEdits(request: Request, members: readonly JsonMember[], json: string): Edit[] {
  const replacement = utf8(json);
  if (lastMember(members, "arguments") !== undefined) {
    return members.filter(({ key }) => key === "arguments").map((it) => ({ ...it, replacement }));
  }
  // `params` is not empty: it has at least the tool's name.
  const insertAt = skipWhitespace(request.bytes, request.params?.start ?? 0) + 1;
  return [{ start: insertAt, end: insertAt, replacement: utf8(`"arguments":${json},`) }];
}
