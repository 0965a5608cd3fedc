import { Buffer } from "node:buffer";
import type { ListedItem } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import { lastMember, type JsonMember, scanObject } from "../base/json.ts";
import type { Era } from "../protocol/era.ts";
import { Method } from "../protocol/legacy.ts";
import { paramHeaders } from "../protocol/param-headers.ts";
import { LATEST_MODERN, formatEnvelope } from "../protocol/modern.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import type { Request } from "../jsonrpc/message.ts";
import { BENCH_CLIENT } from "./target.ts";

/** The member of a call's `_meta` that tells it from others at the server's end, whatever ids it is given on the way. */
export const CALL_MARK = "toolmux.bench/call";

/** A call, written once: each that is made is a copy with another id in it, and another mark. */
export interface CallTemplate {
  readonly tool: string;
  readonly request: Request;
  /** The headers that repeat its arguments. */
  readonly mirrored: Readonly<Record<string, string>> | undefined;
  /** What to replace in a copy beside its id. */
  rewrite(mark: number): RequestRewrite;
}

/**
 * Makes calls of a tool.
 * @param args a JSON object, sent as it is written
 * @param isMarked whether each says which one it is
 * @throws {HubError} usage if the arguments are no JSON object
 */
export function makeCallTemplate(
  tool: ListedItem,
  args: string,
  era: Era,
  isMarked: boolean,
): CallTemplate {
  const client = {
    version: LATEST_MODERN,
    client: BENCH_CLIENT,
    capabilities: {},
    level: undefined,
  };
  const members = [
    ...(isMarked ? [`"${CALL_MARK}":0`] : []),
    ...(era === "modern" ? [formatEnvelope(client)] : []),
  ];
  const meta = members.length === 0 ? "" : `,"_meta":{${members.join(",")}}`;
  const params = `{"name":${JSON.stringify(tool.key)},"arguments":${args}${meta}}`;
  const text = `{"jsonrpc":"2.0","id":0,"method":"${Method.toolsCall}","params":${params}}`;
  const request = parseMessage(Buffer.from(text));
  if (request.kind !== "request") throw new HubError("usage", "The arguments are no JSON object.");
  const mark = isMarked ? findMark(request) : undefined;
  return {
    tool: tool.key,
    request,
    mirrored: era === "modern" ? paramHeaders(tool, JSON.parse(args)) : undefined,
    rewrite: (number) => ({
      edits: mark === undefined ? [] : [{ ...mark, replacement: String(number) }],
      tokens: [],
    }),
  };
}

function findMark({ bytes, params }: Request): Pick<JsonMember, "start" | "end"> | undefined {
  const meta = lastMember((params && scanObject(bytes, params.start)?.items) ?? [], "_meta");
  const mark = lastMember((meta && scanObject(bytes, meta.start)?.items) ?? [], CALL_MARK);
  return mark && { start: mark.start, end: mark.end };
}
