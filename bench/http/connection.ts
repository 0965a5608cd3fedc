import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** The response to a request. */
export interface Reply {
  readonly status: number;
  /** The status line and all headers. */
  readonly head: string;
  /** Empty if the body was passed to the sink. */
  readonly body: Buffer;
}

/** The next part that is expected on the connection. */
type Expected =
  | { readonly kind: "head" | "size" | "trailer" }
  /** `left`: number of bytes that are still missing, of the whole body (`body`) or of a chunk (`chunk`). */
  | { readonly kind: "body" | "chunk"; readonly left: number };

interface Waiting {
  readonly sink: ((piece: Buffer) => void) | undefined;
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

const NOTHING: Buffer = Buffer.alloc(0);
const HEAD: Expected = { kind: "head" };
const HEAD_END = "\r\n\r\n";
const LINE_END = "\r\n";

/**
 * An HTTP/1.1 connection that is kept open, with one request at a time. It is cheap, and the number of connections is
 * not limited.
 */
export class HttpConnection {
  readonly #socket: Socket;
  #held = NOTHING;
  #expected: Expected = HEAD;
  #status = 0;
  #head = "";
  #pieces: Buffer[] = [];
  #waiting: Waiting | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => {
      try {
        this.#accept(chunk);
      } catch (error) {
        socket.destroy(error instanceof Error ? error : new Error(String(error)));
      }
    });
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the connection was closed")));
  }

  /**
   * Connects to the host of a URL.
   * @param socketPath the Unix socket of the server, if it has one
   * @throws if no server listens there
   */
  static async open({ hostname, port }: URL, socketPath?: string): Promise<HttpConnection> {
    const socket = socketPath === undefined ? connect(Number(port), hostname) : connect(socketPath);
    await once(socket, "connect");
    return new HttpConnection(socket);
  }

  /**
   * Sends a request and waits for the end of the response.
   * @param sink receives the pieces of the body as they arrive
   * @throws if the connection is lost before the end
   */
  exchange(request: string, sink?: (piece: Buffer) => void): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiting = { sink, resolve, reject };
      if (this.isClosed) this.#fail(new Error("the connection is closed"));
      else this.#socket.write(request);
    });
  }

  get isClosed(): boolean {
    return this.#socket.destroyed;
  }

  close(): void {
    this.#socket.destroy();
  }

  #accept(chunk: Buffer): void {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    while (this.#advance());
  }

  /** Reads the next expected part from the received bytes. @returns false if more bytes are needed */
  #advance(): boolean {
    const expected = this.#expected;
    switch (expected.kind) {
      case "head":
        return this.#readHead();
      case "body":
      case "chunk": {
        const left = expected.left - this.#take(expected.left);
        this.#expected = left > 0 ? { kind: expected.kind, left } : { kind: "size" };
        if (left === 0 && expected.kind === "body") this.#finish();
        return left === 0;
      }
      case "size":
      case "trailer":
        return this.#readSize(expected.kind);
    }
  }

  #readHead(): boolean {
    const end = this.#held.indexOf(HEAD_END);
    if (end < 0) return false;
    this.#head = this.#held.toString("latin1", 0, end);
    this.#held = this.#held.subarray(end + HEAD_END.length);
    this.#status = Number(this.#head.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)/i.exec(this.#head)?.[1];
    if (length !== undefined) this.#expected = { kind: "body", left: Number(length) };
    else if (/\r\ntransfer-encoding: *chunked/i.test(this.#head)) this.#expected = { kind: "size" };
    else this.#expected = { kind: "body", left: 0 };
    return true;
  }

  /** Reads the line with the size of a chunk, or the line after the last chunk. */
  #readSize(kind: "size" | "trailer"): boolean {
    const end = this.#held.indexOf(LINE_END);
    if (end < 0) return false;
    const line = this.#held.toString("latin1", 0, end);
    this.#held = this.#held.subarray(end + LINE_END.length);
    if (kind === "trailer") this.#finish();
    // An empty line is the line end after the previous chunk; the line with the size follows it.
    else if (line !== "") {
      const left = Number.parseInt(line, 16);
      this.#expected = left === 0 ? { kind: "trailer" } : { kind: "chunk", left };
    }
    return true;
  }

  #take(most: number): number {
    const piece = this.#held.subarray(0, most);
    this.#held = this.#held.subarray(piece.length);
    if (piece.length === 0) return 0;
    const sink = this.#waiting?.sink;
    if (sink === undefined) this.#pieces.push(piece);
    else sink(piece);
    return piece.length;
  }

  #finish(): void {
    const [first = NOTHING] = this.#pieces;
    const body = this.#pieces.length > 1 ? Buffer.concat(this.#pieces) : first;
    const waiting = this.#waiting;
    this.#pieces = [];
    this.#expected = HEAD;
    this.#waiting = undefined;
    if (waiting === undefined) throw new Error(`nobody asked for ${this.#head}`);
    waiting.resolve({ status: this.#status, head: this.#head, body });
  }

  #fail(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.reject(error);
  }
}
