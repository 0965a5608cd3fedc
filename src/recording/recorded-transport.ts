import { joinPieces } from "../base/bytes.ts";
import { type HubError, toHubError } from "../base/errors.ts";
import { enterStage } from "../base/fault-injection.ts";
import type { LogLevel } from "../base/hub-events.ts";
import type { ServedHub } from "../frontend/http/server.ts";
import type { ModernRequestTarget } from "../frontend/modern/clients.ts";
import type { ModernResponder } from "../frontend/modern/request.ts";
import { type EncodedMessage, joinMessage, type Message } from "../jsonrpc/message.ts";
import { parseMessage, parseTruncated } from "../jsonrpc/parse.ts";
import type { ProcessStats } from "../process/child-process.ts";
import {
  mayLoseRequests,
  NO_OP_SENT_REQUEST,
  type MalformedOutput,
  type NegotiatedProtocol,
  type Responder,
  type SendOptions,
  type SentRequest,
  type TransportEvents,
  type Transport,
} from "../transport/transport.ts";
import type { RecordedPeer } from "./format.ts";
import { idText, type Recorder } from "./recorder.ts";

/** Wraps a transport so that all messages on it are recorded. */
export function recordTransport(
  transport: Transport,
  peer: RecordedPeer,
  recorder: Recorder,
): Transport {
  return new RecordedTransport(transport, peer, recorder);
}

/** Wraps the responder of one request so that all messages that it sends are recorded. */
export function recordResponder(
  responder: Responder,
  peer: RecordedPeer,
  recorder: Recorder,
): Responder {
  return {
    notify: (message) => {
      recorder.message(peer, "sent", message);
      responder.notify(message);
    },
    respond: (message) => {
      if (message !== undefined) recorder.message(peer, "sent", message);
      responder.respond(message);
    },
  };
}

type RequestId = string | number;

class RecordedTransport implements Transport {
  readonly #transport: Transport;
  readonly #peer: RecordedPeer;
  readonly #recorder: Recorder;
  /**
   * Maps the wrapped transport's handle of a request to the handle that `send` returned to its caller, and to the
   * request's id. Received messages are passed on with the caller's handle.
   */
  readonly #requests = new WeakMap<
    SentRequest,
    { readonly shown: SentRequest; readonly id?: RequestId }
  >();
  #phase: "new" | "open" | "closing" | "closed" = "new";

  constructor(transport: Transport, peer: RecordedPeer, recorder: Recorder) {
    this.#transport = transport;
    this.#peer = peer;
    this.#recorder = recorder;
  }

  async open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (this.#phase !== "new") return this.#transport.open(events, signal);
    this.#phase = "open";
    this.#recorder.event(this.#peer, { event: "opening" });
    try {
      await this.#transport.open(new RecordedEvents(this, events), signal);
    } catch (error) {
      this.recordClosed(toHubError(error));
      throw error;
    }
  }

  get kind(): Transport["kind"] {
    return this.#transport.kind;
  }

  redact(text: string): string {
    return this.#transport.redact?.(text) ?? text;
  }

  adopt(protocol: NegotiatedProtocol): void {
    this.#transport.adopt?.(protocol);
  }

  get queued(): number {
    return this.#transport.queued;
  }

  get hasStreams(): true | undefined {
    return this.#transport.hasStreams;
  }

  send(message: EncodedMessage, info?: SendOptions): SentRequest {
    if (this.#phase !== "open") return this.#transport.send(message, info);
    this.#recorder.message(this.#peer, "sent", message);
    const id = info === undefined || !mayLoseRequests(this) ? undefined : idOf(message);
    const sentRequest = this.#transport.send(
      message,
      mayLoseRequests(this) && info ? this.#watchUnanswered(info, id) : undefined,
    );
    if (sentRequest === NO_OP_SENT_REQUEST) return sentRequest;
    const shown = {
      abandon: () => {
        this.#recorder.event(this.#peer, { event: "abandoned", id });
        sentRequest.abandon();
      },
    };
    this.#requests.set(sentRequest, { shown, ...(id !== undefined && { id }) });
    return shown;
  }

  pause(): void {
    this.#transport.pause();
  }

  resume(): void {
    this.#transport.resume();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#transport.processStats();
  }

