import { answerSize } from "./answer.ts";
import type { Stage } from "./contestants.ts";
import type { Plan } from "./plan.ts";
import { race, relayOf } from "./race.ts";

/**
 * The additional memory that a hub needs for results of 16 MB, in multiples of the size of a result: the hub's peak
 * memory minus its memory before the first call. The same difference for small results is subtracted, because it is
 * caused by compiled code and garbage.
 */
export interface CopiesResult {
  /** Size of one result, in bytes. */
  readonly size: number;
  /** Additional memory per result in flight: with one result in flight (`alone`), and with four; NaN if unknown. */
  readonly alone: number;
  readonly four: number;
  /** Peak memory after many calls divided by that after few calls; 1 if the memory does not grow. */
  readonly growth: number;
}

const LINES = 500_000;

/** Measures the memory for large results. @throws if something fails */
export async function measureCopies(stage: Stage, { pace }: Plan): Promise<CopiesResult> {
  const size = answerSize(LINES);
  const run = async (flight: number, rounds: number, lines = LINES) => {
    const toolmux = relayOf(stage, "toolmux");
    const results = await race({ toolmux }, { flight, lines }, { ...pace, rounds });
    const { base = null, peak = null } = results["toolmux"] ?? {};
    return base === null || peak === null
      ? { more: Number.NaN, peak: Number.NaN }
      : { more: peak - base, peak };
  };
  const [few, many, four] = [await run(1, 2), await run(1, 20), await run(4, 4)];
  const [small, smallFour] = [await run(1, 2, 1), await run(4, 4, 1)];
  return {
    size,
    alone: (few.more - small.more) / size,
    four: (four.more - smallFour.more) / (4 * size),
    growth: many.peak / few.peak,
  };
}
