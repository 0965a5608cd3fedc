import type { Clock } from "../../base/clock.ts";
import type { Piece } from "../../base/bytes.ts";
import type { RpcError } from "../../base/errors.ts";
import type { CancelledBy } from "../../base/hub-events.ts";
import type { Bus, BusHeaders, BusMessage } from "../../fleet/bus.ts";
import {
  FIRST_KEEP_ALIVE,
  FRAME_OVERHEAD,
  type FrameKind,
  Header,
  KEEP_ALIVE,
  WireErrorCode,
} from "../../fleet/frames.ts";
import { PART_SIZE, PART_TIMEOUT, PartSender } from "../../fleet/parts.ts";
import { buildError, type EncodedMessage, joinMessage } from "../../jsonrpc/message.ts";
import type { CancelReason } from "../../protocol/notifications.ts";
import type { ModernResponder } from "../modern/request.ts";
import type { Controlled } from "./control.ts";

const NO_BYTES = new Uint8Array();
/** The least size of a part, in bytes, however little NATS allows. */
const MIN_LIMIT = 256;

/** The headers of each kind of frame, made once. */
const FRAME_HEADERS: Readonly<Record<FrameKind, BusHeaders>> = {
  msg: [[Header.frame, "msg"]],
  end: [[Header.frame, "end"]],
  err: [[Header.frame, "err"]],
  ka: [[Header.frame, "ka"]],
  part: [[Header.frame, "part"]],
};

export interface NatsResponseOptions {
  readonly bus: Bus;
  readonly clock: Clock;
  /** The subject to which the answer is sent. */
  readonly reply: string;
  /** The id of the request, as it was received. */
  readonly id: Piece;
  /** Whether the peer reads a response in parts. */
  readonly acceptsParts: boolean;
  /** The subject on which NATS says that nobody reads the answer any more. */
  readonly gone: string;
  /** Called once: when the response was sent, or when it is certain that none will be sent. */
  onEnd(response: NatsResponse): void;
}

/**
 * The answer to one request that came from NATS: frames to its reply subject, of which the last one is `end` or `err`.
 * Its reader controls it on the subject `{reply}.ctl`: an empty message acknowledges a part, a `ka` asks whether the
 * request is still being worked at, and any other message cancels it.
 */
export class NatsResponse implements ModernResponder, Controlled {
  readonly isPipe = false;
  /** The key of this response in the exporter's map of responses. */
  tableKey = -1;
  /** Who has sent the request, as its subject says: `tenant/user`. */
  user = "";
  readonly reply: string;
  readonly #options: NatsResponseOptions;
  #cancelTimer: () => void = () => {};
  #onCancel: ((reason: CancelReason, by: CancelledBy) => void) | undefined;
  #parts: PartSender | undefined;
  /** `sending`: the response is known, and its parts are being sent. */
  #state: "open" | "sending" | "over" = "open";

  constructor(options: NatsResponseOptions) {
    this.#options = options;
    this.reply = options.reply;
  }

  /** Begins to show that the request is being worked at. */
  start(): void {
    this.#keepAlive(FIRST_KEEP_ALIVE);
  }

  notify(message: EncodedMessage): void {
    if (this.#state !== "open") return;
    const bytes = joinMessage(message);
    // A notification that is too large is dropped: nobody waits for it.
    if (bytes.length <= this.#limit) this.#publish("msg", bytes);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#state !== "open") return;
    if (message === undefined) {
      this.#publish("end", NO_BYTES);
      this.#finish();
      return;
    }
    const bytes = joinMessage(message);
    if (bytes.length <= this.#limit) {
      this.#publish("end", bytes);
      this.#finish();
      return;
    }
    if (!this.#options.acceptsParts) {
      const limit = this.#options.bus.maxPayload;
      const text = `The response has ${bytes.length} bytes, which is over max_payload (${limit}) of the NATS server.`;
      this.refuse(WireErrorCode.tooLarge, text);
      return;
    }
    this.#state = "sending";
    this.#cancelTimer();
    this.#parts = new PartSender(bytes, Math.min(PART_SIZE, this.#limit), (kind, part) => {
      this.#publish(kind, part);
    });
    this.#parts.start();
    this.#awaitAcknowledgement();
  }

  /** Ends the request with an error that this hub made before or instead of handling it. */
  refuse(code: number, message: string): void {
    if (this.#state === "over") return;
    const { bus, reply, id } = this.#options;
    refuse(bus, reply, id, { code, message });
    this.#finish();
  }

  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void {
    this.#onCancel = callback;
  }

  /** Ends the request and tells the peer that its answer is lost, because the hub ends. */
  abort(): void {
    if (this.#state === "over") return;
    this.refuse(WireErrorCode.lost, "This machine leaves the fleet.");
    this.#onCancel?.("The hub gave up.", "disconnect");
  }

  /** Shows that the request is being worked at; if nobody waits for that, the request is cancelled. */
  askReader(): void {
    const { bus, reply, gone } = this.#options;
    bus.publish(reply, NO_BYTES, { reply: gone, headers: FRAME_HEADERS.ka });
  }

  /** Cancels the request, because nobody reads its answer any more. */
  readerGone(): void {
    if (this.#state === "over") return;
    const wasOpen = this.#state === "open";
    this.#finish();
    if (wasOpen) this.#onCancel?.("The client has left.", "disconnect");
  }

  get #limit(): number {
    return Math.max(this.#options.bus.maxPayload - FRAME_OVERHEAD, MIN_LIMIT);
  }

  onControl(message: BusMessage): void {
    if (this.#state === "over") return;
    const isProbe = message.header(Header.frame) === "ka";
    if (isProbe) {
      this.#publish("ka", NO_BYTES);
      return;
    }
    if (message.data.length === 0) {
      this.#onAcknowledged();
      return;
    }
    const wasOpen = this.#state === "open";
    this.#publish("end", NO_BYTES);
    this.#finish();
    if (wasOpen) this.#onCancel?.("The client has cancelled the request.", "client");
  }

  #onAcknowledged(): void {
    const parts = this.#parts;
    if (parts === undefined) return;
    parts.acknowledged();
    if (parts.isDone) this.#finish();
    else this.#awaitAcknowledgement();
  }

  #awaitAcknowledgement(): void {
    this.#cancelTimer();
    if (this.#parts?.isDone === true) {
      this.#finish();
      return;
    }
    this.#cancelTimer = this.#options.clock.after(PART_TIMEOUT, () => {
      this.refuse(WireErrorCode.lost, "The parts of the response were not read.");
    });
  }

  #keepAlive(after: number): void {
    this.#cancelTimer = this.#options.clock.after(after, () => {
      if (this.#state !== "open") return;
      this.askReader();
      this.#keepAlive(KEEP_ALIVE);
    });
  }

  #publish(kind: FrameKind, bytes: Uint8Array): void {
    this.#options.bus.publish(this.#options.reply, bytes, { headers: FRAME_HEADERS[kind] });
  }

  #finish(): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#cancelTimer();
    this.#options.onEnd(this);
  }
}

/** Sends an error to a request that is not handled. @param id undefined if it is not known */
export function refuse(bus: Bus, reply: string, id: Piece | undefined, error: RpcError): void {
  bus.publish(reply, joinMessage(buildError(id, error)), { headers: FRAME_HEADERS.err });
}
