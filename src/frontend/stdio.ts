import type { Buffer } from "node:buffer";
import { HubError } from "../errors.ts";
import { sleep } from "../wire/grace.ts";
import type { Message } from "../wire/jsonrpc.ts";
import type { Exchange, Inbound, Link, LinkEvents } from "../wire/link.ts";
import { PIPE_EXCHANGE } from "../wire/memory.ts";
import { type ByteSource, Pipe, PRESSURE } from "../wire/pipe.ts";
import { openStreams, type OwnStreams } from "./welcome.ts";

/** ms that a client which does not read can hold up the hub's end. */
const FLUSH_LIMIT = 500;

/** The hub's own stdin and stdout as a Link: the peer is the client that launched it. */
export class OwnStdio implements Link {
  readonly #limit: number;
  readonly #streams: OwnStreams;
  /** The way back of a request that has been answered: the hub takes note of it, and what it says to it is not wanted. */
  readonly #nowhere: Inbound = { notify: (message) => void this.send(message), respond() {} };
  #pipe: Pipe | undefined;
  #events: LinkEvents | undefined;

  /** @param limit the longest message that is read, in bytes; @param streams which may have been used before */
  constructor(limit: number, streams: OwnStreams = openStreams()) {
    this.#limit = limit;
    this.#streams = streams;
  }

  open(events: LinkEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(new HubError("cancelled", "stdin was not opened."));
    this.#events = events;
    const gone = (): void => this.#finish("The client has closed its end.");
    const { input, isGreeted } = this.#streams;
    let isAnswered = isGreeted;
    this.#pipe = new Pipe(new ReadAhead(input), this.#streams.output(gone), this.#limit, {
      frame: (frame) => {
        this.#events?.frame(frame, undefined, isAnswered ? this.#nowhere : undefined);
        isAnswered = false;
      },
      oversized: (head: Buffer, tail: Buffer, size) => this.#events?.oversized(head, tail, size),
      pressure: (full) => this.#events?.pressure(full),
      ended: gone,
    });
    return Promise.resolve();
  }

  get queued(): number {
    return this.#pipe?.queued ?? 0;
  }

  send(message: Message): Exchange {
    this.#pipe?.send(message);
    return PIPE_EXCHANGE;
  }

  pause(): void {
    this.#pipe?.pause();
  }

  resume(): void {
    this.#pipe?.resume();
  }

  vitals(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** Writes what is still queued, for a client that reads it within `FLUSH_LIMIT`. */
  async close(): Promise<void> {
    await Promise.race([this.#pipe?.end(), sleep(FLUSH_LIMIT)]);
    this.#finish("The hub has stopped.");
  }

  #finish(text: string): void {
    const events = this.#events;
    this.#events = undefined;
    events?.closed(new HubError("connectionLost", text));
  }
}

/**
 * Reads on while nothing is to be taken in, and keeps what comes, `PRESSURE.high` bytes at most. The end of stdin stands behind
 * all that the client has sent before, and has to be seen although the client does not read and so is given no more work.
 */
class ReadAhead implements ByteSource {
  readonly #source: ByteSource;
  #take: (chunk: Buffer) => void = () => {};
  #kept: Buffer[] = [];
  #size = 0;
  #isPaused = false;
  /** The source was paused, as enough is kept. */
  #isFull = false;
  #isHandingOver = false;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  /** `onEnd` comes at once: what is kept is of a client that has left. */
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#take = onChunk;
    this.#source.read(
      (chunk) => {
        if (this.#isPaused || this.#isHandingOver) this.#keep(chunk);
        else onChunk(chunk);
      },
      () => {
        this.#kept = [];
        onEnd();
      },
    );
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    // Whoever takes a chunk may pause and resume meanwhile.
    if (this.#isHandingOver) return;
    this.#isHandingOver = true;
    while (!this.#isPaused) {
      const chunk = this.#kept.shift();
      if (chunk === undefined) break;
      this.#size -= chunk.length;
      this.#take(chunk);
    }
    this.#isHandingOver = false;
    if (!this.#isFull || this.#size >= PRESSURE.high) return;
    this.#isFull = false;
    this.#source.resume();
  }

  #keep(chunk: Buffer): void {
    this.#kept.push(chunk);
    this.#size += chunk.length;
    if (this.#isFull || this.#size < PRESSURE.high) return;
    this.#isFull = true;
    this.#source.pause();
  }
}
