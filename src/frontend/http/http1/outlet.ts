import type { Socket } from "node:net";
import { joinPieces, toBytes, type Piece } from "../../../base/bytes.ts";
import { type HttpAnswer, bodyLengthOf } from "./answer.ts";
import type { ParsedRequestHead } from "./request-parser.ts";
import { hasNoBody, formatResponseHead } from "./preface.ts";

/** Answers up to this size, in bytes, are written with their head in one write. */
const MAX_JOINED = 64 * 1024;
/** Longer ones are written in parts of this many bytes: a client that takes one in time makes progress. */
const WRITE_SIZE = 1024 * 1024;

/** Writes answers to a socket, with respect for backpressure. */
export class ResponseWriter {
  readonly #socket: Socket;
  /** Resolves the wait for the socket to drain; called when the client is gone, too. */
  #onDrain: (() => void) | undefined;
  /** The stream whose chunks are being written. */
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #isClosed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** The socket's buffer is full. */
  get isFull(): boolean {
    return this.#onDrain !== undefined;
  }

  /** The socket has drained. */
  drain(): void {
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }

  /** The client is gone: nothing more is written. */
  close(): void {
    this.#isClosed = true;
    void this.#reader?.cancel().catch(() => {});
    this.drain();
  }

  /**
   * Writes an answer.
   * @param head of the request that it answers; undefined if there was no valid one
   * @param isLast the connection closes after it
   * @returns when all of it is written; undefined if it is already. Rejects if the body's stream fails
   */
  writeAnswer(
    answer: HttpAnswer,
    head: ParsedRequestHead | undefined,
    isLast: boolean,
  ): Promise<void> | undefined {
    const { body, status } = answer;
    const length = bodyLengthOf(answer);
    const isChunked = length === undefined && head?.acceptsChunked === true;
    const isBodyOmitted = head?.method === "HEAD" || hasNoBody(status);
    // For HEAD the length may be unknown (RFC 9110, 8.6).
    const announcedLength = isBodyOmitted && length === 0 ? undefined : length;
    const headText = formatResponseHead(answer, { length: announcedLength, isChunked, isLast });
    if (body instanceof ReadableStream) {
      this.#socket.write(headText, "latin1");
      if (!isBodyOmitted) return this.#pipe(body, isChunked);
      void body.cancel().catch(() => {});
      return undefined;
    }
    const pieces = isBodyOmitted ? [] : (body ?? []);
    if (length !== undefined && length > MAX_JOINED) return this.#writeLong(headText, pieces);
    return this.#write(joinPieces([headText, ...pieces]));
  }

  async #writeLong(headText: string, pieces: readonly Piece[]): Promise<void> {
    this.#socket.write(headText, "latin1");
    for (const piece of pieces) {
      const bytes = toBytes(piece);
      for (let offset = 0; offset < bytes.length && !this.#isClosed; offset += WRITE_SIZE) {
        await this.#write(bytes.subarray(offset, offset + WRITE_SIZE));
      }
    }
  }

  async #pipe(body: ReadableStream<Uint8Array>, isChunked: boolean): Promise<void> {
    const reader = body.getReader();
    this.#reader = reader;
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#isClosed) break;
      if (value.length === 0) continue;
      const size = `${value.length.toString(16)}\r\n`;
      const written = this.#write(isChunked ? joinPieces([size, value, "\r\n"]) : value);
      if (written !== undefined) await written;
    }
    this.#reader = undefined;
    if (isChunked && !this.#isClosed) this.#socket.write("0\r\n\r\n", "latin1");
  }

  #write(bytes: Uint8Array): Promise<void> | undefined {
    if (this.#socket.write(bytes)) return undefined;
    return new Promise((resolve) => (this.#onDrain = resolve));
  }
}
