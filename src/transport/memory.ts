import type { Buffer } from "node:buffer";
import { HubError, describeFault } from "../base/errors.ts";
import { enterStage } from "../base/fault-injection.ts";
import { type EncodedMessage, joinMessage, type Message } from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { WRITE_LIMITS } from "../jsonrpc/pipe.ts";
import {
  NO_OP_SENT_REQUEST,
  type SentRequest,
  type TransportEvents,
  type Transport,
} from "./transport.ts";

/**
 * Makes two connected transports in one process: each receives the other's messages one microtask after they are sent.
 * @param parse parses the bytes of one received message
 */
export function memoryTransportPair(
  parse: (bytes: Buffer) => Message = parseMessage,
): [Transport, Transport] {
  const first = new MemoryTransport(parse);
  const second = new MemoryTransport(parse);
  first.peer = second;
  second.peer = first;
  return [first, second];
}

class MemoryTransport implements Transport {
  readonly kind = "memory";
  peer: MemoryTransport | undefined;
  readonly #parse: (bytes: Buffer) => Message;
  #events: TransportEvents | undefined;
  #received: Buffer[] = [];
  #queued = 0;
  #state: "new" | "open" | "ended" | "closed" = "new";
  #isPaused = false;
  #isDeliveryScheduled = false;
  #isFull = false;

  constructor(parse: (bytes: Buffer) => Message) {
    this.#parse = parse;
  }

  open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#state === "closed" || this.#events !== undefined) {
      return Promise.reject(new HubError("cancelled", "The connection was not opened."));
    }
    this.#events = events;
    if (this.#state === "new") this.#state = "open";
    this.#schedule();
    return Promise.resolve();
  }

  get queued(): number {
    return this.peer === undefined ? 0 : this.peer.#queued;
  }

  send(message: EncodedMessage): SentRequest {
    if (this.#state === "open") this.peer?.receive(message);
    return NO_OP_SENT_REQUEST;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#schedule();
  }

  processStats(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#received = [];
    this.#queued = 0;
    this.#setClosed();
    return Promise.resolve();
  }

  receive(message: EncodedMessage): void {
    if (this.#state === "closed" || this.#state === "ended") return;
    const bytes = joinMessage(message);
    this.#received.push(bytes);
    this.#queued += bytes.length;
    this.#updateBackpressure();
    this.#schedule();
  }

  /** Called when the peer has closed. Messages that the peer sent before are still delivered. */
  peerClosed(): void {
    if (this.#state === "closed") return;
    this.#state = "ended";
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isDeliveryScheduled || this.#isPaused || this.#events === undefined) return;
    this.#isDeliveryScheduled = true;
    queueMicrotask(this.#deliver);
  }

  readonly #deliver = (): void => {
    this.#isDeliveryScheduled = false;
    while (!this.#isPaused && this.#received.length > 0) {
      const bytes = this.#received.shift();
      if (bytes === undefined) break;
      this.#queued -= bytes.length;
      try {
        enterStage("memory");
        this.#events?.message(this.#parse(bytes));
      } catch (error) {
        this.#fail(error);
        return;
      }
      this.#updateBackpressure();
    }
    if (this.#state === "ended" && this.#received.length === 0) this.#setClosed();
  };

  /** Ends the connection after an exception in the handling of a message. */
  #fail(error: unknown): void {
    const text = `A message could not be handled: ${describeFault(error)}`;
    this.#events?.log("error", "hub", text);
    this.#received = [];
    this.#queued = 0;
    this.#setClosed(text);
  }

  /** Tells the peer when backpressure begins, because too many of its messages are queued here, and when it ends. */
  #updateBackpressure(): void {
    const isFull = this.#queued > (this.#isFull ? WRITE_LIMITS.low : WRITE_LIMITS.high);
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    const { peer } = this;
    if (peer !== undefined && peer.#state === "open") peer.#events?.pressure(isFull);
  }

  #setClosed(text = "The connection was closed."): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.peer?.peerClosed();
    this.#events?.closed(new HubError("connectionLost", text));
  }
}
