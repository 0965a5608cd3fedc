import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { joinPieces, type Piece, toBytes } from "../../../base/bytes.ts";
import { errorAnswer } from "../errors.ts";
import {
  type BodyError,
  bodyLengthOf,
  type HttpAnswer,
  type HttpServerRequest,
} from "./messages.ts";
import {
  type BodyQuota,
  type HeadError,
  type ParsedRequestHead,
  parseRequestHead,
  RequestBody,
} from "./request-parser.ts";

/** One request on a connection, until it is answered. */
export class IncomingRequest implements HttpServerRequest {
  readonly head: ParsedRequestHead;
  /** The request's body. */
  readonly body: RequestBody;
  readonly #sendContinue: () => void;
  #onDisconnect: (() => void) | undefined;
  #isDisconnected = false;

  /** @param sendContinue writes `100 Continue` */
  constructor(head: ParsedRequestHead, quota: BodyQuota, sendContinue: () => void) {
    this.head = head;
    this.body = new RequestBody(head.body, quota);
    this.#sendContinue = sendContinue;
  }

  read(limit: number): Buffer | BodyError | Promise<Buffer | BodyError> {
    return this.body.read(limit, () => {
      if (this.head.expectsContinue) this.#sendContinue();
    });
  }

  onDisconnect(callback: () => void): () => void {
    if (this.#isDisconnected) queueMicrotask(callback);
    else this.#onDisconnect = callback;
    return () => (this.#onDisconnect = undefined);
  }

  /** The client has disconnected. */
  disconnect(): void {
    this.#isDisconnected = true;
    this.body.fail("broken");
    this.#onDisconnect?.();
  }
}

/** How the end of a response body is marked. */
export interface BodyFraming {
  /** Length of the body in bytes; undefined if the body is chunked, or ends when the connection closes. */
  readonly length: number | undefined;
  readonly isChunked: boolean;
  /** Whether the connection closes after the response. */
  readonly isLast: boolean;
}

const REASON_PHRASES: Readonly<Record<number, string>> = {
  200: "OK",
  202: "Accepted",
  204: "No Content",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  408: "Request Timeout",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  417: "Expectation Failed",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported",
};

/** Formats the status line and headers of a response, with the empty line. */
export function formatResponseHead({ status, headers }: HttpAnswer, framing: BodyFraming): string {
  const { length, isChunked, isLast } = framing;
  let text = `HTTP/1.1 ${status} ${REASON_PHRASES[status] ?? ""}\r\n`;
  for (const [name, value] of headers) text += `${name}: ${value}\r\n`;
  text += `Date: ${dateOf(Date.now())}\r\n`;
  if (isChunked) text += "Transfer-Encoding: chunked\r\n";
  else if (length !== undefined && !hasNoBody(status)) text += `Content-Length: ${length}\r\n`;
  return isLast ? `${text}Connection: close\r\n\r\n` : `${text}\r\n`;
}

/** Whether responses with a status have neither body nor Content-Length (RFC 9110, 15.3.5 and 15.4.5). */
export function hasNoBody(status: number): boolean {
  return status === 204 || status === 304;
}

const cachedDate = { second: 0, text: "" };

/** The time as an HTTP date. It is formatted once a second, because formatting costs more than the rest of a head. */
function dateOf(now: number): string {
  const second = Math.floor(now / 1000);
  if (second !== cachedDate.second) {
    cachedDate.second = second;
    cachedDate.text = new Date(now).toUTCString();
  }
  return cachedDate.text;
}

/** Responses up to this size, in bytes, are written together with their head. */
const MAX_JOINED = 64 * 1024;
/** Larger responses are written in parts of this many bytes: a client that reads one part in time makes progress. */
const WRITE_SIZE = 1024 * 1024;

/** Writes responses to a socket; waits while the socket's buffer is full. */
export class ResponseWriter {
  readonly #socket: Socket;
  /** Ends the wait for the socket to drain; also called when the client has disconnected. */
  #onDrain: (() => void) | undefined;
  /** The stream whose chunks are being written. */
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #isClosed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Whether the socket's buffer is full. */
  get isFull(): boolean {
    return this.#onDrain !== undefined;
  }

  /** To be called when the socket's buffer has drained. */
  drain(): void {
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }

  /** To be called when the client has disconnected: nothing more is written. */
  close(): void {
    this.#isClosed = true;
    void this.#reader?.cancel().catch(() => {});
    this.drain();
  }

  /**
   * Writes a response.
   * @param head the head of the request; undefined if it was invalid
   * @param isLast whether the connection closes after the response
   * @returns settles when all is written, rejects if the body's stream fails; undefined if all is written already
   */
  writeAnswer(
    answer: HttpAnswer,
    head: ParsedRequestHead | undefined,
    isLast: boolean,
  ): Promise<void> | undefined {
    const { body, status } = answer;
    const length = bodyLengthOf(answer);
    const isChunked = length === undefined && head?.acceptsChunked === true;
    const isBodyOmitted = head?.method === "HEAD" || hasNoBody(status);
    // A response to HEAD may omit Content-Length (RFC 9110, 8.6).
    const announcedLength = isBodyOmitted && length === 0 ? undefined : length;
    const headText = formatResponseHead(answer, { length: announcedLength, isChunked, isLast });
    if (body instanceof ReadableStream) {
      this.#socket.write(headText, "latin1");
      if (!isBodyOmitted) return this.#pipe(body, isChunked);
      void body.cancel().catch(() => {});
      return undefined;
    }
    const pieces = isBodyOmitted ? [] : (body ?? []);
    if (length !== undefined && length > MAX_JOINED) return this.#writeLong(headText, pieces);
    return this.#write(joinPieces([headText, ...pieces]));
  }

  async #writeLong(headText: string, pieces: readonly Piece[]): Promise<void> {
    this.#socket.write(headText, "latin1");
    for (const piece of pieces) {
      const bytes = toBytes(piece);
      for (let offset = 0; offset < bytes.length && !this.#isClosed; offset += WRITE_SIZE) {
        await this.#write(bytes.subarray(offset, offset + WRITE_SIZE));
      }
    }
  }

  async #pipe(body: ReadableStream<Uint8Array>, isChunked: boolean): Promise<void> {
    const reader = body.getReader();
    this.#reader = reader;
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#isClosed) break;
      if (value.length === 0) continue;
      const size = `${value.length.toString(16)}\r\n`;
      const written = this.#write(isChunked ? joinPieces([size, value, "\r\n"]) : value);
      if (written !== undefined) await written;
    }
    this.#reader = undefined;
    if (isChunked && !this.#isClosed) this.#socket.write("0\r\n\r\n", "latin1");
  }

