import type { ByteInput, ByteOutput } from "../base/byte-streams.ts";
import type { Buffer } from "node:buffer";
import { HubError, outputFailedError, describeFault } from "../base/errors.ts";
import { shareTurns } from "../base/peer-reader.ts";
import { sleep } from "../base/clock.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import {
  NO_OP_SENT_REQUEST,
  type SentRequest,
  type TransportEvents,
  type Transport,
} from "../transport/transport.ts";
import { Pipe, type SlabPool, WRITE_LIMITS } from "../jsonrpc/pipe.ts";
import { ownStdin, ownStdout } from "../base/own-streams.ts";
import { isBrokenPipe, isStdoutClosed } from "../base/runtime.ts";

/** Maximum wait for a client that does not read when the hub closes, in ms. */
const FLUSH_TIMEOUT = 500;
/** Time from the end of stdin until the requests without an answer are cancelled, in ms. */
const ANSWER_TIMEOUT = 1000;
/** Maximum wait for a client that does not read its last answers, in ms. */
const LAST_FLUSH_TIMEOUT = 200;

/** The two byte streams to one client, which may close one of them before the other. */
export interface ClientStreams {
  /**
   * Opens the streams; called once.
   * @param onBroken called with the error of the first write that fails
   */
  open(onBroken: (error: unknown) => void): {
    readonly input: ByteInput;
    readonly output: ByteOutput;
  };
  /** Whether the client reads nothing any more, as far as that can be known without writing. */
  isReaderGone(): boolean | Promise<boolean>;
  /** Memory that the streams of many clients share while they write; absent: the client has its own. */
  readonly slabs?: SlabPool;
  /** Called once, when the connection has ended. */
  close?(): void;
}

/** The hub's own stdin and stdout. */
const OWN_STREAMS: ClientStreams = {
  open: (onBroken) => ({ input: ownStdin(), output: ownStdout(onBroken) }),
  isReaderGone: isStdoutClosed,
};

/**
 * Two byte streams as a transport, by default the hub's own stdin and stdout: the peer is the client at their other end,
 * which sends one message a line.
 */
export class StdioServerTransport implements Transport {
  readonly kind = "stdio";
  readonly #maxMessage: number;
  readonly #streams: ClientStreams;
  #pipe: Pipe | undefined;
  #events: TransportEvents | undefined;
  /** Whether the connection has ended. */
  #isOver = false;
  /** The exception that has ended the connection, as a text for the log; undefined: there was none. */
  fault: string | undefined;
  /** Cancels the wait for the last answers; undefined before the end of stdin. */
  #endWait: (() => void) | undefined;
  /** When stdin has ended, in ms of `performance.now()`; undefined while it is open. */
  inputEndedAt: number | undefined;
  /** Why stdout cannot be written; undefined if it can, or if the client has closed it. */
  outputError: HubError | undefined;

  /** @param maxMessage maximum length of a message, in bytes */
  constructor(maxMessage: number, streams: ClientStreams = OWN_STREAMS) {
    this.#maxMessage = maxMessage;
    this.#streams = streams;
  }

