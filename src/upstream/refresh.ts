import type { Clock } from "../base/clock.ts";

/** Some servers announce a change whenever they are asked: the next listing waits, ever longer, in ms. */
const PAUSE = { first: 100, longest: { changed: 2000, same: 30_000 } };

export interface CoalescedRefreshOptions {
  readonly clock: Clock;
  /** Settles when the server may be asked. */
  ready(): Promise<void>;
  /** Lists, and tells whether the list is another than before; "again" if it was no fault of the server that it could not. */
  list(): Promise<"changed" | "same" | "again">;
}

/** Lists a server again after it announced a change; announcements meanwhile are answered by one more listing. */
export class CoalescedRefresh {
  readonly #parts: CoalescedRefreshOptions;
  #wanted = false;
  #running = false;
  #ended = false;
  /** For those who wait for the end of the next listing, however many: servers may announce without end. */
  #next: Listed | undefined;
  /** Ends the pause after a listing. */
  #wake: () => void = () => {};

  constructor(parts: CoalescedRefreshOptions) {
    this.#parts = parts;
  }

  /** @returns when a listing that began after this has ended, or the connection has. */
  announce(): Promise<void> {
    this.#wanted = true;
    this.#next ??= makeListed();
    const { listed } = this.#next;
    if (!this.#running) void this.#run();
    return listed;
  }

  /** The connection that it belongs to is no more. */
  end(): void {
    this.#ended = true;
    this.#wake();
    this.#next?.tell();
  }

  /** Never rejects, because `list` does not. */
  async #run(): Promise<void> {
    this.#running = true;
    let delay = 0;
    while (this.#wanted && !this.#ended) {
      await this.#parts.ready();
      if (this.#ended) return;
      this.#wanted = false;
      const present = this.#next;
      this.#next = undefined;
      const outcome = await this.#parts.list();
      if (outcome === "again") {
        this.#wanted = true;
        // Who waited for this one waits for the next.
        this.#next = join(present, this.#next);
        if (this.#ended) this.#next?.tell();
        continue;
      }
      present?.tell();
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

/** The end of a listing. */
interface Listed {
  readonly listed: Promise<void>;
  tell(): void;
}

function makeListed(): Listed {
  let tell = (): void => {};
  const listed = new Promise<void>((resolve) => (tell = resolve));
  return { listed, tell: () => tell() };
}

function join(a: Listed | undefined, b: Listed | undefined): Listed | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const tell = (): void => {
    a.tell();
    b.tell();
  };
  return { listed: b.listed, tell };
}
