import type { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { errorCodeOf } from "../../jsonrpc/message.ts";
import { EXCERPT_LIMIT } from "./excerpt.ts";
import { BoundedBuffer, isTruncated } from "../../jsonrpc/bounded-buffer.ts";
import type { ResponseHead } from "../http-client/head.ts";
import type { HttpRequester } from "./request.ts";

/** No id of the hub's own requests. */
const ID = 0;
const METHOD_NOT_FOUND = -32601;

/**
 * Finds out whether a server knows a session: some refuse what is sent in one that they have forgotten as they refuse any bad
 * request, or as they answer one. Nothing is wrong with a ping but that: one that knows the session answers it, or does not know
 * pings.
 */
export function isSessionKnown(passage: HttpRequester, fields: string): Promise<boolean> {
  const text = new BoundedBuffer(EXCERPT_LIMIT);
  const body = [utf8(`{"jsonrpc":"2.0","id":${ID},"method":"ping"}`)];
  return new Promise((resolve) => {
    let status = 0;
    passage.send(
      { method: "POST", fields, body },
      {
        head(head: ResponseHead) {
          ({ status } = head);
          if (status !== 400 && status !== 404) resolve(true);
        },
        body: (bytes: Buffer) => text.add(bytes),
        end() {
          const content = text.take();
          const frame = isTruncated(content) ? undefined : parseMessage(content);
          resolve(
            frame?.kind === "response" &&
              frame.id === ID &&
              (frame.outcome === "result" || errorCodeOf(frame) === METHOD_NOT_FOUND),
          );
        },
        fail: () => resolve(true),
      },
    );
  });
}
