import type { Clock } from "../clock.ts";

/** Some servers announce a change whenever they are asked: the next listing waits, ever longer, in ms. */
const PAUSE = { first: 100, longest: { changed: 2000, same: 30_000 } };

export interface RefreshParts {
  readonly clock: Clock;
  /** Settles when the server may be asked. */
  ready(): Promise<void>;
  /** Lists, and tells whether the list is another than before; "again" if it was no fault of the server that it could not. */
  list(): Promise<"changed" | "same" | "again">;
}

/** Lists a server again after it announced a change; announcements meanwhile are answered by one more listing. */
export class Refresh {
  readonly #parts: RefreshParts;
  #wanted = false;
  #running = false;
  #ended = false;
  /** Who waits for the end of the next listing. */
  readonly #waiting: (() => void)[] = [];
  /** Ends the pause after a listing. */
  #wake: () => void = () => {};

  constructor(parts: RefreshParts) {
    this.#parts = parts;
  }

  /** @returns when a listing that began after this has ended, or the connection has. */
  announce(): Promise<void> {
    this.#wanted = true;
    const listed = new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (!this.#running) void this.#run();
    return listed;
  }

  /** The connection that it belongs to is no more. */
  end(): void {
    this.#ended = true;
    this.#wake();
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Never rejects, because `list` does not. */
  async #run(): Promise<void> {
    this.#running = true;
    let delay = 0;
    while (this.#wanted && !this.#ended) {
      await this.#parts.ready();
      if (this.#ended) return;
      this.#wanted = false;
      const waiting = this.#waiting.splice(0);
      const outcome = await this.#parts.list();
      if (outcome === "again") {
        this.#wanted = true;
        this.#waiting.push(...waiting);
        continue;
      }
      for (const resolve of waiting) resolve();
      if (this.#ended) return;
      delay = Math.min(Math.max(delay * 2, PAUSE.first), PAUSE.longest[outcome]);
      await this.#pause(delay);
    }
    this.#running = false;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const undo = this.#parts.clock.after(ms, resolve);
      this.#wake = () => {
        undo();
        resolve();
      };
    });
  }
}
