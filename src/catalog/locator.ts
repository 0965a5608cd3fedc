import type { Item } from "./item.ts";

/** How the hub's own URIs begin: they name a server, and then what that calls by the rest. */
const SCHEME = "toolmux://";

/** How such URIs of user interfaces begin: hosts take them by their scheme (MCP Apps), so it stays. */
const UI = "ui://";
const UI_LOCATOR = "ui://toolmux/";

/** A URI that names its server, for one that several servers have. */
export function writeLocator(server: string, uri: string): string {
  return isUi(uri) ? writeUi(server, uri) : `${SCHEME}${encode(server)}/${encode(uri)}`;
}

/** Whether it is the URI of a user interface (MCP Apps). */
export function isUi(uri: string): boolean {
  return uri.startsWith(UI);
}

function writeUi(server: string, uri: string): string {
  return `${UI_LOCATOR}${encode(server)}/${uri.slice(UI.length)}`;
}

/** The same for a template. It stays as it is, so that what clients put into it can be told from the rest of it. */
export function writeTemplate(server: string, template: string): string {
  return isUi(template) ? writeUi(server, template) : `${SCHEME}${encode(server)}/${template}`;
}

/** Half of a character, which servers can spell in JSON, cannot be encoded: it leads to nothing, wherever it stands. */
function encode(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/** What `writeLocator`, or a template that `writeTemplate` wrote, leads to; undefined if it is another URI. */
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
/** It begins like a URI, so it is not encoded. */
const WHOLE = /^[a-z][a-z0-9+.-]*:/i;

/** The scheme of a URI or a template, in lower case; undefined if it has none, or one that varies. */
export function schemeOf(uri: string): string | undefined {
  return WHOLE.exec(uri)?.[0].toLowerCase();
}

/** Which URIs are those of a template (RFC 6570). */
export interface Pattern {
  matches(uri: string): boolean;
}

type Part =
  | { readonly is: "text"; readonly text: string }
  | { readonly is: "value"; readonly least: 0 | 1; readonly stops: string };

/** What stands for the value of an expression with that operator; anything with any other. */
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

/** The pattern of a listed template. */
export function patternOf(item: Item): Pattern {
  const known = patterns.get(item);
  if (known !== undefined) return known;
  const pattern = readPattern(item.key);
  patterns.set(item, pattern);
  return pattern;
}

/** So long may both be, in UTF-16 units and in parts: what is longer is looked for nowhere but in the lists. */
const LONGEST_URI = 8192;
const MOST_PARTS = 512;
const NOTHING: Pattern = { matches: () => false };

/** Bounded by the product of the lengths of both, whatever a template looks like: servers write them. */
export function readPattern(template: string): Pattern {
  const parts = template
    .split(/(\{[^{}]*\})/)
    .filter(Boolean)
    .map(readPart);
  if (parts.length > MOST_PARTS) return NOTHING;
  return {
    matches(uri) {
      if (uri.length > LONGEST_URI) return false;
      // Up to where in the URI the parts so far can reach.
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
  // From each of them as far as the value may go; where one has been, another need not go again.
  for (const start of from) {
    if (part.least === 0) reached.add(start);
    for (let at = start; at < uri.length && !part.stops.includes(uri.charAt(at)); at++) {
      if (reached.has(at + 1)) break;
      reached.add(at + 1);
    }
  }
  return reached;
}
