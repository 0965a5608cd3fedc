import { applyEdits, joinPieces, type Piece, utf8 } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { scanObject } from "../../base/json.ts";
import { removeMembers } from "../../base/object.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { MetaKey } from "../../protocol/modern.ts";
import type { ServerRequest } from "../../upstream/ask.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { type EncodedMessage, joinMessage, replaceRanges } from "../../jsonrpc/message.ts";

/** Members of a legacy request's params that an embedded input request must not have. */
const ONLY_LEGACY: ReadonlySet<string> = new Set(["_meta", "task", "elicitationId"]);

/** An `input_required` result from the requests of servers (multi round-trip requests). */
export function writeInputRequired(
  questions: ReadonlyMap<string, ServerRequest>,
  state: string,
  server: Implementation,
): Uint8Array {
  const entries = [...questions].map(([key, question], i) =>
    joinPieces([
      `${i === 0 ? "" : ","}"${key}":{"method":"${question.method}","params":`,
      ...embed(question.params("0")),
      "}",
    ]),
  );
  return joinPieces(['{"inputRequests":{', ...entries, "},", utf8(tail(state, server))]);
}

/** An `input_required` result from input requests that are plain JSON values. */
export function buildInputRequired(
  inputRequests: object,
  state: string,
  server: Implementation,
): Uint8Array {
  const json = JSON.stringify({ inputRequests }).slice(0, -1);
  return utf8(`${json},${tail(state, server)}`);
}

/** `resultType` is the last member, as in all results of the hub. */
function tail(requestState: string, server: Implementation): string {
  const says = { requestState, _meta: { [MetaKey.server]: server }, resultType: "input_required" };
  return JSON.stringify(says).slice(1);
}

function embed(params: readonly Piece[] | undefined): readonly Piece[] {
  if (params === undefined) return ["{}"];
  const bytes = joinPieces(params);
  const members = scanObject(bytes, 0)?.items ?? [];
  const edits = removeMembers(bytes, { start: 0 }, members, (key) => ONLY_LEGACY.has(key));
  return applyEdits(bytes, edits);
}

const CANCELLED = utf8('{"action":"cancel"}');

/** No answer will come: elicitation is answered with `cancel`, other requests fail. */
export function cancelQuestion(question: ServerRequest): void {
  if (question.method === Method.elicitationCreate) question.answer("result", CANCELLED);
  else question.fail(new HubError("notAsked", "The client has not come back with an answer."));
}

/** A progress notification with another token; undefined if there is no token, or it is no notification. */
export function retoken(
  message: EncodedMessage,
  token: Piece | undefined,
): EncodedMessage | undefined {
  const frame = parseMessage(joinMessage(message));
  if (token === undefined || frame.kind !== "notification") return undefined;
  const { bytes, params } = frame;
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const tokens = members.filter(({ key }) => key === "progressToken");
  return replaceRanges(frame, tokens, token);
}
