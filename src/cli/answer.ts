import { textOf } from "../bytes.ts";
import { type ErrorCode, type ErrorTraits, HubError, type RpcError } from "../errors.ts";
import { lastMember, type Member, scanArray, scanObject, stringOf, valueOf } from "../json.ts";
import type { Response } from "../wire/jsonrpc.ts";
import { clean, describeError } from "./report.ts";

/** What there is to say of an answer, and the exit code that it means. */
export interface Account {
  readonly stream: "stdout" | "stderr";
  /** Without the last line end. */
  readonly text: string;
  readonly code: number;
}

/**
 * The answer to a call for people: its texts as they are and all other content as JSON, for stderr if it is an
 * error. `raw`: the result as it came.
 */
export function describeAnswer(response: Response, raw: boolean): Account {
  if (response.outcome === "error") return describeRpcError(response);
  const { bytes, body } = response;
  const members = scanObject(bytes, body.start)?.items ?? [];
  const isError = member(bytes, members, "isError") === "true";
  return {
    stream: isError && !raw ? "stderr" : "stdout",
    text: raw ? textOf(bytes, body.start, body.end) : describeContent(bytes, members),
    code: isError ? failureCode(bytes, members) : 0,
  };
}

/** Numbers and the order of members stay as the server wrote them, so nothing is parsed that is not text. */
function describeContent(bytes: Uint8Array, members: readonly Member[]): string {
  const content = lastMember(members, "content");
  const blocks = (content && scanArray(bytes, content.start)?.items) ?? [];
  if (blocks.length === 0) return member(bytes, members, "structuredContent") ?? "";
  return blocks
    .map(({ start, end }) => {
      const parts = scanObject(bytes, start)?.items ?? [];
      const isText = stringOf(bytes, lastMember(parts, "type")) === "text";
      const text = isText ? stringOf(bytes, lastMember(parts, "text")) : undefined;
      return text ?? textOf(bytes, start, end);
    })
    .join("\n");
}

/** The JSON text of a member. */
function member(bytes: Uint8Array, members: readonly Member[], key: string): string | undefined {
  const found = lastMember(members, key);
  return found && textOf(bytes, found.start, found.end);
}

/** `_meta` of a result that the hub made itself because no server's came: the code of the error. */
const ERROR_KEY = "toolmux/error";

function failureCode(bytes: Uint8Array, members: readonly Member[]): number {
  const meta = lastMember(members, "_meta");
  const inside = (meta && scanObject(bytes, meta.start)?.items) ?? [];
  return traitsOf(stringOf(bytes, lastMember(inside, ERROR_KEY)))?.exit ?? 1;
}

function describeRpcError({ bytes, body }: Response): Account {
  const answer = valueOf(bytes, body) as RpcError;
  const own = findOwnError(answer);
  if (own !== undefined)
    return { stream: "stderr", text: describeError(own), code: own.traits.exit };
  const text = `toolmux: the server answered with error ${answer.code}: ${clean(answer.message)}`;
  const data = member(bytes, scanObject(bytes, body.start)?.items ?? [], "data");
  const more = data === undefined ? "" : `\n  ${clean(data)}`;
  return { stream: "stderr", text: text + more, code: 1 };
}

/** The error of the hub itself that an answer tells of: its number fits its code. All others are a server's. */
function findOwnError({ code, message, data }: RpcError): HubError | undefined {
  const details = data as { code?: unknown; stderr?: unknown } | null | undefined;
  if (traitsOf(details?.code)?.rpc !== code) return undefined;
  const stderr = Array.isArray(details?.stderr) ? details.stderr.map(String) : [];
  return new HubError(details?.code as ErrorCode, message, { stderr });
}

function traitsOf(code: unknown): ErrorTraits | undefined {
  return typeof code === "string" ? new HubError(code as ErrorCode, "").traits : undefined;
}
