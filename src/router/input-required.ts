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
import { missesTasks } from "../protocol/extension.ts";
import { mayBeIncomplete, ModernError, readResultType } from "../protocol/modern.ts";
import { wrapOutput } from "../protocol/output.ts";
import { legacize } from "../protocol/translate.ts";
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
export interface Input {
  readonly key: string;
  readonly method: string;
  readonly params: ByteRange | undefined;
}

/** An incomplete result: the server wants the request again, with the answers to its inputs (basic/patterns/mrtr). */
export interface InputRequired {
  readonly kind: "inputs";
  readonly bytes: Buffer;
  readonly inputs: readonly Input[];
  /** `requestState`, in its original bytes. */
  readonly state: Piece | undefined;
}

/** An incomplete result: the server has created a task for the call. */
export interface MadeTask {
  readonly kind: "task";
  readonly response: Response;
}

/** The server runs the tool only for clients that declare the tasks extension. */
export interface Insistence {
  readonly kind: "insistence";
}

/** A response that does not complete the request. */
export type Unfinished = InputRequired | MadeTask | Insistence;

/** How a response is read. */
export interface Reader {
  readonly server: string;
  readonly method: string;
  readonly sender: ClientDeclaration;
  /** Whether the client is modern, so that it gets the result unchanged. */
  readonly isPlain: boolean;
  /** The tool, if its structured output goes to a legacy client. */
  readonly tool?: ListedItem | undefined;
}

/** The methods whose result may be `input_required`. */
const REPEATED: ReadonlySet<string> = new Set([
  Method.toolsCall,
  Method.promptsGet,
  Method.resourcesRead,
]);
/** Maximum number of input requests in a result. */
const MOST = 32;

const INSISTENCE: Insistence = { kind: "insistence" };

/** A complete response, and the edits that turn it into a legacy one. */
export interface Complete {
  readonly kind: "complete";
  readonly response: Response;
  readonly edits: readonly Edit[];
}

/**
 * Reads a modern server's response.
 * @returns an error if the client could not handle the response
 */
export function readAnswer(response: Response, reader: Reader): Complete | Unfinished | HubError {
  const { server, method, sender, isPlain } = reader;
  const { bytes, body, outcome, shape } = response;
  if (outcome === "error") return isPlain ? asItIs(response) : explainError(response, reader);
  // The shapes that are not scanned contain no escaped characters.
  if (isPlain && shape.kind !== "scanned" && !mayBeIncomplete(bytesOf(response)))
    return asItIs(response);
  const members = scanTopLevel(bytes, body.start);
  const type = readResultType(bytes, members);
  if (type === "complete") {
    return isPlain ? asItIs(response) : completeOf(response, reader.tool, members);
  }
  const data = { server };
  if (type === "task" && method === Method.toolsCall) return { kind: "task", response };
  if (type !== "input_required") {
    const extensions: unknown = Object.getOwnPropertyDescriptor(
      sender.declared,
      "extensions",
    )?.value;
    if (isPlain && type !== "task" && extensions !== undefined) return asItIs(response);
    const text = `Server "${server}" sent a result of type "${type}", which this client does not know.`;
    return new HubError("internal", text, data);
  }
  const required = REPEATED.has(method) ? readInputs(response, members) : undefined;
  if (required === undefined) {
    return new HubError("internal", `Server "${server}" wants more, but does not say what.`, data);
  }
  return isPlain ? asItIs(nameServers(server, response, required)) : required;
}
const NONE: readonly JsonMember[] = [];

/** A response that goes to the client unchanged. */
export function asItIs(response: Response): Complete {
  return { kind: "complete", response, edits: [] };
}

/**
 * A complete response, with the edits that turn it into a legacy one.
 * @param tool whose structured output it has
 * @param members of the result
 */
export function completeOf(
  response: Response,
  tool: ListedItem | undefined,
  members: readonly JsonMember[] = scanTopLevel(response.bytes, response.body.start),
): Complete {
  const edits = legacize(response, members);
  if (tool !== undefined && response.outcome === "result") {
    edits.push(...wrapOutput(response.bytes, members, tool));
  }
  return { kind: "complete", response, edits };
}

/**
 * The server's input requests; undefined if they are malformed or there are none.
 * @param members of the result
 */
