import { textOf, utf8 } from "../bytes.ts";
import { memoryPair } from "../wire/memory.ts";
import type { Frame } from "../wire/jsonrpc.ts";
import type { Link } from "../wire/link.ts";
import type { Transport } from "./plugin.ts";

/** A Link, and at its other end what the SDK takes for a server. */
export function makePair(): [Link, Transport] {
  const [ours, theirs] = memoryPair();
  return [ours, new LinkTransport(theirs)];
}

/** A Link as the SDK's interface for what carries messages. */
class LinkTransport implements Transport {
  onmessage?: ((message: never) => void) | undefined;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  readonly #link: Link;
  readonly #abort = new AbortController();

  constructor(link: Link) {
    this.#link = link;
  }

  async start(): Promise<void> {
    const events = {
      frame: (frame: Frame) => this.#take(frame),
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => this.onclose?.(),
    };
    await this.#link.open(events, this.#abort.signal);
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
      // What the interface calls a message is whatever JSON says.
      else this.onmessage?.(JSON.parse(textOf(frame.bytes)) as never);
    } catch (error) {
      this.onerror?.(error instanceof Error ? error : new Error(String(error)));
    }
  }
}
