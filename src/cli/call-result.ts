import { textOf } from "../base/bytes.ts";
import { type ErrorCode, type ErrorProperties, HubError, type RpcError } from "../base/errors.ts";
import { lastMember, type JsonMember, scanObject, readString, parseRange } from "../base/json.ts";
import type { Response } from "../jsonrpc/message.ts";
import { indentJson, type ContentPart, readResultContent } from "./content.ts";
import { sanitizeLine, describeError } from "../terminal/report.ts";

/** What there is to say of an answer, and the exit code that it means. */
export interface CallReport {
  readonly stream: "stdout" | "stderr";
  /** Each ends a line. */
  readonly parts: readonly ContentPart[];
  readonly code: number;
}

/** What is wanted of an answer: the texts for people, the structured content alone, or the result as it came. */
export type ResultView = "texts" | "structured" | "raw";

/** The answer to a call, for stderr if it is an error that is not to be passed on as it is. */
export function describeResult(response: Response, view: ResultView): CallReport {
  if (response.outcome === "error") return describeRpcError(response);
  const { bytes, body } = response;
  const members = scanObject(bytes, body.start)?.items ?? [];
  const isError = member(bytes, members, "isError") === "true";
  const code = isError ? failureCode(bytes, members) : 0;
  if (view === "raw")
    return { stream: "stdout", parts: [plain(textOf(bytes, body.start, body.end))], code };
  const structured = lastMember(members, "structuredContent");
  const pretty = structured && plain(indentJson(bytes, structured));
  if (view === "structured" && !isError) {
    if (pretty !== undefined) return { stream: "stdout", parts: [pretty], code };
    const text =
      "toolmux: the result has no structured content; without --structured it is printed";
    return { stream: "stderr", parts: [plain(text)], code: 1 };
  }
  const content = lastMember(members, "content");
  const parts = content === undefined ? [] : readResultContent(bytes, content);
  const isSilent = !parts.some((part) => part.kind === "attachment" || part.text !== "");
  return {
    stream: isError ? "stderr" : "stdout",
    parts: isSilent && pretty !== undefined ? [pretty] : parts,
    code,
  };
}

function plain(text: string): ContentPart {
  return { kind: "text", text };
}

/** The JSON text of a member. */
function member(
  bytes: Uint8Array,
  members: readonly JsonMember[],
  key: string,
): string | undefined {
  const found = lastMember(members, key);
  return found && textOf(bytes, found.start, found.end);
}

/** `_meta` of a result that the hub made itself because no server's came: the code of the error. */
const ERROR_KEY = "toolmux/error";

function failureCode(bytes: Uint8Array, members: readonly JsonMember[]): number {
  const meta = lastMember(members, "_meta");
  const inside = (meta && scanObject(bytes, meta.start)?.items) ?? [];
  return traitsOf(readString(bytes, lastMember(inside, ERROR_KEY)))?.exit ?? 1;
}

function describeRpcError({ bytes, body }: Response): CallReport {
  const answer = parseRange(bytes, body) as RpcError;
  const own = findOwnError(answer);
  if (own !== undefined)
    return { stream: "stderr", parts: [plain(describeError(own))], code: own.properties.exit };
  const text = `toolmux: the server answered with error ${answer.code}: ${sanitizeLine(answer.message)}`;
  const data = member(bytes, scanObject(bytes, body.start)?.items ?? [], "data");
  const more = data === undefined ? "" : `\n  ${sanitizeLine(data)}`;
  return { stream: "stderr", parts: [plain(text + more)], code: 1 };
}

/** The error of the hub itself that an answer tells of: its number fits its code. All others are a server's. */
function findOwnError({ code, message, data }: RpcError): HubError | undefined {
  const details = data as { code?: unknown; stderr?: unknown } | null | undefined;
  if (traitsOf(details?.code)?.rpc !== code) return undefined;
  const stderr = Array.isArray(details?.stderr) ? details.stderr.map(String) : [];
  return new HubError(details?.code as ErrorCode, message, { stderr });
}

function traitsOf(code: unknown): ErrorProperties | undefined {
  return typeof code === "string" ? new HubError(code as ErrorCode, "").properties : undefined;
}
