import { ChunkSight } from "../jsonrpc/sight.ts";
import { joinPieces, utf8 } from "../base/bytes.ts";
import type { Buffer } from "node:buffer";
import { HubError } from "../base/errors.ts";
import { readFramePart } from "../jsonrpc/parse.ts";
import { type EncodedMessage, joinMessage } from "../jsonrpc/message.ts";
import type { Exchange, Link, LinkEvents } from "./transport.ts";
import { PRESSURE } from "../jsonrpc/pipe.ts";

/** The handle of a request on a shared pipe: abandoning it does nothing. */
export const PIPE_EXCHANGE: Exchange = { abandon() {} };

/** Two connected transports in one process: what one sends, the other receives a microtask later. */
export function memoryPair(): [Link, Link] {
  const a = new MemoryLink();
  const b = new MemoryLink();
  a.peer = b;
  b.peer = a;
  return [a, b];
}

class MemoryLink implements Link {
  peer: MemoryLink | undefined;
  #events: LinkEvents | undefined;
  #inbox: Buffer[] = [];
  #queued = 0;
  #state: "new" | "open" | "ended" | "closed" = "new";
  #paused = false;
  #scheduled = false;
  #full = false;

  open(events: LinkEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#state === "closed" || this.#events !== undefined) {
      return Promise.reject(new HubError("cancelled", "The link was not opened."));
    }
    this.#events = events;
    if (this.#state === "new") this.#state = "open";
    this.#schedule();
    return Promise.resolve();
  }

  get queued(): number {
    return this.peer === undefined ? 0 : this.peer.#queued;
  }

  send(message: EncodedMessage): Exchange {
    if (this.#state === "open") this.peer?.receive(message);
    return PIPE_EXCHANGE;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#schedule();
  }

  vitals(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#inbox = [];
    this.#queued = 0;
    this.#finish();
    return Promise.resolve();
  }

  receive(message: EncodedMessage): void {
    if (this.#state === "closed" || this.#state === "ended") return;
    const bytes = joinMessage(message);
    this.#inbox.push(bytes);
    this.#queued += bytes.length;
    this.#measure();
    this.#schedule();
  }

  /** The peer has closed: messages that it sent before are still delivered. */
  hangUp(): void {
    if (this.#state === "closed") return;
    this.#state = "ended";
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled || this.#paused || this.#events === undefined) return;
    this.#scheduled = true;
    queueMicrotask(this.#deliver);
  }

  readonly #deliver = (): void => {
    this.#scheduled = false;
    while (!this.#paused && this.#inbox.length > 0) {
      const bytes = this.#inbox.shift();
      if (bytes === undefined) break;
      this.#queued -= bytes.length;
      this.#events?.frame(readFramePart(...amongOthers(bytes)));
      this.#measure();
    }
    if (this.#state === "ended" && this.#inbox.length === 0) this.#finish();
  };

  /** Reports backpressure to the peer when its messages accumulate here, and its end. */
  #measure(): void {
    const full = this.#queued > (this.#full ? PRESSURE.low : PRESSURE.high);
    if (full === this.#full) return;
    this.#full = full;
    const { peer } = this;
    if (peer !== undefined && peer.#state === "open") peer.#events?.pressure(full);
  }

  #finish(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.peer?.hangUp();
    this.#events?.closed(new HubError("connectionLost", "The link was closed."));
  }
}

/** A line inside a chunk with other lines, as on a pipe: shows up code that takes the whole chunk for the message. */
function amongOthers(line: Buffer): [Buffer, number, number, ChunkSight] {
  const chunk = joinPieces([BEFORE, line, BEHIND]);
  const start = BEFORE.length;
  return [chunk, start, start + line.length, new ChunkSight(chunk)];
}
const BEFORE = utf8('{"jsonrpc":"2.0","method":"notifications/before"}\n');
const BEHIND = utf8('\n{"jsonrpc":"2.0","id":0,"method":"behind","params":{}}\n');
