import type { Socket } from "node:net";
import { joinPieces, toBytes, type Piece } from "../../../base/bytes.ts";
import { type Answer, lengthOf } from "./answer.ts";
import type { RequestHead } from "./request-parser.ts";
import { isBodiless, writePreface } from "./preface.ts";

/** Answers up to this size, in bytes, are written with their head in one write. */
const SMALL = 64 * 1024;
/** Longer ones are written in parts of this many bytes: a client that takes one in time makes progress. */
const SLICE = 1024 * 1024;

/** Writes answers to a socket, with respect for backpressure. */
export class Outlet {
  readonly #socket: Socket;
  /** Resolves the wait for the socket to drain; called when the client is gone, too. */
  #taken: (() => void) | undefined;
  /** The stream whose chunks are being written. */
  #source: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #isClosed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** The socket's buffer is full. */
  get isFull(): boolean {
    return this.#taken !== undefined;
  }

  /** The socket has drained. */
  drain(): void {
    const taken = this.#taken;
    this.#taken = undefined;
    taken?.();
  }

  /** The client is gone: nothing more is written. */
  close(): void {
    this.#isClosed = true;
    void this.#source?.cancel().catch(() => {});
    this.drain();
  }

  /**
   * Writes an answer.
   * @param head of the request that it answers; undefined if there was no valid one
   * @param isLast the connection closes after it
   * @returns when all of it is written; undefined if it is already. Rejects if the body's stream fails
   */
  give(answer: Answer, head: RequestHead | undefined, isLast: boolean): Promise<void> | undefined {
    const { body, status } = answer;
    const length = lengthOf(answer);
    const isChunked = length === undefined && head?.takesChunks === true;
    const isBare = head?.method === "HEAD" || isBodiless(status);
    // For HEAD the length may be unknown (RFC 9110, 8.6).
    const told = isBare && length === 0 ? undefined : length;
    const preface = writePreface(answer, { length: told, isChunked, isLast });
    if (body instanceof ReadableStream) {
      this.#socket.write(preface, "latin1");
      if (!isBare) return this.#pour(body, isChunked);
      void body.cancel().catch(() => {});
      return undefined;
    }
    const pieces = isBare ? [] : (body ?? []);
    if (length !== undefined && length > SMALL) return this.#giveLong(preface, pieces);
    return this.#write(joinPieces([preface, ...pieces]));
  }

  async #giveLong(preface: string, pieces: readonly Piece[]): Promise<void> {
    this.#socket.write(preface, "latin1");
    for (const piece of pieces) {
      const bytes = toBytes(piece);
      for (let at = 0; at < bytes.length && !this.#isClosed; at += SLICE) {
        await this.#write(bytes.subarray(at, at + SLICE));
      }
    }
  }

  async #pour(body: ReadableStream<Uint8Array>, isChunked: boolean): Promise<void> {
    const source = body.getReader();
    this.#source = source;
    for (;;) {
      const { done, value } = await source.read();
      if (done || this.#isClosed) break;
      if (value.length === 0) continue;
      const size = `${value.length.toString(16)}\r\n`;
      const taken = this.#write(isChunked ? joinPieces([size, value, "\r\n"]) : value);
      if (taken !== undefined) await taken;
    }
    this.#source = undefined;
    if (isChunked && !this.#isClosed) this.#socket.write("0\r\n\r\n", "latin1");
  }

  #write(bytes: Uint8Array): Promise<void> | undefined {
    if (this.#socket.write(bytes)) return undefined;
    return new Promise((resolve) => (this.#taken = resolve));
  }
}
