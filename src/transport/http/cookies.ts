/** Maximum number of cookies. Beyond it, the one that was set first is dropped. */
const MAX_COOKIES = 50;
/** Maximum size of one cookie, its name and its value, in bytes. A larger one is ignored. */
const MAX_COOKIE_SIZE = 4096;
/** Maximum number of earlier values that are still redacted in texts. */
const MAX_PAST_VALUES = 50;

interface Cookie {
  readonly name: string;
  readonly value: string;
  readonly path: string;
  readonly isSecure: boolean;
  /** In ms since the epoch; `Infinity`: it ends with the connection. */
  readonly expires: number;
}

/**
 * The cookies of one origin, for one connection (RFC 6265). Load balancers use cookies to send the requests of a session
 * to the same instance of a server. Path, Secure, Max-Age and Expires are obeyed; Domain is ignored, because the cookies
 * are sent to that origin alone.
 */
export class CookieJar {
  /** By name and path, in the order in which they were set first. */
  readonly #cookies = new Map<string, Cookie>();
  #pastValues: string[] = [];
  #owner = "";

  get isEmpty(): boolean {
    return this.#cookies.size === 0;
  }

  /** The values of the cookies, also earlier ones, which no text may contain. */
  get secrets(): readonly string[] {
    return [...Array.from(this.#cookies.values(), ({ value }) => value), ...this.#pastValues];
  }

  /**
   * Drops the cookies unless they belong to the same owner: they may be those of another account.
   * @param owner the origin, and all headers that say who sends the requests
   */
  belongTo(owner: string): void {
    if (owner === this.#owner) return;
    this.#owner = owner;
    for (const { value } of this.#cookies.values()) this.#forget(value);
    this.#cookies.clear();
  }

  /**
   * Stores the cookies of a response.
   * @param fields the values of its `Set-Cookie` fields
   * @param url the URL of the request
   * @param now in ms since the epoch
   */
  store(fields: readonly string[], url: URL, now: number): void {
    for (const field of fields) {
      const cookie = parseCookie(field, url, now);
      if (cookie === undefined) continue;
      const key = `${cookie.name};${cookie.path}`;
      const previous = this.#cookies.get(key);
      if (previous !== undefined && previous.value !== cookie.value) this.#forget(previous.value);
      if (cookie.expires > now) this.#cookies.set(key, cookie);
      else this.#cookies.delete(key);
    }
    for (const [key, { value, expires }] of this.#cookies) {
      if (expires > now && this.#cookies.size <= MAX_COOKIES) continue;
      this.#cookies.delete(key);
      this.#forget(value);
    }
  }

  /**
   * The value of the `Cookie` field of a request; "" if there is none.
   * @param own the field of the manifest, whose cookies have precedence over those of the same name
   * @param now in ms since the epoch
   */
  fieldFor(url: URL, own: string, now: number): string {
    const ownNames = new Set(own.split(";").map((pair) => (pair.split("=", 1)[0] ?? "").trim()));
    const isSent = ({ name, path, isSecure, expires }: Cookie): boolean =>
      expires > now &&
      (!isSecure || url.protocol === "https:") &&
      isPathMatch(url.pathname, path) &&
      !ownNames.has(name);
    const sent = [...this.#cookies.values()].filter(isSent);
    // Cookies with longer paths come first (RFC 6265, 5.4).
    sent.sort((a, b) => b.path.length - a.path.length);
    const pairs = sent.map(({ name, value }) => `${name}=${value}`);
    return [...(own === "" ? [] : [own]), ...pairs].join("; ");
  }

  #forget(value: string): void {
    this.#pastValues = [value, ...this.#pastValues].slice(0, MAX_PAST_VALUES);
  }
}

/** Characters that a header value may have. */
const HEADER_TEXT = /^[\x20-\x7e\x80-\xff]*$/;

/** Parses a `Set-Cookie` field (RFC 6265, 5.2). @returns undefined if it is ignored */
function parseCookie(field: string, url: URL, now: number): Cookie | undefined {
  const [pair = "", ...attributes] = field.split(";");
  const equals = pair.indexOf("=");
  if (equals < 0) return undefined;
  const name = pair.slice(0, equals).trim();
  const value = pair.slice(equals + 1).trim();
  const size = name.length + value.length;
  if (name === "" || size > MAX_COOKIE_SIZE || !HEADER_TEXT.test(name + value)) return undefined;
  let path = defaultPathOf(url.pathname);
  let isSecure = false;
  let expires: number | undefined;
  let maxAge: number | undefined;
  for (const attribute of attributes) {
    const [key = "", ...rest] = attribute.split("=");
    const text = rest.join("=").trim();
    switch (key.trim().toLowerCase()) {
      case "path":
        path = text.startsWith("/") ? text : defaultPathOf(url.pathname);
        break;
      case "secure":
        isSecure = true;
        break;
      case "max-age":
        if (/^-?\d+$/.test(text)) maxAge = Number(text);
        break;
      case "expires": {
        const time = Date.parse(text);
        if (!Number.isNaN(time)) expires = time;
      }
    }
  }
  // Max-Age has precedence over Expires.
  const end = maxAge === undefined ? (expires ?? Infinity) : now + maxAge * 1000;
  return { name, value, path, isSecure, expires: maxAge !== undefined && maxAge <= 0 ? 0 : end };
}

/** The path of a cookie without a `Path` attribute (RFC 6265, 5.1.4). */
function defaultPathOf(pathname: string): string {
  return pathname.slice(0, Math.max(1, pathname.lastIndexOf("/")));
}

/** RFC 6265, 5.1.4. */
function isPathMatch(pathname: string, path: string): boolean {
  if (!pathname.startsWith(path)) return false;
  return pathname.length === path.length || path.endsWith("/") || pathname[path.length] === "/";
}
