import process from "node:process";

/** What this process holds, in bytes; where garbage cannot be collected, with that. */
export function measureMemory(): number {
  const { Bun: bun } = globalThis as { Bun?: { gc(force: boolean): void } };
  if (bun === undefined) return process.memoryUsage().rss;
  bun.gc(true);
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
