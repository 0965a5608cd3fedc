import { type Edit, utf8 } from "../base/bytes.ts";
import { encodeUriTemplate, encodeUri } from "../catalog/uris.ts";
import type { Route } from "../catalog/section.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Session } from "../upstream/session.ts";
import type { ClientView } from "../views/client-view.ts";
import type { Subscriber, Subscriptions } from "../upstream/subscriptions.ts";
import {
  buildNotification,
  buildResult,
  bytesOf,
  type EncodedMessage,
  replaceRanges,
  type Response,
} from "../jsonrpc/message.ts";
import { type CallContext, type CallEnd, RelayedCall, type RoutedRequest } from "./call.ts";

/** The resource subscriptions of one client. */
export class ResourceSubscriptions {
  readonly #view: ClientView;
  readonly #notify: (message: EncodedMessage) => void;
  /** Subscriptions by the URI that the client uses. */
  readonly #subscriptions = new Map<string, ResourceSubscription>();

  /** @param notify sends the client a notification that belongs to no request */
  constructor(view: ClientView, notify: (message: EncodedMessage) => void) {
    this.#view = view;
    this.#notify = notify;
  }

  add(route: Route, subscriptions: Subscriptions): ResourceSubscription {
    const subscription = new ResourceSubscription(route, subscriptions, this);
    const existing = this.#subscriptions.get(route.name);
    if (existing?.server === subscription.server && existing.uri === subscription.uri)
      return existing;
    this.remove(route.name);
    this.#subscriptions.set(route.name, subscription);
    return subscription;
  }

  /** The shared subscriptions of the client's current connection to the server. */
  subscriptionsAt(server: string): Subscriptions | undefined {
    return this.#view.connection(server)?.subscriptions;
  }

  /** Whether the client's current mode hides the resource, or everything of its server. */
  hides(server: string, remoteName: string, name: string): boolean {
    if (this.#view.sees(server) !== true) return true;
    return this.#view.isHidden("resources", { server, remoteName, name, isReadOnly: true });
  }

  notify(message: EncodedMessage): void {
    this.#notify(message);
  }

  remove(name: string, isRefused = false): void {
    this.#subscriptions.get(name)?.stop(isRefused);
    this.#subscriptions.delete(name);
  }

  close(): void {
    for (const name of this.#subscriptions.keys()) this.remove(name);
  }
}

/** One client's subscription to one resource. */
class ResourceSubscription implements Subscriber {
  readonly client: ResourceSubscriptions;
  readonly server: string;
  readonly uri: string;
  readonly #name: string;
  /** The shared subscriptions of the client's current connection to the server. */
  #subscriptions: Subscriptions;

  constructor(
    { server, name, remoteName }: Route,
    subscriptions: Subscriptions,
    client: ResourceSubscriptions,
  ) {
    this.client = client;
    this.server = server;
    this.uri = remoteName;
    this.#name = name;
    this.#subscriptions = subscriptions;
  }

  /** Adds the subscription. @returns whether the hub has already subscribed at the server, so no request is needed */
  start(): boolean {
    return this.#subscriptions.add(this.uri, this);
  }

  confirm(): void {
    this.#subscriptions.accept(this.uri);
  }

  stop(isRefused: boolean): void {
    this.#subscriptions.remove(this.uri, this, isRefused);
  }

  onRetired(): void {
    const present = this.client.subscriptionsAt(this.server);
    if (present === undefined) return;
    this.#subscriptions = present;
    present.add(this.uri, this);
  }

  updated(uri: string, notice?: Parameters<Subscriber["updated"]>[1]): void {
    const name = this.#clientUriOf(uri);
    if (this.client.hides(this.server, uri, name)) return;
    if (notice === undefined) {
      this.client.notify(buildNotification(Method.resourceUpdated, { uri: name }));
      return;
    }
    const { notification, uris } = notice;
    const json = utf8(JSON.stringify(name));
    this.client.notify(
      name === uri ? bytesOf(notification) : replaceRanges(notification, uris, json),
    );
  }

  /**
   * Converts the URI in a server's notification to the client's URI. The updated resource is the subscribed resource or
   * a resource below it.
   */
  #clientUriOf(uri: string): string {
    if (uri === this.uri) return this.#name;
    if (this.#name === this.uri) return uri;
    // In URIs of renamed skills, the server's own URI is the end of the client's URI, without percent-encoding.
    const encode = this.#name.endsWith(this.uri) ? encodeUriTemplate : encodeUri;
    return encode(this.server, uri);
  }
}

const EMPTY_RESULT = utf8("{}");

/** A `resources/subscribe` request: sent to the server only if no other client has subscribed to the same resource. */
export class SubscribeCall extends RelayedCall {
  readonly #subscriptions: ResourceSubscriptions;
  #subscription: ResourceSubscription | undefined;
  #isConfirmed = false;
  readonly #abort = new AbortController();

  constructor(
    context: CallContext,
    routed: RoutedRequest,
    connection: Connection,
    subscriptions: ResourceSubscriptions,
  ) {
    super(context, routed, connection);
    this.#subscriptions = subscriptions;
  }

  override onSession(session: Session, hasWaited: boolean): boolean {
    const { route, request } = this;
    const { subscriptions, server } = session;
    if (!session.supports("subscriptions")) {
      const text = `Server "${server}" has no subscriptions.`;
      this.fail(new HubError("methodNotFound", text, { server }));
      return false;
    }
    this.#subscription = this.#subscriptions.add(route, subscriptions);
    this.#isConfirmed = this.#subscription.start();
    if (this.#isConfirmed) this.finish(buildResult(request.id, EMPTY_RESULT), "answered");
    else if (session.era === "legacy") return super.onSession(session, hasWaited);
    else void this.#subscribeModern(session);
    return false;
  }

  /**
   * Subscribes at a modern server, with its one `subscriptions/listen` stream instead of a `resources/subscribe`
   * request.
   */
  async #subscribeModern(session: Session): Promise<void> {
    const { route, request } = this;
    try {
      await session.subscribe(route.remoteName, this.#abort.signal);
      this.#isConfirmed = true;
      this.#subscription?.confirm();
      this.finish(buildResult(request.id, EMPTY_RESULT), "answered");
    } catch (error) {
      this.fail(toHubError(error));
    }
  }

  override onAnswer(session: Session, response: Response, from: Era, edits: readonly Edit[]): void {
    if (response.outcome === "error") {
      this.#subscriptions.remove(this.route.name, true);
      this.#subscription = undefined;
    } else {
      this.#isConfirmed = true;
      this.#subscription?.confirm();
    }
    super.onAnswer(session, response, from, edits);
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.#subscription !== undefined && !this.#isConfirmed)
      this.#subscriptions.remove(this.route.name);
    this.#subscription = undefined;
    this.#abort.abort();
    super.finish(message, end);
  }
}
