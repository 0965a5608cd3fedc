import { sleep } from "../../src/base/clock.ts";

/**
 * A promise with a time limit: calls `start` with `resolve` and `reject`, and rejects after `ms` with what was awaited.
 * `start` may return a cleanup function, which is called on timeout.
 */
export function withDeadline<Value>(
  ms: number,
  describe: () => string,
  start: (
    resolve: (value: Value) => void,
    reject: (reason: unknown) => void,
  ) => (() => void) | void,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    let cleanUp: (() => void) | void = undefined;
    const timer = setTimeout(() => {
      cleanUp?.();
      reject(new Error(`waited ${ms} ms for ${describe()}`));
    }, ms);
    cleanUp = start(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (reason) => {
        clearTimeout(timer);
        reject(reason instanceof Error ? reason : new Error(String(reason)));
      },
    );
  });
}

/** Calls `find` every 15 ms until it returns a value: for state without events, such as the process table or a file. */
export function poll<Found>(
  ms: number,
  describe: () => string,
  find: () => Found | undefined,
): Promise<Found> {
  return withDeadline(ms, describe, (resolve) => {
    const check = (): void => {
      const found = find();
      if (found === undefined) return;
      clearInterval(timer);
      resolve(found);
    };
    const timer = setInterval(check, 15);
    check();
    return () => clearInterval(timer);
  });
}

/** The same with a text, and at most 5 s by default. */
export function waitFor<Found>(
  what: string,
  find: () => Found | undefined,
  ms = 5000,
): Promise<Found> {
  return poll(ms, () => what, find);
}

/** Calls `find`, which asks another process, until it finds something; at most for `ms`. */
export async function waitUntil<Found>(
  what: string,
  find: () => Promise<Found | undefined>,
  ms = 15_000,
): Promise<Found> {
  const deadline = performance.now() + ms;
  for (;;) {
    const found = await find();
    if (found !== undefined) return found;
    if (performance.now() > deadline) throw new Error(`waited ${ms} ms for ${what}`);
    await sleep(15);
  }
}
