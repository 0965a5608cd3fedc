import { Buffer } from "node:buffer";
import { isDetachable, type Piece, makeSlice, textOf } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { lastMember, scanObject, skipWhitespace, skipValue, parseRange } from "../base/json.ts";
import {
  buildResult,
  type EncodedMessage,
  withResponseId,
  type Response,
} from "../jsonrpc/message.ts";
import type { Answer } from "./plugin.ts";

/** An answer that can be sent to a client; the only kind of answer that plugins may return. */
export abstract class Sendable implements Answer {
  abstract readonly kind: "result" | "error";
  abstract readonly size: number;
  abstract readonly json: string;
  // oxlint-disable-next-line no-unused-private-class-members -- it is looked for in `is`
  readonly #isReal = true;

  /** Whether the value is a real answer: not a Proxy of one, nor an object with one as its prototype. */
  static is(value: unknown): value is Sendable {
    return typeof value === "object" && value !== null && #isReal in value;
  }

  /** The answer as a response with that id. */
  abstract under(id: Piece): EncodedMessage;

  get value(): unknown {
    // Parsed at each read, so that a plugin's changes to the object affect nobody else.
    return JSON.parse(this.json) as unknown;
  }

  get isError(): boolean {
    return this.kind === "error" || this.saysError;
  }

  /** Whether the result has `isError: true`. */
  protected abstract readonly saysError: boolean;
}

/** A server's response, passed on byte for byte. */
export class RelayedAnswer extends Sendable {
  readonly #response: Response;
  /** Whether the body has been validated as JSON. */
  #isChecked: boolean;

  constructor(response: Response) {
    super();
    this.#response = response;
    this.#isChecked = response.shape.kind === "scanned";
  }

  get kind(): "result" | "error" {
    return this.#response.outcome;
  }

  get size(): number {
    const { start, end } = this.#response.body;
    return end - start;
  }

  /** @throws {HubError} internal if the server has sent malformed JSON, which is not the plugin's fault */
  get json(): string {
    const { bytes, body } = this.#response;
    this.#isChecked ||= skipValue(bytes, skipWhitespace(bytes, body.start)) === body.end;
    if (!this.#isChecked) throw new HubError("internal", "The server's answer is no valid JSON.");
    return textOf(bytes, body.start, body.end);
  }

  protected get saysError(): boolean {
    const { bytes, body } = this.#response;
    return readsError(bytes, body.start);
  }

  /**
   * The pieces are copied slices: a plugin may return the answer for several calls, so writing one must not release its
   * buffers.
   */
  under(id: Piece): EncodedMessage {
    const message = withResponseId(this.#response, id);
    return Array.isArray(message) ? message.map(kept) : message;
  }
}

function kept(piece: Piece): Piece {
  return isDetachable(piece) ? makeSlice(piece.bytes, piece.start, piece.end) : piece;
}

/** A result that a plugin made. */
export class MadeAnswer extends Sendable {
  readonly kind = "result";
  readonly #bytes: Buffer;

  /** @throws {TypeError} if the result is not a JSON object, or the JSON text of one */
  constructor(result: object | string) {
    super();
    this.#bytes = Buffer.from(writeObject(result));
  }

  get size(): number {
    return this.#bytes.length;
  }

  get json(): string {
    return textOf(this.#bytes);
  }

  protected get saysError(): boolean {
    return readsError(this.#bytes, 0);
  }

  under(id: Piece): EncodedMessage {
    return buildResult(id, this.#bytes);
  }
}

/**
 * The JSON text of an object, without line breaks, as it stands in a message.
 * @param value an object, or its JSON text, whose formatting is kept
 * @throws {TypeError} if it is neither
 */
export function writeObject(value: object | string): string {
  const text = (typeof value === "string" ? value.trim() : JSON.stringify(value)) ?? "";
  const bytes = Buffer.from(text);
  const isObject = bytes[0] === 0x7b && skipValue(bytes, 0) === bytes.length;
  if (!isObject) throw new TypeError("expected an object, or the JSON text of one");
  // The text is valid JSON, so line breaks stand only between its tokens.
  return text.replace(/[\r\n]/g, " ");
}

function readsError(bytes: Uint8Array, at: number): boolean {
  const members = scanObject(bytes, skipWhitespace(bytes, at))?.items ?? [];
  const member = lastMember(members, "isError");
  return member !== undefined && parseRange(bytes, member) === true;
}
