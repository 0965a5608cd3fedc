import { type Edit, utf8 } from "../base/bytes.ts";
import { type JsonMember, JsonObject, readString } from "../base/json.ts";
import type { ListedItem } from "./listing.ts";

/** The prefix of encoded URIs: `toolmux://<server>/<URI at the server>`. */
const URI_PREFIX = "toolmux://";

/**
 * The scheme of user interfaces (MCP Apps). Encoded URIs keep the scheme, because hosts recognize user interfaces by
 * it.
 */
const UI_SCHEME = "ui://";
const UI_URI_PREFIX = "ui://toolmux/";

/** Encodes a URI together with its server's name, for a URI that several servers have. */
export function encodeUri(server: string, uri: string): string {
  return isUiUri(uri)
    ? encodeUiUri(server, uri)
    : `${URI_PREFIX}${encodeComponent(server)}/${encodeComponent(uri)}`;
}

/** Whether this is the URI of a user interface (MCP Apps). */
export function isUiUri(uri: string): boolean {
  return uri.startsWith(UI_SCHEME);
}

function encodeUiUri(server: string, uri: string): string {
  return `${UI_URI_PREFIX}${encodeComponent(server)}/${uri.slice(UI_SCHEME.length)}`;
}

/**
 * Encodes a URI template together with its server's name. The template itself is not percent-encoded, so that in an
 * expanded URI the client's values can be distinguished from the template's literals.
 */
export function encodeUriTemplate(server: string, template: string): string {
  return isUiUri(template)
    ? encodeUiUri(server, template)
    : `${URI_PREFIX}${encodeComponent(server)}/${template}`;
}

/**
 * Percent-encodes a text. A lone surrogate, which JSON can express, cannot be percent-encoded: it becomes U+FFFD, so a
 * request for that URI finds nothing.
 */
function encodeComponent(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/** Decodes a result of `encodeUri`, or an expanded template of `encodeUriTemplate`; undefined for any other URI. */
export function decodeUri(text: string): { server: string; uri: string } | undefined {
  const match = ENCODED_URI.exec(text);
  const [scheme, server, rest] = [match?.[1], match?.[2], match?.[3]];
  if (server === undefined || rest === undefined) return undefined;
  try {
    if (scheme === UI_URI_PREFIX)
      return { server: decodeURIComponent(server), uri: `${UI_SCHEME}${rest}` };
    const uri = SCHEME_PREFIX.test(rest) ? rest : decodeURIComponent(rest);
    return { server: decodeURIComponent(server), uri };
  } catch {
    return undefined;
  }
}
const ENCODED_URI = /^(toolmux:\/\/|ui:\/\/toolmux\/)([^/]+)\/(.+)$/s;
/** Matches the scheme at the start of a URI; a percent-encoded URI has none, as its colon is encoded. */
const SCHEME_PREFIX = /^[a-z][a-z0-9+.-]*:/i;

/**
 * The scheme of a URI or template with its colon, in lower case; undefined if it has none, or if the scheme is a
 * template variable.
 */
export function schemeOf(uri: string): string | undefined {
  return SCHEME_PREFIX.exec(uri)?.[0].toLowerCase();
}

/** A matcher for the expansions of a URI template (RFC 6570). */
export interface UriPattern {
  matches(uri: string): boolean;
}

type PatternPart =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "value"; readonly minLength: 0 | 1; readonly terminators: string };

/**
 * For each operator of a template expression (RFC 6570), the pattern of its values. With any other operator, every
 * value matches.
 */
const EXPRESSION_PARTS: Readonly<Record<string, PatternPart>> = {
  "": { kind: "value", minLength: 1, terminators: "/?#" },
  ".": { kind: "value", minLength: 0, terminators: "/?#" },
  "/": { kind: "value", minLength: 0, terminators: "?#" },
  ";": { kind: "value", minLength: 0, terminators: "/?#" },
  "?": { kind: "value", minLength: 0, terminators: "#" },
  "&": { kind: "value", minLength: 0, terminators: "#" },
};
const ANY_VALUE: PatternPart = { kind: "value", minLength: 0, terminators: "" };

