import { utf8 } from "../base/bytes.ts";
import { encodeUri, encodeUriTemplate } from "../catalog/uris.ts";
import type { Route } from "../catalog/section.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import type { Session } from "../upstream/session.ts";
import type { Subscriptions, Subscriber } from "../upstream/subscriptions.ts";
import {
  buildNotification,
  buildResult,
  type EncodedMessage,
  type Response,
  bytesOf,
  replaceRanges,
} from "../jsonrpc/message.ts";
import type { CallParts } from "./call.ts";
import type { CallEnd } from "./ledger.ts";
import { RelayedCall } from "./upstream-request.ts";

/** The resource subscriptions of one client. */
export class Watches {
  readonly #notify: (message: EncodedMessage) => void;
  /** By the URIs that the client uses. */
  readonly #watches = new Map<string, Watch>();

  /** @param notify sends the client a notification that belongs to no request */
  constructor(notify: (message: EncodedMessage) => void) {
    this.#notify = notify;
  }

  begin(route: Route, subscriptions: Subscriptions): Watch {
    const watch = new Watch(route, subscriptions, this, this.#notify);
    const known = this.#watches.get(route.name);
    if (known?.server === watch.server && known.uri === watch.uri) return known;
    this.end(route.name);
    this.#watches.set(route.name, watch);
    return watch;
  }

  end(name: string, isRefused = false): void {
    this.#watches.get(name)?.stop(isRefused);
    this.#watches.delete(name);
  }

  /** The client has disconnected. */
  close(): void {
    for (const name of this.#watches.keys()) this.end(name);
  }
}

/** One client's subscription to one resource. */
class Watch implements Subscriber {
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

  /** @returns whether the server is subscribed already, so that no request is needed */
  start(): boolean {
    return this.#subscriptions.add(this.uri, this);
  }

  agree(): void {
    this.#subscriptions.agree(this.uri);
  }

  stop(isRefused: boolean): void {
    this.#subscriptions.remove(this.uri, this, isRefused);
  }

  updated(uri: string, notice?: Parameters<Subscriber["updated"]>[1]): void {
    const name = this.#rename(uri);
    if (notice === undefined) {
      this.#notify(buildNotification(Method.resourceUpdated, { uri: name }));
      return;
    }
    const { notification, uris } = notice;
    const json = utf8(JSON.stringify(name));
    this.#notify(name === uri ? bytesOf(notification) : replaceRanges(notification, uris, json));
  }

  /** The client's URI for an updated resource: the subscribed one, or one below it. */
  #rename(uri: string): string {
    if (uri === this.uri) return this.#name;
    if (this.#name === this.uri) return uri;
    // Within a skill that was exposed under another URI, URIs are not encoded.
    const write = this.#name.endsWith(this.uri) ? encodeUriTemplate : encodeUri;
    return write(this.server, uri);
  }
}

const AGREED = utf8("{}");

/** A `resources/subscribe` request: the server gets it only if no other client has subscribed to the same resource. */
export class Subscribe extends RelayedCall {
  readonly #watches: Watches;
  #watch: Watch | undefined;
  #isAgreed = false;
  readonly #left = new AbortController();

  constructor(parts: CallParts, watches: Watches) {
    super(parts);
    this.#watches = watches;
  }

  override enter(session: Session): void {
    if (this.isOver) return;
    const { route, request } = this.parts;
    const { subscriptions, server } = session;
    if (subscriptions === undefined || !session.can("subscriptions")) {
      const text = `Server "${server}" has no subscriptions.`;
      this.fail(new HubError("methodNotFound", text, { server }));
      return;
    }
    this.#watch = this.#watches.begin(route, subscriptions);
    this.#isAgreed = this.#watch.start();
    if (this.#isAgreed) this.finish(buildResult(request.id, AGREED), "answered");
    else if (session.era === "legacy") super.enter(session);
    else void this.#join(session);
  }

  /** Modern servers have one `subscriptions/listen` stream for all subscriptions instead of a request for each. */
  async #join(session: Session): Promise<void> {
    const { route, request } = this.parts;
    try {
      await session.subscribe(route.remoteName, this.#left.signal);
      this.#isAgreed = true;
      this.#watch?.agree();
      this.finish(buildResult(request.id, AGREED), "answered");
    } catch (error) {
      this.fail(toHubError(error));
    }
  }

  override settle(response: Response): void {
    if (response.outcome === "error") {
      this.#watches.end(this.parts.route.name, true);
      this.#watch = undefined;
    } else {
      this.#isAgreed = true;
      this.#watch?.agree();
    }
    super.settle(response);
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.#watch !== undefined && !this.#isAgreed) this.#watches.end(this.parts.route.name);
    this.#watch = undefined;
    this.#left.abort();
    super.finish(message, end);
  }
}
