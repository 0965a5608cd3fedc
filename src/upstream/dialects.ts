import type { Edit } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { JsonObject, removeMembers } from "../base/json.ts";
import type { Kind } from "../catalog/listing.ts";
import {
  buildNotification,
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
  withoutTasks,
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
} from "../protocol/modern.ts";
import { prefixLogMessage, readLogMessage } from "../protocol/notifications.ts";
import { removeTaskParam, TASKS_CAPABILITY } from "../protocol/tasks.ts";
import type { Transport } from "../transport/transport.ts";
import type { ServerHandshake } from "./handshake.ts";
import { ListenSubscription } from "./listen.ts";
import type { ServerNotifications } from "./notifications.ts";
import type { PendingRequests, PendingRequest } from "./pending.ts";
import type { ClientDeclaration } from "./profile.ts";

/** What can be subscribed to by `subscriptions/listen` besides resources. */
export type ListenTopic = "task";

/** The era-specific part of a session with one server, after the handshake. */
export interface Dialect {
  readonly era: Era;
  /** Whether several messages may arrive in one JSON array. */
  readonly hasBatches: boolean;
  /** The method of the hub's health check. */
  readonly healthCheckMethod: string;
  /** Called after the handshake: sends what the server must receive first. */
  onHandshake(): void;
  /** Completes the params of a request of the hub's own. */
  completeParams(params: object | undefined): object | undefined;
  /** Adds to a client's request what the server must know about its sender, and removes what it must not get. */
  addSender(request: Request, sender: ClientDeclaration, edits: Edit[]): void;
  /** Whether the answer to a request may be a task. */
  mayCreateTask(request: Pick<PendingRequest, "method" | "isTask">): boolean;
  /** Subscribes to a resource or a task. @throws {HubError} if the server refuses or does not answer */
  subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void>;
  /** Unsubscribes; the server's answer is ignored. */
  unsubscribe(id: string, topic?: ListenTopic): void;
  /** A notification without what only one era has, for clients of any era. */
  withoutSubscriptionId(notification: Notification): Notification;
  /**
   * Handles a notification that exists only in this era, or that has another meaning in this era.
   * @param record the request on whose response stream it arrived, if the transport knows
   * @returns whether it was handled
   */
  handleNotification(notification: Notification, record: PendingRequest | undefined): boolean;
  close(): void;
}

export interface LegacyDialectOptions {
  readonly version: LegacyVersion;
  /** Whether the server supports `logging/setLevel`. */
  readonly hasLevels: boolean;
  readonly transport: Transport;
  readonly notifications: ServerNotifications;
  /** Sends a request of the hub's own. */
  sendRequest(method: string, params: object, signal: AbortSignal): Promise<Response>;
  sendWithoutWaiting(method: string, params: object): unknown;
}

/** The legacy era (2024-10-07 … 2025-11-25): the server keeps a session and sends requests itself. */
export class LegacyDialect implements Dialect {
  readonly era = "legacy";
  readonly healthCheckMethod = Method.ping;
  readonly hasBatches: boolean;
  readonly #options: LegacyDialectOptions;

  constructor(options: LegacyDialectOptions) {
    this.#options = options;
    this.hasBatches = allowsBatches(options.version);
  }

  onHandshake(): void {
    const { transport, notifications, hasLevels } = this.#options;
    transport.send(buildNotification(Method.initialized));
    notifications.onHandshake(hasLevels);
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
    if (topic === undefined) this.#options.sendWithoutWaiting(Method.unsubscribe, { uri });
  }

  withoutSubscriptionId(notification: Notification): Notification {
    return notification;
  }

  handleNotification(): boolean {
    return false;
  }

  close(): void {}
}

export interface ModernDialectOptions {
  readonly server: string;
  readonly version: ModernVersion;
  /** The hub's `clientInfo`, and the capabilities of its clients. */
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  readonly pending: PendingRequests;
  readonly listenSubscription: ListenSubscription;
  /** Adds a line to the server's log. */
  log(text: string): void;
}

/** The params member of `subscriptions/listen` for each kind. */
const FILTER_KEY_OF_TOPIC = { resource: "resourceSubscriptions", task: "taskIds" } as const;

