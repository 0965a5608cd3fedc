import { utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { isNamed } from "../catalog/catalog.ts";
import type { ListedItem } from "../catalog/listing.ts";
import type { Route } from "../catalog/section.ts";
import {
  buildResult,
  type EncodedMessage,
  paramsOf,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import { mirroredParamsOf, paramHeaders } from "../protocol/param-headers.ts";
import type { Connection, SessionWaiter } from "../upstream/connection.ts";
import type { PendingRequest } from "../upstream/pending.ts";
import type { ClientDeclaration } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import { type CallEnd, Call, type SessionCallContext } from "./call.ts";
import {
  completeResultOf,
  type CompleteResult,
  passThrough,
  readAnswer,
  retryEditsOf,
  toLegacyAnswer,
  type UnfinishedResult,
} from "./input-required.ts";
import { isRetryable, Retry } from "./retry.ts";
import { UnfinishedCall } from "./task-polling.ts";
import type { LegacyClientTasks } from "./tasks.ts";
import { notReadyReason, serverGoneError } from "./timeouts.ts";

export interface ParamHeadersOptions {
  readonly connection: Pick<Connection, "listing">;
  readonly route: Route;
  readonly request: Request;
}

const mirroredToolsCache = new WeakMap<readonly ListedItem[], ReadonlyMap<string, ListedItem>>();

/**
 * The `Mcp-Param-*` headers of a call, as declared by the server's listing (Streamable HTTP, custom headers).
 * @param changedArguments the arguments as JSON, if they differ from those of the request
 */
export function paramHeadersOf(
  { connection, route, request }: ParamHeadersOptions,
  changedArguments?: string,
): Readonly<Record<string, string>> | undefined {
  const tools = connection.listing?.tools;
  const item = tools && mirroredToolsOf(tools).get(route.remoteName);
  if (route.kind !== "tools" || item === undefined) return undefined;
  return paramHeaders(
    item,
    changedArguments === undefined ? readArguments(request) : parseArguments(changedArguments),
  );
}

/** The tools with header parameters, by name. */
function mirroredToolsOf(tools: readonly ListedItem[]): ReadonlyMap<string, ListedItem> {
  const cached = mirroredToolsCache.get(tools);
  if (cached !== undefined) return cached;
  const mirrored = tools.filter((item) => mirroredParamsOf(item).length > 0);
  // Of two tools with the same name, the first one counts.
  const index = new Map(mirrored.toReversed().map((item) => [item.key, item]));
  mirroredToolsCache.set(tools, index);
  return index;
}

/** Arguments changed by plugins may be invalid JSON: the server rejects them. */
function parseArguments(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function readArguments(request: Request): unknown {
  return paramsOf(request).value("arguments");
}

type RequestState =
  | { readonly at: "waiting" }
  | { readonly at: "sent"; readonly session: Session; readonly id: number }
  /** The server has answered with `input_required` or a task. */
  | { readonly at: "unfinished"; readonly unfinishedCall: UnfinishedCall }
  | { readonly at: "done" };
const WAITING: RequestState = { at: "waiting" };
const DONE: RequestState = { at: "done" };

/**
 * A call that no plugin sees: one request to the server, whose response goes straight to the client. The object is also
 * the record of the pending request.
 */
export class UpstreamRequest
  extends Call<SessionCallContext>
  implements PendingRequest, SessionWaiter
{
  #state: RequestState = WAITING;
  #unfinishedCall: UnfinishedCall | undefined;
  /** Created at the first retry; stdio transports never retry. */
  #createdRetry: Retry | undefined;
  /** The request had to wait, so its tool may be known from a saved listing only. */
  #waited = false;

  get isClientRequest(): true {
    return true;
  }

  get method(): string {
    return this.context.request.method;
  }

  get name(): string {
    return this.context.route.remoteName;
  }

  onSession(session: Session): void {
    if (this.#state.at !== "waiting") return;
    const { route, connection, request, rewrite } = this.context;
    const { kind } = route;
    if (this.#waited && isNamed(kind) && !connection.lists(kind, route.remoteName)) {
      this.fail(serverGoneError(route));
      return;
    }
    const ownRewrite = session.mayResend ? retryEditsOf(rewrite, this.#unfinishedCall) : rewrite;
    this.#state = { at: "sent", session, id: session.relay(this, request, ownRewrite) };
  }

  get sender(): ClientDeclaration {
    return this.#unfinishedCall?.sender ?? this.context.caller.sender;
  }

  get clientRequest(): this {
    return this;
  }

  get paramHeaders(): Readonly<Record<string, string>> | undefined {
    return paramHeadersOf(this.context);
  }

  override fail(error: HubError): void {
    const cause =
      this.#state.at === "sent" && isRetryable(error) ? this.#retry.handleError(error) : error;
    if (cause === undefined) this.#state = WAITING;
    else super.fail(cause);
  }

  onResponse(response: Response): void {
    if (this.#state.at !== "sent") return;
    const { session } = this.#state;
    const { caller } = this.context;
    if (
      session.mayResend &&
      response.outcome === "error" &&
      this.#retry.handleHeaderMismatch(response)
    ) {
      this.#state = WAITING;
      return;
    }
    const renamed = this.renameUris(response);
    if (session.era === "legacy") {
      this.recordLinks(session, renamed);
      this.finish(caller.toClientMessage(renamed, "legacy"), "answered");
      return;
    }
    const answer = this.#readModern(session, renamed);
    if (answer === undefined) return;
    this.recordLinks(session, answer.response);
    this.finish(caller.toClientMessage(answer.response, "modern", answer.edits), "answered");
  }

  protected start(): void {
    this.context.connection.withSession(this);
    this.#waited = this.#state === WAITING;
  }

  protected cancelUpstream(reason: CancelReason): void {
    if (this.#state.at === "sent") this.#state.session.cancel(this.#state.id, reason);
    else if (this.#state.at === "waiting") this.context.connection.cancelWait(this);
    else if (this.#state.at === "unfinished") this.#state.unfinishedCall.cancel();
  }

  protected waitReason(seconds: number): string | undefined {
    return this.#state.at === "waiting" && this.#unfinishedCall === undefined
      ? notReadyReason(seconds, this.context.connection)
      : undefined;
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    this.#state = DONE;
    this.#createdRetry?.cancel();
    super.finish(message, end);
  }

  get #retry(): Retry {
    const { deadlines, connection, route } = this.context;
    this.#createdRetry ??= new Retry({
      deadlines,
      connection,
      route,
      method: this.method,
      resend: () => {
        this.#waited = true;
        connection.withSession(this);
      },
    });
    return this.#createdRetry;
  }

  /** @returns a modern server's response; undefined if it is not complete */
  #readModern(session: Session, response: Response): CompleteResult | undefined {
    const { sender, method } = this;
    const { server } = this.context.route;
    const isUnchanged = sender.era === "modern";
    const tool = this.#tool;
    const answer = readAnswer(response, { server, method, sender, isUnchanged, tool });
    if (answer instanceof HubError) {
      this.fail(answer);
      return undefined;
    }
    if (answer.kind !== "complete") return this.#continue(session, answer);
    if (answer.response.outcome === "result") this.#unfinishedCall?.finish();
    return answer;
  }

  /** The called tool, if a legacy client gets its structured output. */
  get #tool(): ListedItem | undefined {
    const { route } = this.context;
    return route.kind === "tools" && this.sender.era === "legacy" ? route.item : undefined;
  }

  /**
   * Continues a call that the server has not completed.
   * @returns for a client that supports tasks: the response that announces the task; undefined if the hub completes the
   * call
   */
  #continue(session: Session, unfinished: UnfinishedResult): CompleteResult | undefined {
    const { route, request, caller, deadlines, connection } = this.context;
    if (unfinished.kind === "task") {
      try {
        const announced = caller.addTask?.(unfinished.response, { session, connection, route });
        if (announced !== undefined) return passThrough(announced);
      } catch (error) {
        this.fail(toHubError(error));
        return undefined;
      }
    }
    const unfinishedCall = (this.#unfinishedCall ??= new UnfinishedCall({
      server: route.server,
      request,
      caller,
      deadlines,
      setDeadlinePaused: (isPaused) => this.setDeadlinePaused(isPaused),
      restartTimeout: () => this.restartTimeout(),
      resend: () => {
        this.#state = WAITING;
        connection.withSession(this);
      },
      onResponse: (answer) => {
        const named = this.renameUris(answer);
        this.recordLinks(session, named);
        const final = toLegacyAnswer(completeResultOf(named, this.#tool));
        this.finish(caller.toClientMessage(final, "legacy"), "answered");
      },
      fail: (error) => this.fail(error),
    }));
    this.#state = { at: "unfinished", unfinishedCall };
    unfinishedCall.continueCall(session, unfinished);
    return undefined;
  }
}

/** A legacy client's task-augmented call. A legacy server may create a task or answer; a modern server answers. */
export class TaskAugmentedCall extends UpstreamRequest {
  readonly isTask = true;
  readonly #tasks: LegacyClientTasks;
  #session: Session | undefined;

  constructor(context: SessionCallContext, tasks: LegacyClientTasks) {
    super(context);
    this.#tasks = tasks;
  }

  override onSession(session: Session): void {
    this.#session = session;
    super.onSession(session);
  }

  override onResponse(response: Response): void {
    const session = this.#session;
    const created =
      session?.era === "legacy"
        ? this.#tasks.addCreated(session, response, this.context)
        : undefined;
    super.onResponse(created?.response ?? response);
  }
}

/** The result for servers without the capability `completions`, which the hub itself always declares. */
const EMPTY_COMPLETION = utf8('{"completion":{"values":[]}}');

/** A `completion/complete` request. */
export class CompletionRequest extends UpstreamRequest {
  override onSession(session: Session): void {
    if (session.supports("completions")) super.onSession(session);
    else this.finish(buildResult(this.context.request.id, EMPTY_COMPLETION), "answered");
  }
}
