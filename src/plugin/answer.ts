import { Buffer } from "node:buffer";
import { asShared, type Piece, textOf } from "../base/bytes.ts";
import { invalidAnswerError } from "../base/errors.ts";
import { JsonObject, OPEN_BRACE, skipValue } from "../base/json.ts";
import {
  buildResult,
  type EncodedMessage,
  hasValidBody,
  type Response,
  withResponseId,
} from "../jsonrpc/message.ts";
import type { Answer } from "./plugin.ts";

/** An answer that can be sent to a client; the only kind of answer that plugins may return. */
export abstract class PluginAnswer implements Answer {
  abstract readonly kind: "result" | "error";
  abstract readonly size: number;
  abstract readonly json: string;
  // oxlint-disable-next-line no-unused-private-class-members -- `is` tests for its presence
  readonly #brand = true;

  /**
   * Whether the value is an instance that this class constructed, as opposed to a Proxy of an instance or an object
   * that has one as its prototype.
   */
  static is(value: unknown): value is PluginAnswer {
    return typeof value === "object" && value !== null && #brand in value;
  }

  /** The answer as a JSON-RPC response with the given id. */
  abstract withId(id: Piece): EncodedMessage;

  get value(): unknown {
    // Parsed at each read, so that a plugin that changes the object affects no other plugin.
    return JSON.parse(this.json) as unknown;
  }

  get isError(): boolean {
    return this.kind === "error" || this.hasIsError;
  }

  /** Whether the result has `isError: true`. */
  protected abstract readonly hasIsError: boolean;
}

/** A server's response, forwarded byte for byte. */
export class RelayedAnswer extends PluginAnswer {
  readonly #response: Response;
  readonly #server: string;
  /** Whether the body has been validated as JSON. */
  #isValidated = false;

  /** @param server the server that has sent the response; by default the hub itself has */
  constructor(response: Response, server = "toolmux") {
    super();
    this.#response = response;
    this.#server = server;
  }

  get kind(): "result" | "error" {
    return this.#response.outcome;
  }

  get size(): number {
    const { start, end } = this.#response.body;
    return end - start;
  }

  /** @throws {HubError} answerInvalid if the server has sent malformed JSON, which is not the plugin's fault */
  get json(): string {
    const { bytes, body } = this.#response;
    this.#isValidated ||= hasValidBody(this.#response);
    if (!this.#isValidated)
      throw invalidAnswerError(this.#server, `the ${this.kind} is not one JSON value`);
    return textOf(bytes, body.start, body.end);
  }

  protected get hasIsError(): boolean {
    const { bytes, body } = this.#response;
    return hasTrueIsError(bytes, body.start);
  }

  /**
   * Writing the message must not detach the answer's memory, because a plugin may return the same answer for several
   * calls; see `ByteSlice`.
   */
  withId(id: Piece): EncodedMessage {
    const message = withResponseId(this.#response, id);
    return Array.isArray(message) ? message.map(asShared) : message;
  }
}

/** A result that a plugin made instead of forwarding a server's response. */
export class OwnAnswer extends PluginAnswer {
  readonly kind = "result";
  readonly #bytes: Buffer;

  /** @throws {TypeError} if the result is not a JSON object, or the JSON text of one */
  constructor(result: object | string) {
    super();
    this.#bytes = Buffer.from(toObjectJson(result));
  }

  get size(): number {
    return this.#bytes.length;
  }

  get json(): string {
    return textOf(this.#bytes);
  }

  protected get hasIsError(): boolean {
    return hasTrueIsError(this.#bytes, 0);
  }

  withId(id: Piece): EncodedMessage {
    return buildResult(id, this.#bytes);
  }
}

/**
 * The JSON text of an object, without line breaks, so that it can be embedded in a message.
 * @param value an object, or its JSON text, whose formatting is kept
 * @throws {TypeError} if `value` is neither
 */
export function toObjectJson(value: object | string): string {
  const text = (typeof value === "string" ? value.trim() : JSON.stringify(value)) ?? "";
  const bytes = Buffer.from(text);
  const isObject = bytes[0] === OPEN_BRACE && skipValue(bytes, 0) === bytes.length;
  if (!isObject) throw new TypeError("expected an object, or the JSON text of one");
  // The text is valid JSON, so line breaks occur only between its tokens.
  return text.replace(/[\r\n]/g, " ");
}

function hasTrueIsError(bytes: Uint8Array, at: number): boolean {
  return JsonObject.at(bytes, { start: at }).value("isError") === true;
}
