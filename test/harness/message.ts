import { Buffer, isUtf8 } from "node:buffer";

/** A parsed tool of `tools/list`. */
export interface Tool {
  readonly name: string;
  readonly [member: string]: unknown;
}

/** A result; only the members that tests use are typed. */
export interface Result {
  readonly content?: readonly { readonly type: string; readonly text?: string }[];
  readonly structuredContent?: Readonly<Record<string, unknown>>;
  readonly isError?: boolean;
  readonly tools?: readonly Tool[];
  readonly nextCursor?: string;
  readonly protocolVersion?: string;
  readonly [member: string]: unknown;
}

export interface RpcMessage {
  readonly jsonrpc?: unknown;
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Result;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

/** One line of stdout: its text without the line end, and what it parses to (undefined: not JSON). */
export interface Line {
  readonly text: string;
  readonly json: unknown;
  /** Whether its bytes are valid UTF-8. */
  readonly isValidUtf8: boolean;
}

/** A line that is one JSON-RPC message. */
export interface Received extends Line {
  readonly message: RpcMessage;
}

export function parseLine(bytes: Uint8Array): Line {
  const text = textOf(bytes);
  const isValidUtf8 = isUtf8(bytes);
  try {
    return { text, isValidUtf8, json: JSON.parse(text) };
  } catch {
    return { text, isValidUtf8, json: undefined };
  }
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("utf8");
}

export function isObject(json: unknown): json is RpcMessage {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}

/** True if a line of stdout is a JSON-RPC 2.0 message, or a batch of them. */
export function isJsonRpc(json: unknown): boolean {
  if (Array.isArray(json))
    return json.length > 0 && json.every((item) => !Array.isArray(item) && isJsonRpc(item));
  if (!isObject(json) || json.jsonrpc !== "2.0") return false;
  if (typeof json.method === "string") return !("result" in json) && !("error" in json);
  return "id" in json && "result" in json !== "error" in json;
}

/** The text of a failed call: the error's message and data, or the text content of a result with `isError`. */
export function failureText({ result, error }: RpcMessage): string {
  if (error !== undefined) return `${error.message}\n${JSON.stringify(error.data)}`;
  return result?.isError === true ? (result.content ?? []).map(({ text }) => text).join("\n") : "";
}
