import { Buffer } from "node:buffer";
import { type Command, Peer } from "./peer.ts";
import { readUsage } from "./usage.ts";

/** Calls that are never answered, while the peer holds them. */
export interface ParkJob {
  readonly kind: "park";
  readonly peer: Command;
  /** A tool that answers, and one that does not. */
  readonly tool: string;
  readonly park: string;
  /** How many calls are in flight when memory is looked at; ascending. */
  readonly counts: readonly number[];
}

export interface ParkResult {
  /** Bytes that each call takes at each count; null where that cannot be known. */
  readonly each: readonly (number | null)[];
}

/** Calls that are answered before any is parked: what the first ones take stays. */
const WARM_UP = 20_000;
const STEP = 100;

export async function park({
  peer: command,
  tool,
  park: mute,
  counts,
}: ParkJob): Promise<ParkResult> {
  const peer = new Peer(command);
  peer.awaitTools((names) => names.includes(tool) && names.includes(mute));
  let key = 10_000_000;
  const call = (name: string): string => {
    const params = { name, arguments: { key: String(++key), lines: 1 } };
    return `${JSON.stringify({ jsonrpc: "2.0", id: key, method: "tools/call", params })}\n`;
  };
  const askMany = (name: string, count: number): void => {
    for (let done = 0; done < count; done += STEP) {
      const texts = Array.from({ length: STEP }, () => call(name));
      peer.write(Buffer.from(texts.join("")));
      if (name === tool) for (const _ of texts) peer.line();
    }
  };
  askMany(tool, WARM_UP);
  const before = readUsage(peer.pid)?.rss;
  let parked = 0;
  const each = counts.map((count) => {
    askMany(mute, count - parked);
    parked = count;
    // Pipes keep their order: when this is answered, the server has all the others.
    askMany(tool, STEP);
    const after = readUsage(peer.pid)?.rss;
    return before === undefined || after === undefined ? null : (after - before) / count;
  });
  await peer.end();
  return { each };
}
