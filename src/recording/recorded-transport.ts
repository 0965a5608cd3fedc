import { joinPieces } from "../base/bytes.ts";
import { type HubError, toHubError } from "../base/errors.ts";
import type { LogLevel } from "../base/events.ts";
import type { ServedHub } from "../frontend/http/server.ts";
import type { ModernRequestTarget } from "../frontend/modern/clients.ts";
import type { ModernResponder } from "../frontend/modern/request.ts";
import { type EncodedMessage, joinMessage, type Message } from "../jsonrpc/message.ts";
import { parseMessage, parseTruncated } from "../jsonrpc/parse.ts";
import type { ProcessStats } from "../process/child-process.ts";
import { NO_HANDLE } from "../transport/memory.ts";
import type {
  MalformedOutput,
  NegotiatedProtocol,
  Responder,
  SendOptions,
  SentRequest,
  TransportEvents,
  Transport,
} from "../transport/transport.ts";
import type { RecordedPeer } from "./format.ts";
import { idText, type Recorder } from "./recorder.ts";

/** Wraps a transport so that all messages on it are recorded. */
export function recordTransport(
  link: Transport,
  peer: RecordedPeer,
  recorder: Recorder,
): Transport {
  return new RecordedLink(link, peer, recorder);
}

/** Wraps the responder of one request so that all messages on it are recorded. */
export function recordResponder(
  inbound: Responder,
  peer: RecordedPeer,
  recorder: Recorder,
): Responder {
  return {
    notify: (message) => {
      recorder.message(peer, "sent", message);
      inbound.notify(message);
    },
    respond: (message) => {
      if (message !== undefined) recorder.message(peer, "sent", message);
      inbound.respond(message);
    },
  };
}

type RequestId = string | number;

class RecordedLink implements Transport {
  readonly #link: Transport;
  readonly #peer: RecordedPeer;
  readonly #recorder: Recorder;
  /**
   * The sender knows a request by the handle that `send` returned, so received messages are passed on with
   * that one.
   */
  readonly #exchanges = new WeakMap<
    SentRequest,
    { readonly shown: SentRequest; readonly id?: RequestId }
  >();
  #phase: "new" | "open" | "closing" | "closed" = "new";
  /** Only set if the wrapped transport has them, because their presence identifies an HTTP transport. */
  readonly redact?: (text: string) => string;
  readonly adopt?: (spoken: NegotiatedProtocol) => void;

  constructor(link: Transport, peer: RecordedPeer, recorder: Recorder) {
    this.#link = link;
    if (link.redact !== undefined) this.redact = (text) => link.redact?.(text) ?? text;
    if (link.adopt !== undefined) this.adopt = (spoken) => link.adopt?.(spoken);
    this.#peer = peer;
    this.#recorder = recorder;
  }

  async open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (this.#phase !== "new") return this.#link.open(events, signal);
    this.#phase = "open";
    this.#recorder.event(this.#peer, { event: "opening" });
    try {
      await this.#link.open(new RecordedEvents(this, events), signal);
    } catch (error) {
      this.noteEnd(toHubError(error));
      throw error;
    }
  }

  get queued(): number {
    return this.#link.queued;
  }

  get hasStreams(): true | undefined {
    return this.#link.hasStreams;
  }

