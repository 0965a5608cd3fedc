/** A run gets faster by more than this as long as it is not warm. */
const GAIN = 1.05;
/** So many steps in a row that were no faster are enough, and so many are the most that are made. */
const LEVEL = 2;
export const MOST_STEPS = 10;

/**
 * Lets what is to be measured run until it gets no faster: some runtimes compile a part when it has run often, so that what
 * makes many calls in a second is warm long before what makes few.
 * @param step runs for so many ms, and gives the rate of that, in whatever unit
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