  open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(new HubError("cancelled", "stdin was not opened."));
    this.#events = events;
    const { input, output } = this.#streams.open((error) => {
      if (!isBrokenPipe(error)) this.outputError = outputFailedError(error);
      this.#finish(CLIENT_LEFT);
    });
    this.#pipe = new Pipe(
      new ReadAhead(shareTurns(input)),
      output,
      this.#maxMessage,
      {
        message: (message) => this.#events?.message(message),
        oversized: (head: Buffer, tail: Buffer, size) => this.#events?.oversized(head, tail, size),
        backpressure: (full) => this.#events?.pressure(full),
        ended: () => void this.#onInputEnded(),
        failed: (error) => {
          this.fault = describeFault(error);
          this.#finish("A message of the client could not be handled.");
        },
      },
      this.#streams.slabs,
    );
    return Promise.resolve();
  }

  get queued(): number {
    return this.#pipe?.queued ?? 0;
  }

  send(message: EncodedMessage): SentRequest {
    this.#pipe?.send(message);
    return NO_OP_SENT_REQUEST;
  }

  pause(): void {
    this.#pipe?.pause();
  }

  resume(): void {
    this.#pipe?.resume();
  }

  processStats(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** Writes what is queued, but waits at most `FLUSH_TIMEOUT` ms for a client that does not read. */
  async close(): Promise<void> {
    await Promise.race([this.#pipe?.end(), sleep(FLUSH_TIMEOUT)]);
    this.#finish("The hub has stopped.");
  }

  /**
   * Handles the end of stdin: if the client still reads, its requests get `ANSWER_TIMEOUT` ms to be answered; those that
   * are not are cancelled and answered with an error.
   */
  async #onInputEnded(): Promise<void> {
    const events = this.#events;
    if (events?.inputEnded === undefined || this.inputEndedAt !== undefined) {
      this.#finish(CLIENT_LEFT);
      return;
    }
    this.inputEndedAt = performance.now();
    if (await this.#streams.isReaderGone()) {
      this.#finish(CLIENT_LEFT);
      return;
    }
    const idle = Promise.withResolvers<void>();
    this.#endWait = () => idle.resolve();
    events.inputEnded(() => idle.resolve());
    await Promise.race([idle.promise, sleep(ANSWER_TIMEOUT)]);
    if (this.#events === undefined) return;
    events.abandonRequests?.();
    await Promise.race([this.#pipe?.end(), sleep(LAST_FLUSH_TIMEOUT)]);
    this.#finish(CLIENT_LEFT);
  }

  #finish(text: string): void {
    const events = this.#events;
    this.#events = undefined;
    this.#endWait?.();
    events?.closed(new HubError("connectionLost", text));
    if (this.#isOver) return;
    this.#isOver = true;
    this.#streams.close?.();
  }
}

const CLIENT_LEFT = "The client has closed its end.";

/**
 * An input that keeps reading while it is paused, and buffers up to `WRITE_LIMITS.high` bytes. The hub pauses its input
 * while the client does not read, but must notice the end of stdin even then. The end is noticed only after all data
 * before it has been read.
 */
class ReadAhead implements ByteInput {
  readonly #source: ByteInput;
  #onChunk: (chunk: Buffer) => void = () => {};
  readonly #buffered: Buffer[] = [];
  #size = 0;
  #isPaused = false;
  /** Whether the buffer is full, so that the source is paused. */
  #isFull = false;
  #isFlushing = false;

  constructor(source: ByteInput) {
    this.#source = source;
  }

  /**
   * At the end of the stream, buffered chunks are delivered, even if the input is paused: at most `WRITE_LIMITS.high`
   * bytes, and the chunk that exceeded them. Then `onEnd` is called.
   */
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#onChunk = onChunk;
    this.#source.read(
      (chunk) => {
        if (this.#isPaused || this.#isFlushing) this.#buffer(chunk);
        else onChunk(chunk);
      },
      () => {
        this.#isPaused = false;
        for (const chunk of this.#buffered.splice(0)) onChunk(chunk);
        onEnd();
      },
    );
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    // `#onChunk` may call `pause` and `resume`: the buffered chunks are delivered by one call at a time.
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    while (!this.#isPaused) {
      const chunk = this.#buffered.shift();
      if (chunk === undefined) break;
      this.#size -= chunk.length;
      this.#onChunk(chunk);
    }
    this.#isFlushing = false;
    if (!this.#isFull || this.#size >= WRITE_LIMITS.high) return;
    this.#isFull = false;
    this.#source.resume();
  }

  #buffer(chunk: Buffer): void {
    this.#buffered.push(chunk);
    this.#size += chunk.length;
    if (this.#isFull || this.#size < WRITE_LIMITS.high) return;
    this.#isFull = true;
    this.#source.pause();
  }
}
