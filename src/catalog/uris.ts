import type { Item } from "./listing.ts";

/** The prefix of encoded URIs: `toolmux://<server>/<the server's own URI>`. */
const SCHEME = "toolmux://";

/** The scheme of user interfaces. Hosts recognize them by it (MCP Apps), so encoded URIs keep it. */
const UI = "ui://";
const UI_LOCATOR = "ui://toolmux/";

/** Encodes a URI together with its server's name, for a URI that several servers have. */
export function writeLocator(server: string, uri: string): string {
  return isUi(uri) ? writeUi(server, uri) : `${SCHEME}${encode(server)}/${encode(uri)}`;
}

/** Whether this is the URI of a user interface (MCP Apps). */
export function isUi(uri: string): boolean {
  return uri.startsWith(UI);
}

function writeUi(server: string, uri: string): string {
  return `${UI_LOCATOR}${encode(server)}/${uri.slice(UI.length)}`;
}

/**
 * The same for a template. The template stays readable, so that client-supplied values can be told from its literals.
 */
export function writeTemplate(server: string, template: string): string {
  return isUi(template) ? writeUi(server, template) : `${SCHEME}${encode(server)}/${template}`;
}

/** Lone surrogates, which JSON can express, cannot be percent-encoded; they become U+FFFD and lead to nothing. */
function encode(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/** Decodes a result of `encodeUri`, or an expanded template of `encodeUriTemplate`; undefined for any other URI. */
export function readLocator(text: string): { server: string; uri: string } | undefined {
  const match = LOCATOR.exec(text);
  const [scheme, server, rest] = [match?.[1], match?.[2], match?.[3]];
  if (server === undefined || rest === undefined) return undefined;
  try {
    if (scheme === UI_LOCATOR) return { server: decodeURIComponent(server), uri: `${UI}${rest}` };
    const uri = WHOLE.test(rest) ? rest : decodeURIComponent(rest);
    return { server: decodeURIComponent(server), uri };
  } catch {
    return undefined;
  }
}
const LOCATOR = /^(toolmux:\/\/|ui:\/\/toolmux\/)([^/]+)\/(.+)$/s;
/** The rest starts with a scheme, so it is not percent-encoded. */
const WHOLE = /^[a-z][a-z0-9+.-]*:/i;

/** The scheme of a URI or template with its colon, in lower case; undefined if it has none or a variable one. */
export function schemeOf(uri: string): string | undefined {
  return WHOLE.exec(uri)?.[0].toLowerCase();
}

/** A matcher for the expansions of a URI template (RFC 6570). */
export interface Pattern {
  matches(uri: string): boolean;
}

type Part =
  | { readonly is: "text"; readonly text: string }
  | { readonly is: "value"; readonly least: 0 | 1; readonly stops: string };

/** The pattern for an expression's value, by operator; other operators match anything. */
const VALUES: Readonly<Record<string, Part>> = {
  "": { is: "value", least: 1, stops: "/?#" },
  ".": { is: "value", least: 0, stops: "/?#" },
  "/": { is: "value", least: 0, stops: "?#" },
  ";": { is: "value", least: 0, stops: "/?#" },
  "?": { is: "value", least: 0, stops: "#" },
  "&": { is: "value", least: 0, stops: "#" },
};
const ANYTHING: Part = { is: "value", least: 0, stops: "" };

const patterns = new WeakMap<Item, Pattern>();

/** The pattern of a listed template, cached by item. */
export function patternOf(item: Item): Pattern {
  const known = patterns.get(item);
  if (known !== undefined) return known;
  const pattern = readPattern(item.key);
  patterns.set(item, pattern);
  return pattern;
}

/** Limits for a URI, in UTF-16 units, and for a template, in parts. Anything longer matches nothing. */
const LONGEST_URI = 8192;
const MOST_PARTS = 512;
const NOTHING: Pattern = { matches: () => false };

/**
 * Parses a URI template (RFC 6570) into a pattern. Matching takes at most the product of both lengths, because servers
 * choose the template.
 */
export function readPattern(template: string): Pattern {
  const parts = template
    .split(/(\{[^{}]*\})/)
    .filter(Boolean)
    .map(readPart);
  if (parts.length > MOST_PARTS) return NOTHING;
  return {
    matches(uri) {
      if (uri.length > LONGEST_URI) return false;
      // The positions in the URI that the parts so far can reach.
      let reached: ReadonlySet<number> = new Set([0]);
      for (const part of parts) {
        reached = advance(uri, part, reached);
        if (reached.size === 0) return false;
      }
      return reached.has(uri.length);
    },
  };
}

function readPart(text: string): Part {
  if (!text.startsWith("{")) return { is: "text", text };
  const operator = /^[A-Za-z0-9_%]/.test(text.slice(1)) ? "" : text.slice(1, 2);
  return VALUES[operator] ?? ANYTHING;
}

function advance(uri: string, part: Part, from: ReadonlySet<number>): ReadonlySet<number> {
  const reached = new Set<number>();
  if (part.is === "text") {
    const { text } = part;
    for (const at of from) if (uri.startsWith(text, at)) reached.add(at + text.length);
    return reached;
  }
  // Extends each start as far as the value may go, and stops at positions another start has reached.
  for (const start of from) {
    if (part.least === 0) reached.add(start);
    for (let at = start; at < uri.length && !part.stops.includes(uri.charAt(at)); at++) {
      if (reached.has(at + 1)) break;
      reached.add(at + 1);
    }
  }
  return reached;
}
