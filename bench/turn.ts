import type { Turn } from "./contest.ts";
import { quantile } from "./stats.ts";
import { readUsage } from "./usage.ts";

/**
 * Begins to measure a turn of a peer.
 * @returns a function that ends the turn. It takes the number of calls and their latencies in µs, ascending.
 */
export function beginTurn(pid: number): (calls: number, latencies: Float64Array) => Turn {
  const began = performance.now();
  const before = readUsage(pid);
  return (calls, latencies) => {
    const seconds = (performance.now() - began) / 1000;
    const after = readUsage(pid);
    return {
      calls,
      p50: quantile(latencies, 0.5),
      p99: quantile(latencies, 0.99),
      rate: calls / seconds,
      cpu: after && before ? (after.cpu - before.cpu) / calls : null,
    };
  };
}
