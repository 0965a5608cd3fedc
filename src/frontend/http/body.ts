import { Buffer } from "node:buffer";
import type { Clock } from "../../clock.ts";

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
  clock: Clock,
): Promise<Buffer | Trouble> {
  const { headers } = request;
  const declared = headers.get("Content-Length");
  if (Number(declared) > limit) return "tooLarge";
  // Whoever listens lets no more through than what is declared, unless it comes in chunks.
  if (declared !== null && Number(declared) <= SMALL && !headers.has("Transfer-Encoding")) {
    return readWhole(request, clock);
  }
  if (request.body === null) return Buffer.alloc(0);
  const reader = request.body.getReader();
  const giveUp = (): void => void reader.cancel().catch(() => {});
  let isLate = false;
  const disarm = clock.after(BODY_TIME, () => {
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
    disarm();
  }
}

async function readWhole(request: Request, clock: Clock): Promise<Buffer | Trouble> {
  let disarm = (): void => {};
  const late = new Promise<Trouble>((resolve) => {
    disarm = clock.after(BODY_TIME, () => resolve("tooSlow"));
  });
  try {
    const whole = await Promise.race([request.arrayBuffer(), late]);
    return typeof whole === "string" ? whole : Buffer.from(whole);
  } catch {
    return "broken";
  } finally {
    disarm();
  }
}
