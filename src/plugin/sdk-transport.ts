import { textOf, utf8 } from "../base/bytes.ts";
import { memoryTransportPair } from "../transport/memory.ts";
import { bytesOf, type Message } from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { describePluginFault } from "./errors.ts";
import type { SdkTransport } from "./plugin.ts";

/**
 * Makes an in-memory connection: a Transport for the hub and, as its other end, an SdkTransport for a server of the
 * MCP SDK. `onError` receives the errors that the server's handlers throw, unless the server has set `onerror`.
 */
export function makeSdkTransportPair(onError: (error: Error) => void): [Transport, SdkTransport] {
  const [hubEnd, serverEnd] = memoryTransportPair();
  return [hubEnd, new SdkTransportAdapter(serverEnd, onError)];
}

const NEVER = new AbortController().signal;

/** Gives a hub's Transport the interface of the MCP SDK. */
class SdkTransportAdapter implements SdkTransport {
  onmessage?(message: object): void;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  readonly #transport: Transport;
  readonly #onError: (error: Error) => void;

  constructor(transport: Transport, onError: (error: Error) => void) {
    this.#transport = transport;
    this.#onError = onError;
  }

  async start(): Promise<void> {
    const events = {
      message: (message: Message) => this.#deliver(message),
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => this.#runHandler(() => this.onclose?.()),
    };
    await this.#transport.open(events, NEVER);
  }

  // Rejects if the message cannot be serialized.
  async send(message: object): Promise<void> {
    this.#transport.send(utf8(JSON.stringify(message)));
  }

  close(): Promise<void> {
    return this.#transport.close();
  }

  #deliver(message: Message): void {
    if (message.kind === "batch") for (const item of message.items) this.#deliver(item);
    else this.#runHandler(() => this.onmessage?.(JSON.parse(textOf(bytesOf(message))) as object));
  }

  /** Runs a handler of the server. Its exceptions are reported to the server's side, not to the hub. */
  #runHandler(handler: () => void): void {
    try {
      handler();
    } catch (error) {
      const { message: fault } = describePluginFault(error, undefined);
      const reported = error instanceof Error ? error : new Error(fault);
      try {
        if (this.onerror) this.onerror(reported);
        else this.#onError(reported);
      } catch (again) {
        this.#onError(again instanceof Error ? again : reported);
      }
    }
  }
}
