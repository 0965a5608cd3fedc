import { Buffer } from "node:buffer";
import type { ByteInput } from "../base/byte-streams.ts";
import { LF } from "../jsonrpc/parse.ts";
import { HANDSHAKE_LIMITS } from "./handshake.ts";

/** The first line of a connection; `ended`: the connection has ended before it; `tooLong`: longer than is allowed. */
export type FirstLine = { readonly line: string } | "ended" | "tooLong";

/** The input of a connection without its first line, after which it is paused until the rest is read. */
export class FirstLineInput implements ByteInput {
  readonly #source: ByteInput;
  /** The bytes that have arrived and are not handed on: of the first line, then those after it. */
  #chunks: Buffer[] = [];
  #size = 0;
  #onLine: ((line: FirstLine) => void) | undefined;
  #onChunk: ((chunk: Buffer) => void) | undefined;
  #onEnd: (() => void) | undefined;
  #hasEnded = false;
  /** Whether anything has arrived since this was last set to false. */
  hasReceived = false;

  /** @param onLine called once, unless `drop` is called before */
  constructor(source: ByteInput, onLine: (line: FirstLine) => void) {
    this.#source = source;
    this.#onLine = onLine;
    source.read(
      (chunk) => this.#receive(chunk),
      () => this.#receiveEnd(),
    );
  }

  #receive(chunk: Buffer): void {
    this.hasReceived = true;
    if (this.#onChunk !== undefined) {
      this.#onChunk(chunk);
      return;
    }
    this.#chunks.push(chunk);
    const onLine = this.#onLine;
    if (onLine === undefined) return;
    const end = chunk.indexOf(LF);
    this.#size += end < 0 ? chunk.length : end;
    const { maxBytes } = HANDSHAKE_LIMITS;
    if (end < 0 && this.#size <= maxBytes) return;
    this.#onLine = undefined;
    this.#source.pause();
    if (this.#size > maxBytes) {
      onLine("tooLong");
      return;
    }
    const line = Buffer.concat([...this.#chunks.slice(0, -1), chunk.subarray(0, end)]).toString();
    // What follows is copied: the chunk's memory belongs to the first line, too.
    this.#chunks = end + 1 < chunk.length ? [Buffer.from(chunk.subarray(end + 1))] : [];
    onLine({ line });
  }

  #receiveEnd(): void {
    this.#hasEnded = true;
    const onLine = this.#onLine;
    this.#onLine = undefined;
    if (onLine !== undefined) onLine("ended");
    else this.#onEnd?.();
  }

  /** Forgets what has arrived. No line is told any more. */
  drop(): void {
    this.#onLine = undefined;
    this.#chunks = [];
  }

  /** Hands on what comes after the first line, but nothing before the caller is ready: after this turn. */
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    queueMicrotask(() => {
      this.#onChunk = onChunk;
      this.#onEnd = onEnd;
      for (const chunk of this.#chunks.splice(0)) onChunk(chunk);
      if (this.#hasEnded) onEnd();
      else this.#source.resume();
    });
  }

  pause(): void {
    this.#source.pause();
  }

  resume(): void {
    this.#source.resume();
  }
}
