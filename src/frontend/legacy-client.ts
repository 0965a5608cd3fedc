import type { Buffer } from "node:buffer";
import { type Piece, utf8 } from "../base/bytes.ts";
import { type Kind, KINDS } from "../catalog/listing.ts";
import { type ErrorCode, HubError, toHubError } from "../base/errors.ts";
import {
  allowsBatches,
  type Implementation,
  initializeResult,
  type LegacyVersion,
  LIST_METHODS,
  Method,
} from "../protocol/legacy.ts";
import { TaskMethod } from "../protocol/tasks.ts";
import { isAtLeast, type LogSeverity } from "../protocol/log-level.ts";
import {
  parseCapabilityClass,
  type ExtensionSettings,
  formatExtensionSettings,
} from "../protocol/capabilities.ts";
import { IdTable } from "../base/id-table.ts";
import type { Call } from "../router/call.ts";
import type { Router } from "../router/router.ts";
import { type AnyMethodSpec, CALL_METHOD, METHODS } from "../router/params.ts";
import type { ServerRequest } from "../upstream/ask.ts";
import type { ClientChannel } from "../upstream/audience.ts";
import { readCancelled } from "../protocol/notifications.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import { NO_DECLARATION } from "../upstream/sender.ts";
import type { ClientView } from "../upstream/view.ts";
import { parseTruncated } from "../jsonrpc/parse.ts";
import {
  type Batch,
  buildError,
  buildResult,
  type Message,
  type InvalidMessage,
  type EncodedMessage,
  type Notification,
  type Request,
} from "../jsonrpc/message.ts";
import type { SentRequest, Responder, Transport, TransportEvents } from "../transport/transport.ts";
import { Asked, type Asker } from "./asked.ts";
import { takeBatch } from "./batch.ts";
import { readIntroduction, readLevel } from "./introduction.ts";
import { Questions } from "./server-requests.ts";
import { Lists } from "./list-answers.ts";

/** What a client needs of the hub. */
export interface Host {
  readonly serverInfo: Implementation;
  /** The client's backpressure: `isFull` while it does not read, so that nothing more should be read for it. */
  pressure(client: Client, full: boolean): void;
  /** Logs a protocol error of the client that no answer can report. */
  warn(text: string): void;
  left(client: Client): void;
}

const EMPTY_RESULT = utf8("{}");
/** Which list each list method asks for. */
const LISTED = new Map(
  // Legacy clients read the files of skills as resources.
  KINDS.filter((kind) => kind !== "skills").map((kind) => [LIST_METHODS[kind], kind]),
);

/** One client of the legacy era on any transport: answers what is the hub's, routes what is for a server. */
export class Client implements TransportEvents, ClientChannel, Asker {
  readonly era = "legacy";
  readonly #link: Transport;
  readonly #host: Host;
  readonly #view: ClientView;
  readonly #router: Router;
  readonly #isGuest: boolean;
  /** Responder for transports that have one channel for everything. */
  readonly #whole: Responder;
  /** Requests in flight, by the key of the client's id. */
  readonly #running = new IdTable<Asked>();
  readonly #questions = new Questions((server, message) => this.notify(server, message));
  #version: LegacyVersion | undefined;
  settings: ExtensionSettings | undefined;
  /** What the client has declared so far; replaced, never changed, when it declares more. */
  sender = NO_DECLARATION;
  /** `initialize` was answered: before that no log message is sent. */
  #isGreeted = false;
  /** Minimum level of log messages; undefined: the servers decide (logging, setting log level). */
  level: LogSeverity | undefined;
  readonly #lists = new Lists();

