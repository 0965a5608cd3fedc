/**
 * Responses that are larger than one message of NATS. The sender splits them into parts, of which only some are under
 * way at a time: the reader acknowledges each with an empty message, so that neither NATS nor a slow reader has to hold
 * the whole.
 */
import { Buffer } from "node:buffer";

/** Size of a part, in bytes. A smaller `max_payload` makes smaller parts. */
export const PART_SIZE = 256 * 1024;
/** Maximum number of parts that are not acknowledged. */
export const PARTS_IN_FLIGHT = 8;
/** Time without a part or an acknowledgement after which the answer is given up, in ms. */
export const PART_TIMEOUT = 30_000;

/** Sends one response in parts. */
export class PartSender {
  readonly #bytes: Buffer;
  readonly #size: number;
  readonly #send: (kind: "part" | "end", bytes: Uint8Array) => void;
  #at = 0;
  #inFlight = 0;

  /**
   * @param size the size of a part, in bytes
   * @param send sends one part; the last one is an `end`
   */
  constructor(
    bytes: Buffer,
    size: number,
    send: (kind: "part" | "end", bytes: Uint8Array) => void,
  ) {
    this.#bytes = bytes;
    this.#size = size;
    this.#send = send;
  }

  get isDone(): boolean {
    return this.#at >= this.#bytes.length;
  }

  start(): void {
    this.#fill();
  }

  /** Called for each acknowledgement. Those that belong to no part are ignored. */
  acknowledged(): void {
    if (this.#inFlight === 0) return;
    this.#inFlight--;
    this.#fill();
  }

  #fill(): void {
    while (this.#inFlight < PARTS_IN_FLIGHT && !this.isDone) {
      const end = Math.min(this.#at + this.#size, this.#bytes.length);
      const part = this.#bytes.subarray(this.#at, end);
      this.#at = end;
      this.#inFlight++;
      this.#send(this.isDone ? "end" : "part", part);
    }
  }
}

/** Collects the parts of one response. */
export class PartReader {
  readonly #limit: number;
  readonly #parts: Uint8Array[] = [];
  size = 0;

  /** @param limit the largest response, in bytes */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** @returns whether the response is still within the limit */
  add(part: Uint8Array): boolean {
    this.size += part.length;
    if (this.size > this.#limit) {
      this.#parts.length = 0;
      return false;
    }
    this.#parts.push(part);
    return true;
  }

  take(): Buffer {
    return Buffer.concat(this.#parts, this.size);
  }
}
