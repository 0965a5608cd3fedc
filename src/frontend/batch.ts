import { utf8 } from "../bytes.ts";
import type { Message } from "../wire/jsonrpc.ts";

/** The answers to the requests of a batch, as one message (2025-03-26, JSON-RPC batching). */
export function joinBatch(answers: readonly Message[]): Message {
  const pieces = answers.flatMap((answer, i) => [
    i === 0 ? BATCH_START : BATCH_COMMA,
    ...(answer instanceof Uint8Array ? [answer] : answer),
  ]);
  return [...pieces, BATCH_END];
}
const BATCH_START = utf8("[");
const BATCH_COMMA = utf8(",");
const BATCH_END = utf8("]");
