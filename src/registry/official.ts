import * as v from "valibot";
import {
  fetchJson,
  type RegistryClient,
  type RegistryEntry,
  type RegistryInput,
  type Registry,
  type ServerOption,
  unexpectedAnswer,
} from "./registry.ts";
import { formatPackage, parsePackage } from "../manifest/package.ts";

/* The API of the official MCP registry, which other registries implement, too. */

/** Entries per page, and the maximum number of pages of one search. */
const PAGE_SIZE = 100;
const MAX_PAGES = 5;
/** The versions of the API, newest first. */
const VERSIONS = ["/v0.1", "/v0"] as const;

const optionalText = v.optional(v.fallback(v.optional(v.string()), undefined));
const optionalBoolean = v.optional(v.fallback(v.optional(v.boolean()), undefined));

/** An array from which invalid items are dropped. */
function validItems<T>(item: v.GenericSchema<unknown, T>) {
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

/** Like `validItems`; a value that is not an array counts as an empty one. */
function optionalItems<T>(item: v.GenericSchema<unknown, T>) {
  return v.optional(v.fallback(validItems(item), []), []);
}

const inputEntries = {
  description: optionalText,
  isRequired: optionalBoolean,
  isSecret: optionalBoolean,
  value: optionalText,
  default: optionalText,
};
const variablesSchema = v.optional(
  v.fallback(v.record(v.string(), v.object(inputEntries)), {}),
  {},
);
const namedInput = v.object({ ...inputEntries, name: v.string(), variables: variablesSchema });
const argumentSchema = v.object({
  ...inputEntries,
  type: optionalText,
  name: optionalText,
  valueHint: optionalText,
  variables: variablesSchema,
});
const remoteSchema = v.object({
  type: v.string(),
  url: v.string(),
  headers: optionalItems(namedInput),
  variables: variablesSchema,
});

const packageSchema = v.object({
  registryType: v.string(),
  registryBaseUrl: optionalText,
  identifier: v.string(),
  version: optionalText,
  transport: v.object({ type: v.string() }),
  runtimeArguments: optionalItems(argumentSchema),
  packageArguments: optionalItems(argumentSchema),
  environmentVariables: optionalItems(namedInput),
});

const detailSchema = v.object({
  name: v.pipe(v.string(), v.regex(/^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/), v.maxLength(200)),
  title: optionalText,
  description: optionalText,
  version: optionalText,
  websiteUrl: optionalText,
  repository: v.optional(v.fallback(v.optional(v.object({ url: optionalText })), undefined)),
  packages: optionalItems(packageSchema),
  remotes: optionalItems(remoteSchema),
});

const OFFICIAL = "io.modelcontextprotocol.registry/official";
const entrySchema = v.object({
  server: detailSchema,
  _meta: v.optional(
    v.fallback(
      v.object({
        [OFFICIAL]: v.optional(v.object({ status: optionalText, isLatest: optionalBoolean })),
      }),
      {},
    ),
  ),
});

const pageSchema = v.object({
  // Some registries write null instead of an empty list.
  servers: v.nullable(validItems(entrySchema), []),
  metadata: v.optional(v.fallback(v.object({ nextCursor: optionalText }), {})),
});

type Detail = v.InferOutput<typeof detailSchema>;

/** A registry with the official API. */
export function officialRegistry(client: RegistryClient): Registry {
  return {
    name: client.name,
    search: (words, limit, signal) => search(client, words, limit, signal),
    find: (name, signal) => find(client, name, signal),
  };
}

/**
 * Searches the registry. The API searches names for a single substring, so the longest word is sent, and the results
 * are filtered by all words.
 */
async function search(
  client: RegistryClient,
  words: readonly string[],
  limit: number,
  signal: AbortSignal,
): Promise<readonly RegistryEntry[]> {
  const [longest = ""] = words.toSorted((a, b) => b.length - a.length);
  const found = new Map<string, RegistryEntry>();
  const cursors = new Set<string>();
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES && found.size < limit; page++) {
    const query = {
      search: longest,
      version: "latest",
      limit: String(PAGE_SIZE),
      ...(cursor !== undefined && { cursor }),
    };
    const answer = await fetchAnyVersion(client, "/servers", query, signal);
    const parsed = v.safeParse(pageSchema, answer);
    if (!parsed.success) throw unexpectedAnswer(client);
    for (const { server, _meta } of parsed.output.servers) {
      const { status, isLatest } = _meta?.[OFFICIAL] ?? {};
      const isSkipped = status === "deleted" || (isLatest === false && found.has(server.name));
      if (!isSkipped && matchesWords(server, words))
        found.set(server.name, toRegistryEntry(client.name, server));
    }
    cursor = parsed.output.metadata?.nextCursor;
    if (cursor === undefined || cursor === "" || cursors.has(cursor)) break;
    cursors.add(cursor);
  }
  return [...found.values()].slice(0, limit);
}

