import { applyEdits, joinPieces, type Piece, utf8 } from "../../bytes.ts";
import { HubError } from "../../errors.ts";
import { scanObject } from "../../json.ts";
import { removeMembers } from "../../object.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { MetaKey } from "../../protocol/modern.ts";
import type { Question } from "../../upstream/ask.ts";
import { readFrame } from "../../wire/frame.ts";
import { type Message, joinMessage, substitute } from "../../wire/jsonrpc.ts";

/** What only requests of their own have, but not what is embedded in a result. */
const ONLY_LEGACY: ReadonlySet<string> = new Set(["_meta", "task", "elicitationId"]);

/** A result that asks the client for something (multi round-trip requests). */
export function writeInputRequired(
  questions: ReadonlyMap<string, Question>,
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

/** The same if what is asked is at hand. */
export function buildInputRequired(
  inputRequests: object,
  state: string,
  server: Implementation,
): Uint8Array {
  const json = JSON.stringify({ inputRequests }).slice(0, -1);
  return utf8(`${json},${tail(state, server)}`);
}

/** What kind of result it is comes last, as in all others. */
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

/** Nobody answers any more. */
export function cancelQuestion(question: Question): void {
  if (question.method === Method.elicit) question.answer("result", CANCELLED);
  else question.fail(new HubError("notAsked", "The client has not come back with an answer."));
}

/** News of progress with another token; undefined if there is none. */
export function retoken(message: Message, token: Piece | undefined): Message | undefined {
  const frame = readFrame(joinMessage(message));
  if (token === undefined || frame.kind !== "notification") return undefined;
  const { bytes, params } = frame;
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const tokens = members.filter(({ key }) => key === "progressToken");
  return substitute(frame, tokens, token);
}
