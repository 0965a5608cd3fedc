import { textOf, utf8 } from "../base/bytes.ts";
import { memoryTransportPair } from "../transport/memory.ts";
import { type Message, bytesOf } from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { describeFault } from "./errors.ts";
import type { SdkTransport } from "./plugin.ts";

/**
 * A SdkTransport and, at its other end, the transport of an SDK server. `onError` gets what the server throws, unless the
 * server has an `onerror`.
 */
export function makePair(fault: (error: Error) => void): [Transport, SdkTransport] {
  const [ours, theirs] = memoryTransportPair();
  return [ours, new LinkTransport(theirs, fault)];
}

const NEVER = new AbortController().signal;

/** Adapts a SdkTransport to the SDK's interface. */
class LinkTransport implements SdkTransport {
  onmessage?(message: object): void;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  readonly #link: Transport;
  readonly #fault: (error: Error) => void;

  constructor(link: Transport, fault: (error: Error) => void) {
    this.#link = link;
    this.#fault = fault;
  }

  async start(): Promise<void> {
    const events = {
      frame: (frame: Message) => this.#take(frame),
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => this.#try(() => this.onclose?.()),
    };
    await this.#link.open(events, NEVER);
  }

  // Rejects if the message cannot be serialized.
  async send(message: object): Promise<void> {
    this.#link.send(utf8(JSON.stringify(message)));
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  #take(frame: Message): void {
    if (frame.kind === "batch") for (const item of frame.items) this.#take(item);
    else this.#try(() => this.onmessage?.(JSON.parse(textOf(bytesOf(frame))) as object));
  }

  /** Exceptions of the server's handlers are reported to the server's side only. */
  #try(work: () => void): void {
    try {
      work();
    } catch (error) {
      const { fault } = describeFault(error, undefined);
      const told = error instanceof Error ? error : new Error(fault);
      try {
        if (this.onerror) this.onerror(told);
        else this.#fault(told);
      } catch (again) {
        this.#fault(again instanceof Error ? again : told);
      }
    }
  }
}
