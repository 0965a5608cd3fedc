import { isLoopback } from "../../base/loopback.ts";
import { quotePeer } from "../../base/quote.ts";
import { errorResponse } from "./responses.ts";

export interface AccessRules {
  /** The host that the HTTP server listens on, spelled as in URLs (IPv6 in brackets). */
  readonly hostname: string;
}

/**
 * Checks Host and Origin. A web page can make a browser send requests to any address; such requests have the page's
 * Origin, or a Host that is not this server's name (DNS rebinding).
 * @returns the response that refuses the request; undefined if it may pass
 */
export function checkOrigin(headers: Headers, { hostname }: AccessRules): Response | undefined {
  const host = hostnameOf(`http://${headers.get("Host") ?? ""}`);
  if (host === "" || (isLoopback(hostname) && !isLoopback(host))) {
    return errorResponse(403, hostRefusal(headers.get("Host"), hostname));
  }
  const origin = headers.get("Origin");
  if (origin === null) return undefined;
  const originHost = hostnameOf(origin);
  const isAllowed = isLoopback(hostname) ? isLoopback(originHost) : originHost === host;
  return isAllowed ? undefined : errorResponse(403, "This Origin is not allowed.");
}

/** The reason why a `Host` is refused, and the option that allows it. */
function hostRefusal(host: string | null, hostname: string): string {
  const quoted = quotePeer(host ?? "");
  if (quoted === "") return "This Host is not allowed: the header is missing.";
  const others = `The Host ${quoted} is not allowed`;
  return isLoopback(hostname)
    ? `${others}: the hub listens on ${hostname}, for this machine alone. To allow other names, start it with --http 0.0.0.0:PORT --token auto (or hub.httpToken in the manifest).`
    : `${others}: it is not the name of a host.`;
}

/** Matches URLs with the usual names of this machine, so that these need not be parsed. */
const LOCAL_URL = /^http:\/\/(127\.0\.0\.1|localhost)(?::\d{1,5})?$/;

/** The host of a URL without port; empty if it is not a URL. */
function hostnameOf(url: string): string {
  const local = LOCAL_URL.exec(url)?.[1];
  if (local !== undefined) return local;
  return URL.canParse(url) ? new URL(url).hostname : "";
}