  send(message: EncodedMessage, info?: SendOptions): SentRequest {
    if (this.#phase !== "open") return this.#link.send(message, info);
    this.#recorder.message(this.#peer, "sent", message);
    const id = info === undefined || this.adopt === undefined ? undefined : idOf(message);
    const exchange = this.#link.send(message, this.adopt && info && this.#watch(info, id));
    if (exchange === NO_HANDLE) return exchange;
    const shown = {
      abandon: () => {
        this.#recorder.event(this.#peer, { event: "abandoned", id });
        exchange.abandon();
      },
    };
    this.#exchanges.set(exchange, { shown, ...(id !== undefined && { id }) });
    return shown;
  }

  pause(): void {
    this.#link.pause();
  }

  resume(): void {
    this.#link.resume();
  }

  vitals(): Promise<ProcessStats | undefined> {
    return this.#link.vitals();
  }

  close(): Promise<void> {
    if (this.#phase === "open") this.#phase = "closing";
    return this.#link.close();
  }

  /** @returns the request handle that the transport's owner knows */
  noteFrame(frame: Message, exchange: SentRequest | undefined): SentRequest | undefined {
    const known = exchange && this.#exchanges.get(exchange);
    this.#recorder.frame(this.#peer, frame, known?.id);
    return known?.shown ?? exchange;
  }

  noteInbound(inbound: Responder): Responder {
    return recordResponder(inbound, this.#peer, this.#recorder);
  }

  noteLog(level: LogLevel, source: "stderr" | "stdout", text: string): void {
    this.#recorder.event(this.#peer, { event: "log", level, source, text });
  }

  noteOversized(head: Uint8Array, tail: Uint8Array, size: number): void {
    const edges = parseTruncated(joinPieces([head]), joinPieces([tail]));
    const { kind = "invalid", id } = edges ?? {};
    const known = id === undefined ? {} : { id: idText(id.key) };
    this.#recorder.event(this.#peer, { event: "oversized", size, kind, ...known });
  }

  noteEnd(cause: HubError): void {
    const by = this.#phase === "closing" ? "hub" : "peer";
    this.#phase = "closed";
    this.#recorder.event(this.#peer, { event: "closed", by, cause: cause.message });
  }

  #watch(info: SendOptions, id: RequestId | undefined): SendOptions {
    return {
      ...info,
      unanswered: (cause) => {
        this.#recorder.event(this.#peer, { event: "lost", id, cause: cause.message });
        info.unanswered?.(cause);
      },
    };
  }
}

class RecordedEvents implements TransportEvents {
  readonly #link: RecordedLink;
  readonly #events: TransportEvents;

  constructor(link: RecordedLink, events: TransportEvents) {
    this.#link = link;
    this.#events = events;
  }

  frame(frame: Message, exchange?: SentRequest, inbound?: Responder): void {
    const known = this.#link.noteFrame(frame, exchange);
    this.#events.frame(frame, known, inbound && this.#link.noteInbound(inbound));
  }

  log(level: LogLevel, source: "stderr" | "stdout", text: string): void {
    this.#link.noteLog(level, source, text);
    this.#events.log(level, source, text);
  }

  flaw(flaw: MalformedOutput): void {
    this.#events.flaw?.(flaw);
  }

  oversized(head: Uint8Array, tail: Uint8Array, size: number): void {
    this.#link.noteOversized(head, tail, size);
    this.#events.oversized(head, tail, size);
  }

  pressure(full: boolean): void {
    this.#events.pressure(full);
  }

  challenged(challenge: Parameters<NonNullable<TransportEvents["challenged"]>>[0]): void {
    this.#events.challenged?.(challenge);
  }

  closed(cause: HubError): void {
    this.#link.noteEnd(cause);
    this.#events.closed(cause);
  }
}

/** The id of a message if it is a request. */
function idOf(message: EncodedMessage): RequestId | undefined {
  const frame = parseMessage(joinMessage(message));
  return frame.kind === "request" ? idText(frame.id.key) : undefined;
}

/** Wraps a hub for the HTTP server so that all messages of its clients are recorded. */
export function recordHttpServer(hub: ServedHub, recorder: Recorder): ServedHub {
  return {
    accept: (link, signal, scope) =>
      hub.accept(recordTransport(link, recorder.client(), recorder), signal, scope),
    status: () => hub.status(),
    createModernClients: (client) => recordTaker(hub.createModernClients(client), recorder),
    activePlugins: { serve: (plugin, request) => hub.activePlugins.serve(plugin, request) },
  };
}

/** Modern requests do not show which client sent them, so each is recorded as a client of its own. */
function recordTaker(taker: ModernRequestTarget, recorder: Recorder): ModernRequestTarget {
  return {
    handle: (letter, way, scope, check) => {
      const peer = recorder.client();
      recorder.frame(peer, letter.request);
      try {
        taker.handle(letter, recordWay(way, peer, recorder), scope, check);
      } catch (error) {
        recorder.event(peer, { event: "refused", cause: toHubError(error).message });
        throw error;
      }
    },
    stop: () => taker.stop(),
    close: () => taker.close(),
  };
}

function recordWay(way: ModernResponder, peer: RecordedPeer, recorder: Recorder): ModernResponder {
  return {
    ...recordResponder(way, peer, recorder),
    isPipe: way.isPipe,
    onCancel: (callback) =>
      way.onCancel((why, by) => {
        recorder.event(peer, { event: "abandoned" });
        callback(why, by);
      }),
  };
}
