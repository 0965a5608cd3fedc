/** A message, as far as its place among others goes. */
export interface Said {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly progressToken?: unknown; readonly progress?: unknown };
  readonly result?: unknown;
}

/** Faults of which the text is kept. */
const EXAMPLES = 5;

/**
 * The progress of some calls, each of which has its id as its token, and is to get 1, 2, 3, … so many times and then its
 * result. Whatever is missing, out of order, repeated, late or another's is a fault.
 */
export class Order {
  readonly #notes: number;
  /** How far each call has come that has no result yet. */
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

  /** Every call has its result. */
  get isOver(): boolean {
    return this.#open.size === 0;
  }

  accept(message: Said): void {
    const { id, method, params, result } = message;
    if (method === "notifications/progress") this.#advance(params ?? {}, message);
    // What a hub tells of itself is no part of any call.
    else if (id !== undefined && method === undefined) this.#finish(id, result, message);
  }

  #advance({ progressToken, progress }: NonNullable<Said["params"]>, message: Said): void {
    const call = Number(progressToken);
    const before = this.#open.get(call);
    if (before === undefined) {
      this.#blame("of no call that is open", message);
      return;
    }
    if (progress !== before + 1) this.#blame(`not ${before + 1}`, message);
    this.#open.set(call, Math.max(before, Number(progress)));
  }

  #finish(id: unknown, result: unknown, message: Said): void {
    const call = Number(id);
    const before = this.#open.get(call);
    if (before === undefined) this.#blame("of no call that is open", message);
    else if (result === undefined) this.#blame("no result", message);
    else if (before !== this.#notes) this.#blame(`a result after ${before}`, message);
    this.#open.delete(call);
  }

  #blame(why: string, message: Said): void {
    this.#faults++;
    if (this.examples.length >= EXAMPLES) return;
    this.examples.push(`${why}: ${JSON.stringify(message).slice(0, 300)}`);
  }
}
