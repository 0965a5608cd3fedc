import { countDescriptors, readUsage } from "../usage.ts";
import { quantile } from "../stats.ts";
import { childrenOf } from "./processes.ts";

/** What the hub holds at a moment. */
export interface Sample {
  /** Bytes. */
  readonly rss: number;
  readonly descriptors: number;
  readonly servers: number;
}

/** What it held in one third of the time: what comes and goes is left out. */
export interface Third {
  readonly rss: number;
  /** Without those of its servers' pipes. */
  readonly descriptors: number;
}

/** stdin, stdout and stderr of each. */
const PIPES = 3;
/** Thirds of fewer samples say nothing. */
const ENOUGH = 20;
/** What may come with more work than there was before: bytes in parts of all, descriptors in numbers. */
const GROWTH = { rss: 1.15, descriptors: 6 } as const;

/** Looks at the hub from outside. */
export class Gauge {
  readonly #pid: number;
  readonly #samples: Sample[] = [];

  constructor(pid: number) {
    this.#pid = pid;
  }

  get last(): Sample | undefined {
    return this.#samples.at(-1);
  }

  look(): void {
    const rss = readUsage(this.#pid)?.rss;
    const descriptors = countDescriptors(this.#pid);
    if (rss === undefined || descriptors === undefined) return;
    this.#samples.push({ rss, descriptors, servers: childrenOf(this.#pid).length });
  }

  get thirds(): readonly Third[] {
    const size = Math.floor(this.#samples.length / 3);
    return [0, 1, 2].map((at) => summarize(this.#samples.slice(at * size, (at + 1) * size)));
  }

  /** What grew from the second third to the last one; the first one warms up. */
  judge(): readonly string[] {
    if (this.#samples.length < 3 * ENOUGH) return [];
    const [, before, after] = this.thirds;
    if (before === undefined || after === undefined) return [];
    const faults: string[] = [];
    if (after.rss > before.rss * GROWTH.rss) {
      const [from, to] = [before, after].map(({ rss }) => (rss / 1e6).toFixed(0));
      faults.push(`memory grew from ${from} to ${to} MB`);
    }
    if (after.descriptors > before.descriptors + GROWTH.descriptors) {
      faults.push(`descriptors grew from ${before.descriptors} to ${after.descriptors}`);
    }
    return faults;
  }
}

function summarize(samples: readonly Sample[]): Third {
  const low = (values: readonly number[]) => quantile(Float64Array.from(values).sort(), 0.25);
  return {
    rss: low(samples.map(({ rss }) => rss)),
    descriptors: low(samples.map(({ descriptors, servers }) => descriptors - servers * PIPES)),
  };
}
