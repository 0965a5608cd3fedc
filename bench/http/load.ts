import type { Buffer } from "node:buffer";
import type { HttpLoadJob, LoadResult } from "../job.ts";
import { quantile } from "../stats.ts";
import { readUsage } from "../usage.ts";
import { Host } from "./host.ts";
import { Visitor } from "./visitor.ts";
import { Wire } from "./wire.ts";

/** Keys have eight digits. */
const FIRST_KEY = 10_000_000;

interface Tally {
  calls: number;
  readonly latencies: number[];
  isRecording: boolean;
  isOver: boolean;
}

/** Calls one tool for a while, each client in a session and on a connection of its own, with one call at a time. */
export async function loadHttp(job: HttpLoadJob): Promise<LoadResult> {
  const host = await Host.start(job.peer);
  const tally: Tally = { calls: 0, latencies: [], isRecording: false, isOver: false };
  const clients = await Promise.all(
    Array.from({ length: job.clients }, async (_, at) => {
      const visitor = await Visitor.arrive(host.url);
      return { visitor, wire: await Wire.open(host.url), first: FIRST_KEY + at };
    }),
  );
  const runs = Promise.all(
    clients.map(({ visitor, wire, first }) => callOn(wire, visitor.postHead, first, job, tally)),
  );
  const measured = measure(host, job, tally);
  // Whatever fails first ends it.
  await Promise.race([measured, runs]);
  const figures = await measured;
  await runs;
  for (const { visitor, wire } of clients) {
    visitor.close();
    wire.close();
  }
  await host.end();
  return figures;
}

async function measure(host: Host, job: HttpLoadJob, tally: Tally): Promise<LoadResult> {
  await pass(job.warmUp);
  tally.calls = 0;
  tally.isRecording = true;
  const before = { usage: readUsage(host.pid), now: performance.now() };
  await pass(job.duration);
  const seconds = (performance.now() - before.now) / 1000;
  const after = readUsage(host.pid);
  const { calls } = tally;
  tally.isOver = true;
  const latencies = Float64Array.from(tally.latencies).sort();
  const used = after && before.usage && after.cpu - before.usage.cpu;
  return {
    calls,
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    rate: calls / seconds,
    cpu: used === undefined ? null : used / calls,
    rss: after?.rss ?? null,
    peak: after?.peak ?? null,
  };
}

async function callOn(
  wire: Wire,
  head: string,
  first: number,
  { tool, clients }: HttpLoadJob,
  tally: Tally,
): Promise<void> {
  for (let key = first; !tally.isOver; key += clients) {
    const text = `{"jsonrpc":"2.0","id":${key},"method":"tools/call","params":{"name":"${tool}","arguments":{"key":"${key}","lines":1}}}`;
    const asked = performance.now();
    const { body, status } = await wire.exchange(`${head}${text.length}\r\n\r\n${text}`);
    if (!isAnswerTo(key, body))
      throw new Error(`not the answer to ${key}: ${status} ${body.toString()}`);
    tally.calls++;
    if (tally.isRecording) tally.latencies.push((performance.now() - asked) * 1000);
  }
}

function isAnswerTo(key: number, body: Buffer): boolean {
  return body.includes(`"id":${key}`) && body.includes(`"text":"${key} `);
}

function pass(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
