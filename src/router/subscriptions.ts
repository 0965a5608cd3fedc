import { utf8 } from "../base/bytes.ts";
import { encodeUriTemplate, encodeUri } from "../catalog/uris.ts";
import type { Route } from "../catalog/section.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import type { Session } from "../upstream/session.ts";
import type { Subscriber, Subscriptions } from "../upstream/subscriptions.ts";
import {
  buildNotification,
  buildResult,
  bytesOf,
  type EncodedMessage,
  replaceRanges,
  type Response,
} from "../jsonrpc/message.ts";
import type { CallEnd, SessionCallContext } from "./call.ts";
import { UpstreamRequest } from "./upstream-request.ts";

/** The resource subscriptions of one client. */
export class ResourceSubscriptions {
  readonly #notify: (message: EncodedMessage) => void;
  /** Subscriptions by the URI that the client uses. */
  readonly #subscriptions = new Map<string, ResourceSubscription>();

  /** @param notify sends the client a notification that belongs to no request */
  constructor(notify: (message: EncodedMessage) => void) {
    this.#notify = notify;
  }

  add(route: Route, subscriptions: Subscriptions): ResourceSubscription {
    const subscription = new ResourceSubscription(route, subscriptions, this, this.#notify);
    const existing = this.#subscriptions.get(route.name);
    if (existing?.server === subscription.server && existing.uri === subscription.uri)
      return existing;
    this.remove(route.name);
    this.#subscriptions.set(route.name, subscription);
    return subscription;
  }

  remove(name: string, isRefused = false): void {
    this.#subscriptions.get(name)?.stop(isRefused);
    this.#subscriptions.delete(name);
  }

  /** The client has disconnected. */
  close(): void {
    for (const name of this.#subscriptions.keys()) this.remove(name);
  }
}

/** One client's subscription to one resource. */
class ResourceSubscription implements Subscriber {
  readonly client: object;
  readonly server: string;
  readonly uri: string;
  readonly #name: string;
  readonly #subscriptions: Subscriptions;
  readonly #notify: (message: EncodedMessage) => void;

  constructor(
    { server, name, remoteName }: Route,
    subscriptions: Subscriptions,
    client: object,
    notify: (message: EncodedMessage) => void,
  ) {
    this.client = client;
    this.server = server;
    this.uri = remoteName;
    this.#name = name;
    this.#subscriptions = subscriptions;
    this.#notify = notify;
  }

  /** Adds the subscription. @returns whether the hub has already subscribed at the server: then no request is needed */
  start(): boolean {
    return this.#subscriptions.add(this.uri, this);
  }

  confirm(): void {
    this.#subscriptions.accept(this.uri);
  }

  stop(isRefused: boolean): void {
    this.#subscriptions.remove(this.uri, this, isRefused);
  }

  updated(uri: string, notice?: Parameters<Subscriber["updated"]>[1]): void {
    const name = this.#clientUriOf(uri);
    if (notice === undefined) {
      this.#notify(buildNotification(Method.resourceUpdated, { uri: name }));
      return;
    }
    const { notification, uris } = notice;
    const json = utf8(JSON.stringify(name));
    this.#notify(name === uri ? bytesOf(notification) : replaceRanges(notification, uris, json));
  }

  /** Converts the server's URI of an updated resource, the subscribed one or one below it, to the client's. */
  #clientUriOf(uri: string): string {
    if (uri === this.uri) return this.#name;
    if (this.#name === this.uri) return uri;
    // In the exposed URIs of a renamed skill, the server's own URI is not percent-encoded.
    const encode = this.#name.endsWith(this.uri) ? encodeUriTemplate : encodeUri;
    return encode(this.server, uri);
  }
}

const EMPTY_RESULT = utf8("{}");

/** A `resources/subscribe` request: sent to the server only if no other client has subscribed to the same resource. */
export class SubscribeRequest extends UpstreamRequest {
  readonly #subscriptions: ResourceSubscriptions;
  #subscription: ResourceSubscription | undefined;
  #isConfirmed = false;
  readonly #abort = new AbortController();

  constructor(context: SessionCallContext, subscriptions: ResourceSubscriptions) {
    super(context);
    this.#subscriptions = subscriptions;
  }

  override onSession(session: Session): void {
    if (this.isOver) return;
    const { route, request } = this.context;
    const { subscriptions, server } = session;
    if (subscriptions === undefined || !session.supports("subscriptions")) {
      const text = `Server "${server}" has no subscriptions.`;
      this.fail(new HubError("methodNotFound", text, { server }));
      return;
    }
    this.#subscription = this.#subscriptions.add(route, subscriptions);
    this.#isConfirmed = this.#subscription.start();
    if (this.#isConfirmed) this.finish(buildResult(request.id, EMPTY_RESULT), "answered");
    else if (session.era === "legacy") super.onSession(session);
    else void this.#subscribeModern(session);
  }

  /** Modern servers have one `subscriptions/listen` stream for all subscriptions instead of a request for each. */
  async #subscribeModern(session: Session): Promise<void> {
    const { route, request } = this.context;
    try {
      await session.subscribe(route.remoteName, this.#abort.signal);
      this.#isConfirmed = true;
      this.#subscription?.confirm();
      this.finish(buildResult(request.id, EMPTY_RESULT), "answered");
    } catch (error) {
      this.fail(toHubError(error));
    }
  }

  override onResponse(response: Response): void {
    if (response.outcome === "error") {
      this.#subscriptions.remove(this.context.route.name, true);
      this.#subscription = undefined;
    } else {
      this.#isConfirmed = true;
      this.#subscription?.confirm();
    }
    super.onResponse(response);
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.#subscription !== undefined && !this.#isConfirmed)
      this.#subscriptions.remove(this.context.route.name);
    this.#subscription = undefined;
    this.#abort.abort();
    super.finish(message, end);
  }
}
