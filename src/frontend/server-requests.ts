import { HubError } from "../base/errors.ts";
import { skipValue } from "../base/json.ts";
import { TaskAliases } from "../protocol/alias.ts";
import type { ServerRequestTarget, ServerRequest } from "../upstream/ask.ts";
import type { ClientTask } from "../protocol/errand.ts";
import { readProgress } from "../protocol/notifications.ts";
import { buildCancelled } from "../protocol/withdrawal.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import { parseTruncated } from "../jsonrpc/parse.ts";
import { formatOwnId, readOwnId } from "../jsonrpc/id.ts";
import type { Responder } from "../transport/transport.ts";
import {
  buildRequestOf,
  type RequestId,
  type InvalidMessage,
  type EncodedMessage,
  type Notification,
  type Response,
  bytesOf,
} from "../jsonrpc/message.ts";

/** Bytes of either end of an invalid message that are searched for its kind and id. */
const EDGE = 4096;

interface Open {
  readonly question: ServerRequest;
  readonly way: Pick<Responder, "notify"> | undefined;
}

/** Requests of servers in flight to one legacy client, under ids of the hub's own that no client's request has. */
export class Questions implements ServerRequestTarget {
  readonly #send: (server: string, message: EncodedMessage) => void;
  readonly #open = new Map<number, Open>();
  /** Tasks that the client has created instead of answering, and the same by the number of the request. */
  readonly #errands = new TaskAliases<ClientTask>();
  readonly #begun = new Map<number, ClientTask>();
  #count = 0;
  /** Requests that wait for `notifications/initialized` (lifecycle, initialization); undefined once it has come. */
  #early: Set<number> | undefined = new Set();
  #isClosed = false;

  /** @param send sends a server's request, or its cancellation, to the client */
  constructor(send: (server: string, message: EncodedMessage) => void) {
    this.#send = send;
  }

  /** From now on requests are sent to the client. */
  ready(): void {
    const early = this.#early;
    if (early === undefined) return;
    this.#early = undefined;
    for (const number of early) this.#pose(number);
  }

  /** @param responder of the client's request that this one belongs to; undefined: it belongs to none */
  sendServerRequest(
    question: ServerRequest,
    way?: Pick<Responder, "notify">,
  ): (why: CancelReason) => void {
    if (this.#isClosed) {
      question.fail(gone());
      return () => {};
    }
    const number = ++this.#count;
    this.#open.set(number, { question, way });
    if (this.#early === undefined) this.#pose(number);
    else this.#early.add(number);
    return (why) => this.#withdraw(number, why);
  }

  /** The client answered. */
  settle({ id, bytes, outcome, body }: Response): void {
    const question = id === undefined ? undefined : this.#take(id)?.question;
    if (question === undefined) return;
    // Responses of common shapes are parsed without a look at their body; a malformed one must not reach a server.
    if (skipValue(bytes, body.start) === body.end) {
      const errand = question.answer(outcome, bytes.subarray(body.start, body.end));
      if (errand !== undefined && id !== undefined) this.#begin(id, errand);
    } else {
      question.fail(malformed());
    }
  }

  /** The client sent an invalid message; if it was meant as a response, no other will come. */
  refuse(invalid: InvalidMessage): void {
    const { parsed } = invalid;
    if (parsed !== undefined) {
      const isOurs = parsed.kind === "response" && parsed.id !== undefined;
      if (isOurs) this.#take(parsed.id)?.question.fail(malformed());
      return;
    }
    const bytes = bytesOf(invalid);
    const edges = parseTruncated(bytes.subarray(0, EDGE), bytes.subarray(-EDGE));
    if (edges?.kind === "response") this.fail(edges.id, malformed());
  }

  /** The client's answer cannot be passed on. */
  fail(id: RequestId, error: HubError): void {
    const number = readOwnId(id.bytes, id);
    if (number !== undefined) this.#take(number)?.question.fail(error);
  }

  progress(raw: Notification): void {
    const errand = this.#errands.isEmpty ? undefined : this.#errands.taskOfMessage(raw);
    const notification = errand === undefined ? raw : errand.withOwnId(raw);
    const progress = readProgress(notification);
    if (progress === undefined) return;
    const { id, tokens } = progress;
    // The progress token of a request that became a task is valid for as long as the task.
    (this.#open.get(id)?.question ?? this.#begun.get(id))?.progress(notification, tokens);
  }

  /** The client sent `notifications/tasks/status` for one of its tasks. */
  status(notification: Notification): void {
    const errand = this.#errands.taskOfMessage(notification);
    errand?.onStatus(errand.withOwnId(notification));
  }

  /** The client has disconnected: all requests fail. */
  close(): void {
    this.#isClosed = true;
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const { question } of open) question.fail(gone());
    for (const errand of this.#errands.all) errand.drop();
  }

  #pose(number: number): void {
    const open = this.#open.get(number);
    if (open === undefined) return;
    const { question } = open;
    const id = `"${formatOwnId(number)}"`;
    this.#say(open, buildRequestOf(id, question.method, question.params(id)));
  }

  #say({ question, way }: Open, message: EncodedMessage): void {
    if (way === undefined) this.#send(question.server, message);
    else way.notify(message);
  }

  #begin(number: number, errand: ClientTask): void {
    this.#errands.add(errand);
    this.#begun.set(number, errand);
    errand.onDropped.push(() => {
      this.#errands.delete(errand);
      this.#begun.delete(number);
    });
  }

  #take(number: number): Open | undefined {
    const open = this.#open.get(number);
    this.#open.delete(number);
    return open;
  }

  #withdraw(number: number, why: CancelReason): void {
    const open = this.#take(number);
    // A request that was never sent needs no cancellation.
    if (open === undefined || this.#early?.delete(number) === true) return;
    this.#say(open, buildCancelled(formatOwnId(number), why));
  }
}

function malformed(): HubError {
  return new HubError("internal", "The client's answer was malformed.");
}

function gone(): HubError {
  return new HubError("notAsked", "The client has left.");
}
