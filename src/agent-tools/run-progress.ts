import type { Clock } from "../base/clock.ts";
import type { ToolCall } from "../plugin/plugin.ts";

/** The shortest time between two progress notifications, in ms. */
const INTERVAL = 100;
/** Interval at which a client is told that its run waits, in ms. */
const WAITING_INTERVAL = 10_000;

/** Sends the client of a call progress notifications about its run. */
export class RunProgress {
  readonly #call: Pick<ToolCall, "progress">;
  readonly #clock: Clock;
  #count = 0;
  #sentAt = -Infinity;
  /** The message to send when `INTERVAL` has passed. */
  #next: string | undefined;
  #cancelTimer: (() => void) | undefined;

  constructor(call: Pick<ToolCall, "progress">, clock: Clock) {
    this.#call = call;
    this.#clock = clock;
  }

  /** Sends a message, at once or when `INTERVAL` has passed. It replaces a message that has not been sent yet. */
  report(message: string): void {
    const wait = this.#sentAt + INTERVAL - this.#clock.now();
    if (wait <= 0 && this.#cancelTimer === undefined) {
      this.#send(message);
      return;
    }
    this.#next = message;
    this.#cancelTimer ??= this.#clock.after(Math.max(wait, 0), () => {
      this.#cancelTimer = undefined;
      if (this.#next !== undefined) this.#send(this.#next);
    });
  }

  /** Reports, at once and then repeatedly, that the run waits for other runs. */
  waits(): void {
    this.end();
    this.#send("queued");
    this.#cancelTimer = this.#clock.after(WAITING_INTERVAL, () => this.waits());
  }

  /** Ends the reports of waiting, because the run begins. */
  starts(): void {
    this.end();
  }

  end(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#next = undefined;
  }

  #send(message: string): void {
    this.#next = undefined;
    this.#sentAt = this.#clock.now();
    this.#call.progress({ progress: ++this.#count, message });
  }
}
