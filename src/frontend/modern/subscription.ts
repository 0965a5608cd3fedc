import { Buffer } from "node:buffer";
import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import type { Kind } from "../../catalog/listing.ts";
import type { Section } from "../../catalog/section.ts";
import { HubError } from "../../base/errors.ts";
import { Method } from "../../protocol/legacy.ts";
import { addEnvelope, MetaKey, ModernMethod, prepareEnvelope } from "../../protocol/modern.ts";
import type { RunningRequest } from "../../router/call.ts";
import type { RunningTaskSubscription } from "../../router/tasks.ts";
import { RESOURCE_METHOD } from "../../router/params.ts";
import { ResourceSubscriptions } from "../../router/subscriptions.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import {
  buildNotification,
  buildResult,
  editMessage,
  type EncodedMessage,
  joinMessage,
  paramsOf,
  type Request,
  withResponseId,
} from "../../jsonrpc/message.ts";
import { updateSections } from "../list-answers.ts";
import type { ModernClient } from "./client.ts";
import { type ModernRequest, type ModernResponder, requireTasks } from "./request.ts";

/**
 * Maximum wait for servers to answer subscriptions, in ms. After it, the acknowledgement is sent without waiting for
 * the remaining answers.
 */
const ACKNOWLEDGE_TIMEOUT = 3000;
/** Maximum number of resources and tasks in one `subscriptions/listen`. */
const MAX_NAMES = 1024;

/** One `subscriptions/listen` in flight: sends its client the notifications that it asked for, and nothing else. */
export class ClientSubscription {
  readonly #modernRequest: ModernRequest;
  readonly #responder: ModernResponder;
  readonly #client: ModernClient;
  /** The subscription id as a member of `_meta`: the id of the client's request. */
  readonly #idMember: string;
  readonly #requested: RequestedNotifications;
  /**
   * The list sections that the subscription covers, as they were when the client subscribed or was last told of a
   * change.
   */
  readonly #knownSections: Map<Kind, Section>;
  readonly #resourceSubscriptions: ResourceSubscriptions;
  /** Resource subscriptions that servers have not answered yet, by URI. `#refusedUris`: URIs that servers refused. */
  readonly #pendingSubscribes = new Map<string, RunningRequest>();
  readonly #refusedUris = new Set<string>();
  /** Subscriptions to tasks, by the hub's task id. `#pendingTasks`: ids of those that servers have not answered yet. */
  readonly #taskSubscriptions = new Map<string, RunningTaskSubscription>();
  readonly #pendingTasks = new Set<string>();
  #state: "unacknowledged" | "acknowledged" | "over" = "unacknowledged";
  /** Notifications held back until the acknowledgement is sent. */
  #held: EncodedMessage[] = [];
  #cancelTimeout: () => void = () => {};

