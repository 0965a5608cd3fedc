import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { joinPieces, toBytes, type Piece, sizeOf } from "../../base/bytes.ts";
import { type BodyDecoder, bodyDecoderOf } from "./body.ts";
import { type ResponseHead, parseResponseHead } from "./head.ts";

/** Who waits for an answer. Either `end` or `fail` is the last that it is told; nothing is told after it was given up. */
export interface ResponseReceiver {
  /** The server has taken all of the request. */
  sent?(): void;
  head(head: ResponseHead): void;
  /** What comes of the body; the memory is the receiver's. */
  body(bytes: Buffer): void;
  end(): void;
  /** No whole answer will come. `undelivered`: no byte of the request has left this process. */
  fail(error: Error, undelivered: boolean): void;
}

/** A request as it goes over a lane. */
export interface HttpRequestBytes {
  readonly method: string;
  /** The request line and the headers, with the empty line that ends them. */
  readonly head: string;
  readonly body: readonly Piece[];
  readonly receiver: ResponseReceiver;
}

/** What a lane tells its owner. */
export interface HttpConnectionEvents {
  /** It can carry another request. */
  freed(lane: HttpConnection): void;
  /** It is of no use any more: told once. */
  gone(lane: HttpConnection): void;
}

/** A request of so many bytes goes out in one write. */
const SMALL = 64 * 1024;

/** One connection to a server: carries one request after the other. */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #owner: HttpConnectionEvents;
  #parcel: HttpRequestBytes | undefined;
  /** The first bytes of a head. */
  #start: Buffer | undefined;
  #head: ResponseHead | undefined;
  /** The last head that was read, and its bytes: those of a server's answers are often alike, and comparing is cheaper than reading. */
  #known: { readonly bytes: Buffer; readonly head: ResponseHead } | undefined;
  #body: BodyDecoder | undefined;
  #isGone = false;
  /** Not all of the request was taken yet. */
  #isFull = false;
  #isPaused = false;
  /** How long it may rest, in ms, as the server says. */
  patience: number | undefined;
  /** Since when it rests, in ms. */
  restsSince = 0;

  constructor(socket: Socket, owner: HttpConnectionEvents) {
    this.#socket = socket;
    this.#owner = owner;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("drain", () => this.#drained());
    socket.on("end", () => this.#ended());
    socket.on("error", (error) => this.#lose(error));
    socket.on("close", () => this.#lose(new Error("the connection was closed")));
  }

  send(parcel: HttpRequestBytes): void {
    this.#parcel = parcel;
    const { head, body, receiver } = parcel;
    let size = head.length;
    for (const piece of body) size += sizeOf(piece);
    let isTaken = true;
    if (size <= SMALL) {
      isTaken = this.#socket.write(joinPieces([head, ...body]));
    } else {
      this.#socket.cork();
      this.#socket.write(head, "latin1");
      for (const piece of body) isTaken = this.#socket.write(toBytes(piece));
      this.#socket.uncork();
    }
    if (isTaken) receiver.sent?.();
    else this.#isFull = true;
  }

  carries(parcel: HttpRequestBytes): boolean {
    return this.#parcel === parcel;
  }

  /** Ends it, and whatever it carries: nobody is told. */
  drop(): void {
    this.#parcel = undefined;
    this.#lose(new Error("the connection was given up"));
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#socket.resume();
  }

  #drained(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#parcel?.receiver.sent?.();
  }

  #read(chunk: Buffer): void {
    if (this.#isGone) return;
    if (this.#body !== undefined) {
      this.#readBody(this.#body, chunk);
      return;
    }
    if (this.#parcel === undefined) {
      this.drop();
      return;
    }
    const bytes = this.#start === undefined ? chunk : Buffer.concat([this.#start, chunk]);
    const found = this.#readHead(bytes);
    if (found === "malformed") this.#lose(new Error(describe(bytes)));
    else if (found === undefined) this.#start = bytes;
    else this.#begin(found.head, bytes.subarray(found.end));
  }

  #readHead(bytes: Buffer): ReturnType<typeof parseResponseHead> {
    const known = this.#known;
    const end = known?.bytes.length ?? Infinity;
    if (known !== undefined && end <= bytes.length) {
      if (known.bytes.compare(bytes, 0, end) === 0) return { head: known.head, end };
    }
    const found = parseResponseHead(bytes);
    if (found !== undefined && found !== "malformed") {
      // Copied, so that the answer it came with is not kept.
      this.#known = { bytes: Buffer.from(bytes.subarray(0, found.end)), head: found.head };
    }
    return found;
  }

  #begin(head: ResponseHead, rest: Buffer): void {
    this.#start = undefined;
    const parcel = this.#parcel;
    if (parcel === undefined) return;
    if (head.status < 200) {
      if (head.status === 101) this.#lose(new Error("it wants to speak another protocol (101)"));
      else if (rest.length > 0) this.#read(rest);
      return;
    }
    const body = bodyDecoderOf(head, parcel.method);
    if (body === "malformed") {
      this.#lose(new Error("its answer does not say how long it is"));
      return;
    }
    const coding = head.fields.get("content-encoding") ?? "identity";
    if (coding.toLowerCase() !== "identity") {
      this.#lose(
        new Error(`it answers compressed (${coding.slice(0, 50)}), which it was asked not to do`),
      );
      return;
    }
    this.#head = head;
    parcel.receiver.head(head);
    if (this.#isGone) return;
    if (body === "none") {
      this.#finish(rest.length === 0);
      return;
    }
    this.#body = body;
    if (rest.length > 0) this.#readBody(body, rest);
  }

  #readBody(body: BodyDecoder, chunk: Buffer): void {
    const found = body.push(chunk, this.#take);
    if (this.#isGone) return;
    if (found === "end" || found === "beyond") this.#finish(found === "end");
    else if (found === "malformed") this.#lose(new Error("its answer is cut up wrongly"));
  }

  readonly #take = (bytes: Buffer): void => this.#parcel?.receiver.body(bytes);

  /** The answer is whole. `isClean`: nothing is behind it, so that the next one can be told from it. */
  #finish(isClean: boolean): void {
    const { receiver } = this.#parcel ?? {};
    // A server that answers before it has taken the request may never take the rest of it.
    const isLasting = this.#head?.isLasting === true && isClean && !this.#isFull;
    this.patience = restOf(this.#head?.fields.get("keep-alive"));
    this.#parcel = undefined;
    this.#head = undefined;
    this.#body = undefined;
    if (this.#isPaused) this.resume();
    if (isLasting) this.#owner.freed(this);
    else this.drop();
    receiver?.end();
  }

  #ended(): void {
    if (this.#body?.isOpen === true) this.#finish(true);
    else this.#lose(new Error("the connection was closed"));
  }

  #lose(error: Error): void {
    if (this.#isGone) return;
    this.#isGone = true;
    const { receiver } = this.#parcel ?? {};
    this.#parcel = undefined;
    this.#start = undefined;
    this.#body = undefined;
    this.#socket.destroy();
    this.#owner.gone(this);
    receiver?.fail(error, false);
  }
}

/** The server's word for how long it keeps a connection, in ms. */
function restOf(field: string | undefined): number | undefined {
  const [, seconds] = /\btimeout=(\d{1,6})\b/i.exec(field ?? "") ?? [];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}

/** What a server says that does not speak HTTP. */
function describe(bytes: Buffer): string {
  // An alert of TLS begins so.
  if (bytes[0] === 0x15 && bytes[1] === 0x03)
    return "it speaks TLS: the URL has to begin with https";
  return "what it answers is not HTTP";
}
