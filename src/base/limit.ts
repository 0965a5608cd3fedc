import type { Clock } from "./clock.ts";

export interface TimeLimit {
  readonly clock: Clock;
  /** In ms. */
  readonly after: number;
  readonly signal: AbortSignal;
  /** What its signal is aborted with then. */
  readonly reason: () => Error;
}

/** Does something that is given up after a while, or when the signal says so. */
export async function withLimit<T>(
  { clock, after, signal, reason }: TimeLimit,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController();
  const undo = clock.after(after, () => late.abort(reason()));
  try {
    return await work(AbortSignal.any([signal, late.signal]));
  } finally {
    undo();
  }
}
