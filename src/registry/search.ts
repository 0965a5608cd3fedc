import { formatDuration } from "../base/format.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { officialRegistry } from "./official.ts";
import type { RegistryEntry, RegistryFetch, Registry } from "./registry.ts";
import { smitheryRegistry } from "./smithery.ts";

/** Time limit per registry, in ms. */
const TIME_LIMIT = 15_000;

/** Results from several registries. */
export interface SearchResults {
  /** The entries found, best first, without duplicates. */
  readonly entries: readonly RegistryEntry[];
  /** The registries that failed. */
  readonly failures: readonly RegistryFailure[];
}

export interface RegistryFailure {
  readonly directory: string;
  readonly cause: HubError;
}

/** Searches all registries in parallel; a failing registry does not affect the others. @throws the signal's reason */
export async function searchRegistries(
  registries: readonly Registry[],
  words: readonly string[],
  limit: number,
  signal: AbortSignal,
  timeLimit = TIME_LIMIT,
): Promise<SearchResults> {
  const { found, failures } = await queryAll(
    registries,
    signal,
    timeLimit,
    (registry, requestSignal) => registry.search(words, limit, requestSignal),
  );
  return { entries: mergeEntries(found).slice(0, limit), failures };
}

/** Finds the first entry with the given name, in the order of the registries. @throws the signal's reason */
export async function findServer(
  registries: readonly Registry[],
  name: string,
  signal: AbortSignal,
  timeLimit = TIME_LIMIT,
): Promise<{
  readonly entry: RegistryEntry | undefined;
  readonly failures: readonly RegistryFailure[];
}> {
  const { found, failures } = await queryAll(
    registries,
    signal,
    timeLimit,
    (registry, requestSignal) => registry.find(name, requestSignal),
  );
  return { entry: found.find((one) => one !== undefined), failures };
}

async function queryAll<T>(
  registries: readonly Registry[],
  signal: AbortSignal,
  timeLimit: number,
  query: (registry: Registry, requestSignal: AbortSignal) => Promise<T>,
): Promise<{ readonly found: readonly T[]; readonly failures: readonly RegistryFailure[] }> {
  const found: T[] = [];
  const failures: RegistryFailure[] = [];
  const answers = await Promise.all(
    registries.map(async (registry) => {
      const timeout = new AbortController();
      const timeoutError = new HubError(
        "unreachable",
        `${registry.name} has not answered within ${formatDuration(timeLimit)}.`,
      );
      const timer = setTimeout(() => timeout.abort(timeoutError), timeLimit);
      try {
        return { value: await query(registry, AbortSignal.any([signal, timeout.signal])) };
      } catch (error) {
        return { cause: toHubError(error) };
      } finally {
        clearTimeout(timer);
      }
    }),
  );
  signal.throwIfAborted();
  for (const [i, answer] of answers.entries()) {
    if ("value" in answer) found.push(answer.value);
    else failures.push({ directory: registries[i]?.name ?? "", cause: answer.cause });
  }
  return { found, failures };
}

/**
 * Merges the results by taking the best entries of all registries first, then the second-best, and so on. Two entries
 * are the same server if they have the same name, or the same repository in different registries.
 */
function mergeEntries(found: readonly (readonly RegistryEntry[])[]): readonly RegistryEntry[] {
  const merged: RegistryEntry[] = [];
  const names = new Set<string>();
  const repositories = new Map<string, string>();
  const longest = Math.max(0, ...found.map(({ length }) => length));
  for (let at = 0; at < longest; at++) {
    for (const entry of found.flatMap((results) => results[at] ?? [])) {
      const { name, directory } = entry;
      const repository = normalize(entry.repository ?? entry.homepage);
      const owner = repository === undefined ? undefined : repositories.get(repository);
      // A registry may list several servers of one repository, so entries are compared by repository only if they
      // come from different registries.
      const isOther = owner === undefined || owner === directory;
      if (names.has(name.toLowerCase()) || !isOther) continue;
      names.add(name.toLowerCase());
      if (repository !== undefined && owner === undefined) repositories.set(repository, directory);
      merged.push(entry);
    }
  }
  return merged;
}

function normalize(url: string | undefined): string | undefined {
  return (
    url?.toLowerCase().replace(/^https?:\/\/(?:www\.)?|(?:\.git)?(?<!\/)\/*$/g, "") || undefined
  );
}

/**
 * A registry named by the user: `official`, `smithery`, `official=URL`, `smithery=URL`, or the URL of a registry with
 * the official API.
 */
export interface RegistryChoice {
  readonly name: string;
  readonly kind: "official" | "smithery";
  /** Without a trailing slash. */
  readonly baseUrl: string;
}

const SUBDOMAIN = "registry";
/** The base URLs of the known registries. They are registries of MCP servers, not of packages. */
const BASE_URLS: Readonly<Record<RegistryChoice["kind"], string>> = {
  official: `https://${SUBDOMAIN}.modelcontextprotocol.io`,
  smithery: `https://${SUBDOMAIN}.smithery.ai`,
};

/** The registries that are searched by default. */
export const DEFAULT_REGISTRIES: readonly string[] = ["official", "smithery"];

/** Parses a registry that the user names. @throws {HubError} usage */
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
  // Without a prefix, the registry's name is its host, which tells apart several registries with the official API.
  return { name: prefix ?? url.host, kind, baseUrl: url.href.replace(/(?<!\/)\/+$/, "") };
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
