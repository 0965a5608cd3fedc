import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import type { Answer } from "./answer.ts";
import { type Fault, readHead, type RequestHead } from "./request-parser.ts";
import { Incoming } from "./incoming.ts";
import type { BodyQuota } from "./inlet.ts";
import { Outlet } from "./outlet.ts";
import type { Query } from "./messages.ts";
import { refuse } from "../errors.ts";

/**
 * State of a connection: waits for a request, for the rest of its head, for the answer; sends the answer; has sent the
 * last one and waits for the client to close; is closed.
 */
type Stage = "resting" | "heading" | "asking" | "giving" | "lingering" | "gone";

/** How many checks in a row may find a connection without progress, by state. */
const PATIENCE: Readonly<Record<Stage, number>> = {
  resting: 12,
  heading: 4,
  asking: Infinity,
  giving: 12,
  lingering: 1,
  gone: Infinity,
};

/** Buffered bytes of pipelined requests before the socket is paused. */
const AHEAD = 64 * 1024;
const NOTHING: Buffer = Buffer.alloc(0);
const CR = 0x0d;
const LF = 0x0a;
const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";

/** One client connection of HTTP/1.1: serves one request after the other. */
export class Channel {
  readonly #socket: Socket;
  readonly #outlet: Outlet;
  readonly #answer: (query: Query) => Answer | Promise<Answer>;
  readonly #quota: BodyQuota;
  readonly #ended: () => void;
  #stage: Stage = "resting";
  #looks = 0;
  /** Received bytes of requests that are not being served yet. */
  #held = NOTHING;
  /**
   * The last head and its bytes: a client's heads are mostly equal, and comparing takes a tenth of the time of parsing.
   */
  #known: { readonly bytes: Buffer; readonly head: RequestHead } | undefined;
  #incoming: Incoming | undefined;
  #isPaused = false;
  #isRetired = false;

  /** @param ended called once, when the connection is closed */
  constructor(
    socket: Socket,
    answer: (query: Query) => Answer | Promise<Answer>,
    quota: BodyQuota,
    ended: () => void,
  ) {
    this.#socket = socket;
    this.#outlet = new Outlet(socket);
    this.#answer = answer;
    this.#quota = quota;
    this.#ended = ended;
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("drain", () => {
      this.#looks = 0;
      this.#outlet.drain();
    });
    socket.on("end", () => this.#ebb());
    socket.on("error", () => this.drop());
    socket.on("close", () => this.drop());
  }

  /** Called at intervals: closes the connection if it has made no progress for too long. */
  look(): void {
    this.#incoming?.inlet.look();
    // The application may take its time to produce the rest of the answer.
    if (this.#stage === "giving" && !this.#outlet.isFull) this.#looks = 0;
    if (++this.#looks <= PATIENCE[this.#stage]) return;
    if (this.#stage === "heading") this.#refuse(408);
    else this.drop();
  }

  /** Serves no more requests after the one that runs. */
  retire(): void {
    this.#isRetired = true;
    if (this.#stage === "resting" || this.#stage === "heading") this.drop();
  }

  /** Closes the connection at once. */
  drop(): void {
    if (this.#stage === "gone") return;
    this.#stage = "gone";
    this.#held = NOTHING;
    this.#socket.destroy();
    this.#incoming?.lose();
    this.#incoming = undefined;
    this.#outlet.close();
    this.#ended();
  }

  /**
   * The client has half-closed the connection. Clients that leave do that, so it is closed, unless it has yet to take
   * an answer that is written.
   */
  #ebb(): void {
    if (this.#stage === "giving" && this.#outlet.isFull) this.#isRetired = true;
    else if (this.#stage !== "lingering") this.drop();
  }

  #take(chunk: Buffer): void {
    switch (this.#stage) {
      case "resting":
      case "heading":
        this.#hold(chunk);
        this.#next();
        return;
      case "asking":
      case "giving":
        this.#hold(this.#incoming?.inlet.take(chunk) ?? chunk);
        if (this.#held.length > AHEAD) this.#pause();
        return;
      case "lingering":
      case "gone":
    }
  }

  #hold(chunk: Buffer): void {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
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
  #next(): void {
    const found = this.#readHead();
    if (found === undefined) {
      // Counted from the first byte of the head, so that a client that sends it slowly cannot hold the connection for
      // ever.
      const stage = this.#held.length === 0 ? "resting" : "heading";
      if (stage !== this.#stage) this.#enter(stage);
    } else if ("fault" in found) {
      this.#refuse(found.fault);
    } else {
      const incoming = new Incoming(found.head, this.#quota, this.#invite);
      const { length } = this.#held;
      const rest = found.end === length ? NOTHING : this.#held.subarray(found.end);
      this.#held = incoming.inlet.take(rest);
      this.#incoming = incoming;
      this.#enter("asking");
      void this.#serve(incoming);
    }
  }

  #readHead(): { readonly head: RequestHead; readonly end: number } | Fault | undefined {
    // Some clients send a line end after a body (RFC 9112, 2.2).
    while (this.#held[0] === CR && this.#held[1] === LF) this.#held = this.#held.subarray(2);
    const known = this.#known;
    const end = known?.bytes.length ?? Infinity;
    if (known !== undefined && end <= this.#held.length) {
      if (known.bytes.compare(this.#held, 0, end) === 0) return { head: known.head, end };
    }
    const found = readHead(this.#held);
    if (found !== undefined && "head" in found) {
      // Copied, so that the chunk it came in is not retained.
      this.#known = { bytes: Buffer.from(this.#held.subarray(0, found.end)), head: found.head };
    }
    return found;
  }

  readonly #invite = (): void => void this.#socket.write(CONTINUE, "latin1");

  async #serve(incoming: Incoming): Promise<void> {
    const { head, inlet } = incoming;
    const answer = await this.#answer(incoming);
    if (this.#incoming !== incoming) {
      if (answer.body instanceof ReadableStream) void answer.body.cancel().catch(() => {});
      return;
    }
    // A body that was not read to its end is not awaited: the connection closes.
    const isLast = !head.isLasting || this.#isRetired || !inlet.isClean;
    inlet.fail("broken");
    this.#enter("giving");
    try {
      const given = this.#outlet.give(answer, head, isLast);
      if (given !== undefined) await given;
    } catch {
      // The client can tell from the missing end that the answer is incomplete.
      this.drop();
    }
    if (this.#incoming !== incoming) return;
    this.#incoming = undefined;
    if (isLast || this.#isRetired) {
      this.#finish();
      return;
    }
    this.#enter("resting");
    this.#resume();
    if (this.#held.length > 0) this.#next();
  }

  /** Answers what is not a valid request, and closes. */
  #refuse(status: keyof typeof REFUSALS): void {
    void this.#outlet.give(refuse(status, REFUSALS[status]), undefined, true);
    this.#finish();
  }

  /**
   * Half-closes the connection. What the client still sends is discarded for a while: it may not have read the last
   * answer.
   */
  #finish(): void {
    this.#held = NOTHING;
    this.#enter("lingering");
    this.#socket.end();
    this.#resume();
  }

  #enter(stage: Stage): void {
    this.#stage = stage;
    this.#looks = 0;
  }
}

const REFUSALS = {
  400: "This is no HTTP request that could be answered.",
  408: "The request took too long to come in.",
  417: "Nothing but 100-continue can be expected here.",
  431: "The headers of a request are shorter.",
  501: "Bodies come as they are, or in chunks.",
  505: "HTTP/1.1 is spoken here.",
} as const;
