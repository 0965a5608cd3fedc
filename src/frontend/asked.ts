import type { Edit } from "../bytes.ts";
import type { Era } from "../protocol/era.ts";
import type { Register } from "../register.ts";
import type { Call, Caller, Running } from "../router/call.ts";
import type { Question } from "../upstream/ask.ts";
import type { Withdrawal } from "../upstream/withdrawal.ts";
import type { Sender } from "../upstream/sender.ts";
import { type Id, type Message, readdress, type Response } from "../wire/jsonrpc.ts";
import type { Inbound } from "../wire/link.ts";

/** What a request needs of the client that it is of. */
export interface Asker {
  readonly sender: Sender;
  /** Asks the client on the way of one of its requests. */
  ask(question: Question, way: Inbound): (why: Withdrawal) => void;
}

/** One request of a client while it runs: takes its answer, and takes it off the list of what runs. */
export class Asked implements Caller {
  readonly id: Id;
  running: Pick<Running, "cancel" | "call"> | undefined;
  readonly #inbound: Inbound;
  readonly #list: Register<Asked>;
  readonly #asker: Asker;

  /** @param list what runs, by the key of the client's id */
  constructor(id: Id, inbound: Inbound, list: Register<Asked>, asker: Asker) {
    this.id = id;
    this.#inbound = inbound;
    this.#list = list;
    this.#asker = asker;
  }

  /** The call that it is, once that is known. */
  get call(): Call | undefined {
    return this.running?.call;
  }

  get sender(): Sender {
    return this.#asker.sender;
  }

  address(response: Response, _: Era, edits?: readonly Edit[]): Message {
    return readdress(response, this.id, edits);
  }

  ask(question: Question): (why: Withdrawal) => void {
    return this.#asker.ask(question, this.#inbound);
  }

  respond(message: Message | undefined): void {
    this.#list.take(this.id.key);
    this.#inbound.respond(message);
  }

  notify(message: Message): void {
    this.#inbound.notify(message);
  }
}
