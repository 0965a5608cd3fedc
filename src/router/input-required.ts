import { count } from "../base/format.ts";
import {
  applyEdits,
  type ByteRange,
  type Edit,
  joinPieces,
  makeSlice,
  type Piece,
  textOf,
  utf8,
} from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { appendMembers, JsonObject, removeMembers, scanTopLevel } from "../base/json.ts";
import type { ListedItem } from "../catalog/listing.ts";
import {
  bodyOf,
  buildNotification,
  buildResult,
  bytesOf,
  editMessage,
  type EncodedMessage,
  joinMessage,
  paramsOf,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { displayNameOf } from "../manifest/manifest.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import { mayBeIncomplete, ModernErrorCode, readResultType } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import { requiresOnlyTasks } from "../protocol/tasks.ts";
import { toLegacyEdits, wrapStructuredContent } from "../protocol/translate.ts";
import type { ClientDeclaration, ServerRequest } from "../upstream/profile.ts";
import {
  asksNobodyError,
  isUrlElicitation,
  noClientError,
  prefixServerName,
  readServerRequest,
  type ServerRequestContent,
} from "../upstream/server-requests.ts";
import type { Call } from "./call.ts";
import type { UpstreamRequest } from "./upstream-request.ts";

/** One entry of `inputRequests`: a server's request to the client. */
export interface InputRequest {
  readonly key: string;
  readonly method: string;
  readonly params: ByteRange | undefined;
}

/**
 * An incomplete result: the server wants the request to be sent again, with the answers to its input requests
 * (basic/patterns/mrtr).
 */
export interface InputRequired {
  readonly kind: "inputRequired";
  readonly bytes: Uint8Array;
  readonly inputs: readonly InputRequest[];
  /** The bytes of `requestState`, as received. */
  readonly state: Piece | undefined;
}

/** An incomplete result: the server has created a task for the call. */
export interface TaskCreated {
  readonly kind: "task";
  readonly response: Response;
}

/**
 * An error with which the server refuses the call, because it runs the tool only for clients that declare the tasks
 * extension.
 */
export interface TasksRequired {
  readonly kind: "tasksRequired";
}

/** A response that does not complete the request. */
export type UnfinishedResult = InputRequired | InputForwarded | TaskCreated | TasksRequired;

/** A server asks a modern client for input, which sends the request again with the answers and the `requestState`. */
export interface InputForwarded {
  readonly kind: "inputForwarded";
  /** The response for the client. */
  readonly response: Response;
  /** Undefined: the server gave none. */
  readonly requestState: string | undefined;
}

export interface AnswerReadOptions {
  readonly server: string;
  /** The server's name for people. */
  readonly displayName: string;
  readonly method: string;
  readonly sender: ClientDeclaration;
  /** Whether the client is modern, so that it gets the result unchanged. */
  readonly isUnchanged: boolean;
  /** The called tool, if its structured output has to be converted for a legacy client. */
  readonly tool?: ListedItem | undefined;
  /** Whether the server may ask no client, because it is one for all (`isolation` "one"). */
  readonly isForEverybody: boolean;
  /** Whether the client sees anything of the server. If not, it gets none of the server's input requests. */
  isSeen(): boolean;
}

/** The methods whose result may be `input_required`. */
const INPUT_REQUIRED_METHODS: ReadonlySet<string> = new Set([
  Method.toolsCall,
  Method.promptsGet,
  Method.resourcesRead,
]);
/** Maximum number of input requests in a result. */
const MAX_INPUTS = 32;

const TASKS_REQUIRED: TasksRequired = { kind: "tasksRequired" };

export interface CompleteResult {
  readonly kind: "complete";
  readonly response: Response;
  readonly edits: readonly Edit[];
}

/**
 * Finds out whether a modern server's response completes the request.
 * @returns an error if the client could not handle the response
 */
export function readAnswer(
  response: Response,
  options: AnswerReadOptions,
): CompleteResult | UnfinishedResult | HubError {
  const { server, displayName, method, sender, isUnchanged } = options;
  const { bytes, body, outcome, shape } = response;
  if (outcome === "error")
    return isUnchanged ? passThrough(response) : explainError(response, options);
  // Most responses are complete, which a search of the bytes can tell without parsing. The search is reliable unless
  // the bytes contain `\u00…` escapes, and only responses of shape "scanned" can contain such escapes.
  if (isUnchanged && shape.kind !== "scanned" && !mayBeIncomplete(bytesOf(response)))
    return passThrough(response);
  const result = new JsonObject(bytes, scanTopLevel(bytes, body.start));
  const type = readResultType(result);
  if (type === "complete") {
    return isUnchanged ? passThrough(response) : completeResultOf(response, options.tool, result);
  }
  const data = { server };
  if (type === "task" && method === Method.toolsCall) return { kind: "task", response };
  if (type !== "input_required") {
    const extensions: unknown = Object.getOwnPropertyDescriptor(
      sender.declaredCapabilities,
      "extensions",
    )?.value;
    if (isUnchanged && type !== "task" && extensions !== undefined) return passThrough(response);
    const text = `Server "${server}" sent a result of type "${type}", which this client does not support.`;
    return new HubError("internal", text, data);
  }
  const required = INPUT_REQUIRED_METHODS.has(method) ? readInputs(result) : undefined;
  if (required === undefined) {
    return new HubError("internal", `Server "${server}" wants more, but does not say what.`, data);
  }
  const [asked] = required.inputs;
  if (options.isForEverybody && asked !== undefined) return asksNobodyError(server, asked.method);
  return isUnchanged && (required.inputs.length === 0 || options.isSeen())
    ? {
        kind: "inputForwarded",
        response: prefixServerInInputs(displayName, response, required),
        requestState: result.string("requestState"),
      }
    : required;
}
/** Returns a response that goes to the client unchanged. */
export function passThrough(response: Response): CompleteResult {
  return { kind: "complete", response, edits: [] };
}

/**
 * Returns a complete response with the edits that turn it into a legacy one.
 * @param tool the called tool, if its structured output has to be converted
 * @param result the parsed body
 */
export function completeResultOf(
  response: Response,
  tool: ListedItem | undefined,
  result = new JsonObject(response.bytes, scanTopLevel(response.bytes, response.body.start)),
): CompleteResult {
  const edits = toLegacyEdits(response, result);
  if (tool !== undefined && response.outcome === "result") {
    edits.push(...wrapStructuredContent(result, tool));
  }
  return { kind: "complete", response, edits };
}

/** Reads a result's input requests. @returns undefined if they are malformed, or requests and state are both missing */
export function readInputs(result: JsonObject): InputRequired | undefined {
  const { bytes } = result;
  const hasState = result.string("requestState") !== undefined;
  const state = hasState ? result.member("requestState") : undefined;
  const inputs = new Map<string, InputRequest>();
  for (const member of result.object("inputRequests").members) {
    const { key } = member;
    const input = JsonObject.at(bytes, member);
    const method = input.string("method");
    if (method === undefined) return undefined;
    const params = input.member("params");
    // Params that are null are none: clients would refuse them.
    const isNone = params === undefined || bytes[params.start] === NULL_START;
    inputs.set(key, { key, method, params: isNone ? undefined : params });
  }
  if (inputs.size > MAX_INPUTS || (inputs.size === 0 && state === undefined)) return undefined;
  const slice = state && makeSlice(bytes, state.start, state.end);
  return { kind: "inputRequired", bytes, inputs: [...inputs.values()], state: slice };
}

const NULL_START = 0x6e;

/** Adds the server's name to the messages for the user in the response's input requests. */
function prefixServerInInputs(
  displayName: string,
  response: Response,
  required: InputRequired,
): Response {
  return withEdits(response, prefixInputNames(displayName, required));
}

export function prefixInputNames(
  displayName: string,
  { inputs, bytes }: Pick<InputRequired, "inputs" | "bytes">,
): Edit[] {
  return inputs.flatMap(({ method, params }) =>
    method === Method.elicitationCreate && params !== undefined
      ? prefixServerName(displayName, JsonObject.at(bytes, params))
      : [],
  );
}

/** Converts a "missing capability" error to a tool result with an explanation, because models read only results. */
function explainError(
  response: Response,
  { server, method, sender, isForEverybody }: AnswerReadOptions,
): CompleteResult | TasksRequired {
  const error = bodyOf(response);
  const edits = toLegacyEdits(response, error);
  const unchanged: CompleteResult = { kind: "complete", response, edits };
  if (method !== Method.toolsCall || error.value("code") !== ModernErrorCode.missingCapability)
    return unchanged;
  const data = error.object("data");
  const isOfTasks = requiresOnlyTasks(data.value("requiredCapabilities"));
  // For a legacy client, the hub can send the request again, declare support for tasks and poll the task itself. For a
  // modern client it cannot, because it does not change the capabilities that the client declares.
  if (isOfTasks && sender.era === "legacy" && sender.hubPollsTasks !== true) return TASKS_REQUIRED;
  const names = data.object("requiredCapabilities").members.map(({ key }) => key);
  const what = names.length === 0 ? "more" : names.join(" and ");
  const why = isForEverybody
    ? 'and it is told of none, because it is one for all clients (isolation = "one")'
    : "which this one does not";
  const text = `The tool was not run: server "${server}" needs a client that supports ${what}, ${why}.`;
  const result = { content: [{ type: "text", text }], isError: true };
  const explained = responseOfBytes(buildResult("0", utf8(JSON.stringify(result))));
  return explained === undefined ? unchanged : passThrough(explained);
}

/** Wraps the structured output of a modern server's tool for a legacy client. */
export function wrapToolOutput(
  message: EncodedMessage,
  item: ListedItem | undefined,
): EncodedMessage {
  const parsed = parseMessage(joinMessage(message));
  if (parsed.kind !== "response" || parsed.outcome === "error") return message;
  const edits = wrapStructuredContent(bodyOf(parsed), item);
  return edits.length === 0 ? message : editMessage(parsed, [...edits]);
}

/** Converts the response into the legacy form. */
export function toLegacyAnswer({ response, edits }: CompleteResult): Response {
  return withEdits(response, edits);
}

/**
 * Returns edits that set `inputResponses` and `requestState` in the request. They replace the values that the client or
 * an earlier round has set.
 */
export function addInputResponses(
  request: Request,
  answers: ReadonlyMap<string, Uint8Array>,
  state: Piece | undefined,
): readonly Edit[] {
  const { bytes, params } = request;
  if (params === undefined) return [];
  const paramsMembers = paramsOf(request).members;
  const pieces: Piece[] = [];
  if (answers.size > 0) {
    let separator = ',"inputResponses":{';
    for (const [key, answer] of answers) {
      pieces.push(utf8(`${separator}${JSON.stringify(key)}:`), answer);
      separator = ",";
    }
    pieces.push("}");
  }
  if (state !== undefined) pieces.push(',"requestState":', state);
  const insertAt = params.end - 1;
  return [
    ...removeMembers(bytes, params, paramsMembers, (key) => INPUT_KEYS.has(key)),
    { start: insertAt, end: insertAt, replacement: joinPieces(pieces) },
  ];
}
const INPUT_KEYS: ReadonlySet<string> = new Set(["inputResponses", "requestState"]);

function withEdits(response: Response, edits: readonly Edit[]): Response {
  if (edits.length === 0) return response;
  return responseOfBytes(editMessage(response, [...edits])) ?? response;
}

export function responseOfBytes(message: EncodedMessage): Response | undefined {
  const bytes = joinMessage(message);
  const parsed = parseMessage(bytes);
  return parsed.kind === "response" ? parsed : undefined;
}

/** Maximum number of rounds per call. */
const MAX_ROUNDS = 10;
/** Delay before the hub repeats a request if the server has asked for no input, in ms. */
const REPEAT_DELAY = 250;
const ANSWER_TIMEOUT = 10 * 60_000;

/**
 * Handles `input_required` results for a client that does not support them: sends the input requests to the client, and
 * repeats the call with the answers.
 */
export class InputRounds {
  /** Edits that add `inputResponses` and `requestState` to the client's request. */
  edits: readonly Edit[] = [];
  readonly #request: UpstreamRequest;
  #roundCount = 0;
  readonly #acceptedElicitations: string[] = [];
  #cancelRound: (() => void) | undefined;
  #cancelTimer: () => void = () => {};

  constructor(request: UpstreamRequest) {
    this.#request = request;
  }

  start(required: InputRequired): void {
    const { request, route } = this.#request.clientRequest;
    const { deadlines } = this.#request.clientRequest.context;
    const { server } = route;
    if (++this.#roundCount > MAX_ROUNDS) {
      const text = `Server "${server}" asked for input ${count(this.#roundCount, "time")} and still has not answered.`;
      this.#request.fail(new HubError("internal", text, { server }));
      return;
    }
    const resend = (answers: ReadonlyMap<string, Uint8Array>): void => {
      this.edits = addInputResponses(request, answers, required.state);
      this.#request.resend();
    };
    if (required.inputs.length === 0) {
      this.#cancelTimer = deadlines.after(REPEAT_DELAY, () => resend(new Map()));
      return;
    }
    this.#cancelRound = requestInputs(this.#request, required, {
      onAnswered: (answers, acceptedElicitations) => {
        this.#cancelRound = undefined;
        this.#acceptedElicitations.push(...acceptedElicitations);
        resend(answers);
      },
      onFailed: (error) => {
        this.#cancelRound = undefined;
        this.#request.fail(error);
      },
    });
  }

  /**
   * Tells the client that the URL elicitations that it accepted are complete. Called when the server has completed the
   * call.
   */
  finish(): void {
    const { caller } = this.#request.clientRequest;
    // Modern elicitations have no ids, so there is nothing to tell a modern client.
    if (caller.sender.era === "modern") return;
    for (const elicitationId of this.#acceptedElicitations.splice(0)) {
      caller.notify(buildNotification(Method.elicitationComplete, { elicitationId }));
    }
  }

  cancel(): void {
    this.#cancelTimer();
    this.#cancelRound?.();
    this.#cancelRound = undefined;
  }
}