export function readInputs(
  { bytes, body }: Pick<Response, "bytes" | "body">,
  members: readonly JsonMember[] = scanObject(bytes, body.start)?.items ?? NONE,
): InputRequired | undefined {
  const requests = lastMember(members, "inputRequests");
  const entries = (requests && scanObject(bytes, requests.start)?.items) ?? [];
  const spelled = lastMember(members, "requestState");
  const state = readString(bytes, spelled) === undefined ? undefined : spelled;
  const inputs = new Map<string, Input>();
  for (const { key, start } of entries) {
    const parts = scanObject(bytes, start)?.items ?? [];
    const method = readString(bytes, lastMember(parts, "method"));
    if (method === undefined) return undefined;
    inputs.set(key, { key, method, params: lastMember(parts, "params") });
  }
  if (inputs.size > MOST || (inputs.size === 0 && state === undefined)) return undefined;
  const slice = state && makeSlice(bytes, state.start, state.end);
  return { kind: "inputs", bytes, inputs: [...inputs.values()], state: slice };
}

/** The response, with the server's name in the messages that its input requests show to the user. */
function nameServers(server: string, response: Response, required: InputRequired): Response {
  return edit(response, nameInputs(server, required));
}

/** Edits that add the server's name to the messages that its input requests show to the user. */
export function nameInputs(
  server: string,
  { inputs, bytes }: Pick<InputRequired, "inputs" | "bytes">,
): Edit[] {
  return inputs.flatMap(({ method, params }) =>
    method === Method.elicit && params !== undefined
      ? prefixServerName(server, bytes, scanObject(bytes, params.start)?.items ?? [])
      : [],
  );
}

/** Explains a missing capability as a tool result: a model can read that, unlike an error. */
function explainError(
  response: Response,
  { server, method, sender }: Reader,
): Complete | Insistence {
  const { bytes, body } = response;
  const other: Complete = { kind: "complete", response, edits: legacize(response, NONE) };
  const members = scanObject(bytes, body.start)?.items ?? [];
  const code = lastMember(members, "code");
  if (method !== Method.toolsCall || code === undefined) return other;
  if (parseRange(bytes, code) !== ModernError.missingCapability) return other;
  const data = lastMember(members, "data");
  const required =
    data && lastMember(scanObject(bytes, data.start)?.items ?? [], "requiredCapabilities");
  const isOfTasks = required !== undefined && missesTasks(parseRange(bytes, required));
  // The hub can declare tasks for a legacy client; a modern client's own declaration is not changed.
  if (isOfTasks && sender.era === "legacy" && sender.isDriven !== true) return INSISTENCE;
  const names = ((required && scanObject(bytes, required.start)?.items) ?? []).map(
    ({ key }) => key,
  );
  const what = names.length === 0 ? "more" : names.join(" and ");
  const text = `The tool was not run: server "${server}" needs a client that supports ${what}, which this one does not.`;
  const result = { content: [{ type: "text", text }], isError: true };
  const told = responseOf(buildResult("0", utf8(JSON.stringify(result))));
  return told === undefined ? other : asItIs(told);
}

/** The message for a legacy client, with wrapped structured output if it is the result of a modern server's tool. */
export function wrapAnswer(message: EncodedMessage, item: ListedItem | undefined): EncodedMessage {
  const frame = parseMessage(joinMessage(message));
  if (frame.kind !== "response" || frame.outcome === "error") return message;
  const { bytes, body } = frame;
  const edits = wrapOutput(bytes, scanObject(bytes, body.start)?.items ?? NONE, item);
  return edits.length === 0 ? message : editMessage(frame, [...edits]);
}

/** The response as a legacy server would have sent it. */
export function toLegacy({ response, edits }: Complete): Response {
  return edit(response, edits);
}

/**
 * Edits that add `inputResponses` and `requestState` to the request, in place of those of the client or an earlier
 * round.
 */
export function addInputs(
  { bytes, params, members }: Request,
  answers: ReadonlyMap<string, Uint8Array>,
  state: Piece | undefined,
): readonly Edit[] {
  if (params === undefined) return [];
  const known: readonly JsonMember[] = members ?? scanObject(bytes, params.start)?.items ?? [];
  const by: Piece[] = [];
  if (answers.size > 0) {
    let before = ',"inputResponses":{';
    for (const [key, answer] of answers) {
      by.push(utf8(`${before}${JSON.stringify(key)}:`), answer);
      before = ",";
    }
    by.push("}");
  }
  if (state !== undefined) by.push(',"requestState":', state);
  const at = params.end - 1;
  return [
    ...removeMembers(bytes, params, known, (key) => OWN.has(key)),
    { start: at, end: at, replacement: joinPieces(by) },
  ];
}
const OWN: ReadonlySet<string> = new Set(["inputResponses", "requestState"]);

function edit(response: Response, edits: readonly Edit[]): Response {
  if (edits.length === 0) return response;
  return responseOf(editMessage(response, [...edits])) ?? response;
}

/** A message of the hub, parsed as if it had been received. */
export function responseOf(message: EncodedMessage): Response | undefined {
  const bytes = joinMessage(message);
  const frame = parseMessage(bytes);
  return frame.kind === "response" ? frame : undefined;
}
