import { createHash, timingSafeEqual } from "node:crypto";
import { isLoopback } from "./loopback.ts";
import type { Answer } from "./answer.ts";
import type { Fields } from "./query.ts";
import { refuse } from "./refusal.ts";

export interface Guard {
  /** Where the face listens, as URLs spell it. */
  readonly hostname: string;
  /** Who wants in has to know it; undefined: whoever gets through is let in. */
  readonly token: string | undefined;
}

/**
 * Refuses what does not come from where it should. A page of the web can make a browser of this machine ask any address: it
 * is told by its Origin, and by the Host under which it has that address ("DNS rebinding").
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

/** Refuses who does not know the token. */
export function refuseUnknown(fields: Fields, { token }: Guard): Answer | undefined {
  if (token === undefined) return undefined;
  const given = /^Bearer +(\S+) *$/i.exec(fields.get("Authorization") ?? "")?.[1];
  if (given !== undefined && isSame(given, token)) return undefined;
  const error = given === undefined ? "" : ', error="invalid_token"';
  return refuse(401, "This needs a bearer token.", {
    headers: { "WWW-Authenticate": `Bearer realm="toolmux"${error}` },
  });
}

/** What most clients of this machine call it, who need no parser of URLs. */
const HERE = /^http:\/\/(127\.0\.0\.1|localhost)(?::\d{1,5})?$/;

/** Empty if that is no URL. */
function hostnameOf(url: string): string {
  const here = HERE.exec(url)?.[1];
  if (here !== undefined) return here;
  return URL.canParse(url) ? new URL(url).hostname : "";
}

/** Takes the same time wherever they differ, and however long they are. */
function isSame(given: string, wanted: string): boolean {
  const digest = (text: string): Uint8Array => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}
