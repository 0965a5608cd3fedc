import type { Edit } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { JsonObject, removeMembers } from "../base/json.ts";
import type { Kind } from "../catalog/listing.ts";
import {
  buildNotification,
  bytesOf,
  type Notification,
  paramsOf,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import {
  type Capabilities,
  formatExtensionSettings,
  readAllExtensionSettings,
} from "../protocol/capabilities.ts";
import {
  allowsBatches,
  type Implementation,
  type LegacyVersion,
  Method,
} from "../protocol/legacy.ts";
import {
  addEnvelope,
  type Era,
  formatEnvelope,
  MetaKey,
  ModernMethod,
  type ModernVersion,
  type PreparedEnvelope,
  prepareEnvelope,
  removeEnvelope,
  replaceCapabilities,
} from "../protocol/modern.ts";
import { type LogSeverity, lowestSeverityOf } from "../protocol/log-level.ts";
import { removeTaskParam, TASKS_CAPABILITY } from "../protocol/tasks.ts";
import type { Transport } from "../transport/transport.ts";
import type { ServerHandshake } from "./handshake-result.ts";
import { ListenSubscription } from "./listen.ts";
import type { PendingRequests, PendingRequest } from "./pending.ts";
import { type ClientDeclaration, type ConnectionClients, onlyClientOf } from "./profile.ts";

/** The things besides resources that the hub can subscribe to. */
export type ListenTopic = "task";

/** The part of a session that differs between the eras, after the handshake. */
export interface Dialect {
  readonly era: Era;
  /** Whether several messages may arrive in one JSON array. */
  readonly hasBatches: boolean;
  readonly healthCheckMethod: string;
  /** Sends the messages that the server must receive first after the handshake. */
  onHandshake(): void;
  /** Adds the members that the era requires to the params of one of the hub's own requests. */
  completeParams(params: object | undefined): object | undefined;
  /**
   * Adds edits to `edits`: they tell the server about the sender of a client's request, and remove members that the
   * server must not get.
   */
  addSender(request: Request, sender: ClientDeclaration, edits: Edit[]): void;
  /** Whether the server may answer a request with a task. */
  mayCreateTask(request: Pick<PendingRequest, "method" | "isTask">): boolean;
  /** Subscribes to a resource or a task. @throws {HubError} if the server refuses or does not answer */
  subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void>;
  unsubscribe(id: string, topic?: ListenTopic): void;
  /**
   * Removes the subscription id, so that clients of both eras can get the notification. Only modern servers'
   * notifications contain such an id.
   */
  withoutSubscriptionId(notification: Notification): Notification;
  /** Handles a notification that exists only in this era. @returns whether it was handled */
  handleNotification(notification: Notification): boolean;
  /** Called when the log levels that clients want may have changed. */
  updateLogLevel(): void;
  /** Called when a client's roots have changed. */
  rootsChanged(notification: Notification): void;
  close(): void;
}

export interface DialectOptions {
  readonly server: string;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly pending: PendingRequests;
  readonly clients: ConnectionClients;
  readonly clientInfo: Implementation;
  /** Sends one of the hub's own requests, which must be idempotent. */
  sendRequest(method: string, params: object, signal: AbortSignal): Promise<Response>;
  /** Called after a gap between subscriptions: changes of resources and of lists of `kinds` may have been missed. */
  onGap(kinds: readonly Kind[]): void;
  warn(text: string): void;
}

/** Creates the dialect of the era that the handshake negotiated. */
export function createDialect(handshake: ServerHandshake, options: DialectOptions): Dialect {
  const { protocol } = handshake;
  return protocol.era === "legacy"
    ? new LegacyDialect(protocol.version, handshake, options)
    : new ModernDialect(protocol.version, handshake, options);
}

const NEVER_ABORTED = new AbortController().signal;
/** The log level that is set when no client wants a particular level any more. */
const DEFAULT_LEVEL: LogSeverity = "info";

/** The legacy era (2024-10-07 … 2025-11-25): the server keeps a session and sends requests itself. */
export class LegacyDialect implements Dialect {
  readonly era = "legacy";
  readonly healthCheckMethod = Method.ping;
  readonly hasBatches: boolean;
  readonly #options: DialectOptions;
  /** Whether the server supports `logging/setLevel`. */
  readonly #hasLevels: boolean;
  #level: LogSeverity | undefined;

  constructor(
    version: LegacyVersion,
    { features }: Pick<ServerHandshake, "features">,
    options: DialectOptions,
  ) {
    this.#options = options;
    this.hasBatches = allowsBatches(version);
    this.#hasLevels = features.has("logging");
  }

  onHandshake(): void {
    this.#options.transport.send(buildNotification(Method.initialized));
    this.updateLogLevel();
  }

  completeParams(params: object | undefined): object | undefined {
    return params;
  }

  addSender(request: Request, sender: ClientDeclaration, edits: Edit[]): void {
    if (sender.era === "legacy") return;
    const params = paramsOf(request);
    edits.push(...removeEnvelope(params));
    if (request.params !== undefined) edits.push(...removeTaskParam(request.params, params));
  }

  mayCreateTask({ isTask }: Pick<PendingRequest, "isTask">): boolean {
    return isTask === true;
  }

  async subscribe(uri: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    if (topic !== undefined) throw new HubError("methodNotFound", "The server tells it unasked.");
    const { outcome } = await this.#options.sendRequest(Method.subscribe, { uri }, signal);
    if (outcome === "error") throw new HubError("internal", "the server has refused.");
  }

  unsubscribe(uri: string, topic?: ListenTopic): void {
    if (topic === undefined)
      this.#options.sendRequest(Method.unsubscribe, { uri }, NEVER_ABORTED).catch(() => {});
  }

  withoutSubscriptionId(notification: Notification): Notification {
    return notification;
  }

  handleNotification(): boolean {
    return false;
  }

  /** Sets the server's log level to the lowest level that any of its clients wants, if that level has changed. */
  updateLogLevel(): void {
    if (!this.#hasLevels) return;
    const { clients } = this.#options;
    // The levels of clients that have left no longer count. If a level was set, and no client wants a particular level
    // any more, the default level is set.
    const resetLevel = this.#level && DEFAULT_LEVEL;
    const wanted = clients.current().flatMap((client) => client.level ?? []);
    const level = lowestSeverityOf(wanted) ?? resetLevel;
    if (level === undefined || level === this.#level) return;
    this.#level = level;
    this.#options.sendRequest(Method.setLevel, { level }, NEVER_ABORTED).catch(() => {});
  }

  /** Forwards the notification if `roots` was declared to the server and the connection has only one client. */
  rootsChanged(notification: Notification): void {
    const { clients, transport } = this.#options;
    if (clients.capabilities.roots !== undefined && onlyClientOf(clients) !== undefined)
      transport.send(bytesOf(notification));
  }

  close(): void {}
}

/** For resources and tasks, the member of the `subscriptions/listen` params that contains their URIs or ids. */
const FILTER_KEY_OF_TOPIC = { resource: "resourceSubscriptions", task: "taskIds" } as const;

/** Builds the `_meta` of a request that the hub sends on its own behalf or for a legacy client. */
export function clientEnvelopeOf(
  version: ModernVersion,
  client: Implementation,
  capabilities: Capabilities,
): object {
  // Tasks are declared, because the hub's own `subscriptions/listen` may be about tasks.
  const modernCapabilities = toModernCapabilities(capabilities, true);
  const envelope = { version, client, capabilities: modernCapabilities, level: undefined };
  return JSON.parse(`{${formatEnvelope(envelope)}}`) as object;
}

/**
 * The modern era (2026-07-28): every request declares its sender in `_meta`; the server keeps no session and sends no
 * requests.
 */
export class ModernDialect implements Dialect {
  readonly era = "modern";
  readonly healthCheckMethod = ModernMethod.discover;
  readonly hasBatches = false;
  readonly #version: ModernVersion;
  readonly #options: DialectOptions;
  readonly #listenSubscription: ListenSubscription;
  readonly #envelope: object;
  /**
   * A cache: the envelope that was last made for a legacy client, and that client. Successive requests often come from
   * the same client.
   */
  #lastPrepared:
    { readonly sender: ClientDeclaration; readonly envelope: PreparedEnvelope } | undefined;

  constructor(version: ModernVersion, handshake: ServerHandshake, options: DialectOptions) {
    this.#version = version;
    this.#options = options;
    this.#envelope = clientEnvelopeOf(version, options.clientInfo, options.clients.capabilities);
    this.#listenSubscription = new ListenSubscription(handshake, {
      ...options,
      completeParams: (params) => this.completeParams(params),
    });
  }

  onHandshake(): void {
    this.#listenSubscription.begin();
  }

  completeParams(params: object | undefined): object {
    return { ...params, _meta: this.#envelope };
  }

  addSender(request: Request, sender: ClientDeclaration, edits: Edit[]): void {
    const { bytes, params } = request;
    if (params === undefined) return;
    if (sender.era === "modern") {
      if (this.#options.clients.isForEverybody)
        edits.push(...replaceCapabilities(bytes, paramsOf(request)));
      return;
    }
    const object = paramsOf(request);
    edits.push(...removeTaskParam(params, object));
    edits.push(
      ...addEnvelope({ bytes, params, members: object.members }, this.#envelopeOf(sender)),
    );
  }

  /** In the modern era the server alone decides whether a call becomes a task. */
  mayCreateTask({ method }: Pick<PendingRequest, "method">): boolean {
    return method === Method.toolsCall;
  }

  subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    return this.#listenSubscription.add(FILTER_KEY_OF_TOPIC[topic ?? "resource"], id, signal);
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#listenSubscription.remove(FILTER_KEY_OF_TOPIC[topic ?? "resource"], id);
  }

  withoutSubscriptionId(notification: Notification): Notification {
    const edits = paramsOf(notification)
      .all("_meta")
      .flatMap((range) => {
        const { bytes, members } = JsonObject.at(notification.bytes, range);
        return removeMembers(bytes, range, members, (key) => key === MetaKey.subscription);
      });
    return applyMessageEdits(notification, edits);
  }

  /** A modern server sends no requests that it could cancel, so its `notifications/cancelled` ends the subscription. */
  handleNotification(notification: Notification): boolean {
    if (notification.method === ModernMethod.acknowledged)
      this.#listenSubscription.onAcknowledged(notification);
    else if (notification.method === Method.cancelled)
      this.#listenSubscription.onCancelled(notification);
    else return false;
    return true;
  }

  /** Does nothing: each request contains the log level that its client wants. */
  updateLogLevel(): void {}

  /** Does nothing: modern servers ask for the roots when they need them. */
  rootsChanged(): void {}

  close(): void {
    this.#listenSubscription.close();
  }

  #envelopeOf(sender: ClientDeclaration): PreparedEnvelope {
    if (this.#lastPrepared?.sender === sender) return this.#lastPrepared.envelope;
    const { info, level } = sender;
    const declared = this.#options.clients.isForEverybody ? {} : sender.declaredCapabilities;
    const version = this.#version;
    const capabilities = toModernCapabilities(declared, sender.hubPollsTasks === true);
    const envelope = prepareEnvelope(
      formatEnvelope({ version, client: info, capabilities, level }),
    );
    this.#lastPrepared = { sender, envelope };
    return envelope;
  }
}

/**
 * Converts a legacy client's capabilities to the modern form, in which `roots` has no `listChanged`.
 * @param hasTasks whether the hub polls tasks to their end
 */
function toModernCapabilities(declared: Capabilities, hasTasks: boolean): object {
  const { roots, sampling, elicitation } = declared;
  const { extensions, experimental } = readAllExtensionSettings(declared);
  const taskExtension = hasTasks ? TASKS_CAPABILITY.extensions : {};
  const settings = { extensions: { ...extensions, ...taskExtension }, experimental };
  return {
    ...(sampling && { sampling }),
    ...(elicitation && { elicitation }),
    ...(roots && { roots: {} }),
    ...formatExtensionSettings(settings),
  };
}
