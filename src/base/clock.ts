import { clearTimeout, setTimeout } from "node:timers";

/** A source of time and timers; tests pass a virtual clock. */
export interface Clock {
  /** Monotonic time, in ms. */
  now(): number;
  /** Calls `callback` after `ms`. @returns a function that cancels the timer */
  after(ms: number, callback: () => void): () => void;
}

/** A timer that calls back once and can be paused; paused time does not count. */
export class PausableTimer {
  readonly #clock: Clock;
  readonly #callback: () => void;
  /** The remaining time when the timer was last set or paused, in ms. */
  #left: number;
  #setAt = 0;
  #cancel: (() => void) | undefined;
  #isOver = false;

  /** @param ms the delay, without pauses */
  constructor(clock: Clock, ms: number, callback: () => void) {
    this.#clock = clock;
    this.#left = ms;
    this.#callback = callback;
    this.#set();
  }

  setPaused(isPaused: boolean): void {
    if (this.#isOver || isPaused === (this.#cancel === undefined)) return;
    if (!isPaused) {
      this.#set();
      return;
    }
    this.#left -= this.#clock.now() - this.#setAt;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  cancel(): void {
    this.#isOver = true;
    this.#cancel?.();
  }

  #set(): void {
    this.#setAt = this.#clock.now();
    this.#cancel = this.#clock.after(Math.max(0, this.#left), () => {
      this.#isOver = true;
      this.#callback();
    });
  }
}

/** When the bytes that are being handled were received, in ms of `performance.now()`; undefined while there are none. */
let receivedAt: number | undefined;
/** The same time in ms since the epoch; undefined until it is asked for. */
let receivedAtWall: number | undefined;

/**
 * Called before received bytes are handled, and with undefined afterwards. In between, `systemClock.now` and `wallNow`
 * stand still: all messages of the bytes have arrived at the same time, and reading two clocks several times for each
 * would take a twentieth of the time of a call.
 * @param time the current time, in ms of `performance.now()`
 */
export function setReceiptTime(time: number | undefined): void {
  receivedAt = time;
  receivedAtWall = undefined;
}

/** The time in ms since the epoch; while received bytes are handled, the time when they were received. */
export function wallNow(): number {
  return receivedAt === undefined ? Date.now() : (receivedAtWall ??= Date.now());
}

/**
 * The system's clock. Its timers do not keep the process alive. While received bytes are handled, `now` is the time when
 * they were received.
 */
export const systemClock: Clock = {
  now: () => receivedAt ?? performance.now(),
  after(ms, callback) {
    let timer: NodeJS.Timeout | undefined = setTimeout(callback, ms);
    timer.unref();
    return () => {
      clearTimeout(timer);
      // Whoever keeps this function does not keep the timer, and what its callback refers to.
      timer = undefined;
    };
  },
};

/** Waits for a promise that never rejects, at most `ms`. @returns whether it has settled */
export function settlesWithin(ms: number, promise: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    // After a long block, the event loop runs timers before it reads pipes. The inner timer gives the event loop one
    // more turn for reading the pipes, so that `promise` can still settle in time.
    const timer = setTimeout(() => setTimeout(resolve, 0, false), ms);
    void promise.then(() => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Waits for `ms` milliseconds of the given clock. @throws the signal's reason when the signal is aborted */
export function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      cancelTimer();
      reject(signal.reason);
    };
    const cancelTimer = clock.after(ms, () => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    });
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

/** How something is looked for; times in ms. */
export interface Search {
  /** Time after which it is given up, and the pause between two looks. */
  readonly limit: number;
  readonly interval: number;
  readonly signal: AbortSignal;
  /** Whether it cannot come any more. Asked before each look, so that what came at last is still found. */
  readonly hasEnded?: () => boolean;
}

/**
 * Looks for something again and again until it is there.
 * @returns undefined if it has not come in time, or cannot come any more
 * @throws what `find` throws; the signal's reason when the signal is aborted
 */
export async function lookFor<Found>(
  find: () => Promise<Found | undefined>,
  { limit, interval, signal, hasEnded = () => false }: Search,
): Promise<Found | undefined> {
  const due = performance.now() + limit;
  for (;;) {
    const isLast = hasEnded() || performance.now() >= due;
    const found = await find();
    if (found !== undefined || isLast) return found;
    // Its timer keeps the process alive, unlike those of a clock: there may be nothing else.
    await abortable(sleep(interval), signal);
  }
}

/** Like `sleep`, but blocks the thread. */
export function sleepSync(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Waits for a promise until the signal is aborted. @throws the signal's reason when it is aborted */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    void promise.then(resolve, reject).then(() => signal.removeEventListener("abort", onAbort));
  });
}

export interface TimeLimit {
  readonly clock: Clock;
  /** The time limit, in ms. */
  readonly after: number;
  readonly signal: AbortSignal;
  readonly reason: () => Error;
}

/** Runs `work` with a signal that is aborted after a time limit, or when `signal` is. */
export async function withTimeLimit<T>(
  { clock, after, signal, reason }: TimeLimit,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeout = new AbortController();
  const cancelTimer = clock.after(after, () => timeout.abort(reason()));
  try {
    return await work(AbortSignal.any([signal, timeout.signal]));
  } finally {
    cancelTimer();
  }
}
