/**
 * A promise with a time limit: calls `start` with `resolve` and `reject`, and rejects after `ms` with what was awaited.
 * `start` may return a cleanup function, which is called on timeout.
 */
export function deadline<Value>(
  ms: number,
  what: () => string,
  start: (
    resolve: (value: Value) => void,
    reject: (reason: unknown) => void,
  ) => (() => void) | void,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    let undo: (() => void) | void = undefined;
    const timer = setTimeout(() => {
      undo?.();
      reject(new Error(`waited ${ms} ms for ${what()}`));
    }, ms);
    undo = start(
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
  what: () => string,
  look: () => Found | undefined,
): Promise<Found> {
  return deadline(ms, what, (resolve) => {
    const attempt = (): void => {
      const found = look();
      if (found === undefined) return;
      clearInterval(timer);
      resolve(found);
    };
    const timer = setInterval(attempt, 15);
    attempt();
    return () => clearInterval(timer);
  });
}
