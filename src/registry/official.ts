import * as v from "valibot";
import type { Directory, Input, Listing, Offer } from "./registry.ts";
import { ask, type Desk, misanswered } from "./request.ts";
import { parsePackage, printPackage } from "../manifest/package.ts";

/* The API of the official MCP registry, which other registries implement, too. */

/** Entries per page, and the maximum number of pages of one search. */
const PAGE = 100;
const MAX_PAGES = 5;
/** The versions of the API, newest first. */
const VERSIONS = ["/v0.1", "/v0"] as const;

const text = v.optional(v.fallback(v.optional(v.string()), undefined));
const flag = v.optional(v.fallback(v.optional(v.boolean()), undefined));

/** An array from which invalid items are dropped. */
function some<T>(item: v.GenericSchema<unknown, T>) {
  return v.pipe(
    v.array(v.unknown()),
    v.transform((all): readonly T[] =>
      all.flatMap((one) => {
        const parsed = v.safeParse(item, one);
        return parsed.success ? [parsed.output] : [];
      }),
    ),
  );
}

/** Like `validItems`; any other value counts as an empty array. */
function list<T>(item: v.GenericSchema<unknown, T>) {
  return v.optional(v.fallback(some(item), []), []);
}

const input = {
  description: text,
  isRequired: flag,
  isSecret: flag,
  value: text,
  default: text,
};
const variables = v.optional(v.fallback(v.record(v.string(), v.object(input)), {}), {});
const named = v.object({ ...input, name: v.string(), variables });
const argument = v.object({ ...input, type: text, name: text, valueHint: text, variables });
const remote = v.object({ type: v.string(), url: v.string(), headers: list(named), variables });

const packageSchema = v.object({
  registryType: v.string(),
  registryBaseUrl: text,
  identifier: v.string(),
  version: text,
  transport: v.object({ type: v.string() }),
  runtimeArguments: list(argument),
  packageArguments: list(argument),
  environmentVariables: list(named),
});

const detailSchema = v.object({
  name: v.pipe(v.string(), v.regex(/^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/), v.maxLength(200)),
  title: text,
  description: text,
  version: text,
  websiteUrl: text,
  repository: v.optional(v.fallback(v.optional(v.object({ url: text })), undefined)),
  packages: list(packageSchema),
  remotes: list(remote),
});

const OFFICIAL = "io.modelcontextprotocol.registry/official";
const entrySchema = v.object({
  server: detailSchema,
  _meta: v.optional(
    v.fallback(
      v.object({ [OFFICIAL]: v.optional(v.object({ status: text, isLatest: flag })) }),
      {},
    ),
  ),
});

const pageSchema = v.object({
  // Some registries write null for an empty list.
  servers: v.nullable(some(entrySchema), []),
  metadata: v.optional(v.fallback(v.object({ nextCursor: text }), {})),
});

type Detail = v.InferOutput<typeof detailSchema>;

/** A registry with the official API. */
export function officialDirectory(desk: Desk): Directory {
  return {
    name: desk.name,
    search: (words, limit, signal) => search(desk, words, limit, signal),
    find: (name, signal) => find(desk, name, signal),
  };
}

/** The API searches names for one substring. The longest word is sent; the results are filtered by the others. */
async function search(
  desk: Desk,
  words: readonly string[],
  limit: number,
  signal: AbortSignal,
): Promise<readonly Listing[]> {
  const [longest = ""] = words.toSorted((a, b) => b.length - a.length);
  const found = new Map<string, Listing>();
  const cursors = new Set<string>();
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES && found.size < limit; page++) {
    const query = {
      search: longest,
      version: "latest",
      limit: String(PAGE),
      ...(cursor !== undefined && { cursor }),
    };
    const answer = await askAny(desk, "/servers", query, signal);
    const parsed = v.safeParse(pageSchema, answer);
    if (!parsed.success) throw misanswered(desk);
    for (const { server, _meta } of parsed.output.servers) {
      const { status, isLatest } = _meta?.[OFFICIAL] ?? {};
      const isGone = status === "deleted" || (isLatest === false && found.has(server.name));
      if (!isGone && matches(server, words)) found.set(server.name, toListing(desk.name, server));
    }
    cursor = parsed.output.metadata?.nextCursor;
    if (cursor === undefined || cursor === "" || cursors.has(cursor)) break;
    cursors.add(cursor);
  }
  return [...found.values()].slice(0, limit);
}

async function find(desk: Desk, name: string, signal: AbortSignal): Promise<Listing | undefined> {
  const path = `/servers/${encodeURIComponent(name)}/versions/latest`;
  const parsed = v.safeParse(entrySchema, await askAny(desk, path, {}, signal));
  const isIt = parsed.success && parsed.output.server.name === name;
  return isIt ? toListing(desk.name, parsed.output.server) : undefined;
}

