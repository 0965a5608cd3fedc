import type { Buffer } from "node:buffer";
import type { Piece } from "../../base/bytes.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import type { Redactor } from "../redact.ts";
import type { AuthChallenge } from "./credentials.ts";
import type { ResponseHead } from "../http-client/head.ts";
import type { ResponseReceiver } from "../http-client/connection.ts";
import { type RequestTarget, requestTargetOf, type RequestHandle } from "../http-client/pool.ts";
import { retryDelayOf } from "./patience.ts";

/** A request without what every request to that server bears. */
export interface RequestTemplate {
  readonly method: "GET" | "POST" | "DELETE";
  /** Headers, each with its line end. */
  readonly fields: string;
  readonly body: readonly Piece[] | undefined;
  /** Where it goes; undefined: to the server's URL. */
  readonly place?: RequestTarget | undefined;
}

/** The way that requests go, as each of them finds it and leaves it to the next ones. */
export interface HttpRequestContext {
  readonly server: string;
  readonly redactor: Redactor;
  /** Where the server is, redirects included. */
  place: RequestTarget;
  /** The URL of the manifest. */
  readonly home: RequestTarget;
  /** Whether it was met there. */
  readonly hasEntered: boolean;
  /** What the next request bears so that it is let in, as headers; a promise only where it has to be waited for. */
  bear(): string | Promise<string>;
  /** The server does not let in what bears these: gets others. @returns whether there are some */
  renew(challenge: AuthChallenge, worn: string): Promise<boolean>;
  /** Sends a request once. */
  carry(
    letter: RequestTemplate,
    place: RequestTarget,
    worn: string,
    receiver: ResponseReceiver,
  ): RequestHandle;
  /** Whether a request with these credentials has to stay at the origin of `home`: it has them, or headers of the manifest. */
  isBound(worn: string): boolean;
  /** Whether a request bears anything that is for this server alone: what the manifest says, credentials, a session. */
  isConfided(letter: RequestTemplate, worn: string): boolean;
  /** Tells the owner what the server wants: once, until requests bear something else. */
  challenged(challenge: AuthChallenge, worn: string): void;
  error(code: HubError["code"], text: string): HubError;
}

/** Who sends a request, and is told what comes of it. Nothing is told after it was dropped. */
export interface RequestEvents {
  /** The server has taken all of it. */
  sent?(): void;
  head(head: ResponseHead): void;
  body(bytes: Buffer): void;
  end(): void;
  /** No whole answer: unreachable or tlsFailed (no byte has left this process), unauthorized, serverRefused or answerLost. */
  fail(cause: HubError): void;
}

/** So often one may be sent elsewhere, or again. */
const MOST = { redirects: 5, waits: 3, renewals: 2 };

/** Why a request does not go to another origin. */
const BOUND = "what it bears is for this server alone; write that URL if it is right";

