import { answerSize } from "./answer.ts";
import type { Stage } from "./contestants.ts";
import type { Plan } from "./plan.ts";
import { race, relayOf } from "./race.ts";

/**
 * What results of 16 MB take of a hub's memory, in results: the most beyond what it held before the first of them, less what
 * small calls take as well, which compiled code and garbage need.
 */
export interface CopiesResult {
  /** Bytes of one result. */
  readonly size: number;
  /** For each result in flight; NaN where that cannot be known. */
  readonly alone: number;
  readonly four: number;
  /** The most that it was after many calls, to after few: 1 if it does not grow. */
  readonly growth: number;
}

const LINES = 500_000;

/** @throws if something fails */
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
