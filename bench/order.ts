/** The members of a JSON-RPC message that are needed to check the order of messages. */
export interface OrderedMessage {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly progressToken?: unknown; readonly progress?: unknown };
  readonly result?: unknown;
}

/** Maximum number of faults whose text is kept. */
const EXAMPLES = 5;

/**
 * Checks the order of the progress notifications of several calls. Each call has its id as its progress token, and
 * must get `notes` notifications with the progress 1, 2, 3, …, and then its result. A message that is missing, out of
 * order, repeated, late or of another call is a fault.
 */
export class Order {
  readonly #notes: number;
  /** The latest progress of each call that has no result yet. */
  readonly #open: Map<number, number>;
  #faults = 0;
  readonly examples: string[] = [];

  constructor(calls: readonly number[], notes: number) {
    this.#notes = notes;
    this.#open = new Map(calls.map((call) => [call, 0]));
  }

  get faults(): number {
    return this.#faults;
  }

  /** Whether every call has its result. */
  get isOver(): boolean {
    return this.#open.size === 0;
  }

  accept(message: OrderedMessage): void {
    const { id, method, params, result } = message;
    if (method === "notifications/progress") this.#advance(params ?? {}, message);
    // Other notifications come from the hub itself and belong to no call.
    else if (id !== undefined && method === undefined) this.#finish(id, result, message);
  }

  #advance(
    { progressToken, progress }: NonNullable<OrderedMessage["params"]>,
    message: OrderedMessage,
  ): void {
    const call = Number(progressToken);
    const before = this.#open.get(call);
    if (before === undefined) {
      this.#blame("of no call that is open", message);
      return;
    }
    if (progress !== before + 1) this.#blame(`not ${before + 1}`, message);
    this.#open.set(call, Math.max(before, Number(progress)));
  }

  #finish(id: unknown, result: unknown, message: OrderedMessage): void {
    const call = Number(id);
    const before = this.#open.get(call);
    if (before === undefined) this.#blame("of no call that is open", message);
    else if (result === undefined) this.#blame("no result", message);
    else if (before !== this.#notes) this.#blame(`a result after ${before}`, message);
    this.#open.delete(call);
  }

  #blame(why: string, message: OrderedMessage): void {
    this.#faults++;
    if (this.examples.length >= EXAMPLES) return;
    this.examples.push(`${why}: ${JSON.stringify(message).slice(0, 300)}`);
  }
}