/** The `_meta` envelope of a request that the hub sends on its own behalf or for a legacy client. */
export function clientEnvelopeOf(
  version: ModernVersion,
  client: Implementation,
  capabilities: Capabilities,
): object {
  // The hub's own `subscriptions/listen` may concern tasks.
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
  readonly #options: ModernDialectOptions;
  readonly #envelope: object;
  /** The legacy client for which something was sent last, with its envelope. */
  #lastPrepared:
    { readonly sender: ClientDeclaration; readonly envelope: PreparedEnvelope } | undefined;

  constructor(options: ModernDialectOptions) {
    this.#options = options;
    this.#envelope = clientEnvelopeOf(options.version, options.clientInfo, options.capabilities);
  }

  onHandshake(): void {
    this.#options.listenSubscription.begin();
  }

  completeParams(params: object | undefined): object {
    return { ...params, _meta: this.#envelope };
  }

  addSender(request: Request, sender: ClientDeclaration, edits: Edit[]): void {
    const { bytes, params } = request;
    if (params === undefined || sender.era === "modern") return;
    const object = paramsOf(request);
    edits.push(...removeTaskParam(params, object));
    edits.push(
      ...addEnvelope({ bytes, params, members: object.members }, this.#envelopeOf(sender)),
    );
  }

  /** In this era the server alone decides whether a call becomes a task. */
  mayCreateTask({ method }: Pick<PendingRequest, "method">): boolean {
    return method === Method.toolsCall;
  }

  subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    return this.#options.listenSubscription.add(
      FILTER_KEY_OF_TOPIC[topic ?? "resource"],
      id,
      signal,
    );
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#options.listenSubscription.remove(FILTER_KEY_OF_TOPIC[topic ?? "resource"], id);
  }

  /** Removes the subscription id, which belongs to one hop. */
  withoutSubscriptionId(notification: Notification): Notification {
    const edits = paramsOf(notification)
      .all("_meta")
      .flatMap((range) => {
        const { bytes, members } = JsonObject.at(notification.bytes, range);
        return removeMembers(bytes, range, members, (key) => key === MetaKey.subscription);
      });
    return applyMessageEdits(notification, edits);
  }

  handleNotification(notification: Notification, record: PendingRequest | undefined): boolean {
    switch (notification.method) {
      case ModernMethod.acknowledged:
        this.#options.listenSubscription.onAcknowledged(notification);
        return true;
      case Method.cancelled:
        this.#options.listenSubscription.onCancelled(notification);
        return true;
      case Method.message:
        this.#forwardLogMessage(notification, record);
        return true;
      default:
        return false;
    }
  }

  close(): void {
    this.#options.listenSubscription.close();
  }

  /**
   * Handles a log message. Over stdio it does not name its request: it goes to a client only if that client sent all
   * requests that may have caused it.
   */
  #forwardLogMessage(notification: Notification, record: PendingRequest | undefined): void {
    const { server, pending } = this.#options;
    const text = readLogMessage(notification);
    if (text !== undefined) this.#options.log(text);
    const line = prefixLogMessage(server, notification);
    if (line === undefined) return;
    if (record !== undefined) {
      record.log?.(line.severity, line.message);
      return;
    }
    pending.logRecipient?.log?.(line.severity, line.message);
  }

  #envelopeOf(sender: ClientDeclaration): PreparedEnvelope {
    if (this.#lastPrepared?.sender === sender) return this.#lastPrepared.envelope;
    const { info, declaredCapabilities: declared, level } = sender;
    const { version } = this.#options;
    const capabilities = toModernCapabilities(declared, sender.hubPollsTasks === true);
    const envelope = prepareEnvelope(
      formatEnvelope({ version, client: info, capabilities, level }),
    );
    this.#lastPrepared = { sender, envelope };
    return envelope;
  }
}

/**
 * The capabilities of a legacy client in the form of the modern era, which has neither roots `list_changed` nor legacy
 * tasks.
 * @param hasTasks the hub polls tasks to their end
 */
function toModernCapabilities(declared: Capabilities, hasTasks: boolean): object {
  const { roots, ...others } = withoutTasks(declared);
  const { extensions, experimental } = readAllExtensionSettings(declared);
  const taskExtension = hasTasks ? TASKS_CAPABILITY.extensions : {};
  const settings = { extensions: { ...extensions, ...taskExtension }, experimental };
  return { ...others, ...(roots && { roots: {} }), ...formatExtensionSettings(settings) };
}

/** The options of a dialect. */
export interface DialectOptions {
  readonly server: string;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly pending: PendingRequests;
  readonly notifications: ServerNotifications;
  /** The hub's `clientInfo`, and the capabilities of its clients. */
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  sendRequest(method: string, params: object, signal: AbortSignal): Promise<Response>;
  /** Changes of these kinds and of resources may have been missed during a gap. */
  onGap(kinds: readonly Kind[]): void;
  log(level: "debug" | "warn", text: string): void;
}

/** The dialect of the era that the handshake negotiated. */
export function createDialect(handshake: ServerHandshake, options: DialectOptions): Dialect {
  const { protocol, features, announcedKinds } = handshake;
  const { pending } = options;
  if (protocol.era === "legacy") {
    return new LegacyDialect({
      ...options,
      version: protocol.version,
      hasLevels: features.has("logging"),
      sendWithoutWaiting: (method, params) => pending.sendWithoutWaiting(method, params),
    });
  }
  const dialect: ModernDialect = new ModernDialect({
    ...options,
    version: protocol.version,
    log: (text) => options.log("debug", text),
    listenSubscription: new ListenSubscription({
      ...options,
      announcedKinds,
      filterKeys: new Set([
        ...(features.has("subscriptions") ? (["resourceSubscriptions"] as const) : []),
        ...(features.has("tasks") ? (["taskIds"] as const) : []),
      ]),
      completeParams: (params) => dialect.completeParams(params),
      onGap: () => options.onGap([...announcedKinds]),
      warn: (text) => options.log("warn", text),
    }),
  });
  return dialect;
}
