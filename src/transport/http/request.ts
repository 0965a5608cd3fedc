import type { Buffer } from "node:buffer";
import type { Piece } from "../../base/bytes.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import { IdTable } from "../../base/id-table.ts";
import { VERSION } from "../../base/version.ts";
import { openSocket } from "../http-client/connect.ts";
import type { ResponseHead, ResponseReceiver } from "../http-client/connection.ts";
import {
  HttpConnectionPool,
  type PooledRequest,
  type RequestHandle,
  requestTargetOf,
  type RequestTarget,
} from "../http-client/pool.ts";
import { Redactor } from "../redact.ts";
import type { AuthChallenge, HttpTarget } from "./target.ts";

/** Maximum `Retry-After` that is waited for, and the first delay where a 429 response has none, in ms. */
const WAIT = { longest: 30_000, first: 1000 };

/**
 * The delay before a request is sent again that the server has not processed: 429 (too many requests), or 503 with
 * `Retry-After`.
 * @returns ms; undefined: do not retry
 */
export function retryDelayOf({ status, fields }: ResponseHead, waits: number): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  const asked = readRetryAfter(fields.get("retry-after"), Date.now());
  if (asked === undefined) return status === 429 ? WAIT.first * 2 ** waits : undefined;
  return asked <= WAIT.longest ? asked : undefined;
}