/** Falls back to an older version of the API on 404. */
async function askAny(
  desk: Desk,
  path: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<unknown> {
  for (const version of VERSIONS) {
    const answer = await ask(desk, version + path, query, signal);
    if (answer !== undefined) return answer;
  }
  return undefined;
}

function matches(
  { name, title = "", description = "" }: Detail,
  words: readonly string[],
): boolean {
  const all = `${name} ${title} ${description}`.toLowerCase();
  return words.every((word) => all.includes(word.toLowerCase()));
}

function toListing(directory: string, detail: Detail): Listing {
  const packages = detail.packages.map(toPackage);
  const remotes = detail.remotes.map(toRemote);
  const ways = [...packages, ...remotes];
  return {
    directory,
    name: detail.name,
    title: detail.title,
    description: detail.description,
    version: detail.version,
    repository: detail.repository?.url,
    homepage: detail.websiteUrl,
    offers: ways.filter((way) => typeof way !== "string"),
    omissions: ways.filter((way) => typeof way === "string"),
  };
}

const ORIGINS: ReadonlyMap<string, "npm" | "pypi" | "docker"> = new Map([
  ["npm", "npm"],
  ["pypi", "pypi"],
  ["oci", "docker"],
]);
/**
 * A part of the default host of each kind of package registry. In another registry, the same name may be another
 * package.
 */
const HOMES = { npm: "npmjs", pypi: "pypi", docker: "" } as const;

/** @returns a sentence if the package cannot be run */
function toPackage(said: v.InferOutput<typeof packageSchema>): Offer | string {
  const { registryType, identifier, version, registryBaseUrl = "" } = said;
  const subject = `The package ${identifier} (${registryType})`;
  const origin = ORIGINS.get(registryType);
  if (origin === undefined) return `${subject} is of a kind that toolmux does not run.`;
  if (said.transport.type !== "stdio") return `${subject} serves over HTTP: start it yourself.`;
  if (registryBaseUrl !== "" && !registryBaseUrl.includes(HOMES[origin])) {
    return `${subject} is at ${registryBaseUrl}, where its runners do not look.`;
  }
  const parsed = parsePackage(spellPackage(origin, identifier, version));
  if (parsed === undefined) return `${subject} has a name or a version that is none.`;
  // Arguments of the runner itself could weaken a container's isolation, so they are left to the user.
  const isMore = said.runtimeArguments.some(({ value }) => value !== "-y");
  if (isMore) return `${subject} wants arguments for what runs it: see its own documentation.`;
  return {
    kind: "package",
    name: printPackage(parsed),
    args: said.packageArguments.map(({ name = "", valueHint, ...rest }) =>
      toInput({ ...rest, name, description: rest.description ?? valueHint }),
    ),
    env: said.environmentVariables.map(toInput),
  };
}

function spellPackage(origin: string, identifier: string, version: string | undefined): string {
  const hasTag = /[:@][^/]+$/.test(identifier);
  if (origin === "docker") {
    return `docker:${identifier}${version === undefined || hasTag ? "" : `:${version}`}`;
  }
  if (version === undefined) return `${origin}:${identifier}`;
  return `${origin}:${identifier}${origin === "pypi" ? "==" : "@"}${version}`;
}

const TRANSPORTS: ReadonlyMap<string, "http" | "sse"> = new Map([
  ["streamable-http", "http"],
  ["sse", "sse"],
]);

function toRemote({
  type,
  url,
  headers,
  variables: said,
}: v.InferOutput<typeof remote>): Offer | string {
  const transport = TRANSPORTS.get(type);
  if (transport === undefined) return `${url} is of a kind (${type}) that toolmux does not speak.`;
  if (!/^https:\/\/[^/@\s]+(?:\/\S*)?$/.test(url))
    return `${url} is no URL that begins with https://.`;
  return {
    kind: "remote",
    url,
    transport,
    headers: headers.map(toInput),
    variables: toInputs(said),
  };
}

interface Said {
  readonly name: string;
  readonly description?: string | undefined;
  readonly isRequired?: boolean | undefined;
  readonly isSecret?: boolean | undefined;
  readonly value?: string | undefined;
  readonly default?: string | undefined;
  readonly variables?: Readonly<Record<string, Omit<Said, "name" | "variables">>>;
}

function toInput(said: Said): Input {
  return {
    name: said.name,
    description: said.description,
    isRequired: said.isRequired === true,
    isSecret: said.isSecret === true,
    value: said.value,
    fallback: said.default,
    variables: toInputs(said.variables ?? {}),
  };
}

function toInputs(said: NonNullable<Said["variables"]>): ReadonlyMap<string, Input> {
  return new Map(Object.entries(said).map(([name, one]) => [name, toInput({ ...one, name })]));
}
