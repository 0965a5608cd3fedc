import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { joinPieces, type Piece, sizeOf, toBytes } from "../../base/bytes.ts";

/** What has come of a body: `beyond` is all of it, with something behind it that nobody asked for; `malformed` is none. */
type Progress = "more" | "end" | "beyond" | "malformed";

/** Takes an answer's body out of the bytes of a connection. */
export interface BodyDecoder {
  /** Hands on what of the body is in the chunk. */
  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress;
  /** Whether it ends with the connection. */
  readonly isOpen?: true;
}

/** How the body of the answer with that head is told from what follows it (RFC 9112, 6.3). */
export function bodyDecoderOf(
  { status, fields }: ResponseHead,
  method: string,
): BodyDecoder | "none" | "malformed" {
  if (method === "HEAD" || status === 204 || status === 304) return "none";
  const coding = fields.get("transfer-encoding");
  if (coding !== undefined) {
    return coding.toLowerCase() === "chunked" ? new ChunkedBody(false) : "malformed";
  }
  const length = fields.get("content-length");
  if (length === undefined) return OPEN_BODY;
  const [first = "", ...others] = length.split(/\s*,\s*/);
  if (!/^\d{1,15}$/.test(first) || others.some((other) => other !== first)) return "malformed";
  return Number(first) === 0 ? "none" : new SizedBody(Number(first));
}

const OPEN_BODY: BodyDecoder = {
  isOpen: true,
  push(chunk, take) {
    take(chunk);
    return "more";
  },
};

/**
 * A body in chunks, each behind its size.
 * @param isStrict whether lines end with both CR and LF alone, as they have to: servers are forgiven what might hide another
 * request if a client did it
 */
export function chunkedDecoder({ isStrict }: { readonly isStrict: boolean }): BodyDecoder {
  return new ChunkedBody(isStrict);
}

class SizedBody implements BodyDecoder {
  #left: number;

  constructor(size: number) {
    this.#left = size;
  }

  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress {
    if (chunk.length > this.#left) {
      take(chunk.subarray(0, this.#left));
      return "beyond";
    }
    this.#left -= chunk.length;
    take(chunk);
    return this.#left === 0 ? "end" : "more";
  }
}

const LF = 0x0a;
const SIZE = /^([0-9a-f]{1,12})[ \t]*(?:;|$)/i;
/** What some take for the end of a line. */
// oxlint-disable-next-line no-control-regex
const ENDS_ELSEWHERE = /[\x00\r]/;
/** The longest line that is none of the body, and all that may follow it, in bytes. */
const LONGEST = { line: 4096, trailers: 16 * 1024 };

/** The body in chunks, each behind its size (RFC 9112, 7.1). */
class ChunkedBody implements BodyDecoder {
  readonly #isStrict: boolean;
  #at: "size" | "data" | "break" | "trailer" = "size";
  #left = 0;
  /** A line that has not ended yet. */
  #line = "";
  #trailers = 0;

  constructor(isStrict: boolean) {
    this.#isStrict = isStrict;
  }

  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress {
    let from = 0;
    while (from < chunk.length) {
      if (this.#at === "data") {
        const end = Math.min(chunk.length, from + this.#left);
        this.#left -= end - from;
        if (this.#left === 0) this.#at = "break";
        take(from === 0 && end === chunk.length ? chunk : chunk.subarray(from, end));
        from = end;
        continue;
      }
      const end = chunk.indexOf(LF, from);
      this.#line += chunk.toString("latin1", from, end < 0 ? chunk.length : end);
      if (this.#line.length > LONGEST.line) return "malformed";
      if (end < 0) return "more";
      from = end + 1;
      const isWhole = this.#line.endsWith("\r");
      const line = isWhole ? this.#line.slice(0, -1) : this.#line;
      this.#line = "";
      if (this.#isStrict && (!isWhole || ENDS_ELSEWHERE.test(line))) return "malformed";
      const found = this.#read(line);
      if (found === "end") return from === chunk.length ? "end" : "beyond";
      if (found === "malformed") return found;
    }
    return "more";
  }

  #read(line: string): "more" | "end" | "malformed" {
    switch (this.#at) {
      case "size": {
        const [, size] = SIZE.exec(line) ?? [];
        if (size === undefined) return "malformed";
        this.#left = Number.parseInt(size, 16);
        this.#at = this.#left === 0 ? "trailer" : "data";
        return "more";
      }
      case "trailer":
        this.#trailers += line.length;
        if (line === "") return "end";
        return this.#trailers > LONGEST.trailers ? "malformed" : "more";
      default:
        this.#at = "size";
        return line === "" ? "more" : "malformed";
    }
  }
}

/** The head of an answer over HTTP. */
export interface ResponseHead {
  readonly status: number;
  /** By their names in lower case; several of one name are joined with commas. */
  readonly fields: ReadonlyMap<string, string>;
  /** Whether the connection may be used again after it. */
  readonly isLasting: boolean;
}

/** A longer head is refused, in bytes. */
export const MAX_RESPONSE_HEAD = 64 * 1024;

const END = "\r\n\r\n";
const STATUS = /^HTTP\/1\.([01]) (\d{3})(?=[ \r]|$)/;

/**
 * Reads the head of an answer from its first bytes.
 * @returns it, and where what follows it begins; undefined if more has to come; `malformed` if it is none.
 */
export function parseResponseHead(
  bytes: Buffer,
): { readonly head: ResponseHead; readonly end: number } | "malformed" | undefined {
  const at = bytes.indexOf(END);
  if (at < 0) return mayGoOn(bytes) ? undefined : "malformed";
  const text = bytes.toString("latin1", 0, at);
  const [, minor, status] = STATUS.exec(text) ?? [];
  if (status === undefined) return "malformed";
  const fields = new Map<string, string>();
  let end = text.indexOf("\r\n");
  while (end >= 0) {
    const start = end + 2;
    end = text.indexOf("\r\n", start);
    const colon = text.indexOf(":", start);
    const isField = colon > start && (end < 0 || colon < end);
    const first = text.charCodeAt(start);
    // A line that begins with a space goes on with the last one, which nobody does any more but who wants to deceive.
    if (!isField || first === 0x20 || first === 0x09) return "malformed";
    const name = text.slice(start, colon).toLowerCase();
    const value = text.slice(colon + 1, end < 0 ? text.length : end).trim();
    const before = fields.get(name);
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const connection = fields.get("connection");
  // With both of them somebody on the way may take something else for the end of the body (RFC 9112, 6.3).
  const isDoubtful = fields.has("transfer-encoding") && fields.has("content-length");
  const isKept =
    minor === "1"
      ? connection === undefined || !/\bclose\b/i.test(connection)
      : connection !== undefined && /\bkeep-alive\b/i.test(connection);
  const isLasting = isKept && !isDoubtful;
  return { head: { status: Number(status), fields, isLasting }, end: at + END.length };
}

const BEGINNING = "HTTP/1.";

/** Whether they may be a part of one: with lines that end otherwise it would never end. */
function mayGoOn(bytes: Buffer): boolean {
  if (bytes.length > MAX_RESPONSE_HEAD || bytes.includes("\n\n")) return false;
  const first = bytes.toString("latin1", 0, Math.min(bytes.length, BEGINNING.length));
  return BEGINNING.startsWith(first);
}

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
