import type { Buffer } from "node:buffer";
import type { Piece } from "../../base/bytes.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import { ReadShare } from "../../base/peer-reader.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import { saidByPeer } from "../../base/quote.ts";
import { VERSION } from "../../base/version.ts";
import { networkScopeOf, PUBLIC, resolveScopes } from "../http-client/network-scope.ts";
import { openSocket } from "../http-client/open-socket.ts";
import type { ResponseReceiver } from "../http-client/connection.ts";
import {
  HttpConnectionPool,
  type PooledRequest,
  type RequestHandle,
  requestTargetOf,
  type RequestTarget,
} from "../http-client/pool.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import { Redactor } from "../redact.ts";
import { CookieJar } from "./cookies.ts";
import type { AuthChallenge, HttpTarget } from "./target.ts";

/**
 * Delays before a request is repeated, in ms. `max`: the longest `Retry-After` that the hub waits for. `first`: the
 * first delay after a 429 response without this header.
 */
const RETRY_DELAY = { max: 30_000, first: 1000 };

/**
 * Returns the delay before the hub repeats a request that the server has not processed: after 429 (too many requests),
 * or after 503 with `Retry-After`.
 * @returns ms; undefined if the request must not be repeated
 */
export function retryDelayOf(
  { status, headers }: ResponseHead,
  retries: number,
): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  const requested = parseRetryAfter(headers.get("retry-after"), Date.now());
  if (requested === undefined) return status === 429 ? RETRY_DELAY.first * 2 ** retries : undefined;
  return requested <= RETRY_DELAY.max ? requested : undefined;
}

/** Parses `Retry-After`, in seconds or as a date. @returns ms from `now` */
export function parseRetryAfter(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  const time = Date.parse(value);
  return Number.isNaN(time) ? undefined : Math.max(0, time - now);
}

/** A request without the headers that are the same for all requests to the server. */
export interface RequestTemplate {
  readonly method: "GET" | "POST" | "DELETE";
  /** Each line ends with CRLF. */
  readonly headerLines: string;
  readonly body: readonly Piece[] | undefined;
  /** The URL to which the request is sent; undefined: the server's current URL. */
  readonly target?: RequestTarget | undefined;
}

/** Receives the events of a request. None is called after the request was cancelled. */
export interface RequestEvents {
  sent?(): void;
  head(head: ResponseHead): void;
  body(bytes: Buffer): void;
  end(): void;
  /**
   * Called if there is no complete response: unreachable or tlsFailed (no byte was sent), unauthorized, serverRefused
   * or answerLost.
   */
  fail(cause: HubError): void;
}

/**
 * Maximum number of times that one request is redirected, delayed because the server demands it (429, 503), or repeated
 * with new credentials.
 */
const MAX_ATTEMPTS = { redirects: 5, waits: 3, renewals: 2 };

/**
 * The end of the error text for a redirect to another origin. The hub does not follow such a redirect if the request
 * contains secrets.
 */
const ORIGIN_BOUND_REASON =
  "the request carries secrets for this server alone; if the new URL is right, write it in the manifest";