export interface InputRoundEvents {
  /**
   * Called when the client has answered all input requests.
   * @param answers the client's results, by the server's keys of the input requests
   * @param acceptedElicitations the ids of the URL elicitations that the client accepted
   */
  onAnswered(
    answers: ReadonlyMap<string, Uint8Array>,
    acceptedElicitations: readonly string[],
  ): void;
  onFailed(error: HubError): void;
}

/**
 * Sends all input requests to the client and pauses the call's deadline meanwhile.
 * @returns a function that cancels the requests
 */
export function requestInputs(
  request: UpstreamRequest,
  required: InputRequired,
  events: InputRoundEvents,
): () => void {
  let isOver = false;
  const finish = (): void => {
    isOver = true;
    cancelTimer();
    request.setDeadlinePaused(false);
  };
  const displayName = displayNameOf(request.connection.spec);
  const round = new InputRound(request.clientRequest, displayName, required, {
    onAnswered: (answers, visited) => {
      finish();
      events.onAnswered(answers, visited);
    },
    onFailed: (error) => {
      finish();
      events.onFailed(error);
    },
  });
  request.setDeadlinePaused(true);
  const { deadlines } = request.clientRequest.context;
  const cancelTimer = deadlines.after(ANSWER_TIMEOUT, () => round.expire());
  round.start();
  return () => {
    if (isOver) return;
    cancelTimer();
    round.cancel("The call that needed this request has ended.");
  };
}

