import * as v from "valibot";
import {
  fetchJson,
  type RegistryClient,
  type RegistryEntry,
  type Registry,
  unexpectedAnswer,
} from "./registry.ts";

/* The API of Smithery, a registry that also hosts servers. */

const optionalText = v.optional(v.fallback(v.optional(v.string()), undefined));

const entrySchema = v.object({
  qualifiedName: v.pipe(v.string(), v.regex(/^@?[\w.-]+(?:\/[\w.-]+)*$/), v.maxLength(200)),
  displayName: optionalText,
  description: optionalText,
  homepage: optionalText,
  deploymentUrl: optionalText,
});

const connectionSchema = v.object({
  type: v.string(),
  deploymentUrl: optionalText,
  url: optionalText,
});
const detailSchema = v.object({
  ...entrySchema.entries,
  connections: v.optional(v.fallback(v.array(v.unknown()), []), []),
});

const pageSchema = v.object({
  servers: v.array(v.unknown()),
  pagination: v.optional(v.fallback(v.object({ totalPages: v.optional(v.number()) }), {})),
});

const MAX_PAGES = 5;
const PAGE_SIZE = 50;

/** A registry with Smithery's API. */
export function smitheryRegistry(client: RegistryClient): Registry {
  return {
    name: client.name,
    search: (words, limit, signal) => search(client, words, limit, signal),
    find: (name, signal) => find(client, name, signal),
  };
}

async function search(
  client: RegistryClient,
  words: readonly string[],
  limit: number,
  signal: AbortSignal,
): Promise<readonly RegistryEntry[]> {
  const found = new Map<string, RegistryEntry>();
  const size = Math.min(PAGE_SIZE, limit);
  for (let page = 1; page <= MAX_PAGES && found.size < limit; page++) {
    const query = { q: words.join(" "), page: String(page), pageSize: String(size) };
    const parsed = v.safeParse(pageSchema, await fetchJson(client, "/servers", query, signal));
    if (!parsed.success) throw unexpectedAnswer(client);
    if (parsed.output.servers.length === 0) break;
    for (const one of parsed.output.servers) {
      const entry = v.safeParse(entrySchema, one);
      if (entry.success)
        found.set(entry.output.qualifiedName, toRegistryEntry(client.name, entry.output));
    }
    if (page >= (parsed.output.pagination?.totalPages ?? 1)) break;
  }
  return [...found.values()].slice(0, limit);
}

async function find(
  client: RegistryClient,
  name: string,
  signal: AbortSignal,
): Promise<RegistryEntry | undefined> {
  const path = `/servers/${name.split("/").map(encodeURIComponent).join("/")}`;
  const parsed = v.safeParse(detailSchema, await fetchJson(client, path, {}, signal));
  if (!parsed.success || parsed.output.qualifiedName !== name) return undefined;
  const { connections, ...entry } = parsed.output;
  const urls = connections.flatMap((one) => {
    const parsedConnection = v.safeParse(connectionSchema, one);
    const isHttp = parsedConnection.success && parsedConnection.output.type === "http";
    return isHttp
      ? [
          parsedConnection.output.deploymentUrl ??
            parsedConnection.output.url ??
            entry.deploymentUrl,
        ]
      : [];
  });
  const url = urls.find((one) => one !== undefined && /^https:\/\/[^/@\s]+(?:\/\S*)?$/.test(one));
  const registryEntry = toRegistryEntry(client.name, entry);
  if (url === undefined) {
    const omission = "Smithery does not host it and does not say how to start it: see its page.";
    return { ...registryEntry, omissions: [omission] };
  }
  const headers: [] = [];
  const variables = new Map<string, never>();
  return {
    ...registryEntry,
    options: [{ kind: "remote", url, transport: "http", headers, variables }],
  };
}

function toRegistryEntry(
  directory: string,
  entry: v.InferOutput<typeof entrySchema>,
): RegistryEntry {
  return {
    directory,
    name: entry.qualifiedName,
    title: entry.displayName,
    description: entry.description,
    version: undefined,
    repository: undefined,
    homepage: entry.homepage,
    options: [],
    omissions: [],
  };
}