/** One request with its redirects, delays (Retry-After) and new credentials, until the final response. */
export class HttpRequest implements RequestHandle, ResponseReceiver {
  readonly #requester: HttpRequester;
  readonly #template: RequestTemplate;
  readonly #events: RequestEvents;
  readonly #onEnd: () => void;
  #target: RequestTarget;
  #handle: RequestHandle | undefined;
  #credentialLines = "";
  #isOver = false;
  #isPaused = false;
  #renewals = 0;
  #redirects = 0;
  #waits = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    requester: HttpRequester,
    template: RequestTemplate,
    events: RequestEvents,
    onEnd: () => void,
  ) {
    this.#requester = requester;
    this.#template = template;
    this.#events = events;
    this.#onEnd = onEnd;
    this.#target = template.target ?? requester.currentTarget;
  }

  /** Sends the request at once, or when its credentials are available. */
  start(): void {
    let lines: string | Promise<string>;
    try {
      lines = this.#requester.getCredentialLines();
    } catch (error) {
      // A rejected promise delays the error: callers do not expect `fail` to be called during `send`.
      lines = Promise.reject(toHubError(error));
    }
    if (typeof lines === "string") this.#sendWith(lines);
    else void lines.then((resolved) => this.#sendWith(resolved), this.#failWith);
  }

  cancel(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#handle?.cancel();
  }

  pause(): void {
    this.#isPaused = true;
    this.#handle?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#handle?.resume();
  }

  sent(): void {
    this.#events.sent?.();
  }

  head(head: ResponseHead): void {
    const { status, cookies } = head;
    if (cookies !== undefined)
      this.#requester.storeCookies(cookies, this.#target, this.#credentialLines);
    if (status >= 300 && status < 400 && status !== 304 && head.headers.has("location")) {
      this.#followRedirect(head);
    } else if (
      status === 401 ||
      (status === 403 && !this.#isOffOrigin && isInsufficientScope(head))
    ) {
      // A challenge from another origin is ignored: only the server at the manifest's URL may decide which
      // authorization server issues its tokens.
      const header = this.#isOffOrigin ? undefined : head.headers.get("www-authenticate");
      this.#sendAgain(this.#renewCredentials({ status, header }));
    } else {
      const wait = this.#waits < MAX_ATTEMPTS.waits ? retryDelayOf(head, this.#waits) : undefined;
      if (wait === undefined) {
        this.#events.head(head);
        return;
      }
      this.#waits++;
      this.#sendAgain(
        new Promise((resolve) => {
          this.#timer = setTimeout(() => resolve(undefined), wait);
        }),
      );
    }
  }

  body(bytes: Buffer): void {
    this.#events.body(bytes);
  }

  end(): void {
    this.#finish();
    this.#events.end();
  }

  fail(error: Error, isUndelivered: boolean): void {
    this.#finish();
    const { server } = this.#requester.target;
    if (isUndelivered) {
      const { code, message } = toHubError(error);
      this.#events.fail(new HubError(code, message, { server, step: "dial" }));
    } else {
      const text = `it did not finish its answer: ${error.message}.`;
      this.#events.fail(this.#requester.error("answerLost", text));
    }
  }

  broken(error: unknown): void {
    this.#finish();
    this.#requester.broken(error);
  }

  /** Whether the request goes to another origin than that of the URL in the manifest. */
  get #isOffOrigin(): boolean {
    const { manifestTarget } = this.#requester;
    return this.#target !== manifestTarget && this.#target.url.origin !== manifestTarget.url.origin;
  }

  #sendWith(credentialLines: string): void {
    if (this.#isOver) return;
    this.#credentialLines = credentialLines;
    // The redirect to the other origin was followed while there were no credentials. The credentials that have been
    // obtained since must not be sent to that origin.
    if (this.#isOffOrigin && this.#requester.isOriginBound(credentialLines)) {
      if (this.#template.target !== undefined) {
        const { manifestTarget, redactor } = this.#requester;
        const safeUrl = redactor.applyTruncated(this.#target.url.href, 500);
        const text = `${manifestTarget.url.href} redirects to ${safeUrl}: ${ORIGIN_BOUND_REASON}.`;
        this.#sendAgain(Promise.resolve(this.#requester.error("serverRefused", text)));
        return;
      }
      this.#requester.currentTarget = this.#target = this.#requester.manifestTarget;
    }
    this.#handle = this.#requester.sendOnce(this.#template, this.#target, credentialLines, this);
    if (this.#isPaused) this.#handle.pause();
  }

  /**
   * Discards the response and sends the request again when `ready` settles. The request fails if `ready` resolves to an
   * error or rejects.
   */
  #sendAgain(ready: Promise<HubError | undefined>): void {
    this.#handle?.cancel();
    this.#handle = undefined;
    void ready.then((error) => {
      if (this.#isOver) return;
      if (error === undefined) this.start();
      else this.#failWith(error);
    }, this.#failWith);
  }

  readonly #failWith = (thrown: unknown): void => {
    if (this.#isOver) return;
    this.#handle?.cancel();
    this.#finish();
    this.#events.fail(toHubError(thrown));
  };

  #finish(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#onEnd();
  }

  /** Obtains other credentials for the request. @returns an error if there are none */
  async #renewCredentials(challenge: AuthChallenge): Promise<HubError | undefined> {
    const requester = this.#requester;
    const credentialLines = this.#credentialLines;
    if (
      this.#renewals++ < MAX_ATTEMPTS.renewals &&
      (await requester.renew(challenge, credentialLines))
    )
      return undefined;
    if (!this.#isOver) requester.challenged(challenge, credentialLines);
    const reason =
      challenge.status === 401
        ? "it requires an authorization"
        : "its authorization is not sufficient";
    const said = saidByPeer(descriptionOf(challenge), requester.redactor);
    return requester.error("unauthorized", `${reason} (HTTP ${challenge.status})${said}.`);
  }

  #followRedirect(head: ResponseHead): void {
    const { url } = this.#target;
    const location = head.headers.get("location") ?? "";
    const redirectUrl = URL.canParse(location, url.href) ? new URL(location, url.href) : undefined;
    const refusal = this.#refusalOf(head.status, redirectUrl);
    if (redirectUrl === undefined || refusal !== undefined) {
      const { redactor } = this.#requester;
      const text = `${url.href} redirects to ${redactor.applyTruncated(redirectUrl?.href ?? location, 500)}: ${refusal}.`;
      this.#failWith(this.#requester.error("serverRefused", text));
      return;
    }
    redirectUrl.hash = "";
    this.#target = requestTargetOf(redirectUrl);
    // A working MCP server may redirect a GET to a web page; later requests still go to the old URL.
    const isPageRedirect = this.#template.method === "GET" && this.#requester.wasAccepted;
    if (this.#template.target === undefined && !isPageRedirect)
      this.#requester.currentTarget = this.#target;
    this.#sendAgain(Promise.resolve(undefined));
  }

  /** The reason why a redirect is not followed, as a clause; undefined if it is followed. */
  #refusalOf(status: number, redirectUrl: URL | undefined): string | undefined {
    const { url } = this.#target;
    if (redirectUrl === undefined || !/^https?:$/.test(redirectUrl.protocol))
      return "that is not an http(s) URL";
    if (++this.#redirects > MAX_ATTEMPTS.redirects) return "too many redirects";
    const keepsMethod = status === 307 || status === 308;
    const isMovedGet = this.#template.method === "GET" && (status === 301 || status === 302);
    if (!keepsMethod && !isMovedGet)
      return `only a person may follow HTTP ${status}; if the new URL is right, write it in the manifest`;
    if (redirectUrl.origin === url.origin) return undefined;
    if (url.protocol === "https:" && redirectUrl.protocol === "http:")
      return "the new URL is not encrypted (https)";
    if (!this.#requester.hasPrivateHeaders(this.#template, this.#credentialLines)) return undefined;
    return ORIGIN_BOUND_REASON;
  }
}

/** The `error_description` of a challenge (RFC 6750, 3); undefined if it has none. */
function descriptionOf({ header = "" }: AuthChallenge): string | undefined {
  const [, quoted] = /\berror_description\s*=\s*"((?:[^"\\]|\\.)*)"/i.exec(header) ?? [];
  return quoted?.replace(/\\(.)/g, "$1");
}

