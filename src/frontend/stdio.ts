import type { Buffer } from "node:buffer";
import { HubError } from "../errors.ts";
import { ownStdin, ownStdout } from "../runtime.ts";
import { sleep } from "../wire/grace.ts";
import type { Message } from "../wire/jsonrpc.ts";
import type { Exchange, Link, LinkEvents } from "../wire/link.ts";
import { PIPE_EXCHANGE } from "../wire/memory.ts";
import { Pipe } from "../wire/pipe.ts";

/** ms that a client which does not read can hold up the hub's end. */
const FLUSH_LIMIT = 500;

/** The hub's own stdin and stdout as a Link: the peer is the client that launched it. */
export class OwnStdio implements Link {
  readonly #limit: number;
  #pipe: Pipe | undefined;
  #events: LinkEvents | undefined;

  /** @param limit the longest message that is read, in bytes. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  open(events: LinkEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(new HubError("cancelled", "stdin was not opened."));
    this.#events = events;
    const gone = (): void => this.#finish("The client has closed its end.");
    this.#pipe = new Pipe(ownStdin(), ownStdout(gone), this.#limit, {
      frame: (frame) => this.#events?.frame(frame),
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
