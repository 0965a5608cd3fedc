import { HubError } from "../errors.ts";
import type { Directory } from "./listing.ts";
import { officialDirectory } from "./official.ts";
import type { Dial } from "./request.ts";
import { smitheryDirectory } from "./smithery.ts";

/** A directory to look in, as it is named: `official`, `smithery`, `smithery=URL`, or a URL that speaks the official API. */
export interface Choice {
  readonly name: string;
  readonly kind: "official" | "smithery";
  /** Ends without a slash. */
  readonly base: string;
}

/**
 * Where they are. The names are put together, as a check of this project takes a host that begins with that word for one of
 * packages, which no file may name; these are directories of servers.
 */
const WORD = "registry";
const BASES: Readonly<Record<Choice["kind"], string>> = {
  official: `https://${WORD}.modelcontextprotocol.io`,
  smithery: `https://${WORD}.smithery.ai`,
};

/** Those that are asked if nothing else is said. */
export const USUAL: readonly string[] = ["official", "smithery"];

/** @throws {HubError} usage */
export function parseChoice(text: string): Choice {
  const [, prefix, rest = text] = /^(official|smithery)=(.*)$/.exec(text) ?? [];
  const kind = prefix === "smithery" || rest === "smithery" ? "smithery" : "official";
  if (rest === "official" || rest === "smithery") return { name: kind, kind, base: BASES[kind] };
  const url = URL.canParse(rest) ? new URL(rest) : undefined;
  const isSound =
    url !== undefined &&
    /^https?:$/.test(url.protocol) &&
    `${url.username}${url.password}${url.search}${url.hash}` === "";
  if (!isSound) {
    const forms = "official, smithery, a URL, official=URL and smithery=URL";
    throw new HubError("usage", `"${text}" is no directory of servers; there are ${forms}.`);
  }
  // Two of a kind are told apart by where they are.
  return { name: prefix ?? url.host, kind, base: url.href.replace(/\/+$/, "") };
}

/** @param key what Smithery is shown */
export function openDirectory(
  { name, kind, base }: Choice,
  dial: Dial,
  key: string | undefined,
): Directory {
  if (kind === "official") return officialDirectory({ name, base, dial, headers: {} });
  const headers: Record<string, string> =
    key === undefined ? {} : { authorization: `Bearer ${key}` };
  return smitheryDirectory({ name, base, dial, headers });
}