/** Whether a 403 asks for more scopes. A new authorization does not help against any other 403. */
function isInsufficientScope({ headers }: ResponseHead): boolean {
  return /\binsufficient_scope\b/.test(headers.get("www-authenticate") ?? "");
}

/** Headers that only the transport may set; the manifest's values for them are ignored. */
const RESERVED_HEADERS =
  /^(?:host|content-length|content-type|transfer-encoding|connection|accept|accept-encoding|mcp-session-id|mcp-protocol-version|last-event-id)$/i;

/** Line breaks are not allowed in a header value. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** The value of `#reportedFor` if a request could not be sent because there are no credentials. */
const NO_CREDENTIALS_KEY = "none";

/** Maximum number of credential values that are redacted in texts: those that were used most recently. */
const MAX_RECENT_VALUES = 8;

/**
 * Sends the requests of one transport. Holds the current URL, shared headers, credentials, and one connection pool per
 * origin.
 */
export class HttpRequester {
  readonly target: HttpTarget;
  /** Cookies of the manifest's origin. They are never sent to another origin. */
  readonly #cookies: CookieJar;
  /** The value of the manifest's `Cookie` header; "" if it has none. */
  readonly #manifestCookies: string;
  /** Undefined after the secrets have changed, until it is used. */
  #redactor: Redactor | undefined;
  /** The server's URL after redirects. */
  currentTarget: RequestTarget;
  readonly manifestTarget: RequestTarget;
  /** Whether the server has ever accepted a request (2xx). */
  wasAccepted = false;
  readonly #abort = new AbortController();
  readonly broken: (error: unknown) => void;
  readonly #onChallenged: (challenge: AuthChallenge) => void;
  readonly #headerLines: string;
  readonly #hasManifestAuthorization: boolean;
  /** All connections to the server share it. */
  readonly #share = new ReadShare();
  readonly #pools = new Map<string, HttpConnectionPool>();
  readonly #requests = new IdMap<HttpRequest>();
  #isPaused = false;
  #recentValues: readonly string[] = [];
  #credentialLines = "";
  #renewing: Promise<boolean> | undefined;
  /** The header lines of the credentials for which a challenge was reported last. */
  #reportedFor: string | undefined;