  /** @param isPlugin a plugin's client: no server sends it requests, and it has no capabilities of its own */
  constructor(link: Transport, host: Host, view: ClientView, router: Router, isGuest: boolean) {
    this.#isGuest = isGuest;
    this.#link = link;
    this.#whole = {
      notify: (message) => void link.send(message),
      respond: (message) => void (message === undefined || link.send(message)),
    };
    this.#host = host;
    this.#view = view;
    this.#router = router;
  }

  get id(): string {
    return this.#router.client.id;
  }

  /** The client's calls in flight. */
  get calls(): readonly Call[] {
    return this.#running.values().flatMap(({ call }) => call ?? []);
  }

  /** The catalog was replaced: sends `list_changed` for the lists that differ from what the client was given. */
  catalogChanged(): void {
    for (const message of this.#lists.compare(this.#view.catalog)) this.#link.send(message);
  }

  frame(frame: Message, _?: SentRequest, inbound: Responder = this.#whole): void {
    switch (frame.kind) {
      case "request":
        this.#accept(frame, inbound);
        return;
      case "notification":
        this.#notified(frame);
        return;
      case "response":
        this.#questions.settle(frame);
        return;
      case "batch":
        this.#batch(frame, inbound);
        return;
      case "invalid":
        this.#refuse(frame, inbound);
    }
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    const edges = parseTruncated(head, tail);
    const text = `The message of ${size} bytes is over the limit.`;
    if (edges?.kind === "response") {
      this.#questions.fail(edges.id, new HubError("messageTooLarge", text));
      return;
    }
    this.#whole.respond(refusal(edges?.id, "messageTooLarge", text));
  }

  log(): void {}

  pressure(full: boolean): void {
    // A client that does not read sends no more requests either.
    if (full) this.#link.pause();
    else this.#link.resume();
    this.#host.pressure(this, full);
  }

  sendServerRequest(question: ServerRequest, way?: Responder): (why: CancelReason) => void {
    return this.#questions.sendServerRequest(question, way);
  }

  /** Sent on the response stream of the client's latest call at that server, where the transport has such streams. */
  notify(server: string, message: EncodedMessage): void {
    const asked = this.#running.findLast(({ call }) => call?.server === server);
    (asked ?? this.#whole).notify(message);
  }

  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void {
    if (!this.#isGreeted) return;
    if (this.level === undefined || isAtLeast(severity, this.level)) this.notify(server, message);
  }

  /** The client has disconnected: cancels its requests at the servers. */
  closed(): void {
    for (const asked of this.#running.values())
      asked.running?.cancel("The client has left.", "disconnect");
    this.#running.clear();
    this.#questions.close();
    this.#router.close();
    this.#view.close();
    this.#host.left(this);
  }

  #refuse(frame: InvalidMessage, inbound: Responder): void {
    const { parsed } = frame;
    if (parsed?.kind === "notification") {
      this.#host.warn(`A notification of a client was dropped: ${frame.reason}.`);
    } else {
      this.#questions.refuse(frame);
    }
    // Only requests are answered; what is not even JSON may have been one (JSON-RPC 2.0, 5: id null).
    const isAnswered = parsed === undefined || parsed.kind === "request";
    inbound.respond(isAnswered ? refusal(frame.id, frame.code, explain(frame)) : undefined);
  }

  #accept(request: Request, inbound: Responder): void {
    try {
      this.#dispatch(request, inbound);
    } catch (error) {
      inbound.respond(buildError(request.id, toHubError(error).toRpc()));
    }
  }

  #dispatch(request: Request, inbound: Responder): void {
    switch (request.method) {
      case Method.toolsCall:
        this.#relay(request, inbound, CALL_METHOD);
        return;
      case Method.initialize:
        this.#initialize(request, inbound);
        return;
      case Method.ping:
        inbound.respond(buildResult(request.id, EMPTY_RESULT));
        return;
      case Method.unsubscribe:
        this.#router.unsubscribe(request);
        inbound.respond(buildResult(request.id, EMPTY_RESULT));
        return;
      case Method.setLevel:
        this.level = readLevel(request);
        this.sender = { ...this.sender, level: this.level };
        inbound.respond(buildResult(request.id, EMPTY_RESULT));
        this.#view.levelChanged();
        return;
    }
    const kind = LISTED.get(request.method);
    const manner = METHODS.get(request.method);
    if (kind !== undefined) this.#list(kind, request, inbound);
    else if (manner !== undefined) this.#relay(request, inbound, manner);
    else throw new HubError("methodNotFound", `There is no method "${request.method}".`);
  }

  #initialize(request: Request, inbound: Responder): void {
    const { version, capabilities, settings, info } = readIntroduction(request);
    this.#version = version;
    const { name = "", version: edition = "" } = info;
    const declared = {
      ...parseCapabilityClass(capabilities),
      ...formatExtensionSettings(settings),
    };
    this.settings = settings;
    this.sender = { ...this.sender, info: { name, version: edition }, declared };
    this.#router.client = { ...this.#router.client, ...info };
    if (this.#isGuest) this.#view.open();
    else this.#view.introduce(capabilities, this);
    this.#view.whenRecalled(({ instructions, capabilities: offered }) => {
      this.#isGreeted = true;
      const result = initializeResult(version, this.#host.serverInfo, instructions, offered);
      inbound.respond(buildResult(request.id, utf8(JSON.stringify(result))));
    });
  }

  #list(kind: Kind, request: Request, inbound: Responder): void {
    const answer = this.#lists.read(kind, request);
    const asked = new Asked(request.id, inbound, this.#running, this);
    this.#register(asked);
    this.#view.open();
    const forget = this.#view.whenListed((catalog) => asked.respond(answer(catalog)));
    asked.running = {
      call: undefined,
      cancel: () => {
        forget();
        asked.respond(undefined);
      },
    };
  }

  #relay(request: Request, inbound: Responder, manner: AnyMethodSpec): void {
    this.#view.open();
    const asked = new Asked(request.id, inbound, this.#running, this);
    const running = this.#router.route(request, asked, manner);
    asked.running = running;
    this.#register(asked);
    running.run();
  }

  #register(asked: Asked): void {
    const { key } = asked.id;
    if (this.#running.has(key)) {
      throw new HubError("invalidRequest", "A request with this id is still running.");
    }
    this.#running.set(key, asked);
    // A client that sends requests can receive them, whether or not `notifications/initialized` has come.
    this.#questions.ready();
  }

  #notified(notification: Notification): void {
    switch (notification.method) {
      case Method.cancelled: {
        const cancelled = readCancelled(notification);
        if (cancelled === undefined) return;
        const { key, ids } = cancelled;
        this.#running.get(key)?.running?.cancel({ notification, ids }, "client");
        return;
      }
      case Method.progress:
        this.#questions.progress(notification);
        return;
      case TaskMethod.status:
        this.#questions.status(notification);
        return;
      case Method.initialized:
        this.#questions.ready();
        return;
      case Method.rootsChanged:
        this.#view.rootsChanged(notification);
    }
  }

  #batch({ items }: Batch, inbound: Responder): void {
    if (!allowsBatches(this.#version)) {
      const text = "This protocol revision has no batches.";
      inbound.respond(refusal(undefined, "invalidRequest", text));
      return;
    }
    takeBatch(items, inbound, (item, way) => this.frame(item, undefined, way));
  }
}

function refusal(id: Piece | undefined, code: ErrorCode, text: string): EncodedMessage {
  return buildError(id, new HubError(code, text).toRpc());
}

function explain({ reason }: InvalidMessage): string {
  return `Not a JSON-RPC request: ${reason}.`;
}
