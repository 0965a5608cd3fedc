import type { Filter } from "../manifest/filter.ts";
import { compilePattern } from "../manifest/pattern.ts";
import type { Kind } from "./listing.ts";
import { matchesGlob } from "./names.ts";

/** An entry of a catalog, to which a filter is applied. */
export interface FilterItem {
  /** The name of the entry's server in the manifest. */
  readonly server: string;
  /** The name or URI of the entry at its server. */
  readonly remoteName: string;
  /** The name that clients see (exposed). */
  readonly name: string;
  /** The name in the catalog of all servers; set if `name` is meant for a client that sees only one server. */
  readonly fullCatalogName?: string | undefined;
  /** Whether a tool's annotations say that it changes nothing; always true for entries that are not tools. */
  readonly isReadOnly: boolean;
}

export type Matcher = (item: FilterItem) => boolean;

/**
 * Maximum length of a name that a pattern can match, in UTF-16 units: servers choose the names, and the running time
 * of a regular expression may grow fast with their length.
 */
const MAX_PATTERN_NAME = 128;

/** Makes the function that says whether a filter matches an item. Its running time hardly depends on the item. */
export function compileFilter(filter: Filter): Matcher {
  if (filter === "all") return () => true;
  if ("servers" in filter) return compileServers(filter.servers);
  if ("tools" in filter) {
    const matches = compileGlobs(filter.tools);
    return ({ remoteName }) => matches(remoteName);
  }
  if ("ids" in filter) {
    return compileIds(filter.ids);
  }
  if ("names" in filter) {
    const names = new Set(filter.names);
    // `fullCatalogName` is compared, because names have no prefix if a client uses one server alone: by doing so, the
    // client could otherwise bypass the filter.
    return ({ name, fullCatalogName = name }) => names.has(fullCatalogName);
  }
  if ("pattern" in filter) {
    const pattern = compilePattern(filter.pattern);
    return ({ remoteName }) => remoteName.length <= MAX_PATTERN_NAME && pattern.test(remoteName);
  }
  if ("readOnly" in filter) return ({ isReadOnly }) => isReadOnly;
  if ("not" in filter) {
    const matches = compileFilter(filter.not);
    return (item) => !matches(item);
  }
  if ("and" in filter) {
    return everyOf(filter.and.map(compileFilter));
  }
  const all = filter.or.map(compileFilter);
  return (item) => {
    for (const matches of all) if (matches(item)) return true;
    return false;
  };
}

function everyOf(all: readonly Matcher[]): Matcher {
  return (item) => {
    for (const matches of all) if (!matches(item)) return false;
    return true;
  };
}

/** Matches tools by their ids, `server.tool`. Both names may contain dots, so an id can stand for several tools. */
function compileIds(list: readonly string[]): Matcher {
  const ids = new Set(list);
  // The tool's name is looked up first: this excludes most tools, and no id has to be made for them.
  const names = new Set(
    list.flatMap((id) => {
      const parts = id.split(".");
      return parts.slice(1).map((_, i) => parts.slice(i + 1).join("."));
    }),
  );
  return ({ server, remoteName }) => names.has(remoteName) && ids.has(`${server}.${remoteName}`);
}

/** Matches items by their servers. The result for each server is cached, as there are few servers and many tools. */
function compileServers(globs: readonly string[]): (item: Pick<FilterItem, "server">) => boolean {
  const matches = compileGlobs(globs);
  const known = new Map<string, boolean>();
  return ({ server }) => {
    let isMatch = known.get(server);
    if (isMatch === undefined) known.set(server, (isMatch = matches(server)));
    return isMatch;
  };
}

/**
 * Makes the function that says whether one of several globs matches a name. Globs without wildcards, or with stars
 * only at the ends, are fast.
 */
export function compileGlobs(globs: readonly string[]): (name: string) => boolean {
  const names = new Set(globs.filter((glob) => !/[*?]/.test(glob)));
  const others = globs.filter((glob) => !names.has(glob)).map(compileGlob);
  return (name) => {
    if (names.has(name)) return true;
    for (const matches of others) if (matches(name)) return true;
    return false;
  };
}

function compileGlob(glob: string): (name: string) => boolean {
  const text = glob.replaceAll("*", "");
  if (text === "" && glob !== "") return () => true;
  const isPlain = !text.includes("?") && !text.includes("*");
  if (isPlain && glob === `${text}*`) return (name) => name.startsWith(text);
  if (isPlain && glob === `*${text}`) return (name) => name.endsWith(text);
  if (isPlain && glob === `*${text}*`) return (name) => name.includes(text);
  // Without surrogates, each character is one UTF-16 unit, and the texts need not be split into characters.
  const isPlainText = !SURROGATE.test(glob);
  return (name) =>
    isPlainText && name.length <= MAX_UNITS && !SURROGATE.test(name)
      ? matchesUnits(glob, name)
      : matchesGlob(glob, name);
}

/** Maximum length of a name that is compared unit by unit, in UTF-16 units. */
const MAX_UNITS = 256;
const SURROGATE = /[\uD800-\uDFFF]/;

/** The same as `matchesGlob`, for texts without surrogates. */
function matchesUnits(glob: string, name: string): boolean {
  let at = 0;
  let star = -1;
  let end = 0;
  for (let i = 0; i < name.length;) {
    const expected = glob.charCodeAt(at);
    if (expected === STAR) {
      star = at++;
      end = i;
    } else if (expected === QUESTION_MARK || expected === name.charCodeAt(i)) {
      at++;
      i++;
    } else if (star >= 0) {
      at = star + 1;
      i = ++end;
    } else return false;
  }
  while (glob.charCodeAt(at) === STAR) at++;
  return at === glob.length;
}