  #write(bytes: Uint8Array): Promise<void> | undefined {
    if (this.#socket.write(bytes)) return undefined;
    return new Promise((resolve) => (this.#onDrain = resolve));
  }
}

/**
 * State of a connection. `idle`: waits for a request; `readingHead`: waits for the rest of its head; `answering`: waits
 * for the application's response; `writing`: sends the response; `closing`: has sent the last response and waits for
 * the client to close; `closed`.
 */
type ConnectionStage = "idle" | "readingHead" | "answering" | "writing" | "closing" | "closed";

/** Maximum number of checks in a row that find a connection without progress, by state. */
const MAX_CHECKS: Readonly<Record<ConnectionStage, number>> = {
  idle: 12,
  readingHead: 4,
  answering: Infinity,
  writing: 12,
  closing: 1,
  closed: Infinity,
};

/** Buffered bytes of pipelined requests before the socket is paused. */
const MAX_PIPELINED = 64 * 1024;
const EMPTY: Buffer = Buffer.alloc(0);
const CR = 0x0d;
const LF = 0x0a;
const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";

/** One HTTP/1.1 connection of a client: serves one request after the other. */
export class ServerConnection {
  readonly #socket: Socket;
  readonly #writer: ResponseWriter;
  readonly #handle: (request: HttpServerRequest) => HttpAnswer | Promise<HttpAnswer>;
  readonly #quota: BodyQuota;
  readonly #onClose: () => void;
  #stage: ConnectionStage = "idle";
  #checks = 0;
  /** Received bytes of requests that are not being served yet. */
  #buffered = EMPTY;
  /**
   * The last parsed head and its bytes, reused for equal bytes: a client's heads are mostly equal, and comparing takes
   * a tenth of the time of parsing.
   */
  #cachedHead: { readonly bytes: Buffer; readonly head: ParsedRequestHead } | undefined;
  #request: IncomingRequest | undefined;
  #isPaused = false;
  #isClosing = false;

  /** @param onClose called once, when the connection is closed */
  constructor(
    socket: Socket,
    handle: (request: HttpServerRequest) => HttpAnswer | Promise<HttpAnswer>,
    quota: BodyQuota,
    onClose: () => void,
  ) {
    this.#socket = socket;
    this.#writer = new ResponseWriter(socket);
    this.#handle = handle;
    this.#quota = quota;
    this.#onClose = onClose;
    socket.on("data", (chunk: Buffer) => this.#onData(chunk));
    socket.on("drain", () => {
      this.#checks = 0;
      this.#writer.drain();
    });
    socket.on("end", () => this.#onHalfClose());
    socket.on("error", () => this.destroy());
    socket.on("close", () => this.destroy());
  }

  /** Called at intervals: closes the connection if it has made no progress for too long. */
  check(): void {
    this.#request?.body.check();
    // While the application produces the rest of the response, the connection need not make progress.
    if (this.#stage === "writing" && !this.#writer.isFull) this.#checks = 0;
    if (++this.#checks <= MAX_CHECKS[this.#stage]) return;
    if (this.#stage === "readingHead") this.#reject(408);
    else this.destroy();
  }

  /** Closes the connection after the request in progress; at once if there is none. */
  closeWhenIdle(): void {
    this.#isClosing = true;
    if (this.#stage === "idle" || this.#stage === "readingHead") this.destroy();
  }

  /** Closes the connection at once. */
  destroy(): void {
    if (this.#stage === "closed") return;
    this.#stage = "closed";
    this.#buffered = EMPTY;
    this.#socket.destroy();
    this.#request?.disconnect();
    this.#request = undefined;
    this.#writer.close();
    this.#onClose();
  }

  /**
   * The client has half-closed the connection. Clients that leave do that, so the connection is closed, unless the
   * client has not read all of a written response yet.
   */
  #onHalfClose(): void {
    if (this.#stage === "writing" && this.#writer.isFull) this.#isClosing = true;
    else if (this.#stage !== "closing") this.destroy();
  }

  #onData(chunk: Buffer): void {
    switch (this.#stage) {
      case "idle":
      case "readingHead":
        this.#buffer(chunk);
        this.#startNextRequest();
        return;
      case "answering":
      case "writing":
        this.#buffer(this.#request?.body.push(chunk) ?? chunk);
        if (this.#buffered.length > MAX_PIPELINED) this.#pause();
        return;
      case "closing":
      case "closed":
    }
  }

  #buffer(chunk: Buffer): void {
    this.#buffered = this.#buffered.length === 0 ? chunk : Buffer.concat([this.#buffered, chunk]);
  }

  #pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket.resume();
  }

  /** Starts the next request if its head is complete. */
  #startNextRequest(): void {
    const parsed = this.#readHead();
    if (parsed === undefined) {
      // The time counts from the first byte of the head, so that a client that sends it slowly cannot hold the
      // connection forever.
      const stage = this.#buffered.length === 0 ? "idle" : "readingHead";
      if (stage !== this.#stage) this.#setStage(stage);
    } else if ("status" in parsed) {
      this.#reject(parsed.status);
    } else {
      const request = new IncomingRequest(parsed.head, this.#quota, this.#sendContinue);
      const { length } = this.#buffered;
      const rest = parsed.end === length ? EMPTY : this.#buffered.subarray(parsed.end);
      this.#buffered = request.body.push(rest);
      this.#request = request;
      this.#setStage("answering");
      void this.#serve(request);
    }
  }

  #readHead(): { readonly head: ParsedRequestHead; readonly end: number } | HeadError | undefined {
    // Skips line ends that some clients send after a body (RFC 9112, 2.2).
    while (this.#buffered[0] === CR && this.#buffered[1] === LF)
      this.#buffered = this.#buffered.subarray(2);
    const cached = this.#cachedHead;
    const end = cached?.bytes.length ?? Infinity;
    if (cached !== undefined && end <= this.#buffered.length) {
      if (cached.bytes.compare(this.#buffered, 0, end) === 0) return { head: cached.head, end };
    }
    const parsed = parseRequestHead(this.#buffered);
    if (parsed !== undefined && "head" in parsed) {
      // The head is copied, so that the received chunk that contains it can be freed.
      this.#cachedHead = {
        bytes: Buffer.from(this.#buffered.subarray(0, parsed.end)),
        head: parsed.head,
      };
    }
    return parsed;
  }

  readonly #sendContinue = (): void => void this.#socket.write(CONTINUE, "latin1");

  async #serve(request: IncomingRequest): Promise<void> {
    const { head, body } = request;
    const answer = await this.#handle(request);
    if (this.#request !== request) {
      if (answer.body instanceof ReadableStream) void answer.body.cancel().catch(() => {});
      return;
    }
    // If a body was not read to its end, its rest is not awaited: the connection closes.
    const isLast = !head.isPersistent || this.#isClosing || !body.isEndCertain;
    body.fail("broken");
    this.#setStage("writing");
    try {
      const written = this.#writer.writeAnswer(answer, head, isLast);
      if (written !== undefined) await written;
    } catch {
      // The connection is closed without the end of the body, so that the client can tell that the response is
      // incomplete.
      this.destroy();
    }
    if (this.#request !== request) return;
    this.#request = undefined;
    if (isLast || this.#isClosing) {
      this.#closeGracefully();
      return;
    }
    this.#setStage("idle");
    this.#resume();
    if (this.#buffered.length > 0) this.#startNextRequest();
  }

  /** Answers an invalid request with an error, and closes. */
  #reject(status: keyof typeof ERROR_TEXTS): void {
    void this.#writer.writeAnswer(errorAnswer(status, ERROR_TEXTS[status]), undefined, true);
    this.#closeGracefully();
  }

  /**
   * Half-closes the connection. Further input is discarded for a while, because the client may not have read the last
   * response yet.
   */
  #closeGracefully(): void {
    this.#buffered = EMPTY;
    this.#setStage("closing");
    this.#socket.end();
    this.#resume();
  }

  #setStage(stage: ConnectionStage): void {
    this.#stage = stage;
    this.#checks = 0;
  }
}

const ERROR_TEXTS = {
  400: "This is no HTTP request that could be answered.",
  408: "The request took too long to come in.",
  417: "Nothing but 100-continue can be expected here.",
  431: "The headers of a request are shorter.",
  501: "Bodies come as they are, or in chunks.",
  505: "HTTP/1.1 is spoken here.",
} as const;
