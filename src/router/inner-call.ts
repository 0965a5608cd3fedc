import { Buffer } from "node:buffer";
import type { AgentCaller } from "../approval/policy.ts";
import type { Edit } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { isJsonObject, parseRange } from "../base/json.ts";
import {
  buildError,
  type EncodedMessage,
  joinMessage,
  type Message,
  type Request,
  type Response,
  withResponseId,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { Method } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import { type RequestSpan, startInnerSpan } from "../telemetry/request-span.ts";
import type { ClientDeclaration, ServerRequest } from "../upstream/profile.ts";
import type { Call, Caller } from "./call.ts";
import { failureOfResponse } from "./error-type.ts";
import { CALL_METHOD } from "./params.ts";
import type { Router } from "./router.ts";

export interface InnerCallOptions {
  /** The client's call that the plugin handles; the inner call is a part of it. */
  readonly outer: Call;
  /** The exposed name of the tool. */
  readonly name: string;
  /** The arguments as JSON text. */
  readonly args: string;
  /** Cancels the call. */
  readonly signal: AbortSignal;
  /** The agent of toolmux that makes the call; by default the agent of the outer call, if any. */
  readonly agent?: AgentCaller | undefined;
  /** Members for the request's `_meta`. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
  /** Called with the params of each progress notification. */
  readonly onProgress: ((progress: Readonly<Record<string, unknown>>) => void) | undefined;
}

/**
 * The caller of a tool call that a plugin makes as a part of a client's call. It has the client's name and
 * capabilities, and passes servers' requests on to the client.
 */
class InnerCaller implements Caller {
  readonly sender: ClientDeclaration;
  readonly parentCall: number;
  readonly outer: Call;
  readonly span: RequestSpan | undefined;
  readonly agent: AgentCaller | undefined;
  readonly response: Promise<Response>;
  readonly #deferred: PromiseWithResolvers<Response> = Promise.withResolvers<Response>();
  readonly #options: InnerCallOptions;
  readonly #request: Request;

  constructor(request: Request, options: InnerCallOptions, span: RequestSpan | undefined) {
    const { outer } = options;
    this.span = span;
    this.#request = request;
    this.#options = options;
    // The request has the legacy form, whichever protocol version the client speaks.
    this.sender = { ...outer.caller.sender, era: "legacy", isOwn: true };
    this.parentCall = outer.number;
    this.outer = outer;
    this.agent = options.agent ?? outer.caller.agent;
    this.response = this.#deferred.promise;
  }

  toClientMessage(response: Response, _: Era, edits?: readonly Edit[]): EncodedMessage {
    return withResponseId(response, this.#request.id, edits);
  }

  respond(message: EncodedMessage | undefined): void {
    const parsed = message && parseMessage(joinMessage(message));
    if (this.span !== undefined) endSpan(this.span, parsed);
    if (parsed?.kind === "response") this.#deferred.resolve(parsed);
    else this.#deferred.reject(new HubError("cancelled", "The call was cancelled."));
  }

  notify(message: EncodedMessage): void {
    const { onProgress } = this.#options;
    if (onProgress === undefined) return;
    const parsed = parseMessage(joinMessage(message));
    if (parsed.kind !== "notification" || parsed.method !== Method.progress) return;
    const params = parsed.params && parseRange(parsed.bytes, parsed.params);
    if (isJsonObject(params)) onProgress(params);
  }

  onMissingCapability(required: object): void {
    this.#options.outer.onMissingCapability(required);
  }

  get taskId(): string | undefined {
    return this.#options.outer.caller.taskId;
  }

  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void {
    return this.#options.outer.caller.sendServerRequest(request);
  }

  setDeadlinePaused(isPaused: boolean): void {
    this.#options.outer.setDeadlinePaused(isPaused);
  }
}

/** Ends the span of a call with its answer; undefined: the call was cancelled. */
function endSpan(span: RequestSpan, answer: Message | undefined): void {
  if (answer?.kind === "response") {
    span.setOutcome(failureOfResponse(answer, true));
    if (answer.outcome === "result") span.setResult(answer.bytes, answer.body);
  } else {
    span.setOutcome({ type: "cancelled", message: "The call was cancelled." });
  }
  span.end();
}

/**
 * Calls a tool as a part of a client's call.
 * @param router finds the tool
 * @param track adds the call to the running calls; returns a function that removes it
 * @throws {HubError} cancelled, if there is no answer; usage if the arguments are not a JSON object
 */
export async function runInnerCall(
  router: Router,
  options: InnerCallOptions,
  track: (call: () => Call | undefined) => () => void,
): Promise<Response> {
  const { name, args, signal, onProgress } = options;
  const meta = { ...options.meta, ...(onProgress !== undefined && { progressToken: 0 }) };
  const metaJson = Object.keys(meta).length === 0 ? "" : `,"_meta":${JSON.stringify(meta)}`;
  const params = `{"name":${JSON.stringify(name)},"arguments":${args}${metaJson}}`;
  const text = `{"jsonrpc":"2.0","id":0,"method":"${Method.toolsCall}","params":${params}}`;
  const request = parseMessage(Buffer.from(text));
  if (request.kind !== "request")
    throw new HubError("usage", "The arguments are not a JSON object.");
  signal.throwIfAborted();
  const { tracer } = router;
  const span = tracer && startInnerSpan(tracer, request, options.outer.caller.span);
  const caller = new InnerCaller(request, options, span);
  try {
    const running = router.route(request, caller, CALL_METHOD);
    const cancel = (): void =>
      running.cancel("The call that it was a part of has ended.", "client");
    signal.addEventListener("abort", cancel, { once: true });
    const remove = track(() => running.call);
    void caller.response
      .finally(() => {
        signal.removeEventListener("abort", cancel);
        remove();
      })
      .catch(() => {});
    running.run();
  } catch (error) {
    caller.respond(buildError(request.id, toHubError(error).toRpc()));
  }
  return caller.response;
}
