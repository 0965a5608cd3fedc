import { isModernVersion } from "../../protocol/modern.ts";
import type { HttpAnswer, HttpRequestHead, RequestHeaders } from "./http1/messages.ts";
import { type AccessRules, checkOrigin, checkToken } from "./guard.ts";
import { type AcceptedTypes, parseAccept } from "./post-response.ts";

/** The parsed meaning of a request head; the same for every request with that head. */
export interface ParsedHead {
  /** The answer that refuses the request because of its host, origin or token; undefined: it is allowed. */
  readonly refusal: HttpAnswer | undefined;
  readonly session: string | null;
  readonly version: string | null;
  /** Whether `MCP-Protocol-Version` names a revision of the modern era. */
  readonly hasModernVersion: boolean;
  /** The content types that the client accepts; undefined if neither JSON nor an event stream. */
  readonly accepts: AcceptedTypes | undefined;
  readonly isJson: boolean;
}

/** Cache of parsed heads, by head object: nearly all requests on a connection share one. */
export class ParsedHeadCache {
  readonly #rules: AccessRules;
  readonly #parsed = new WeakMap<HttpRequestHead, ParsedHead>();

  constructor(rules: AccessRules) {
    this.#rules = rules;
  }

  parse(head: HttpRequestHead): ParsedHead {
    const cached = this.#parsed.get(head);
    if (cached !== undefined) return cached;
    const parsed = parseHead(head.headers, this.#rules);
    this.#parsed.set(head, parsed);
    return parsed;
  }
}

function parseHead(headers: RequestHeaders, rules: AccessRules): ParsedHead {
  const version = headers.get("MCP-Protocol-Version");
  return {
    refusal: checkOrigin(headers, rules) ?? checkToken(headers, rules),
    session: headers.get("Mcp-Session-Id"),
    version,
    hasModernVersion: isModernVersion(version),
    accepts: parseAccept(headers.get("Accept")),
    isJson: /^application\/json\s*(?:;|$)/i.test(headers.get("Content-Type") ?? ""),
  };
}