  close(): Promise<void> {
    if (this.#phase === "open") this.#phase = "closing";
    return this.#transport.close();
  }

  /** Records a received message. @returns the request handle that the transport's owner knows */
  recordMessage(message: Message, sentRequest: SentRequest | undefined): SentRequest | undefined {
    enterStage("recording");
    const known = sentRequest && this.#requests.get(sentRequest);
    this.#recorder.received(this.#peer, message, known?.id);
    return known?.shown ?? sentRequest;
  }

  recordResponderOf(responder: Responder): Responder {
    return recordResponder(responder, this.#peer, this.#recorder);
  }

  recordLog(level: LogLevel, source: "stderr" | "stdout", text: string): void {
    this.#recorder.event(this.#peer, { event: "log", level, source, text });
  }

  recordOversized(head: Uint8Array, tail: Uint8Array, size: number): void {
    const edges = parseTruncated(joinPieces([head]), joinPieces([tail]));
    const { kind = "invalid", id } = edges ?? {};
    const known = id === undefined ? {} : { id: idText(id.key) };
    this.#recorder.event(this.#peer, { event: "oversized", size, kind, ...known });
  }

  recordClosed(cause: HubError): void {
    const by = this.#phase === "closing" ? "hub" : "peer";
    this.#phase = "closed";
    this.#recorder.event(this.#peer, { event: "closed", by, cause: cause.message });
  }

  #watchUnanswered(info: SendOptions, id: RequestId | undefined): SendOptions {
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
  readonly #transport: RecordedTransport;
  readonly #events: TransportEvents;

  constructor(transport: RecordedTransport, events: TransportEvents) {
    this.#transport = transport;
    this.#events = events;
  }

  message(message: Message, sentRequest?: SentRequest, responder?: Responder): void {
    const known = this.#transport.recordMessage(message, sentRequest);
    this.#events.message(message, known, responder && this.#transport.recordResponderOf(responder));
  }

  log(level: LogLevel, source: "stderr" | "stdout", text: string): void {
    this.#transport.recordLog(level, source, text);
    this.#events.log(level, source, text);
  }

  malformedOutput(output: MalformedOutput): void {
    this.#events.malformedOutput?.(output);
  }

  inputEnded(idle: () => void): void {
    if (this.#events.inputEnded === undefined) idle();
    else this.#events.inputEnded(idle);
  }

  abandonRequests(): void {
    this.#events.abandonRequests?.();
  }

  oversized(head: Uint8Array, tail: Uint8Array, size: number): void {
    this.#transport.recordOversized(head, tail, size);
    this.#events.oversized(head, tail, size);
  }

  pressure(full: boolean): void {
    this.#events.pressure(full);
  }

  challenged(challenge: Parameters<NonNullable<TransportEvents["challenged"]>>[0]): void {
    this.#events.challenged?.(challenge);
  }

  closed(cause: HubError): void {
    this.#transport.recordClosed(cause);
    this.#events.closed(cause);
  }
}

/** The id of a message if it is a request. */
function idOf(message: EncodedMessage): RequestId | undefined {
  const parsed = parseMessage(joinMessage(message));
  return parsed.kind === "request" ? idText(parsed.id.key) : undefined;
}

/** Wraps a hub for the HTTP server so that all messages of its clients are recorded. */
export function recordHttpServer(hub: ServedHub, recorder: Recorder): ServedHub {
  return {
    accept: (transport, signal, client) => {
      const recorded = recordTransport(transport, recorder.nextClient(), recorder);
      return hub.accept(recorded, signal, client);
    },
    status: () => hub.status(),
    modeFault: (mode) => hub.modeFault(mode),
    createModernClients: (client, limits) =>
      recordRequestTarget(hub.createModernClients(client, limits), recorder),
    activePlugins: { serve: (plugin, request) => hub.activePlugins.serve(plugin, request) },
  };
}

/** Modern requests do not show which client sent them, so each is recorded as a client of its own. */
function recordRequestTarget(target: ModernRequestTarget, recorder: Recorder): ModernRequestTarget {
  return {
    handle: (modernRequest, responder, scope, check) => {
      const peer = recorder.nextClient();
      recorder.received(peer, modernRequest.request);
      try {
        target.handle(
          modernRequest,
          recordModernResponder(responder, peer, recorder),
          scope,
          check,
        );
      } catch (error) {
        recorder.event(peer, { event: "refused", cause: toHubError(error).message });
        throw error;
      }
    },
    stop: () => target.stop(),
    close: () => target.close(),
  };
}

function recordModernResponder(
  responder: ModernResponder,
  peer: RecordedPeer,
  recorder: Recorder,
): ModernResponder {
  return {
    ...recordResponder(responder, peer, recorder),
    isPipe: responder.isPipe,
    onCancel: (callback) =>
      responder.onCancel((reason, by) => {
        recorder.event(peer, { event: "abandoned" });
        callback(reason, by);
      }),
  };
}
