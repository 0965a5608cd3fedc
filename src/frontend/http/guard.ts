import { createHash, timingSafeEqual } from "node:crypto";
import { isLoopback } from "../../base/loopback.ts";
import type { Answer } from "./http1/answer.ts";
import type { Fields } from "./http1/messages.ts";
import { refuse } from "./errors.ts";

export interface Guard {
  /** The host that the HTTP server listens on, as in URLs. */
  readonly hostname: string;
  /** The bearer token; undefined: none is needed. */
  readonly token: string | undefined;
}

/**
 * Checks Host and Origin. A web page can make a browser send requests to any address; it is recognised by its Origin,
 * and by a Host that is not this server's name (DNS rebinding).
 * @returns the answer that refuses the request; undefined if it may pass
 */
export function refuseStranger(fields: Fields, { hostname }: Guard): Answer | undefined {
  const host = hostnameOf(`http://${fields.get("Host") ?? ""}`);
  if (host === "" || (isLoopback(hostname) && !isLoopback(host))) {
    return refuse(403, "This host name is not served here.");
  }
  const origin = fields.get("Origin");
  if (origin === null) return undefined;
  const from = hostnameOf(origin);
  const isKnown = isLoopback(hostname) ? isLoopback(from) : from === host;
  return isKnown ? undefined : refuse(403, "Pages of other origins are not served here.");
}

/** Checks the bearer token. @returns the answer that refuses the request; undefined if it may pass */
export function refuseUnknown(fields: Fields, { token }: Guard): Answer | undefined {
  if (token === undefined) return undefined;
  const given = /^Bearer +(\S+) *$/i.exec(fields.get("Authorization") ?? "")?.[1];
  if (given !== undefined && isSame(given, token)) return undefined;
  const error = given === undefined ? "" : ', error="invalid_token"';
  return refuse(401, "This needs a bearer token.", {
    headers: { "WWW-Authenticate": `Bearer realm="toolmux"${error}` },
  });
}

/** The usual names of this machine, matched without parsing a URL. */
const HERE = /^http:\/\/(127\.0\.0\.1|localhost)(?::\d{1,5})?$/;

/** The host of a URL without port; empty if it is not a URL. */
function hostnameOf(url: string): string {
  const here = HERE.exec(url)?.[1];
  if (here !== undefined) return here;
  return URL.canParse(url) ? new URL(url).hostname : "";
}

/** Constant time, for any content and length. */
function isSame(given: string, wanted: string): boolean {
  const digest = (text: string): Uint8Array => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}
