import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { Message } from "../../src/jsonrpc/message.ts";
import { Pipe } from "../../src/jsonrpc/pipe.ts";

/**
 * Gives a pipe bytes in chunks which end at these places.
 * @param repaired called for each message in which something was replaced; absent on a client's side
 */
export function readThroughPipe(
  bytes: Buffer,
  cuts: readonly number[],
  message: (frame: Message) => void,
  repaired?: () => void,
): void {
  let take: (chunk: Buffer) => void = () => {};
  let finish = (): void => {};
  const source = {
    read: (onChunk: typeof take, onEnd: typeof finish): void => {
      take = onChunk;
      finish = onEnd;
    },
    pause: () => {},
    resume: () => {},
  };
  const pipe = new Pipe(source, { write: () => undefined, end: () => {} }, 1e9, {
    message,
    oversized: () => assert.fail("nothing is too long"),
    ...(repaired && { repaired }),
    backpressure: () => {},
    ended: () => {},
    failed: (error) => {
      throw error;
    },
  });
  assert.equal(pipe.queued, 0);
  let from = 0;
  for (const cut of [...cuts, bytes.length].sort((a, b) => a - b)) {
    // Each has memory of its own, as those that come in have.
    if (cut > from) take(Buffer.from(new Uint8Array(bytes.subarray(from, cut)).buffer));
    from = Math.max(from, cut);
  }
  finish();
}
