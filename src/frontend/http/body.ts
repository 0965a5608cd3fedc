import { Buffer } from "node:buffer";
import type { Deadlines, Timed } from "../../router/deadline.ts";

/** How long a request's body may take to come in, in ms. */
export const BODY_TIME = 60_000;

/** Bodies that are declared to be no longer than this are read as a whole: a stream costs more than all else that is done with them. */
const SMALL = 64 * 1024;

/** Why a body was not read to its end. */
export type Trouble = "tooLarge" | "tooSlow" | "broken";

/** Reads a body, unless it is over the limit (bytes), or takes too long. Never rejects. */
export async function readBody(
  request: Request,
  limit: number,
  deadlines: Deadlines,
): Promise<Buffer | Trouble> {
  const { headers } = request;
  const declared = headers.get("Content-Length");
  if (Number(declared) > limit) return "tooLarge";
  // Whoever listens lets no more through than what is declared, unless it comes in chunks.
  if (declared !== null && Number(declared) <= SMALL && !headers.has("Transfer-Encoding")) {
    return readWhole(request, deadlines);
  }
  if (request.body === null) return Buffer.alloc(0);
  const reader = request.body.getReader();
  const giveUp = (): void => void reader.cancel().catch(() => {});
  let isLate = false;
  const late = limitTime(deadlines, () => {
    isLate = true;
    giveUp();
  });
  try {
    const chunks: Uint8Array[] = [];
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (isLate) return "tooSlow";
      if (done) return Buffer.concat(chunks, size);
      size += value.length;
      if (size > limit) {
        giveUp();
        return "tooLarge";
      }
      chunks.push(value);
    }
  } catch {
    return isLate ? "tooSlow" : "broken";
  } finally {
    deadlines.remove(late);
  }
}

function readWhole(request: Request, deadlines: Deadlines): Promise<Buffer | Trouble> {
  return new Promise((resolve) => {
    const late = limitTime(deadlines, () => resolve("tooSlow"));
    const end = (body: Buffer | Trouble): void => {
      deadlines.remove(late);
      resolve(body);
    };
    request.arrayBuffer().then(
      (whole) => end(Buffer.from(whole)),
      () => end("broken"),
    );
  });
}

function limitTime(deadlines: Deadlines, expire: () => void): Timed {
  const timed = { deadline: deadlines.now() + BODY_TIME, expire };
  deadlines.add(timed);
  return timed;
}