  /** @param broken called after an exception in the handling of what the server sent */
  constructor(
    target: HttpTarget,
    onChallenged: (challenge: AuthChallenge) => void,
    broken: (error: unknown) => void,
  ) {
    this.target = target;
    this.#cookies = target.cookies?.jar ?? new CookieJar();
    if (target.cookies !== undefined) target.cookies.jar = this.#cookies;
    this.broken = broken;
    this.manifestTarget = requestTargetOf(target.url);
    this.currentTarget = this.manifestTarget;
    this.#onChallenged = onChallenged;
    const allowed = Object.entries(target.headers).filter(([name]) => !RESERVED_HEADERS.test(name));
    const headers = allowed.filter(([name]) => !/^cookie$/i.test(name));
    this.#manifestCookies = allowed
      .flatMap(([name, value]) => (/^cookie$/i.test(name) && value !== "" ? [value] : []))
      .join("; ");
    this.#hasManifestAuthorization = headers.some(([name]) => /^authorization$/i.test(name));
    const manifestLines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const hasUserAgent = headers.some(([name]) => /^user-agent$/i.test(name));
    this.#headerLines = `${hasUserAgent ? "" : `User-Agent: toolmux/${VERSION}\r\n`}Accept-Encoding: identity\r\n${manifestLines}`;
    this.#claimCookies();
  }

  /**
   * Whether requests with these credentials must stay at the origin of the manifest's URL, because they contain
   * credentials or headers from the manifest.
   */
  isOriginBound(credentialLines: string): boolean {
    return credentialLines !== "" || Object.keys(this.target.headers).length > 0;
  }

  /**
   * Whether a request contains data that only this server may see: credentials, headers from the manifest, or a session
   * id.
   */
  hasPrivateHeaders({ headerLines }: RequestTemplate, credentialLines: string): boolean {
    return this.isOriginBound(credentialLines) || /^mcp-session-id:/im.test(headerLines);
  }

