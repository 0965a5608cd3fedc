import { existsSync, readlinkSync } from "node:fs";
import process from "node:process";
import { carriersOf } from "../../test/soak/processes.ts";
import { quantile } from "../stats.ts";
import { readUsage } from "../usage.ts";
import type { Figures, Job } from "./job.ts";

/** What processes have used together: CPU so far in µs, and bytes of memory now; 0 where that cannot be known. */
export interface Weight {
  readonly cpu: number;
  readonly rss: number;
}

/** All processes of one peer, also those that left its group; but not its server, nor this one. */
export class Kin {
  readonly #tag: string;
  readonly #server: string;

  constructor({ tag, server }: Pick<Job, "tag" | "server">) {
    this.#tag = tag;
    this.#server = server;
  }

  weigh(): Weight {
    const sum = { cpu: 0, rss: 0 };
    for (const pid of tagged(this.#tag)) {
      if (pid === process.pid || executableOf(pid) === this.#server) continue;
      const usage = readUsage(pid);
      sum.cpu += usage?.cpu ?? 0;
      sum.rss += usage?.rss ?? 0;
    }
    return sum;
  }
}

/** Ends all processes with that text in their environment. */
export function sweep(tag: string): void {
  for (const pid of tagged(tag)) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself.
    }
  }
}

function tagged(tag: string): number[] {
  return existsSync("/proc/self/environ") ? carriersOf(tag) : [];
}

function executableOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/exe`);
  } catch {
    return undefined;
  }
}

/**
 * The figures of a lap.
 * @param latencies of its calls, in µs, ascending
 * @throws if there was not one answer.
 */
export function summarize(
  latencies: Float64Array,
  seconds: number,
  before: Weight,
  after: Weight,
): Figures {
  const calls = latencies.length;
  if (calls === 0) throw new Error(`no answer within ${seconds.toFixed(1)} s`);
  const isKnown = after.rss > 0;
  return {
    calls,
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    rate: calls / seconds,
    cpu: isKnown ? (after.cpu - before.cpu) / calls : null,
    rss: isKnown ? after.rss : null,
  };
}