const CANCEL_RESULT = utf8('{"action":"cancel"}');

/** The input requests of one result, sent together. */
class InputRound {
  readonly #call: Pick<Call, "caller" | "context" | "route">;
  /** The server's name for people. */
  readonly #displayName: string;
  readonly #required: InputRequired;
  readonly #events: InputRoundEvents;
  readonly #answers = new Map<string, Uint8Array>();
  readonly #acceptedElicitations: string[] = [];
  /** The functions that cancel the open requests. */
  readonly #openRequests = new Map<InputRequest, (reason: CancelReason) => void>();
  #isOver = false;

  constructor(
    call: Pick<Call, "caller" | "context" | "route">,
    displayName: string,
    required: InputRequired,
    events: InputRoundEvents,
  ) {
    this.#call = call;
    this.#displayName = displayName;
    this.#required = required;
    this.#events = events;
  }

  start(): void {
    const { inputs } = this.#required;
    for (const input of inputs) this.#openRequests.set(input, () => {});
    for (const input of inputs) if (!this.#isOver) this.#sendRequest(input);
  }

  expire(): void {
    const text = `The client did not answer within ${ANSWER_TIMEOUT / 60_000} minutes.`;
    for (const [input, cancel] of this.#openRequests) {
      cancel(text);
      this.#reject(input, text);
    }
  }

  cancel(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const cancel of this.#openRequests.values()) cancel(reason);
  }

  #sendRequest(input: InputRequest): void {
    const { caller, context, route } = this.#call;
    const { server } = route;
    let content: ServerRequestContent;
    try {
      if (context.client.sees(server) !== true) throw noClientError(server);
      const capabilities = readCapabilities(caller.sender.declaredCapabilities);
      content = readServerRequest(
        this.#displayName,
        legacyRequestOf(input, this.#required.bytes),
        capabilities,
      );
    } catch (error) {
      this.#reject(input, toHubError(error).message);
      return;
    }
    const request: ServerRequest = {
      server,
      method: content.method,
      params: (token) => content.params(token),
      answer: (outcome, body) => {
        if (content.elicitation !== undefined && isAccepted(body)) {
          this.#acceptedElicitations.push(content.elicitation);
        }
        this.#answer(input, outcome, body);
      },
      fail: (error) => this.#reject(input, error.message),
      // Progress of the client is dropped: the server's request was part of a result, so the server cannot receive
      // progress for it.
      progress: () => {},
    };
    const cancel = caller.sendServerRequest(request);
    if (this.#openRequests.has(input)) this.#openRequests.set(input, cancel);
  }

  #answer(input: InputRequest, outcome: Response["outcome"], body: Uint8Array): void {
    if (outcome === "result") this.#addAnswer(input, body);
    else this.#reject(input, errorMessageOf(body));
  }

  /**
   * Handles a request that the client cannot or will not answer. An elicitation is answered as cancelled. Other
   * requests have no such answer, so the call fails.
   */
  #reject(input: InputRequest, reason: string): void {
    if (input.method === Method.elicitationCreate) {
      this.#addAnswer(input, CANCEL_RESULT);
      return;
    }
    if (this.#isOver) return;
    this.cancel("Another request of the same call has failed.");
    const { server } = this.#call.route;
    const text = `Server "${server}" asked the client for "${input.method}" and cannot continue without an answer: ${reason}`;
    this.#events.onFailed(new HubError("notAsked", text, { server }));
  }

  #addAnswer(input: InputRequest, answer: Uint8Array): void {
    if (this.#isOver || !this.#openRequests.delete(input)) return;
    this.#answers.set(input.key, answer);
    if (this.#openRequests.size > 0) return;
    this.#isOver = true;
    this.#events.onAnswered(this.#answers, this.#acceptedElicitations);
  }
}

/** Converts an input request to a legacy server's request; a URL elicitation gets an `elicitationId`. */
function legacyRequestOf(
  { method, params }: InputRequest,
  bytes: Uint8Array,
): Parameters<typeof readServerRequest>[1] {
  if (params === undefined) return { method, bytes, params };
  const object = JsonObject.at(bytes, params);
  if (!isUrlElicitation(method, object) || object.member("elicitationId") !== undefined) {
    return { method, bytes, params };
  }
  const id = appendMembers(bytes, params, `"elicitationId":"${crypto.randomUUID()}"`);
  const newParams = joinPieces(
    applyEdits(bytes.subarray(0, params.end), [
      { start: 0, end: params.start, replacement: "" },
      id,
    ]),
  );
  return { method, bytes: newParams, params: { start: 0, end: newParams.length } };
}

function isAccepted(answer: Uint8Array): boolean {
  return JsonObject.of(answer).string("action") === "accept";
}

function errorMessageOf(error: Uint8Array): string {
  return JsonObject.of(error).string("message") ?? textOf(error);
}
