import { utf8 } from "../base/bytes.ts";
import { type Message, type EncodedMessage, piecesOfMessage } from "../jsonrpc/message.ts";
import type { Responder } from "../transport/transport.ts";

/**
 * Answers a batch with one array once all of its requests are answered (2025-03-26, JSON-RPC batching).
 * @param handle handles one message of the batch; one that is to be answered comes with its responder
 */
export function takeBatch(
  items: readonly Message[],
  inbound: Responder,
  take: (item: Message, inbound?: Responder) => void,
): void {
  const answers: EncodedMessage[] = [];
  let waiting = items.length;
  const each: Responder = {
    notify: (message) => inbound.notify(message),
    respond: (message) => {
      if (message !== undefined) answers.push(message);
      if (--waiting > 0) return;
      inbound.respond(answers.length > 0 ? joinBatch(answers) : undefined);
    },
  };
  for (const item of items) {
    if (item.kind === "request" || item.kind === "invalid") {
      take(item, each);
    } else {
      take(item);
      each.respond(undefined);
    }
  }
}

function joinBatch(answers: readonly EncodedMessage[]): EncodedMessage {
  const pieces = answers.flatMap((answer, i) => [
    i === 0 ? BATCH_START : BATCH_COMMA,
    ...piecesOfMessage(answer),
  ]);
  return [...pieces, BATCH_END];
}
const BATCH_START = utf8("[");
const BATCH_COMMA = utf8(",");
const BATCH_END = utf8("]");
