/** Maximum number of events that wait for their reader. If there are more, the run waits for the reader. */
const MAX_WAITING = 1000;

/** Events on their way from a run to its one reader. */
export class EventQueue<T> {
  readonly #waiting: T[] = [];
  #isEnded = false;
  #added = Promise.withResolvers<void>();
  #taken = Promise.withResolvers<void>();

  /** Adds an event. @returns a promise to wait for if too many events wait for the reader */
  push(event: T): Promise<void> | undefined {
    this.#waiting.push(event);
    this.#added.resolve();
    return this.#waiting.length > MAX_WAITING ? this.#taken.promise : undefined;
  }

  /** Ends the queue: no more events will be added. */
  end(): void {
    this.#isEnded = true;
    this.#added.resolve();
  }

  /** Yields the events until the queue is ended and empty. */
  async *read(): AsyncGenerator<T> {
    for (;;) {
      for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
        if (this.#waiting.length === MAX_WAITING) {
          this.#taken.resolve();
          this.#taken = Promise.withResolvers<void>();
        }
        yield next;
      }
      if (this.#isEnded) return;
      this.#added = Promise.withResolvers<void>();
      await this.#added.promise;
    }
  }
}
