import { utf8 } from "../base/bytes.ts";
import { type Message, type EncodedMessage, piecesOfMessage } from "../jsonrpc/message.ts";
import type { Responder } from "../transport/transport.ts";

/**
 * Answers a batch with one array once all of its requests are answered (2025-03-26, JSON-RPC batching).
 * @param handle handles one message of the batch; one that is to be answered comes with its responder
 */
export function answerBatch(
  items: readonly Message[],
  responder: Responder,
  handle: (item: Message, responder?: Responder) => void,
): void {
  const answers: EncodedMessage[] = [];
  let unanswered = items.length;
  const itemResponder: Responder = {
    notify: (message) => responder.notify(message),
    respond: (message) => {
      if (message !== undefined) answers.push(message);
      if (--unanswered > 0) return;
      responder.respond(answers.length > 0 ? joinBatch(answers) : undefined);
    },
  };
  for (const item of items) {
    if (item.kind === "request" || item.kind === "invalid") {
      handle(item, itemResponder);
    } else {
      handle(item);
      itemResponder.respond(undefined);
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