async function find(
  client: RegistryClient,
  name: string,
  signal: AbortSignal,
): Promise<RegistryEntry | undefined> {
  const path = `/servers/${encodeURIComponent(name)}/versions/latest`;
  const parsed = v.safeParse(entrySchema, await fetchAnyVersion(client, path, {}, signal));
  const isMatch = parsed.success && parsed.output.server.name === name;
  return isMatch ? toRegistryEntry(client.name, parsed.output.server) : undefined;
}

/** Falls back to an older version of the API on 404. */
async function fetchAnyVersion(
  client: RegistryClient,
  path: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<unknown> {
  for (const version of VERSIONS) {
    const answer = await fetchJson(client, version + path, query, signal);
    if (answer !== undefined) return answer;
  }
  return undefined;
}

function matchesWords(
  { name, title = "", description = "" }: Detail,
  words: readonly string[],
): boolean {
  const all = `${name} ${title} ${description}`.toLowerCase();
  return words.every((word) => all.includes(word.toLowerCase()));
}

function toRegistryEntry(directory: string, detail: Detail): RegistryEntry {
  const packages = detail.packages.map(toPackageOption);
  const remotes = detail.remotes.map(toRemoteOption);
  const options = [...packages, ...remotes];
  return {
    directory,
    name: detail.name,
    title: detail.title,
    description: detail.description,
    version: detail.version,
    repository: detail.repository?.url,
    homepage: detail.websiteUrl,
    options: options.filter((option) => typeof option !== "string"),
    omissions: options.filter((option) => typeof option === "string"),
  };
}

const ORIGINS: ReadonlyMap<string, "npm" | "pypi" | "docker"> = new Map([
  ["npm", "npm"],
  ["pypi", "pypi"],
  ["oci", "docker"],
]);
/**
 * For each kind of package, a part of the host name of its default registry. Packages in other registries are not
 * supported, because the same name may mean another package there.
 */
const REGISTRY_HOSTS = { npm: "npmjs", pypi: "pypi", docker: "" } as const;

/** Converts a listed package. @returns a string if toolmux cannot run the package: a sentence with the reason */
function toPackageOption(listed: v.InferOutput<typeof packageSchema>): ServerOption | string {
  const { registryType, identifier, version, registryBaseUrl = "" } = listed;
  const subject = `The package ${identifier} (${registryType})`;
  const origin = ORIGINS.get(registryType);
  if (origin === undefined) return `${subject} is of a kind that toolmux does not run.`;
  if (listed.transport.type !== "stdio") return `${subject} serves over HTTP: start it yourself.`;
  if (registryBaseUrl !== "" && !registryBaseUrl.includes(REGISTRY_HOSTS[origin])) {
    return `${subject} comes from ${registryBaseUrl}, a registry that its runners do not use.`;
  }
  const parsed = parsePackage(formatListedPackage(origin, identifier, version));
  if (parsed === undefined) return `${subject} has an invalid name or version.`;
  // Arguments of the runner itself could weaken a container's isolation, so they are left to the user.
  const hasRunnerArguments = listed.runtimeArguments.some(({ value }) => value !== "-y");
  if (hasRunnerArguments)
    return `${subject} needs arguments for its runner: see its own documentation.`;
  return {
    kind: "package",
    name: formatPackage(parsed),
    args: listed.packageArguments.map(({ name = "", valueHint, ...rest }) =>
      toInput({ ...rest, name, description: rest.description ?? valueHint }),
    ),
    env: listed.environmentVariables.map(toInput),
  };
}

function formatListedPackage(
  origin: string,
  identifier: string,
  version: string | undefined,
): string {
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

function toRemoteOption({
  type,
  url,
  headers,
  variables: listedVariables,
}: v.InferOutput<typeof remoteSchema>): ServerOption | string {
  const transport = TRANSPORTS.get(type);
  if (transport === undefined) return `${url} is of a kind (${type}) that toolmux does not speak.`;
  if (!/^https:\/\/[^/@\s]+(?:\/\S*)?$/.test(url))
    return `${url} is no URL that begins with https://.`;
  return {
    kind: "remote",
    url,
    transport,
    headers: headers.map(toInput),
    variables: toInputs(listedVariables),
  };
}

interface ListedInput {
  readonly name: string;
  readonly description?: string | undefined;
  readonly isRequired?: boolean | undefined;
  readonly isSecret?: boolean | undefined;
  readonly value?: string | undefined;
  readonly default?: string | undefined;
  readonly variables?: Readonly<Record<string, Omit<ListedInput, "name" | "variables">>>;
}

function toInput(listed: ListedInput): RegistryInput {
  return {
    name: listed.name,
    description: listed.description,
    isRequired: listed.isRequired === true,
    isSecret: listed.isSecret === true,
    value: listed.value,
    fallback: listed.default,
    variables: toInputs(listed.variables ?? {}),
  };
}

function toInputs(
  listed: NonNullable<ListedInput["variables"]>,
): ReadonlyMap<string, RegistryInput> {
  return new Map(Object.entries(listed).map(([name, one]) => [name, toInput({ ...one, name })]));
}
