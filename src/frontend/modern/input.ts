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
const LEGACY_ONLY_MEMBERS: ReadonlySet<string> = new Set(["_meta", "task", "elicitationId"]);

/** An `input_required` result from the requests of servers (multi round-trip requests). */
export function encodeInputRequired(
  requests: ReadonlyMap<string, ServerRequest>,
  state: string,
  server: Implementation,
): Uint8Array {
  const entries = [...requests].map(([key, request], i) =>
    joinPieces([
      `${i === 0 ? "" : ","}"${key}":{"method":"${request.method}","params":`,
      ...embeddedParams(request.params("0")),
      "}",
    ]),
  );
  return joinPieces(['{"inputRequests":{', ...entries, "},", utf8(resultTail(state, server))]);
}

/** An `input_required` result from input requests that are plain JSON values. */
export function buildInputRequired(
  inputRequests: object,
  state: string,
  server: Implementation,
): Uint8Array {
  const json = JSON.stringify({ inputRequests }).slice(0, -1);
  return utf8(`${json},${resultTail(state, server)}`);
}

/** `resultType` is the last member, as in all results of the hub. */
function resultTail(requestState: string, server: Implementation): string {
  const members = {
    requestState,
    _meta: { [MetaKey.server]: server },
    resultType: "input_required",
  };
  return JSON.stringify(members).slice(1);
}

function embeddedParams(params: readonly Piece[] | undefined): readonly Piece[] {
  if (params === undefined) return ["{}"];
  const bytes = joinPieces(params);
  const members = scanObject(bytes, 0)?.items ?? [];
  const edits = removeMembers(bytes, { start: 0 }, members, (key) => LEGACY_ONLY_MEMBERS.has(key));
  return applyEdits(bytes, edits);
}

const CANCEL_RESULT = utf8('{"action":"cancel"}');

/** No answer will come: elicitation is answered with `cancel`, other requests fail. */
export function cancelServerRequest(serverRequest: ServerRequest): void {
  if (serverRequest.method === Method.elicitationCreate)
    serverRequest.answer("result", CANCEL_RESULT);
  else serverRequest.fail(new HubError("notAsked", "The client has not come back with an answer."));
}

/** A progress notification with another token; undefined if there is no token, or it is no notification. */
export function withProgressToken(
  message: EncodedMessage,
  token: Piece | undefined,
): EncodedMessage | undefined {
  const parsed = parseMessage(joinMessage(message));
  if (token === undefined || parsed.kind !== "notification") return undefined;
  const { bytes, params } = parsed;
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const tokens = members.filter(({ key }) => key === "progressToken");
  return replaceRanges(parsed, tokens, token);
}
