/**
 * Runs `start` with the two ends of a promise and rejects after `ms` with what was waited for.
 * `start` may return what undoes it; it is called when time is up.
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

/** Looks every few ms until `look` yields something: for what sends no event, as the process table or a file. */
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
