import process from "node:process";

const { Bun: bun } = globalThis as { Bun?: { gc(force: boolean): void } };

/** Whether `measureMemory` leaves garbage out. */
export const collectsGarbage = bun !== undefined;

/** What this process holds, in bytes; where garbage cannot be collected, with that. */
export function measureMemory(): number {
  if (bun === undefined) return process.memoryUsage().rss;
  bun.gc(true);
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
