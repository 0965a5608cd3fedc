import type { Buffer } from "node:buffer";
import {
  type Edit,
  joinPieces,
  type Piece,
  type ByteRange,
  makeSlice,
  utf8,
} from "../base/bytes.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import {
  lastMember,
  type JsonMember,
  scanObject,
  scanTopLevel,
  readString,
  parseRange,
} from "../base/json.ts";
import { removeMembers } from "../base/object.ts";
import { Method } from "../protocol/legacy.ts";
import { isMissingTasks } from "../protocol/extension.ts";
import { mayBeIncomplete, ModernError, readResultType } from "../protocol/modern.ts";
import { wrapStructuredContent } from "../protocol/output.ts";
import { toLegacyEdits } from "../protocol/translate.ts";
import { prefixServerName } from "../upstream/question.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import {
  buildResult,
  type EncodedMessage,
  type Request,
  type Response,
  joinMessage,
  editMessage,
  bytesOf,
} from "../jsonrpc/message.ts";

/** One entry of `inputRequests`: a server's request to the client. */
export interface InputRequest {
  readonly key: string;
  readonly method: string;
  readonly params: ByteRange | undefined;
}

/** An incomplete result: the server wants the request again, with the answers to its inputs (basic/patterns/mrtr). */
export interface InputRequired {
  readonly kind: "inputs";
  readonly bytes: Buffer;
  readonly inputs: readonly InputRequest[];
  /** `requestState`, in its original bytes. */
  readonly state: Piece | undefined;
}

/** An incomplete result: the server has created a task for the call. */
export interface TaskCreated {
  readonly kind: "task";
  readonly response: Response;
}

/** The server runs the tool only for clients that declare the tasks extension. */
export interface TasksRequired {
  readonly kind: "insistence";
}

/** A response that does not complete the request. */
export type UnfinishedResult = InputRequired | TaskCreated | TasksRequired;

/** How a response is read. */
export interface AnswerReadOptions {
  readonly server: string;
  readonly method: string;
  readonly sender: ClientDeclaration;
  /** Whether the client is modern, so that it gets the result unchanged. */
  readonly isUnchanged: boolean;
  /** The tool, if its structured output goes to a legacy client. */
  readonly tool?: ListedItem | undefined;
}

/** The methods whose result may be `input_required`. */
const INPUT_REQUIRED_METHODS: ReadonlySet<string> = new Set([
  Method.toolsCall,
  Method.promptsGet,
  Method.resourcesRead,
]);
/** Maximum number of input requests in a result. */
const MAX_INPUTS = 32;

const TASKS_REQUIRED: TasksRequired = { kind: "insistence" };

/** A complete response, and the edits that turn it into a legacy one. */
export interface CompleteResult {
  readonly kind: "complete";
  readonly response: Response;
  readonly edits: readonly Edit[];
}

/**
 * Reads a modern server's response.
 * @returns an error if the client could not handle the response
 */
export function readAnswer(
  response: Response,
  options: AnswerReadOptions,
): CompleteResult | UnfinishedResult | HubError {
  const { server, method, sender, isUnchanged } = options;
  const { bytes, body, outcome, shape } = response;
  if (outcome === "error")
    return isUnchanged ? passThrough(response) : explainError(response, options);
  // The shapes that are not scanned contain no escaped characters.
  if (isUnchanged && shape.kind !== "scanned" && !mayBeIncomplete(bytesOf(response)))
    return passThrough(response);
  const members = scanTopLevel(bytes, body.start);
  const type = readResultType(bytes, members);
  if (type === "complete") {
    return isUnchanged ? passThrough(response) : completeResultOf(response, options.tool, members);
  }
  const data = { server };
  if (type === "task" && method === Method.toolsCall) return { kind: "task", response };
  if (type !== "input_required") {
    const extensions: unknown = Object.getOwnPropertyDescriptor(
      sender.declared,
      "extensions",
    )?.value;
    if (isUnchanged && type !== "task" && extensions !== undefined) return passThrough(response);
    const text = `Server "${server}" sent a result of type "${type}", which this client does not know.`;
    return new HubError("internal", text, data);
  }
  const required = INPUT_REQUIRED_METHODS.has(method) ? readInputs(response, members) : undefined;
  if (required === undefined) {
    return new HubError("internal", `Server "${server}" wants more, but does not say what.`, data);
  }
  return isUnchanged ? passThrough(prefixServerInInputs(server, response, required)) : required;
}
const NO_MEMBERS: readonly JsonMember[] = [];

/** A response that goes to the client unchanged. */
export function passThrough(response: Response): CompleteResult {
  return { kind: "complete", response, edits: [] };
}

/**
 * A complete response, with the edits that turn it into a legacy one.
 * @param tool whose structured output it has
 * @param members of the result
 */
export function completeResultOf(
  response: Response,
  tool: ListedItem | undefined,
  members: readonly JsonMember[] = scanTopLevel(response.bytes, response.body.start),
): CompleteResult {
  const edits = toLegacyEdits(response, members);
  if (tool !== undefined && response.outcome === "result") {
    edits.push(...wrapStructuredContent(response.bytes, members, tool));
  }
  return { kind: "complete", response, edits };
}