const STAR = "*".charCodeAt(0);
const QUESTION_MARK = "?".charCodeAt(0);

/** The part of a filter that limits the servers; undefined if the filter does not limit them. */
export function serverPartOf(filter: Filter): Filter | undefined {
  if (filter === "all") return undefined;
  if ("servers" in filter) return filter;
  if ("and" in filter) {
    const parts = filter.and.flatMap((part) => serverPartOf(part) ?? []);
    return parts.length === 0 ? undefined : { and: parts };
  }
  if ("or" in filter) {
    const parts = filter.or.map(serverPartOf);
    const known = parts.flatMap((part) => part ?? []);
    return known.length === 0 || known.length < parts.length ? undefined : { or: known };
  }
  return "not" in filter && dependsOnServer(filter.not) ? filter : undefined;
}

/** Whether a filter depends on the server alone: it matches either all items of a server or none. */
function dependsOnServer(filter: Filter): boolean {
  if (filter === "all" || "servers" in filter) return true;
  if ("not" in filter) return dependsOnServer(filter.not);
  if ("and" in filter) return filter.and.every(dependsOnServer);
  return "or" in filter && filter.or.every(dependsOnServer);
}

/** What a filter takes of one server, as far as the server's name tells. */
interface ServerShare {
  /** Whether the filter can take an item of the server. */
  readonly some: boolean;
  /** Whether the filter takes every item of the server. */
  readonly all: boolean;
}

/** Whether a filter can take tools of a server whose tools are not known. */
export function mayMatchServer(filter: Filter, server: string): boolean {
  return serverShareOf(filter, server).some;
}

/** Determines what a filter takes of a server whose items are not known. */
function serverShareOf(filter: Filter, server: string): ServerShare {
  const unknown = { some: true, all: false };
  if (filter === "all") return { some: true, all: true };
  if ("servers" in filter) {
    const isTaken = compileGlobs(filter.servers)(server);
    return { some: isTaken, all: isTaken };
  }
  if ("ids" in filter)
    return { some: filter.ids.some((id) => id.startsWith(`${server}.`)), all: false };
  if ("not" in filter) {
    const { some, all } = serverShareOf(filter.not, server);
    return { some: !all, all: !some };
  }
  const isAnd = "and" in filter;
  if (!isAnd && !("or" in filter)) return unknown;
  const shares = (isAnd ? filter.and : filter.or).map((part) => serverShareOf(part, server));
  return {
    some: isAnd ? shares.every(({ some }) => some) : shares.some(({ some }) => some),
    all: isAnd ? shares.every(({ all }) => all) : shares.some(({ all }) => all),
  };
}

/** The filters of a catalog by kind: `resources` is for resource templates and skills, too. */
export interface CatalogFilter extends Readonly<
  Record<"tools" | "prompts" | "resources", Matcher>
> {
  /** Whether the filters can take an item of a server whose items are not known. */
  mayTakeFrom(server: string): boolean;
}

/** The filters of a mode. Prompts and resources without a filter are limited to the servers that `tools` allows. */
export function compileMode({
  tools,
  prompts = serverPartOf(tools) ?? "all",
  resources = serverPartOf(tools) ?? "all",
}: {
  readonly tools: Filter;
  readonly prompts?: Filter | undefined;
  readonly resources?: Filter | undefined;
}): CatalogFilter {
  return {
    tools: compileFilter(tools),
    prompts: compileFilter(prompts),
    resources: compileFilter(resources),
    mayTakeFrom: (server) =>
      [tools, prompts, resources].some((filter) => mayMatchServer(filter, server)),
  };
}

/** A filter that shows an item only if all of these filters show it. */
export function allOf(filters: readonly CatalogFilter[]): CatalogFilter {
  const [first, ...others] = filters;
  if (first !== undefined && others.length === 0) return first;
  const conjunction = (part: "tools" | "prompts" | "resources"): Matcher => {
    return everyOf(filters.map((filter) => filter[part]));
  };
  return {
    tools: conjunction("tools"),
    prompts: conjunction("prompts"),
    resources: conjunction("resources"),
    mayTakeFrom: (server) => filters.every((filter) => filter.mayTakeFrom(server)),
  };
}

/** The part of a filter that is about entries of this kind. */
export function matcherOf(filter: CatalogFilter, kind: Kind): Matcher {
  return filter[kind === "tools" || kind === "prompts" ? kind : "resources"];
}

/** The paths of a filter's parts that match nothing, such as `and[0].servers[1]`. */
export function idlePartsOf(filter: Filter, items: readonly FilterItem[]): readonly string[] {
  const isIdle = (part: Filter): boolean => !items.some(compileFilter(part));
  const idleIn = (
    key: "servers" | "tools" | "ids" | "names",
    words: readonly string[],
  ): readonly string[] =>
    words.flatMap((word, i) =>
      isIdle({ [key]: [word] } as unknown as Filter) ? [`${key}[${i}]`] : [],
    );
  const within = (path: string, part: Filter): readonly string[] =>
    idlePartsOf(part, items).map((inner) => `${path}.${inner}`);
  if (filter === "all") return [];
  if ("servers" in filter) return idleIn("servers", filter.servers);
  if ("tools" in filter) return idleIn("tools", filter.tools);
  if ("ids" in filter) return idleIn("ids", filter.ids);
  if ("names" in filter) return idleIn("names", filter.names);
  if ("pattern" in filter) return isIdle(filter) ? ["pattern"] : [];
  if ("readOnly" in filter) return isIdle(filter) ? ["readOnly"] : [];
  if ("not" in filter) return within("not", filter.not);
  if ("and" in filter) return filter.and.flatMap((part, i) => within(`and[${i}]`, part));
  return filter.or.flatMap((part, i) => within(`or[${i}]`, part));
}
