// What a server gets to end by itself, in ms. Clients wait about 2 s after they closed the hub's stdin before they
// send SIGTERM, and 2 s more before SIGKILL; the sum of these must stay below 2 s, so that nothing is left by then.

/** From the end of its stdin to SIGTERM. */
export const EOF_GRACE = 1000;
/** From SIGTERM to SIGKILL. */
export const TERM_GRACE = 500;
/** From SIGKILL until the process table shows it: only a process stuck in the kernel takes longer. */
export const KILL_GRACE = 250;
/** For a hub that is to stop: longer than all of the above, however slow the system is. */
export const STOP_LIMIT = 3000;
/** Before this process ends at once, whatever it has left, in ms: from SIGKILL to all of it until nothing of it shows. */
export const LAST_GRACE = 900;
/** For output that is still in a pipe whose writer has gone; a grandchild can hold such a pipe open for ever. */
export const DRAIN_GRACE = 250;

/** Waits for a promise that never rejects, but no longer than `ms`. @returns whether it settled. */
export function within(ms: number, promise: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    // A loop that stood still for long runs its timers before it reads its pipes: let it read once more.
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

/** Sleeps as `sleep` does, but with all of this process: nothing else happens in it meanwhile. */
export function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Waits no longer than until the signal is aborted. @throws its reason */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const give = (): void => reject(signal.reason);
    signal.addEventListener("abort", give, { once: true });
    if (signal.aborted) give();
    void promise.then(resolve, reject).then(() => signal.removeEventListener("abort", give));
  });
}
