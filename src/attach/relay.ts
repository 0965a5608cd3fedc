import { Buffer } from "node:buffer";
import type { ByteInput, ByteOutput } from "../base/byte-streams.ts";
import type { Piece } from "../base/bytes.ts";
import { type Clock, sleep } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { SocketConnection } from "../base/unix-socket.ts";
import { LineReader } from "../jsonrpc/line-reader.ts";
import { buildError, joinMessage, type Message } from "../jsonrpc/message.ts";
import {
  type ChunkScan,
  LF,
  parseInChunk,
  parseMessage,
  parseTruncated,
} from "../jsonrpc/parse.ts";
import {
  calledKey,
  cancelledKey,
  ClientBooks,
  listChangesAfter,
  type Replay,
} from "./client-books.ts";
import { type CompletedLines, WholeLines } from "./whole-lines.ts";

/** Number of failed joins after which the relay ends, if they are no further apart than `within`, in ms. */
const FAILED_JOINS = { count: 3, within: 30_000 };
/** Maximum time for a hub to answer the `initialize` that is sent again, in ms. */
const REPLAY_LIMIT = 10_000;
/** Time from the end of the client's stream until requests without an answer get an error, in ms. The hub does so after 1 s. */
const END_LIMIT = 1500;
/** Maximum wait for a client that does not read its last answers, in ms. */
const FLUSH_LIMIT = 500;
/** Number of bytes that are kept while a hub is joined; beyond it, the client's stream is paused. */
const MAX_WAITING = 1024 * 1024;
/** Room beside a message of maximum length for what the hub adds to it, in bytes. */
const ENVELOPE = 64 * 1024;
const LINE_END = Buffer.from([LF]);

export interface RelayOptions {
  /** The client's streams. */
  readonly input: ByteInput;
  readonly output: ByteOutput;
  /** The connection to the first hub, which has accepted the client. */
  readonly connection: SocketConnection;
  /** Finds or starts the next hub. @throws {HubError} the reason why there is none */
  join(): Promise<SocketConnection>;
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
  readonly clock: Clock;
  log(text: string): void;
}

/** Where the relay stands: a hub has the client, is joined, or is joined with the client's next message. */
type RelayState = "attached" | "joining" | "detached" | "over";

/** How the relay ended. `lost`: no hub could be joined any more. */
export type RelayEnd = "left" | "lost";

/**
 * Passes bytes between a client and a shared hub, and moves the client to the next hub when its hub ends. Chunks are
 * forwarded as they come, and read afterwards.
 */
export class Relay {
  readonly #options: RelayOptions;
  readonly #books = new ClientBooks();
  readonly #reader: LineReader;
  readonly #fromHub: WholeLines;
  #connection: SocketConnection | undefined;
  #state: RelayState = "detached";
  /** The beginning of the client's unfinished line; undefined if it is longer than a message may be. */
  #unfinished: Buffer[] | undefined = [];
  #unfinishedSize = 0;
  /** Lines of the client that wait for a hub. */
  #waiting: Buffer[] = [];
  #waitingSize = 0;
  #hasInputEnded = false;
  #isInputPaused = false;
  /** The replay whose `initialize` the joined hub has to answer. */
  #replay: Replay | undefined;
  #cancelTimer = (): void => {};
  /** Whether the hub that is attached has sent anything. */
  #hasHubSpoken = false;
  /** When joins have failed, and when hubs have ended without a word, in ms of the clock. */
  #failures: number[] = [];
  readonly #ended = Promise.withResolvers<RelayEnd>();