const patterns = new WeakMap<ListedItem, UriPattern>();

/** The pattern of a listed template, cached by item. */
export function uriPatternOf(item: ListedItem): UriPattern {
  const cached = patterns.get(item);
  if (cached !== undefined) return cached;
  const pattern = parseUriTemplate(item.key);
  patterns.set(item, pattern);
  return pattern;
}

/** Limits for a URI, in UTF-16 units, and for a template, in `PatternPart`s. Anything longer matches nothing. */
const MAX_URI_LENGTH = 8192;
const MAX_TEMPLATE_PARTS = 512;
const MATCHES_NOTHING: UriPattern = { matches: () => false };

/**
 * Parses a URI template (RFC 6570) into a pattern. The time of a match is at most proportional to the product of both
 * lengths, so that a server cannot slow the hub down by its templates.
 */
export function parseUriTemplate(template: string): UriPattern {
  const parts = template
    .split(/(\{[^{}]*\})/)
    .filter(Boolean)
    .map(parseTemplatePart);
  if (parts.length > MAX_TEMPLATE_PARTS) return MATCHES_NOTHING;
  return {
    matches(uri) {
      if (uri.length > MAX_URI_LENGTH) return false;
      // The positions in the URI at which the parts so far may end.
      let positions: ReadonlySet<number> = new Set([0]);
      for (const part of parts) {
        positions = advancePositions(uri, part, positions);
        if (positions.size === 0) return false;
      }
      return positions.has(uri.length);
    },
  };
}

function parseTemplatePart(text: string): PatternPart {
  if (!text.startsWith("{")) return { kind: "text", text };
  const operator = /^[A-Za-z0-9_%]/.test(text.slice(1)) ? "" : text.slice(1, 2);
  return EXPRESSION_PARTS[operator] ?? ANY_VALUE;
}

function advancePositions(
  uri: string,
  part: PatternPart,
  from: ReadonlySet<number>,
): ReadonlySet<number> {
  const positions = new Set<number>();
  if (part.kind === "text") {
    const { text } = part;
    for (const at of from) if (uri.startsWith(text, at)) positions.add(at + text.length);
    return positions;
  }
  // Adds every position at which the value may end. A position that is already known ends the loop, because those after
  // it are known, too.
  for (const start of from) {
    if (part.minLength === 0) positions.add(start);
    for (let at = start; at < uri.length && !part.terminators.includes(uri.charAt(at)); at++) {
      if (positions.has(at + 1)) break;
      positions.add(at + 1);
    }
  }
  return positions;
}

/**
 * The members in which a tool names the resource of its user interface (MCP Apps: `_meta.ui.resourceUri`; in earlier
 * drafts `_meta["ui/resourceUri"]`).
 */
export function uiResourcesOf({ bytes, meta }: ListedItem): readonly JsonMember[] {
  if (meta === undefined) return [];
  const members = JsonObject.at(bytes, meta);
  return [...members.all("ui/resourceUri"), ...members.object("ui").all("resourceUri")];
}

/**
 * The edits that replace the URI of a tool's user interface (MCP Apps) where its resource is exposed under another URI.
 * @param renamedUris the URIs that clients see, by the URI at the server
 */
export function uiResourceEdits(
  item: ListedItem,
  renamedUris: ReadonlyMap<string, string>,
): readonly Edit[] {
  if (renamedUris.size === 0) return [];
  return uiResourcesOf(item).flatMap(({ start, end }) => {
    const name = renamedUris.get(readString(item.bytes, { start, end }) ?? "");
    return name === undefined ? [] : [{ start, end, replacement: utf8(JSON.stringify(name)) }];
  });
}