  /** Removes the server's secrets, the credentials and the cookies from texts. */
  get redactor(): Redactor {
    return (this.#redactor ??= new Redactor([
      ...this.#recentValues,
      ...this.#cookies.secrets,
      ...this.target.secrets,
    ]));
  }

  /**
   * Keeps the cookies of a response, if it comes from the manifest's origin, and the credentials of its request are still
   * in use.
   */
  storeCookies(fields: readonly string[], { url }: RequestTarget, credentialLines: string): void {
    if (url.origin !== this.manifestTarget.url.origin) return;
    if (credentialLines !== this.#credentialLines) return;
    this.#cookies.store(fields, url, Date.now());
    this.#redactor = undefined;
  }

  #claimCookies(): void {
    const { origin } = this.manifestTarget.url;
    const own = [this.#headerLines, this.#manifestCookies, this.#credentialLines];
    this.#cookies.belongTo(JSON.stringify([origin, ...own]));
  }

  /** The header line with the cookies of a request; "" if there are none. */
  #cookieLineFor({ url }: RequestTarget): string {
    const own = this.#manifestCookies;
    const hasStored = !this.#cookies.isEmpty && url.origin === this.manifestTarget.url.origin;
    const field = hasStored ? this.#cookies.fieldFor(url, own, Date.now()) : own;
    return field === "" ? "" : `Cookie: ${field}\r\n`;
  }

  /** Sends a request; handles redirects, delays and new credentials. */
  send(template: RequestTemplate, events: RequestEvents): HttpRequest {
    const request = new HttpRequest(this, template, events, () => void this.#requests.remove(id));
    const id = this.#requests.add(request);
    if (this.#isPaused) request.pause();
    request.start();
    return request;
  }

  /**
   * Returns the header lines with the credentials; a promise only if a token must be loaded or refreshed first.
   * @throws {HubError} unauthorized if there are no credentials
   */
  getCredentialLines(): string | Promise<string> {
    const headers = this.target.credentials.getHeaders(this.#abort.signal);
    if (!(headers instanceof Promise)) return this.#formatCredentials(headers);
    return headers.then(
      (resolved) => this.#formatCredentials(resolved),
      (error: unknown) => {
        // Without credentials the request is not sent, so no 401 arrives: the challenge is reported here.
        const isMissing = error instanceof HubError && error.code === "unauthorized";
        if (isMissing) this.challenged({ status: 401, header: undefined }, NO_CREDENTIALS_KEY);
        throw error;
      },
    );
  }

  sendOnce(
    template: RequestTemplate,
    target: RequestTarget,
    credentialLines: string,
    receiver: ResponseReceiver,
  ): RequestHandle {
    const { origin } = target.url;
    let pool = this.#pools.get(origin);
    if (pool === undefined) {
      const isManifestOrigin = origin === this.manifestTarget.url.origin;
      pool = new HttpConnectionPool(async (signal) => {
        const allowedScope = isManifestOrigin ? undefined : await this.#manifestScope();
        return openSocket(target.url, { ...this.target, allowedScope }, signal);
      }, this.#share);
      this.#pools.set(origin, pool);
    }
    const cookieLine = this.#cookieLineFor(target);
    const headerLines = `${this.#headerLines}${cookieLine}${credentialLines}${template.headerLines}`;
    const pooledRequest: PooledRequest = {
      method: template.method,
      target,
      headerLines,
      body: template.body,
    };
    return pool.send(pooledRequest, receiver);
  }

  /**
   * The narrowest network scope of the addresses to which the server may redirect: that of its own host, which the
   * manifest names. For a name, it is the widest scope of its addresses.
   */
  async #manifestScope(): Promise<number> {
    const { hostname } = this.target.url;
    const scopes = (await resolveScopes(hostname)).map(({ scope }) => scope);
    const resolved = scopes.length === 0 ? PUBLIC : Math.min(...scopes);
    return Math.max(networkScopeOf(hostname), resolved);
  }

  /** Obtains other credentials after the server has rejected the given ones. @returns whether there are others now */
  async renew(challenge: AuthChallenge, credentialLines: string): Promise<boolean> {
    // Another request may have obtained new credentials meanwhile.
    if ((await this.getCredentialLines()) !== credentialLines) return true;
    const { credentials } = this.target;
    this.#renewing ??= credentials.renew(challenge, this.#abort.signal).finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /** Reports a challenge to the transport's owner, but only once for the same credentials. */
  challenged(challenge: AuthChallenge, credentialLines: string): void {
    if (this.#reportedFor === credentialLines) return;
    this.#reportedFor = credentialLines;
    this.#onChallenged(challenge);
  }

  error(code: HubError["code"], text: string): HubError {
    const { server } = this.target;
    return new HubError(code, `Server "${server}": ${this.redactor.apply(text)}`, { server });
  }

  pause(): void {
    this.#isPaused = true;
    for (const request of this.#requests.values()) request.pause();
  }

  resume(): void {
    this.#isPaused = false;
    for (const request of this.#requests.values()) request.resume();
  }

  /** Cancels all requests; their callbacks are not called. */
  close(): void {
    this.#abort.abort(this.error("serverStopped", "its connection was closed."));
    for (const request of this.#requests.values()) request.cancel();
    for (const pool of this.#pools.values()) pool.close();
    this.#pools.clear();
  }

  /**
   * Adds credential values to the redactor, with and without their scheme (such as `Bearer`). The most recent earlier
   * values stay in the redactor, because they may still appear in responses.
   */
  #redactValues(used: readonly string[]): void {
    const values = used.flatMap((value) => [value, value.replace(/^\S+ +/, "")]);
    this.#recentValues = [...values, ...this.#recentValues].slice(0, MAX_RECENT_VALUES);
    this.#redactor = undefined;
  }

  /** Formats credential headers. They do not replace an Authorization header of the manifest. */
  #formatCredentials(headers: Readonly<Record<string, string>>): string {
    let lines = "";
    for (const name in headers) {
      if (!HEADER_VALUE.test(headers[name] ?? "")) {
        throw this.error(
          "unauthorized",
          `the credential for the header ${name} is not a valid header value.`,
        );
      }
      if (!this.#hasManifestAuthorization || !/^authorization$/i.test(name)) {
        lines += `${name}: ${headers[name]}\r\n`;
      }
    }
    if (lines !== this.#credentialLines) {
      this.#credentialLines = lines;
      this.#claimCookies();
      this.#redactValues(Object.values(headers));
    }
    return lines;
  }
}
