/** A step counts as faster if its rate is higher than the best previous rate by more than this factor. */
const GAIN = 1.05;
/**
 * `LEVEL`: the warm-up ends after this many steps in a row that were not faster. `MOST_STEPS`: maximum number of
 * steps.
 */
const LEVEL = 2;
export const MOST_STEPS = 10;

/**
 * Repeats a step until it gets no faster. Some runtimes compile code only after many calls, so a step with many calls
 * per second reaches its full speed much earlier than a step with few.
 * @param step runs for the given number of ms, and returns its rate in any unit
 * @param ms length of one step, in ms
 */
export async function warmUp(
  step: (ms: number) => Promise<number> | number,
  ms: number,
): Promise<void> {
  let best = 0;
  for (let made = 0, level = 0; made < MOST_STEPS && level < LEVEL; made++) {
    const rate = await step(ms);
    level = rate > best * GAIN ? 0 : level + 1;
    best = Math.max(best, rate);
  }
}