/** Parses `Retry-After`, in seconds or as a date. @returns ms from `now` */
export function readRetryAfter(field: string | undefined, now: number): number | undefined {
  if (field === undefined) return undefined;
  if (/^\d{1,9}$/.test(field)) return Number(field) * 1000;
  const date = Date.parse(field);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** A request without the headers that all requests to the server share. */
export interface RequestTemplate {
  readonly method: "GET" | "POST" | "DELETE";
  /** Header lines, each with its CRLF. */
  readonly fields: string;
  readonly body: readonly Piece[] | undefined;
  /** Target of the request; undefined: the server's current URL. */
  readonly place?: RequestTarget | undefined;
}

/** The state that the requests to one server share. */
export interface HttpRequestContext {
  readonly server: string;
  readonly redactor: Redactor;
  /** The server's current URL, after redirects. */
  place: RequestTarget;
  /** The URL in the manifest. */
  readonly home: RequestTarget;
  /** Whether a request was accepted (2xx) at the current URL. */
  readonly hasEntered: boolean;
  /**
   * Header lines with the credentials for the next request; a promise only if a token has to be loaded or refreshed
   * first.
   */
  bear(): string | Promise<string>;
  /** The server has rejected these credentials: gets others. @returns whether there are others now */
  renew(challenge: AuthChallenge, worn: string): Promise<boolean>;
  /** Sends a request once. */
  carry(
    letter: RequestTemplate,
    place: RequestTarget,
    worn: string,
    receiver: ResponseReceiver,
  ): RequestHandle;
  /**
   * Whether requests with these credentials must stay at the origin of the URL in the manifest: they have credentials,
   * or headers from the manifest.
   */
  isBound(worn: string): boolean;
  /**
   * Whether a request has headers meant for this server only: credentials, headers from the manifest, or a session id.
   */
  isConfided(letter: RequestTemplate, worn: string): boolean;
  /** Reports a challenge to the transport's owner: once for the same credentials. */
  challenged(challenge: AuthChallenge, worn: string): void;
  error(code: HubError["code"], text: string): HubError;
}

/** Receives what happens to a request. Nothing is called after the request was cancelled. */
export interface RequestEvents {
  /** The whole request was written. */
  sent?(): void;
  head(head: ResponseHead): void;
  body(bytes: Buffer): void;
  end(): void;
  /**
   * There is no complete response: unreachable or tlsFailed (no byte was sent), unauthorized, serverRefused or
   * answerLost.
   */
  fail(cause: HubError): void;
}

/** How often a request may be redirected, delayed by the server (429, 503), and repeated with new credentials. */
const MOST = { redirects: 5, waits: 3, renewals: 2 };

/** Why a redirect to another origin is not followed. */
const BOUND = "what it bears is for this server alone; write that URL if it is right";

/** One request including redirects, delays (Retry-After) and new credentials, until it has its final response. */
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

  /** Sends the request: at once, unless it has to wait for credentials. */
  start(): void {
    let worn: string | Promise<string>;
    try {
      worn = this.#way.bear();
    } catch (error) {
      // Callers do not expect `fail` to be called during `send`.
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
      // Another origin must not influence where tokens for this server come from.
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

  /** Whether the request goes to another origin than the URL in the manifest. */
  get #isAway(): boolean {
    const { home } = this.#way;
    return this.#place !== home && this.#place.url.origin !== home.url.origin;
  }

  #go(worn: string): void {
    if (this.#isOver) return;
    this.#worn = worn;
    // A redirect may have been followed and remembered before there were credentials.
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

  /**
   * Discards the response and sends the request again when `ready` settles; an error that it resolves or rejects with
   * ends the request.
   */
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

  /** @returns the error to fail with if there are no other credentials */
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
    // A server that works may redirect a GET to a page for browsers; that says nothing about where POSTs go.
    const isAside = this.#letter.method === "GET" && this.#way.hasEntered;
    if (this.#letter.place === undefined && !isAside) this.#way.place = this.#place;
    this.#again(Promise.resolve(undefined));
  }

  /** Why a redirect is not followed; undefined if it is. */
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

/** Whether a 403 asks for more scopes. Other 403 responses cannot be cured by another authorization. */
function wantsMore({ fields }: ResponseHead): boolean {
  return /\binsufficient_scope\b/.test(fields.get("www-authenticate") ?? "");
}

/** Headers that only the transport sets; those of the manifest are ignored. */
const OWN =
  /^(?:host|content-length|content-type|transfer-encoding|connection|accept|accept-encoding|mcp-session-id|mcp-protocol-version|last-event-id)$/i;

/** Characters allowed in a header value: no line breaks. */
const FIELD = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Key for `challenged` when no request could be made for lack of credentials. */
const NOTHING = "none";

/** How many of the last used credential values are redacted. */
const MOST_BORNE = 8;

/**
 * Sends the requests of one transport: current URL, shared headers, credentials, and one connection pool per origin.
 */
export class HttpRequester implements HttpRequestContext {
  readonly target: HttpTarget;
  /** Redacts the manifest's secrets and the last used credentials. */
  redactor: Redactor;
  /** The server's current URL, after redirects. */
  place: RequestTarget;
  readonly home: RequestTarget;
  /** Whether a request was accepted (2xx). */
  hasEntered = false;
  readonly #abort = new AbortController();
  readonly #challenged: (challenge: AuthChallenge) => void;
  readonly #fields: string;
  readonly #isExplicit: boolean;
  readonly #lanes = new Map<string, HttpConnectionPool>();
  readonly #deliveries = new IdTable<HttpRequest>();
  #isPaused = false;
  #borne: readonly string[] = [];
  /** The last credential header lines. */
  #worn = "";
  #renewal: Promise<boolean> | undefined;
  /** The credentials that the last challenge was reported for. */
  #refused: string | undefined;

  constructor(target: HttpTarget, challenged: (challenge: AuthChallenge) => void) {
    this.target = target;
    this.redactor = new Redactor(target.secrets);
    this.home = requestTargetOf(target.url);
    this.place = this.home;
    this.#challenged = challenged;
    const headers = Object.entries(target.headers).filter(([name]) => !OWN.test(name));
    this.#isExplicit = headers.some(([name]) => /^authorization$/i.test(name));
    const given = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const agent = headers.some(([name]) => /^user-agent$/i.test(name));
    this.#fields = `${agent ? "" : `User-Agent: toolmux/${VERSION}\r\n`}Accept-Encoding: identity\r\n${given}`;
  }

  get server(): string {
    return this.target.server;
  }

  isBound(worn: string): boolean {
    return worn !== "" || Object.keys(this.target.headers).length > 0;
  }

  isConfided({ fields }: RequestTemplate, worn: string): boolean {
    return this.isBound(worn) || /^mcp-session-id:/im.test(fields);
  }

  send(letter: RequestTemplate, customer: RequestEvents): HttpRequest {
    const delivery = new HttpRequest(
      this,
      letter,
      customer,
      () => void this.#deliveries.remove(place),
    );
    const place = this.#deliveries.add(delivery);
    if (this.#isPaused) delivery.pause();
    delivery.start();
    return delivery;
  }

  bear(): string | Promise<string> {
    const worn = this.target.credentials.bear(this.#abort.signal);
    if (!(worn instanceof Promise)) return this.#write(worn);
    return worn.then(
      (them) => this.#write(them),
      (error: unknown) => {
        // No request is made before there are credentials.
        const isWanting = error instanceof HubError && error.code === "unauthorized";
        if (isWanting) this.challenged({ status: 401, header: undefined }, NOTHING);
        throw error;
      },
    );
  }

  carry(
    letter: RequestTemplate,
    place: RequestTarget,
    worn: string,
    receiver: ResponseReceiver,
  ): RequestHandle {
    const { origin } = place.url;
    let lanes = this.#lanes.get(origin);
    if (lanes === undefined) {
      lanes = new HttpConnectionPool((signal) => openSocket(place.url, this.target, signal));
      this.#lanes.set(origin, lanes);
    }
    const fields = `${this.#fields}${worn}${letter.fields}`;
    const order: PooledRequest = { method: letter.method, place, fields, body: letter.body };
    return lanes.send(order, receiver);
  }

  async renew(challenge: AuthChallenge, worn: string): Promise<boolean> {
    // Another request may have got new credentials meanwhile, or be getting them.
    if ((await this.bear()) !== worn) return true;
    const { credentials } = this.target;
    this.#renewal ??= credentials.renew(challenge, this.#abort.signal).finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  challenged(challenge: AuthChallenge, worn: string): void {
    if (this.#refused === worn) return;
    this.#refused = worn;
    this.#challenged(challenge);
  }

  error(code: HubError["code"], text: string): HubError {
    const { server } = this;
    return new HubError(code, `Server "${server}": ${this.redactor.apply(text)}`, { server });
  }

  pause(): void {
    this.#isPaused = true;
    for (const delivery of this.#deliveries.values()) delivery.pause();
  }

  resume(): void {
    this.#isPaused = false;
    for (const delivery of this.#deliveries.values()) delivery.resume();
  }

  /** Cancels all requests; their callbacks are not called. */
  close(): void {
    this.#abort.abort(this.error("serverStopped", "its link was closed."));
    for (const delivery of this.#deliveries.values()) delivery.drop();
    for (const lanes of this.#lanes.values()) lanes.close();
    this.#lanes.clear();
  }

  /** Redacts credential values with and without their scheme. Older ones may still appear in responses. */
  #hide(worn: readonly string[]): void {
    const values = worn.flatMap((value) => [value, value.replace(/^\S+ +/, "")]);
    this.#borne = [...values, ...this.#borne].slice(0, MOST_BORNE);
    this.redactor = new Redactor([...this.#borne, ...this.target.secrets]);
  }

  /** Formats credential headers. An Authorization header of the manifest has precedence. */
  #write(worn: Readonly<Record<string, string>>): string {
    let fields = "";
    for (const name in worn) {
      if (!FIELD.test(worn[name] ?? "")) {
        throw this.error(
          "unauthorized",
          `what it wants to see (${name}) cannot stand in a header.`,
        );
      }
      if (!this.#isExplicit || !/^authorization$/i.test(name)) {
        fields += `${name}: ${worn[name]}\r\n`;
      }
    }
    if (fields !== this.#worn) {
      this.#worn = fields;
      this.#hide(Object.values(worn));
    }
    return fields;
  }
}
