import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { sleep } from "../../src/base/clock.ts";
import type { RawClient } from "./raw-client.ts";
import { type Hub, withHub } from "./hub.ts";
import { type Manifest, type ServerEntry, scripted } from "./manifest.ts";

/** The path of faulty.mjs, a server that misbehaves as its arguments say. */
export const FAULTY = fileURLToPath(new URL("../fixtures/servers/faulty.mjs", import.meta.url));

/** A manifest entry of a misbehaving server; `options` as in faulty.mjs. */
export function faulty(
  options: readonly string[] = [],
  more: Readonly<Record<string, unknown>> = {},
): ServerEntry {
  return { command: process.execPath, args: [FAULTY, ...options], ...more };
}

/** Runs a hub with the server `bad` and a correct one, `good`, which must still answer afterwards. */
export function withFaulty(
  bad: ServerEntry,
  run: (hub: Hub) => Promise<void>,
  more: Partial<Manifest> = {},
): Promise<void> {
  return withHub({ ...more, servers: { bad, good: scripted() } }, async (hub) => {
    await run(hub);
    await assertServes(hub.client, "good__echo");
  });
}

/** Throws unless the tool echoes its arguments. */
export async function assertServes(client: RawClient, tool: string): Promise<void> {
  const { message } = await client.call(tool, { still: "there" });
  assert.equal(message.result?.content?.[0]?.text, '{"still":"there"}', JSON.stringify(message));
}

/** The peak resident memory of a process so far (VmHWM), in MB. */
export function peakMemory(pid: number): number {
  const [, kilobytes] =
    /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) / 1000;
}

/** The slowest of the calls of `good__echo` that are made every few ms until `other` settles, in ms. */
export async function slowestCallDuring(
  client: RawClient,
  other: Promise<unknown>,
): Promise<number> {
  let isPending = true;
  const end = (): void => void (isPending = false);
  other.then(end, end);
  let slowest = 0;
  while (isPending) {
    const start = performance.now();
    await assertServes(client, "good__echo");
    slowest = Math.max(slowest, performance.now() - start);
    // Calls without a pause would take most of the time of the processor.
    await sleep(10);
  }
  return slowest;
}