/** One request on its way to a server, until it is let in: sent elsewhere, sent again later, sent again with other credentials. */
export class HttpRequest implements RequestHandle, ResponseReceiver {
  readonly #way: HttpRequestContext;
  readonly #letter: RequestTemplate;
  readonly #customer: RequestEvents;
  readonly #leave: () => void;
  #place: RequestTarget;
  #transit: RequestHandle | undefined;
  #worn = "";
  #isOver = false;
  #isPaused = false;
  #renewals = 0;
  #redirects = 0;
  #waits = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    way: HttpRequestContext,
    letter: RequestTemplate,
    customer: RequestEvents,
    leave: () => void,
  ) {
    this.#way = way;
    this.#letter = letter;
    this.#customer = customer;
    this.#leave = leave;
    this.#place = letter.place ?? way.place;
  }

  /** Sends it: at once, unless its credentials have to be waited for. */
  start(): void {
    let worn: string | Promise<string>;
    try {
      worn = this.#way.bear();
    } catch (error) {
      // Whoever sends does not expect to be told while it does.
      worn = Promise.reject(toHubError(error));
    }
    if (typeof worn === "string") this.#go(worn);
    else void worn.then((fields) => this.#go(fields), this.#giveUp);
  }

  drop(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#transit?.drop();
  }

  pause(): void {
    this.#isPaused = true;
    this.#transit?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#transit?.resume();
  }

  sent(): void {
    this.#customer.sent?.();
  }

  head(head: ResponseHead): void {
    const { status } = head;
    if (status >= 300 && status < 400 && status !== 304 && head.fields.has("location")) {
      this.#redirect(head);
    } else if (status === 401 || (status === 403 && !this.#isAway && wantsMore(head))) {
      // Another origin has no say in where tokens for this server come from.
      const header = this.#isAway ? undefined : head.fields.get("www-authenticate");
      this.#again(this.#renew({ status, header }));
    } else {
      const wait = this.#waits < MOST.waits ? retryDelayOf(head, this.#waits) : undefined;
      if (wait === undefined) {
        this.#customer.head(head);
        return;
      }
      this.#waits++;
      this.#again(
        new Promise((resolve) => {
          this.#timer = setTimeout(() => resolve(undefined), wait);
        }),
      );
    }
  }

  body(bytes: Buffer): void {
    this.#customer.body(bytes);
  }

  end(): void {
    this.#finish();
    this.#customer.end();
  }

  fail(error: Error, isUndelivered: boolean): void {
    this.#finish();
    const { server } = this.#way;
    if (isUndelivered) {
      const { code, message } = toHubError(error);
      this.#customer.fail(new HubError(code, message, { server, step: "dial" }));
    } else {
      const text = `it did not finish its answer: ${error.message}.`;
      this.#customer.fail(this.#way.error("answerLost", text));
    }
  }

  /** Whether it goes to another origin than that of the manifest. */
  get #isAway(): boolean {
    const { home } = this.#way;
    return this.#place !== home && this.#place.url.origin !== home.url.origin;
  }

  #go(worn: string): void {
    if (this.#isOver) return;
    this.#worn = worn;
    // A redirect may have been followed, and remembered, before there were credentials.
    if (this.#isAway && this.#way.isBound(worn)) {
      if (this.#letter.place !== undefined) {
        const { home, redactor } = this.#way;
        const place = redactor.applyTruncated(this.#place.url.href, 500);
        const text = `${home.url.href} sends requests on to ${place}: ${BOUND}.`;
        this.#again(Promise.resolve(this.#way.error("serverRefused", text)));
        return;
      }
      this.#way.place = this.#place = this.#way.home;
    }
    this.#transit = this.#way.carry(this.#letter, this.#place, worn, this);
    if (this.#isPaused) this.#transit.pause();
  }

  /** What has been answered so far is none of the customer's business; whatever is thrown meanwhile is. */
  #again(ready: Promise<HubError | undefined>): void {
    this.#transit?.drop();
    this.#transit = undefined;
    void ready.then((refusal) => {
      if (this.#isOver) return;
      if (refusal === undefined) this.start();
      else this.#giveUp(refusal);
    }, this.#giveUp);
  }

  readonly #giveUp = (thrown: unknown): void => {
    if (this.#isOver) return;
    this.#transit?.drop();
    this.#finish();
    this.#customer.fail(toHubError(thrown));
  };

  #finish(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#leave();
  }

  /** @returns why it is not let in, if there are no other credentials */
  async #renew(challenge: AuthChallenge): Promise<HubError | undefined> {
    const way = this.#way;
    const worn = this.#worn;
    if (this.#renewals++ < MOST.renewals && (await way.renew(challenge, worn))) return undefined;
    if (!this.#isOver) way.challenged(challenge, worn);
    const why =
      challenge.status === 401
        ? "it wants an authorization"
        : "its authorization does not go far enough";
    return way.error("unauthorized", `${why} (HTTP ${challenge.status}).`);
  }

  #redirect(head: ResponseHead): void {
    const { url } = this.#place;
    const location = head.fields.get("location") ?? "";
    const target = URL.canParse(location, url.href) ? new URL(location, url.href) : undefined;
    const refusal = this.#refusal(head.status, target);
    if (target === undefined || refusal !== undefined) {
      const { redactor } = this.#way;
      const text = `${url.href} sends requests on to ${redactor.applyTruncated(target?.href ?? location, 500)}: ${refusal}.`;
      this.#giveUp(this.#way.error("serverRefused", text));
      return;
    }
    target.hash = "";
    this.#place = requestTargetOf(target);
    // Where a server that was met shows its page to whoever looks at it (GET) it need not take messages.
    const isAside = this.#letter.method === "GET" && this.#way.hasEntered;
    if (this.#letter.place === undefined && !isAside) this.#way.place = this.#place;
    this.#again(Promise.resolve(undefined));
  }

  /** Why a redirect is not followed. */
  #refusal(status: number, target: URL | undefined): string | undefined {
    const { url } = this.#place;
    if (target === undefined || !/^https?:$/.test(target.protocol))
      return "that is no URL of a server";
    if (++this.#redirects > MOST.redirects) return "that goes on and on";
    const isKept = status === 307 || status === 308;
    const isGet = this.#letter.method === "GET" && (status === 301 || status === 302);
    if (!isKept && !isGet)
      return `with HTTP ${status} only its reader may follow; write that URL if it is right`;
    if (target.origin === url.origin) return undefined;
    if (url.protocol === "https:" && target.protocol === "http:")
      return "that would not be encrypted";
    if (!this.#way.isConfided(this.#letter, this.#worn)) return undefined;
    return BOUND;
  }
}

/** Of the answers that forbid something only these can be changed by another authorization. */
function wantsMore({ fields }: ResponseHead): boolean {
  return /\binsufficient_scope\b/.test(fields.get("www-authenticate") ?? "");
}
