import type { Socket } from "node:net";
import { joinPieces, memoryOf, type Piece } from "../../bytes.ts";
import { type Answer, lengthOf } from "./answer.ts";
import type { RequestHead } from "./head.ts";
import { isBodiless, writePreface } from "./preface.ts";

/** Answers of so many bytes are joined with their heads and go out in one write. */
const SMALL = 64 * 1024;
/** Of longer ones so much is handed to the system at a time, in bytes: whoever takes that in time is not given up. */
const SLICE = 1024 * 1024;

/** Writes answers, as fast as a client takes them. */
export class Outlet {
  readonly #socket: Socket;
  /** Called when the client has taken what it was given, or has gone. */
  #taken: (() => void) | undefined;
  /** What is being given out as it comes. */
  #source: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #isClosed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Whether it waits for the client to take what it was given. */
  get isFull(): boolean {
    return this.#taken !== undefined;
  }

  /** The client has taken what it was given. */
  drain(): void {
    const taken = this.#taken;
    this.#taken = undefined;
    taken?.();
  }

  /** The client has gone: nothing is given out any more. */
  close(): void {
    this.#isClosed = true;
    void this.#source?.cancel().catch(() => {});
    this.drain();
  }

  /**
   * Writes an answer.
   * @param head of the request that it answers, if there was one
   * @param isLast whether the connection is closed after it
   * @returns when all of it was taken, if that is not at once; it rejects if the answer breaks off
   */
  give(answer: Answer, head: RequestHead | undefined, isLast: boolean): Promise<void> | undefined {
    const { body, status } = answer;
    const length = lengthOf(answer);
    const isChunked = length === undefined && head?.takesChunks === true;
    const isBare = head?.method === "HEAD" || isBodiless(status);
    // What HEAD leaves out may be known to nobody (RFC 9110, 8.6).
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
      const bytes = memoryOf(piece);
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
