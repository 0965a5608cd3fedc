import { textOf } from "../bytes.ts";
import { type ErrorCode, type ErrorTraits, HubError, type RpcError } from "../errors.ts";
import { lastMember, type Member, scanArray, scanObject, stringOf, valueOf } from "../json.ts";
import type { Response } from "../wire/jsonrpc.ts";
import { clean, printError, printLine } from "./report.ts";

/**
 * Prints the answer to a call: its texts as they are and all other content as JSON, on stderr if it is an
 * error; `raw` prints the result as it came. @returns the exit code
 */
export function printAnswer(response: Response, raw: boolean): number {
  const { bytes, body } = response;
  if (response.outcome === "error") return printRpcError(response);
  const members = scanObject(bytes, body.start)?.items ?? [];
  const isError = member(bytes, members, "isError") === "true";
  const text = raw ? textOf(bytes, body.start, body.end) : describe(bytes, members);
  if (isError && !raw) console.warn(text);
  else console.log(text);
  return isError ? failureCode(bytes, members) : 0;
}

/** Numbers and the order of members stay as the server wrote them, so nothing is parsed that is not text. */
function describe(bytes: Uint8Array, members: readonly Member[]): string {
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

function printRpcError({ bytes, body }: Response): number {
  const answer = valueOf(bytes, body) as RpcError;
  const own = findOwnError(answer);
  if (own !== undefined) {
    printError(own);
    return own.traits.exit;
  }
  printLine(`The server answered with error ${answer.code}: ${answer.message}`);
  const data = member(bytes, scanObject(bytes, body.start)?.items ?? [], "data");
  if (data !== undefined) console.warn(`  ${clean(data)}`);
  return 1;
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
