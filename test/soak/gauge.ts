import type { Weight } from "../../bench/usage.ts";
import { quantile } from "../../bench/stats.ts";

/** What the hub holds at a moment. */
interface Sample extends Weight {
  readonly servers: number;
}

/** stdin, stdout and stderr of each. */
const PIPES = 3;
/** Thirds of fewer samples say nothing: memory is given back late, descriptors are at once. */
const ENOUGH = { rss: 80, descriptors: 20 } as const;
/** What may come with more work than there was before: bytes in parts of all, descriptors in numbers. */
const GROWTH = { rss: 1.15, descriptors: 6 } as const;

/** Looks at the hub from outside. */
export class Gauge {
  readonly #weigh: () => Weight | undefined;
  readonly #samples: Sample[] = [];

  constructor(weigh: () => Weight | undefined) {
    this.#weigh = weigh;
  }

  get last(): Sample | undefined {
    return this.#samples.at(-1);
  }

  /** @param servers how many processes it has. */
  look(servers: number): void {
    const weight = this.#weigh();
    if (weight !== undefined) this.#samples.push({ ...weight, servers });
  }

  /** What it held in each third of the time, without its servers' pipes; what comes and goes is left out. */
  get thirds(): readonly Weight[] {
    const size = Math.floor(this.#samples.length / 3);
    return [0, 1, 2].map((at) => summarize(this.#samples.slice(at * size, (at + 1) * size)));
  }

  /** What grew from the second third to the last one; the first one warms up. */
  judge(): readonly string[] {
    const [, before, after] = this.thirds;
    if (before === undefined || after === undefined) return [];
    const size = this.#samples.length / 3;
    const faults: string[] = [];
    if (size >= ENOUGH.rss && after.rss > before.rss * GROWTH.rss) {
      const [from, to] = [before, after].map(({ rss }) => (rss / 1e6).toFixed(0));
      faults.push(`memory grew from ${from} to ${to} MB`);
    }
    const limit = before.descriptors + GROWTH.descriptors;
    if (size >= ENOUGH.descriptors && after.descriptors > limit) {
      faults.push(`descriptors grew from ${before.descriptors} to ${after.descriptors}`);
    }
    return faults;
  }
}

function summarize(samples: readonly Sample[]): Weight {
  const low = (values: readonly number[]) => quantile(Float64Array.from(values).sort(), 0.25);
  return {
    rss: low(samples.map(({ rss }) => rss)),
    descriptors: low(samples.map(({ descriptors, servers }) => descriptors - servers * PIPES)),
  };
}
