import type { Call, Caller, Running } from "../router/call.ts";
import type { Message } from "../wire/jsonrpc.ts";
import type { Inbound } from "../wire/link.ts";

/** One request of a client while it runs: takes its answer, and takes it off the list of what runs. */
export class Asked implements Caller {
  readonly key: string | number;
  running: Pick<Running, "cancel" | "call"> | undefined;
  readonly #inbound: Inbound;
  readonly #list: Map<string | number, Asked>;

  /** @param list what runs, by the key of the client's id */
  constructor(key: string | number, inbound: Inbound, list: Map<string | number, Asked>) {
    this.key = key;
    this.#inbound = inbound;
    this.#list = list;
  }

  /** The call that it is, once that is known. */
  get call(): Call | undefined {
    return this.running?.call;
  }

  respond(message: Message | undefined): void {
    this.#list.delete(this.key);
    this.#inbound.respond(message);
  }

  notify(message: Message): void {
    this.#inbound.notify(message);
  }
}
