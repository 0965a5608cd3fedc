import { textOf, utf8 } from "../bytes.ts";
import { memoryPair } from "../wire/memory.ts";
import type { Frame } from "../wire/jsonrpc.ts";
import type { Link } from "../wire/link.ts";
import type { Transport } from "./plugin.ts";

/** A Link, and at its other end what the SDK takes for a server. `fault` is told what it throws, unless it wants to know that itself. */
export function makePair(fault: (error: Error) => void): [Link, Transport] {
  const [ours, theirs] = memoryPair();
  return [ours, new LinkTransport(theirs, fault)];
}

const NEVER = new AbortController().signal;

/** A Link as the SDK's interface for what carries messages. */
class LinkTransport implements Transport {
  onmessage?(message: object): void;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  readonly #link: Link;
  readonly #fault: (error: Error) => void;

  constructor(link: Link, fault: (error: Error) => void) {
    this.#link = link;
    this.#fault = fault;
  }

  async start(): Promise<void> {
    const events = {
      frame: (frame: Frame) => this.#take(frame),
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => this.onclose?.(),
    };
    await this.#link.open(events, NEVER);
  }

  send(message: object): Promise<void> {
    this.#link.send(utf8(JSON.stringify(message)));
    return Promise.resolve();
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  #take(frame: Frame): void {
    try {
      if (frame.kind === "batch") for (const item of frame.items) this.#take(item);
      else this.onmessage?.(JSON.parse(textOf(frame.bytes)) as object);
    } catch (error) {
      (this.onerror ?? this.#fault)(error instanceof Error ? error : new Error(String(error)));
    }
  }
}