  /** @throws {HubError} invalidParams, missingCapability */
  constructor(modernRequest: ModernRequest, responder: ModernResponder, client: ModernClient) {
    this.#modernRequest = modernRequest;
    this.#responder = responder;
    this.#client = client;
    this.#resourceSubscriptions = new ResourceSubscriptions(client.view, (message) =>
      this.#onNotification(message),
    );
    this.#requested = readRequested(modernRequest);
    if (this.#requested.tasks.length > 0) requireTasks(modernRequest);
    this.#idMember = `"${MetaKey.subscription}":${joinPieces([modernRequest.request.id]).toString()}`;
    this.#knownSections = new Map(
      this.#requested.kinds.map((kind) => [kind, client.shownCatalog[kind]]),
    );
  }

  begin(): void {
    this.#responder.onCancel(() => this.end());
    this.#cancelTimeout = this.#client.clock.after(ACKNOWLEDGE_TIMEOUT, () => this.#acknowledge());
    for (const uri of this.#requested.uris) this.#subscribe(uri);
    for (const id of this.#requested.tasks) this.#subscribeTask(id);
    if (this.#isSettled) this.#acknowledge();
  }

  /** Called when the catalog may have changed. Sends `list_changed` for the lists that have changed. */
  compare(catalog: Catalog): void {
    for (const method of updateSections(this.#knownSections, catalog))
      this.#notify(buildNotification(method, {}));
  }

  /** Ends the subscription on behalf of the hub: the client gets the final result. */
  stop(): void {
    if (this.#state === "over") return;
    this.end();
    const server = JSON.stringify(this.#client.serverInfo);
    const meta = `{${this.#idMember},"${MetaKey.server}":${server}}`;
    const result = utf8(`{"_meta":${meta},"resultType":"complete"}`);
    this.#responder.respond(buildResult(this.#modernRequest.request.id, result));
  }

  /** Ends the subscription without an answer, for example because the client has disconnected or cancelled it. */
  end(): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#cancelTimeout();
    for (const running of this.#pendingSubscribes.values())
      running.cancel("Nobody listens.", "client");
    this.#pendingSubscribes.clear();
    this.#resourceSubscriptions.close();
    for (const taskSubscription of this.#taskSubscriptions.values()) taskSubscription.stop();
    this.#client.onSubscriptionEnd(this);
  }

  #subscribe(uri: string): void {
    const { sender } = this.#modernRequest;
    const request = buildSubscribe(uri);
    const caller = {
      // The hub makes this request itself, as a legacy `resources/subscribe`.
      sender: { ...sender, era: "legacy", level: undefined } as const,
      toClientMessage: withOwnId,
      respond: (message: EncodedMessage | undefined) => this.#onSubscribeAnswer(uri, message),
      notify: () => {},
      sendServerRequest: refuseServerRequest,
    };
    try {
      const running = this.#client.router.route(
        request,
        caller,
        RESOURCE_METHOD,
        this.#resourceSubscriptions,
      );
      this.#pendingSubscribes.set(uri, running);
      running.run();
    } catch {
      this.#pendingSubscribes.delete(uri);
      this.#refusedUris.add(uri);
    }
  }

  #onSubscribeAnswer(uri: string, message: EncodedMessage | undefined): void {
    if (!this.#pendingSubscribes.delete(uri)) return;
    const parsed = message && parseMessage(joinMessage(message));
    if (parsed?.kind !== "response" || parsed.outcome === "error") this.#refusedUris.add(uri);
    if (this.#isSettled) queueMicrotask(() => this.#acknowledge());
  }

  get #isSettled(): boolean {
    return this.#pendingSubscribes.size === 0 && this.#pendingTasks.size === 0;
  }

  /**
   * Subscribes to a task; does nothing if the task is unknown. If the task's server sends no notifications, the
   * acknowledgement omits the task.
   */
  #subscribeTask(id: string): void {
    try {
      const taskSubscription = this.#client.router.subscribeTask(id, {
        onNotification: (message) => this.#onNotification(message),
        onSubscribeAnswer: (isAgreed) => {
          if (!isAgreed) this.#taskSubscriptions.delete(id);
          this.#pendingTasks.delete(id);
          if (this.#isSettled) queueMicrotask(() => this.#acknowledge());
        },
      });
      this.#taskSubscriptions.set(id, taskSubscription);
      this.#pendingTasks.add(id);
      taskSubscription.start();
    } catch {
      this.#taskSubscriptions.delete(id);
    }
  }

  /** Sends the acknowledgement: the first notification, which says which requested subscriptions are in effect. */
  #acknowledge(): void {
    if (this.#state !== "unacknowledged") return;
    this.#state = "acknowledged";
    this.#cancelTimeout();
    const uris = this.#requested.uris.filter((uri) => !this.#refusedUris.has(uri));
    const notifications = {
      ...this.#requested.flags,
      ...(uris.length > 0 && { resourceSubscriptions: uris }),
      ...(this.#taskSubscriptions.size > 0 && { taskIds: [...this.#taskSubscriptions.keys()] }),
    };
    this.#notify(buildNotification(ModernMethod.acknowledged, { notifications }));
    for (const message of this.#held) this.#responder.notify(message);
    this.#held = [];
    if (Object.keys(notifications).length === 0) this.stop();
  }

  #onNotification(message: EncodedMessage): void {
    this.#notify(joinMessage(message));
  }

  #notify(message: Uint8Array): void {
    const tagged = this.#addSubscriptionId(message);
    if (tagged === undefined || this.#state === "over") return;
    if (this.#state === "acknowledged") this.#responder.notify(tagged);
    else this.#held.push(tagged);
  }

  /** Adds the subscription id to a notification's `_meta`. */
  #addSubscriptionId(message: Uint8Array): EncodedMessage | undefined {
    const parsed = parseMessage(Buffer.from(message.buffer, message.byteOffset, message.length));
    if (parsed.kind !== "notification" || parsed.params === undefined) return undefined;
    const { bytes, params } = parsed;
    const { members } = paramsOf(parsed);
    return editMessage(
      parsed,
      addEnvelope({ bytes, params, members }, prepareEnvelope(this.#idMember)),
    );
  }
}

interface RequestedNotifications {
  readonly kinds: readonly Kind[];
  readonly uris: readonly string[];
  readonly tasks: readonly string[];
  /** The requested list flags, which the acknowledgement repeats. */
  readonly flags: Readonly<Record<string, true>>;
}

/** The lists that each flag of `subscriptions/listen` covers. */
const LIST_FLAGS = {
  toolsListChanged: ["tools"],
  promptsListChanged: ["prompts"],
  resourcesListChanged: ["resources", "resourceTemplates", "skills"],
} as const satisfies Record<string, readonly Kind[]>;

function readRequested({ params }: ModernRequest): RequestedNotifications {
  const given = params.value("notifications");
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw invalidFilterError();
  const filter = given as Readonly<Record<string, unknown>>;
  const requestedFlags = Object.entries(LIST_FLAGS).filter(([flag]) => filter[flag] === true);
  const uris = filter["resourceSubscriptions"] ?? [];
  const tasks = filter["taskIds"] ?? [];
  if (!isStringArray(uris) || !isStringArray(tasks)) throw invalidFilterError();
  if (uris.length + tasks.length > MAX_NAMES) throw invalidFilterError();
  return {
    kinds: requestedFlags.flatMap(([, kinds]) => kinds),
    uris: [...new Set(uris)],
    tasks: [...new Set(tasks)],
    flags: Object.fromEntries(requestedFlags.map(([requested]) => [requested, true])),
  };
}

function isStringArray(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((each) => typeof each === "string");
}

function invalidFilterError(): HubError {
  const text = `subscriptions/listen needs the member notifications, with at most ${MAX_NAMES} URIs and ids.`;
  return new HubError("invalidParams", text);
}

function buildSubscribe(uri: string): Request {
  const params = JSON.stringify({ uri });
  const text = `{"jsonrpc":"2.0","id":0,"method":"${Method.subscribe}","params":${params}}`;
  const parsed = parseMessage(Buffer.from(text));
  if (parsed.kind !== "request") throw invalidFilterError();
  return parsed;
}

type Failable = { fail(error: HubError): void };

function refuseServerRequest(request: Failable): () => void {
  request.fail(new HubError("notAsked", "A subscription cannot answer the request of a server."));
  return () => {};
}

function withOwnId(response: Parameters<typeof withResponseId>[0]): EncodedMessage {
  return withResponseId(response, "0");
}