  constructor(options: RelayOptions) {
    this.#options = options;
    this.#fromHub = new WholeLines(options.maxMessage + ENVELOPE);
    this.#reader = new LineReader(options.maxMessage, {
      line: (bytes) => this.#onMessage(parseMessage(bytes), bytes, 0, bytes.length),
      lineInChunk: (chunk, start, end, scan) => this.#onLine(chunk, start, end, scan),
      oversized: (head, tail) => this.#onOversized(head, tail),
    });
  }

  /** Passes on bytes until the client has left or no hub can be joined. Called once. */
  run(): Promise<RelayEnd> {
    const { input, connection } = this.#options;
    this.#attach(connection);
    input.read(
      (chunk) => this.#onChunk(chunk),
      () => this.#onInputEnded(),
    );
    return this.#ended.promise;
  }

  /** Ends the connection to the hub, which cancels the client's requests. Later calls do nothing. */
  close(): void {
    void this.#end("left");
  }

  // From the client.

  #onChunk(chunk: Buffer): void {
    if (this.#state === "over") return;
    if (this.#state === "attached") this.#sendToHub(chunk);
    // The reader comes second, and meets the state that the write has left: a broken connection is known by then.
    this.#noteUnfinished(chunk);
    this.#reader.push(chunk);
    if (this.#waitingSize > MAX_WAITING) this.#pauseInput();
  }

  #noteUnfinished(chunk: Buffer): void {
    const last = chunk.lastIndexOf(LF);
    if (last >= 0) {
      this.#unfinished = [];
      this.#unfinishedSize = 0;
      if (last + 1 === chunk.length) return;
    }
    const rest = last < 0 ? chunk : chunk.subarray(last + 1);
    this.#unfinishedSize += rest.length;
    if (this.#unfinishedSize > this.#options.maxMessage) this.#unfinished = undefined;
    else this.#unfinished?.push(rest);
  }

  #sendToHub(bytes: Uint8Array): void {
    const written = this.#connection?.output.write(bytes);
    if (written === undefined) return;
    this.#pauseInput();
    void written.then(() => this.#resumeInput());
  }

  #pauseInput(): void {
    if (this.#isInputPaused) return;
    this.#isInputPaused = true;
    this.#options.input.pause();
  }

  #resumeInput(): void {
    if (!this.#isInputPaused) return;
    this.#isInputPaused = false;
    this.#options.input.resume();
  }

  #onLine(chunk: Buffer, start: number, end: number, scan: ChunkScan): void {
    const key = this.#state === "attached" ? calledKey(chunk, start, end) : undefined;
    if (key !== undefined) {
      this.#books.noteCall(key);
      return;
    }
    this.#onMessage(parseInChunk(chunk, start, end, scan), chunk, start, end);
  }

  #onMessage(message: Message, bytes: Buffer, start: number, end: number): void {
    if (this.#state !== "attached") {
      // The hub that has asked, or that worked at the cancelled request, is gone.
      const isForLastHub = message.kind === "response" || cancelledKey(message) !== undefined;
      if (isForLastHub && this.#waiting.length === 0) return;
      this.#wait(Buffer.from(bytes.subarray(start, end)));
    }
    this.#books.noteSent(message);
    if (this.#state === "detached") void this.#join();
  }

  #onOversized(head: Buffer, tail: Buffer): void {
    const found = parseTruncated(head, tail);
    if (found?.kind !== "request") return;
    if (this.#state === "attached") {
      this.#books.noteOpen(found.id);
      return;
    }
    const text = `The message is longer than ${this.#options.maxMessage} bytes.`;
    this.#answer([found.id], new HubError("messageTooLarge", text));
  }

  #wait(line: Buffer): void {
    this.#waiting.push(line, LINE_END);
    this.#waitingSize += line.length + 1;
  }

  #onInputEnded(): void {
    if (this.#hasInputEnded || this.#state === "over") return;
    this.#hasInputEnded = true;
    this.#reader.end();
    this.#unfinished = [];
    if (this.#state === "attached") this.#endOutput();
    else if (this.#state === "detached") void this.#end("left");
  }

  /** Tells the hub that the client sends nothing more. The hub answers what it can, and closes the connection. */
  #endOutput(): void {
    this.#connection?.output.end();
    this.#cancelTimer = this.#options.clock.after(END_LIMIT, () => {
      this.#answer(this.#books.takeOpen(false), new HubError("cancelled", "The client has left."));
      void this.#end("left");
    });
  }

  // From the hub.

  #attach(connection: SocketConnection): void {
    this.#connection = connection;
    this.#hasHubSpoken = false;
    this.#state = "attached";
    this.#fromHub.drop();
    connection.input.read(
      (chunk) => this.#onHubChunk(connection, chunk),
      () => this.#onHubEnded(connection),
    );
  }

  #onHubChunk(connection: SocketConnection, chunk: Buffer): void {
    if (connection !== this.#connection) return;
    this.#hasHubSpoken = true;
    const completed = this.#fromHub.push(chunk);
    if (completed === undefined) {
      if (!this.#fromHub.isTooLong) return;
      this.#options.log("the shared hub has sent a message that is too long; it is left");
      connection.destroy();
      this.#onHubEnded(connection);
      return;
    }
    if (this.#books.hasOwnRequests || this.#replay !== undefined) {
      this.#passSome(completed, chunk);
      return;
    }
    for (const buffer of completed.buffers) this.#sendToClient(buffer);
    const { first, start, end } = completed;
    if (first !== undefined) this.#books.noteLineInParts(first);
    for (let from = start; from < end;) {
      const to = chunk.indexOf(LF, from);
      if (to > from) this.#books.noteLine(chunk, from, to);
      from = to + 1;
    }
  }

  /** Passes on lines one by one, without the answers to what was sent again. */
  #passSome({ buffers }: CompletedLines, chunk: Buffer): void {
    const whole = buffers.length === 1 ? (buffers[0] ?? chunk) : Buffer.concat(buffers);
    for (let from = 0; from < whole.length;) {
      const to = whole.indexOf(LF, from);
      const line = whole.subarray(from, to);
      const isOwn = this.#books.noteLine(line, 0, line.length);
      if (!isOwn) this.#sendToClient(whole.subarray(from, to + 1));
      else if (this.#replay !== undefined) this.#onReplayed(this.#replay, line);
      if (this.#connection === undefined) return;
      from = to + 1;
    }
  }

  #sendToClient(bytes: Uint8Array): void {
    const written = this.#options.output.write(bytes);
    const connection = this.#connection;
    if (written === undefined || connection === undefined) return;
    connection.input.pause();
    void written.then(() => connection.input.resume());
  }

  #onHubEnded(connection: SocketConnection): void {
    if (connection !== this.#connection || this.#state === "over") return;
    this.#connection = undefined;
    connection.destroy();
    this.#cancelTimer();
    this.#fromHub.drop();
    // A client that was paused by this connection is read again.
    this.#resumeInput();
    if (this.#state === "joining") {
      this.#joinFailed(lostError());
      return;
    }
    const open = this.#books.takeOpen(!this.#hasInputEnded);
    // At the end of stdin a hub answers all requests: what is open then, beside a refused line, was that line.
    if (!this.#hasInputEnded || !this.#books.hasRefusedLine) this.#answer(open, lostError());
    this.#state = "detached";
    if (this.#hasInputEnded) void this.#end("left");
    else if (this.#books.isInitializing) {
      if (!this.#hasHubSpoken && this.#countFailure()) this.#fail(lostError(), true);
      else void this.#join();
    }
  }

  // To the next hub.

  async #join(): Promise<void> {
    this.#state = "joining";
    let connection: SocketConnection;
    try {
      connection = await this.#options.join();
    } catch (error) {
      const reason =
        error instanceof HubError ? error : new HubError("connectionLost", String(error));
      this.#joinFailed(reason);
      return;
    }
    if (this.#isOver()) {
      connection.destroy();
      return;
    }
    this.#attach(connection);
    this.#replay = this.#books.makeReplay();
    if (this.#replay === undefined) {
      this.#releaseWaiting();
      return;
    }
    this.#state = "joining";
    this.#sendToHub(Buffer.concat([this.#replay.initialize, LINE_END]));
    this.#cancelTimer = this.#options.clock.after(REPLAY_LIMIT, () => {
      connection.destroy();
      this.#onHubEnded(connection);
    });
  }

  #isOver(): boolean {
    return this.#state === "over";
  }

  #onReplayed({ afterwards }: Replay, answer: Buffer): void {
    this.#cancelTimer();
    this.#replay = undefined;
    const changes = listChangesAfter(answer);
    if (changes === undefined) {
      const connection = this.#connection;
      this.#connection = undefined;
      connection?.destroy();
      this.#joinFailed(new HubError("handshakeFailed", "The next shared hub refused the client."));
      return;
    }
    for (const line of afterwards) this.#sendToHub(Buffer.concat([line, LINE_END]));
    for (const change of changes) this.#sendToClient(Buffer.concat([change, LINE_END]));
    this.#releaseWaiting();
  }

  /** Sends what has waited for the hub; from here on, chunks go through. */
  #releaseWaiting(): void {
    this.#state = "attached";
    const initialize = this.#books.openInitialize;
    // An `initialize` that the last hub has not answered does not wait, because it was sent before.
    const isSentBefore =
      initialize !== undefined && !this.#waiting.some((line) => line.equals(initialize));
    const again = isSentBefore ? [initialize, LINE_END] : [];
    const bytes = Buffer.concat([...again, ...this.#waiting, ...(this.#unfinished ?? [])]);
    this.#waiting = [];
    this.#waitingSize = 0;
    this.#resumeInput();
    if (bytes.length > 0) this.#sendToHub(bytes);
    if (this.#hasInputEnded && this.#connection !== undefined) this.#endOutput();
  }

  #joinFailed(reason: HubError): void {
    this.#fail(reason, this.#countFailure());
  }

  /** Notes a failure. @returns whether it is the last one that is borne */
  #countFailure(): boolean {
    const now = this.#options.clock.now();
    const { count, within } = FAILED_JOINS;
    this.#failures = [...this.#failures.filter((at) => now - at <= within), now];
    return this.#failures.length >= count;
  }

  #fail(reason: HubError, isLast: boolean): void {
    this.#cancelTimer();
    this.#replay = undefined;
    this.#waiting = [];
    this.#waitingSize = 0;
    this.#state = "detached";
    this.#resumeInput();
    this.#answer(this.#books.takeOpen(false), reason);
    this.#options.log(`no shared hub could be joined: ${reason.message}`);
    if (isLast) void this.#end("lost");
    else if (this.#hasInputEnded) void this.#end("left");
  }

  #answer(ids: readonly (Piece | undefined)[], error: HubError): void {
    if (ids.length === 0) return;
    const rpc = error.toRpc();
    const lines = ids.flatMap((id) => [joinMessage(buildError(id, rpc)), LINE_END]);
    this.#sendToClient(Buffer.concat(lines));
  }

  async #end(how: RelayEnd): Promise<void> {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#cancelTimer();
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.destroy();
    // An empty write settles when the writes before it have.
    await Promise.race([this.#options.output.write(new Uint8Array(0)), sleep(FLUSH_LIMIT)]);
    this.#ended.resolve(how);
  }
}

function lostError(): HubError {
  return new HubError("answerLost", "The shared hub ended. Repeat the call if it is safe.");
}