/**
 * The server's input requests; undefined if they are malformed or there are none.
 * @param members of the result
 */
export function readInputs(
  { bytes, body }: Pick<Response, "bytes" | "body">,
  members: readonly JsonMember[] = scanObject(bytes, body.start)?.items ?? NO_MEMBERS,
): InputRequired | undefined {
  const requests = lastMember(members, "inputRequests");
  const entries = (requests && scanObject(bytes, requests.start)?.items) ?? [];
  const stateMember = lastMember(members, "requestState");
  const state = readString(bytes, stateMember) === undefined ? undefined : stateMember;
  const inputs = new Map<string, InputRequest>();
  for (const { key, start } of entries) {
    const inputMembers = scanObject(bytes, start)?.items ?? [];
    const method = readString(bytes, lastMember(inputMembers, "method"));
    if (method === undefined) return undefined;
    inputs.set(key, { key, method, params: lastMember(inputMembers, "params") });
  }
  if (inputs.size > MAX_INPUTS || (inputs.size === 0 && state === undefined)) return undefined;
  const slice = state && makeSlice(bytes, state.start, state.end);
  return { kind: "inputs", bytes, inputs: [...inputs.values()], state: slice };
}

/** The response, with the server's name in the messages that its input requests show to the user. */
function prefixServerInInputs(
  server: string,
  response: Response,
  required: InputRequired,
): Response {
  return withEdits(response, prefixInputNames(server, required));
}

/** Edits that add the server's name to the messages that its input requests show to the user. */
export function prefixInputNames(
  server: string,
  { inputs, bytes }: Pick<InputRequired, "inputs" | "bytes">,
): Edit[] {
  return inputs.flatMap(({ method, params }) =>
    method === Method.elicitationCreate && params !== undefined
      ? prefixServerName(server, bytes, scanObject(bytes, params.start)?.items ?? [])
      : [],
  );
}

/** Explains a missing capability as a tool result: a model can read that, unlike an error. */
function explainError(
  response: Response,
  { server, method, sender }: AnswerReadOptions,
): CompleteResult | TasksRequired {
  const { bytes, body } = response;
  const unchanged: CompleteResult = {
    kind: "complete",
    response,
    edits: toLegacyEdits(response, NO_MEMBERS),
  };
  const members = scanObject(bytes, body.start)?.items ?? [];
  const code = lastMember(members, "code");
  if (method !== Method.toolsCall || code === undefined) return unchanged;
  if (parseRange(bytes, code) !== ModernError.missingCapability) return unchanged;
  const data = lastMember(members, "data");
  const required =
    data && lastMember(scanObject(bytes, data.start)?.items ?? [], "requiredCapabilities");
  const isOfTasks = required !== undefined && isMissingTasks(parseRange(bytes, required));
  // The hub can declare tasks for a legacy client; a modern client's own declaration is not changed.
  if (isOfTasks && sender.era === "legacy" && sender.isDriven !== true) return TASKS_REQUIRED;
  const names = ((required && scanObject(bytes, required.start)?.items) ?? []).map(
    ({ key }) => key,
  );
  const what = names.length === 0 ? "more" : names.join(" and ");
  const text = `The tool was not run: server "${server}" needs a client that supports ${what}, which this one does not.`;
  const result = { content: [{ type: "text", text }], isError: true };
  const explained = responseOfBytes(buildResult("0", utf8(JSON.stringify(result))));
  return explained === undefined ? unchanged : passThrough(explained);
}

/** The message for a legacy client, with wrapped structured output if it is the result of a modern server's tool. */
export function wrapToolAnswer(
  message: EncodedMessage,
  item: ListedItem | undefined,
): EncodedMessage {
  const parsed = parseMessage(joinMessage(message));
  if (parsed.kind !== "response" || parsed.outcome === "error") return message;
  const { bytes, body } = parsed;
  const edits = wrapStructuredContent(
    bytes,
    scanObject(bytes, body.start)?.items ?? NO_MEMBERS,
    item,
  );
  return edits.length === 0 ? message : editMessage(parsed, [...edits]);
}

/** The response as a legacy server would have sent it. */
export function toLegacyAnswer({ response, edits }: CompleteResult): Response {
  return withEdits(response, edits);
}

/**
 * Edits that add `inputResponses` and `requestState` to the request, in place of those of the client or an earlier
 * round.
 */
export function addInputResponses(
  { bytes, params, members }: Request,
  answers: ReadonlyMap<string, Uint8Array>,
  state: Piece | undefined,
): readonly Edit[] {
  if (params === undefined) return [];
  const paramsMembers: readonly JsonMember[] =
    members ?? scanObject(bytes, params.start)?.items ?? [];
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

/** A message of the hub, parsed as if it had been received. */
export function responseOfBytes(message: EncodedMessage): Response | undefined {
  const bytes = joinMessage(message);
  const parsed = parseMessage(bytes);
  return parsed.kind === "response" ? parsed : undefined;
}
