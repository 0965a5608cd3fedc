import { Buffer } from "node:buffer";
import { joinPieces, type Piece, utf8 } from "../base/bytes.ts";
import { NO_CACHING } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import { StdioServerTransport } from "../frontend/stdio.ts";
import type { JsonObject } from "../base/json.ts";
import { type Implementation, Method, negotiateVersion } from "../protocol/legacy.ts";
import {
  mayBeModern,
  MODERN_VERSIONS,
  ModernMethod,
  readEnvelope,
  toModernResultBytes,
} from "../protocol/modern.ts";
import { VERSION } from "../base/version.ts";
import {
  buildError,
  bytesOf,
  type EncodedMessage,
  type Message,
  paramsOf,
  type Request,
  RESULT_MEMBER,
} from "../jsonrpc/message.ts";

const SERVER: Implementation = { name: "toolmux-echo", version: VERSION };
const MAX_MESSAGE = 256 * 1024 * 1024;

const TOOLS = {
  tools: [
    {
      name: "echo",
      description: "Answers at once with the text, or with as many bytes as are wanted.",
      inputSchema: {
        type: "object",
        properties: {
          text: { type: "string" },
          size: { type: "integer", minimum: 0, maximum: MAX_MESSAGE / 2 },
        },
      },
      annotations: { readOnlyHint: true },
    },
  ],
};

/**
 * An MCP server on its own stdin and stdout. It does as little work as possible, so that a measurement shows the cost
 * of the program in front of it. It supports the older protocol versions (legacy) and 2026-07-28 (modern).
 * @returns when stdin ends
 */
export async function serveEcho(): Promise<void> {
  const transport = new StdioServerTransport(MAX_MESSAGE);
  const onMessage = (message: Message): void => {
    if (message.kind === "batch") for (const item of message.items) onMessage(item);
    if (message.kind === "request") transport.send(respond(message));
  };
  await new Promise<void>((resolve) => {
    const events = {
      message: onMessage,
      log() {},
      oversized() {},
      pressure() {},
      closed: () => resolve(),
    };
    void transport.open(events, new AbortController().signal);
  });
}

/** The response to one request of any protocol version. A result for 2026-07-28 (modern) has additional members. */
export function respond(request: Request): EncodedMessage {
  const { id, method } = request;
  const params = paramsOf(request);
  const result = resultOf(method, params);
  if (result === undefined) {
    const error = new HubError("methodNotFound", `There is no method "${method}" here.`);
    return buildError(id, error.toRpc());
  }
  const isModern = mayBeModern(bytesOf(request)) && readEnvelope(params) !== undefined;
  const cache = method === Method.toolsCall ? undefined : NO_CACHING;
  const body = isModern ? [toModernResultBytes(joinPieces(result), SERVER, cache)] : result;
  return [RESPONSE_START, id, RESULT_MEMBER, ...body, RESPONSE_END];
}

/** The start of a response. The id comes before the result, as in the responses of most MCP libraries. */
const RESPONSE_START = Buffer.from('{"jsonrpc":"2.0","id":');
const RESPONSE_END = Buffer.from("}");

function resultOf(method: string, params: JsonObject): readonly Piece[] | undefined {
  switch (method) {
    case Method.toolsCall:
      return echo(params.object("arguments"));
    case Method.toolsList:
      return [utf8(JSON.stringify(TOOLS))];
    case Method.initialize: {
      const protocolVersion = negotiateVersion(params.string("protocolVersion"));
      const capabilities = { tools: {} };
      return [utf8(JSON.stringify({ protocolVersion, capabilities, serverInfo: SERVER }))];
    }
    case ModernMethod.discover:
      return [
        utf8(JSON.stringify({ supportedVersions: MODERN_VERSIONS, capabilities: { tools: {} } })),
      ];
    case Method.ping:
      return [utf8("{}")];
    default:
      return undefined;
  }
}

const CONTENT_START = Buffer.from('{"content":[{"type":"text","text":');
const CONTENT_END = Buffer.from("}]}");
const EMPTY_STRING = Buffer.from('""');
const QUOTE = 0x22;
let cachedText = { size: -1, text: EMPTY_STRING };

/** A tool result with the bytes of the `text` argument, copied without parsing, or with a text of `size` letters. */
function echo(args: JsonObject): readonly Piece[] {
  const { bytes } = args;
  const size = args.value("size");
  const text = args.member("text");
  const isText = text !== undefined && bytes[text.start] === QUOTE;
  const textBytes = isText ? bytes.subarray(text.start, text.end) : EMPTY_STRING;
  return [CONTENT_START, size === undefined ? textBytes : textOfSize(size), CONTENT_END];
}

/** A JSON string of `requested` letters. It is cached for repeated calls with the same size. */
function textOfSize(requested: unknown): Buffer {
  const size = Math.min(Math.max(Number(requested) || 0, 0), MAX_MESSAGE / 2);
  if (cachedText.size !== size) cachedText = { size, text: Buffer.from(`"${"x".repeat(size)}"`) };
  return cachedText.text;
}
