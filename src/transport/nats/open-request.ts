import { Buffer } from "node:buffer";
import { type ErrorCode, HubError, readPeerError } from "../../base/errors.ts";
import { utf8 } from "../../base/bytes.ts";
import type { BusHeaders, BusMessage } from "../../fleet/bus.ts";
import { frameKindOf, Header, INACTIVITY, readWireError } from "../../fleet/frames.ts";
import { PART_TIMEOUT, PartReader } from "../../fleet/parts.ts";
import {
  CONTROL_SUFFIX,
  conventionalTail,
  type RequestAddress,
  requestTail,
} from "../../fleet/subjects.ts";
import {
  bodyOf,
  buildNotification,
  joinMessage,
  type Message,
  paramsOf,
  type Response,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { parseRange } from "../../base/json.ts";
import type { SendOptions, SentRequest } from "../transport.ts";
import type { FleetPeers } from "./peers.ts";

/** What sends requests, and gets their answers. */
export interface RequestOwner {
  readonly peers: FleetPeers;
  /** The name of the server in the fleet, and its name here. */
  readonly remote: string;
  readonly server: string;
  /** The largest response, in bytes. */
  readonly maxMessage: number;
  /** Whether what arrives has to wait. */
  readonly isPaused: boolean;
  /** Takes a message that has to wait, and gives it to `release` afterwards. */
  hold(request: OpenRequest, message: BusMessage): void;
  notification(request: OpenRequest, message: Message): void;
  response(request: OpenRequest, response: Response): void;
  /** The response is too large, and was dropped. */
  oversized(request: OpenRequest, size: number): void;
  failed(request: OpenRequest, cause: HubError): void;
  /** Nobody has subscribed to the subject of the request: it was not delivered, and may be sent to another hub. */
  notDelivered(request: OpenRequest): void;
}

/** Maximum size of the messages of one request that wait, in bytes. */
const MAX_HELD = 8 * 1024 * 1024;
const NO_BYTES = new Uint8Array();
const SUBSCRIPTION = "subscriptions/listen";
const PROBE_HEADERS: BusHeaders = [[Header.frame, "ka"]];

/** What all requests with the same method and name have in common. Made once, because it takes long. */
export class RequestForm {
  readonly headers: BusHeaders;
  readonly #address: Pick<RequestAddress, "server" | "method" | "name">;
  #tail: string | undefined;
  #conventionalTail: string | undefined;

  constructor(server: string, { method, name }: SendOptions, headers: BusHeaders) {
    this.#address = { server, method, name };
    this.headers = headers;
  }

  /**
   * The end of the subject.
   * @param isToHub whether the request goes to one hub; else any peer may answer it
   * @throws {HubError} messageTooLarge
   */
  tail(isToHub: boolean): string {
    if (isToHub) return (this.#tail ??= requestTail(this.#address));
    return (this.#conventionalTail ??= conventionalTail(this.#address));
  }
}

/** A request to a server of another hub, until its answer. */
export class OpenRequest implements SentRequest {
  request?: number;
  /** The key among all open requests, and the subject of the answer; set when the request is added. */
  key = -1;
  reply = "";
  /** The hub that the request is sent to; undefined: any that serves it. */
  hub: string | undefined;
  isSent = false;
  isOpen = true;
  /** Whether the request stays open to be told of changes: it is no work that its hub does. */
  readonly isSubscription: boolean;
  readonly options: SendOptions;
  readonly body: Uint8Array;
  readonly #owner: RequestOwner;
  readonly #form: RequestForm;
  #subject = "";
  #parts: PartReader | undefined;
  #held = 0;
  /** The time of the last sign of life since it was sent, in ms of the clock. */
  #heardAt = 0;

  constructor(
    owner: RequestOwner,
    body: Uint8Array,
    options: SendOptions,
    form: RequestForm,
    hub: string | undefined,
  ) {
    this.#owner = owner;
    this.body = body;
    this.options = options;
    this.isSubscription = options.method === SUBSCRIPTION;
    this.#form = form;
    this.hub = hub;
  }

  /** The name of the server in the fleet. */
  get remote(): string {
    return this.#owner.remote;
  }

  /** Publishes the request. */
  send(): void {
    const { peers } = this.#owner;
    try {
      this.#subject = peers.requestHead(this.hub) + this.#form.tail(this.hub !== undefined);
    } catch (error) {
      this.fail(error instanceof HubError ? error : this.error("internal", String(error)));
      return;
    }
    this.isSent = true;
    this.#heardAt = peers.clock.now();
    const { headers } = this.#form;
    peers.bus.publish(this.#subject, this.body, { reply: this.reply, headers });
  }

  /** Sends the request to another hub, because it was not delivered to the first. The answer has another subject. */
  resend(hub: string | undefined): void {
    const from = this.hub;
    this.hub = hub;
    this.#owner.peers.moved(this, from);
    this.send();
  }

  /** Cancels the request, because its answer is no longer needed. */
  abandon(): void {
    if (!this.isOpen) return;
    this.#cancel();
    this.#close();
  }

  /** Ends the request without an answer. */
  fail(cause: HubError): void {
    if (!this.isOpen) return;
    this.#close();
    this.#owner.failed(this, cause);
  }

  error(code: ErrorCode, text: string): HubError {
    return new HubError(code, text, { server: this.#owner.server });
  }

  /** Handles a message that has waited. */
  release(message: BusMessage): void {
    this.#held -= message.data.length;
    this.receive(message);
  }

  /** Handles a message of the answer. */
  receive(message: BusMessage): void {
    if (!this.isOpen) return;
    if (message.hasNoResponders) {
      this.isSent = false;
      this.#owner.notDelivered(this);
      return;
    }
    const kind = frameKindOf(message.header(Header.frame));
    if (kind !== "end") this.#heardAt = this.#owner.peers.clock.now();
    if (kind === "ka") return;
    if (this.#owner.isPaused) {
      this.#held += message.data.length;
      if (kind !== "msg" || this.#held <= MAX_HELD) {
        this.#owner.hold(this, message);
        return;
      }
      this.#cancel();
      const text = `The client does not read the notifications of a request to server "${this.#owner.server}". It was cancelled.`;
      this.fail(this.error("notReading", text));
      return;
    }
    switch (kind) {
      case undefined:
        this.fail(this.#invalid("it is no frame of an answer"));
        return;
      case "msg":
        this.#onNotification(message.data);
        return;
      case "part":
        if (this.#addPart(message.data)) this.#acknowledge();
        return;
      case "end":
        this.#onEnd(message);
        return;
      case "err":
        this.#onError(message.data);
    }
  }

  /** The hub that had the request does not know it. */
  forgotten(): void {
    const where = this.hub === undefined ? "its machine" : `"${this.hub}"`;
    this.fail(
      this.error(
        "answerLost",
        `The answer of ${where} was lost while NATS was not connected. It may have run.`,
      ),
    );
  }

  /** NATS does not permit to publish to a subject, or to subscribe to one. */
  denied(subject: string): void {
    if (subject !== this.#subject) return;
    this.fail(
      this.error("accessDenied", `NATS does not permit this hub to publish to "${subject}".`),
    );
  }

  /** Asks the hub whether it still works at the request. @param reply the subject for the answer that nobody does */
  probe(reply: string): void {
    // A peer that knows only the convention takes any message there for a cancellation.
    if (this.hub === undefined) return;
    this.#owner.peers.bus.publish(`${this.reply}${CONTROL_SUFFIX}`, NO_BYTES, {
      reply,
      headers: PROBE_HEADERS,
    });
  }

  /** Ends the request if nothing was heard of it for too long. Hubs are pinged besides. */
  checkInactivity(): void {
    if (!this.isOpen || !this.isSent || this.#owner.isPaused) return;
    // Hubs are pinged while they work at calls.
    const isPinged = this.hub !== undefined && !this.isSubscription;
    const limit = this.#parts !== undefined ? PART_TIMEOUT : isPinged ? Infinity : INACTIVITY;
    if (this.#owner.peers.clock.now() - this.#heardAt < limit) return;
    this.#cancel();
    const text = `Nothing was heard for ${limit / 1000} s of a request to server "${this.#owner.server}". It may have run.`;
    this.fail(this.error("answerLost", text));
  }

  #onNotification(bytes: Uint8Array): void {
    const message = parse(bytes);
    if (message.kind === "notification") this.#owner.notification(this, message);
  }

  #onEnd(message: BusMessage): void {
    if (message.header(Header.claim) !== "") {
      const text = `The answer of server "${this.#owner.server}" is in a store of NATS, which toolmux does not read.`;
      this.fail(this.error("messageTooLarge", text));
      return;
    }
    let bytes = message.data;
    if (this.#parts !== undefined) {
      if (!this.#addPart(bytes)) return;
      this.#acknowledge();
      bytes = this.#parts.take();
    }
    if (bytes.length === 0) {
      const text = `The request to server "${this.#owner.server}" was cancelled on its machine. It may have run.`;
      this.fail(this.error("answerLost", text));
      return;
    }
    if (bytes.length > this.#owner.maxMessage) {
      this.#close();
      this.#owner.oversized(this, bytes.length);
      return;
    }
    const response = parse(bytes);
    if (response.kind !== "response" || response.id !== this.options.id) {
      this.fail(this.#invalid("it is not the answer to the request"));
      return;
    }
    this.#close();
    this.#owner.response(this, response);
  }

  #onError(bytes: Uint8Array): void {
    const message = parse(bytes);
    if (message.kind !== "response" || message.outcome !== "error") {
      this.fail(this.#invalid("it is no error"));
      return;
    }
    const peer = readPeerError(parseRange(message.bytes, message.body));
    const own = readWireError(peer.code, peer.message, this.#owner.server);
    if (own !== undefined) {
      this.fail(own);
      return;
    }
    const error = { code: peer.code ?? INTERNAL, message: peer.message ?? "", data: peer.data };
    const text = JSON.stringify({ jsonrpc: "2.0", id: this.options.id, error });
    const response = parse(utf8(text));
    this.#close();
    if (response.kind === "response") this.#owner.response(this, response);
  }

  /** @returns whether the response is still within the limit */
  #addPart(bytes: Uint8Array): boolean {
    this.#parts ??= new PartReader(this.#owner.maxMessage);
    if (this.#parts.add(bytes)) return true;
    const { size } = this.#parts;
    this.#cancel();
    this.#close();
    this.#owner.oversized(this, size);
    return false;
  }

  #acknowledge(): void {
    this.#owner.peers.bus.publish(`${this.reply}${CONTROL_SUFFIX}`, NO_BYTES);
  }

  #cancel(): void {
    if (!this.isSent) return;
    const params = { requestId: this.options.id, reason: "The client does not need the answer." };
    const cancelled = buildNotification("notifications/cancelled", params);
    this.#owner.peers.bus.publish(`${this.reply}${CONTROL_SUFFIX}`, joinMessage(cancelled));
  }

  #invalid(reason: string): HubError {
    const where = this.hub === undefined ? "A machine of the fleet" : `The machine "${this.hub}"`;
    return this.error("answerInvalid", `${where} sent an answer that cannot be read: ${reason}.`);
  }

  #close(): void {
    this.isOpen = false;
    this.#owner.peers.remove(this);
  }
}

const INTERNAL = -32603;

function parse(bytes: Uint8Array): Message {
  return parseMessage(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}

/** The texts in a result by which later requests belong to the hub that gave it. */
export function ownedBy(response: Response): readonly string[] {
  const { bytes } = response;
  if (response.outcome === "error") return [];
  if (!bytes.includes(STATE_KEY) && !bytes.includes(TASK_TYPE)) return [];
  const body = bodyOf(response);
  const task = body.string("resultType") === "task" ? body.string("taskId") : undefined;
  return [body.string("requestState"), task].filter((text) => text !== undefined);
}

/** The `requestState` in the params of a request; undefined if it has none. */
export function requestStateOf(body: Uint8Array): string | undefined {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (!bytes.includes(STATE_KEY)) return undefined;
  const request = parse(bytes);
  return request.kind === "request" ? paramsOf(request).string("requestState") : undefined;
}

const STATE_KEY = Buffer.from('"requestState"');
const TASK_TYPE = Buffer.from('"task"');
