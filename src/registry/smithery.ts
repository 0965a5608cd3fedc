import * as v from "valibot";
import type { Directory, Listing } from "./registry.ts";
import { ask, type Desk, misanswered } from "./request.ts";

/* The API of Smithery, a registry that also hosts servers. */

const text = v.optional(v.fallback(v.optional(v.string()), undefined));

const entrySchema = v.object({
  qualifiedName: v.pipe(v.string(), v.regex(/^@?[\w.-]+(?:\/[\w.-]+)*$/), v.maxLength(200)),
  displayName: text,
  description: text,
  homepage: text,
  deploymentUrl: text,
});

const connectionSchema = v.object({ type: v.string(), deploymentUrl: text, url: text });
const detailSchema = v.object({
  ...entrySchema.entries,
  connections: v.optional(v.fallback(v.array(v.unknown()), []), []),
});

const pageSchema = v.object({
  servers: v.array(v.unknown()),
  pagination: v.optional(v.fallback(v.object({ totalPages: v.optional(v.number()) }), {})),
});

const MAX_PAGES = 5;
const PAGE = 50;

/** A registry with Smithery's API. */
export function smitheryDirectory(desk: Desk): Directory {
  return {
    name: desk.name,
    search: (words, limit, signal) => search(desk, words, limit, signal),
    find: (name, signal) => find(desk, name, signal),
  };
}

async function search(
  desk: Desk,
  words: readonly string[],
  limit: number,
  signal: AbortSignal,
): Promise<readonly Listing[]> {
  const found = new Map<string, Listing>();
  const size = Math.min(PAGE, limit);
  for (let page = 1; page <= MAX_PAGES && found.size < limit; page++) {
    const query = { q: words.join(" "), page: String(page), pageSize: String(size) };
    const parsed = v.safeParse(pageSchema, await ask(desk, "/servers", query, signal));
    if (!parsed.success) throw misanswered(desk);
    if (parsed.output.servers.length === 0) break;
    for (const one of parsed.output.servers) {
      const entry = v.safeParse(entrySchema, one);
      if (entry.success) found.set(entry.output.qualifiedName, toListing(desk.name, entry.output));
    }
    if (page >= (parsed.output.pagination?.totalPages ?? 1)) break;
  }
  return [...found.values()].slice(0, limit);
}

async function find(desk: Desk, name: string, signal: AbortSignal): Promise<Listing | undefined> {
  const path = `/servers/${name.split("/").map(encodeURIComponent).join("/")}`;
  const parsed = v.safeParse(detailSchema, await ask(desk, path, {}, signal));
  if (!parsed.success || parsed.output.qualifiedName !== name) return undefined;
  const { connections, ...entry } = parsed.output;
  const urls = connections.flatMap((one) => {
    const said = v.safeParse(connectionSchema, one);
    const isHttp = said.success && said.output.type === "http";
    return isHttp ? [said.output.deploymentUrl ?? said.output.url ?? entry.deploymentUrl] : [];
  });
  const url = urls.find((one) => one !== undefined && /^https:\/\/[^/@\s]+(?:\/\S*)?$/.test(one));
  const listing = toListing(desk.name, entry);
  if (url === undefined) {
    const omission = "It is not hosted there, and how it is started is not said: see its page.";
    return { ...listing, omissions: [omission] };
  }
  const headers: [] = [];
  const variables = new Map<string, never>();
  return { ...listing, offers: [{ kind: "remote", url, transport: "http", headers, variables }] };
}

function toListing(directory: string, entry: v.InferOutput<typeof entrySchema>): Listing {
  return {
    directory,
    name: entry.qualifiedName,
    title: entry.displayName,
    description: entry.description,
    version: undefined,
    repository: undefined,
    homepage: entry.homepage,
    offers: [],
    omissions: [],
  };
}
