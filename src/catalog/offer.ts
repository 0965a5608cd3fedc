import { type ListedItem, type Kind, KINDS, sameItems } from "./listing.ts";
import { mergeSkillsCapability } from "./skills.ts";

/** Everything that a server lists, by kind. */
export type ItemsByKind = Readonly<Record<Kind, readonly ListedItem[]>>;

/** What a server offers: its lists, instructions and capabilities. */
export interface ServerListing extends ItemsByKind {
  /** The server's `instructions`. */
  readonly instructions: string | undefined;
  /** The cache hints of its lists; undefined for a legacy server, whose protocol has none. */
  readonly hints?: CacheHints | undefined;
  /** The `_meta` of its list results, as JSON. */
  readonly metas?: ListMetas | undefined;
  /** The capabilities it declares beside its lists; undefined: not known. */
  readonly declared?: ServerCapabilities | undefined;
}

export type ListMetas = Readonly<Partial<Record<Kind, string>>>;

/** Capabilities by name, each with its settings. */
export type CapabilitySettings = Readonly<Record<string, object>>;

/** What a server declares beside its lists (lifecycle, capability negotiation). */
export interface ServerCapabilities {
  /** `resources.subscribe` */
  readonly canSubscribe: boolean;
  /** The era in whose form it runs calls as tasks; undefined: no tasks. */
  readonly tasks?: "legacy" | "modern" | undefined;
  readonly extensions: CapabilitySettings;
  readonly experimental: CapabilitySettings;
}

/** The combined capabilities of all servers that a client sees. */
export interface CombinedCapabilities {
  readonly canSubscribe: boolean;
  readonly tasks: Readonly<Record<"legacy" | "modern", boolean>>;
  /** If several servers declare one name, the settings of the first apply. */
  readonly extensions: CapabilitySettings;
  readonly experimental: CapabilitySettings;
}

/** What clients are told while nothing is known of the servers. */
export const UNKNOWN_CAPABILITIES: CombinedCapabilities = {
  canSubscribe: true,
  tasks: { legacy: true, modern: true },
  extensions: {},
  experimental: {},
};

/** How long (ms) and for whom a result may be cached (caching). */
export interface CacheHint {
  readonly ttlMs: number;
  readonly cacheScope: "public" | "private";
}

export type CacheHints = Readonly<Partial<Record<Kind, CacheHint>>>;

/** The result must not be cached. */
export const NO_CACHING: CacheHint = { ttlMs: 0, cacheScope: "private" };

export const EMPTY_LISTING: ServerListing = {
  tools: [],
  prompts: [],
  resources: [],
  resourceTemplates: [],
  skills: [],
  instructions: undefined,
};

/** The singular noun for an entry of each kind. */
export const KIND_NOUNS: Readonly<Record<Kind, string>> = {
  tools: "tool",
  prompts: "prompt",
  resources: "resource",
  resourceTemplates: "resource template",
  skills: "skill",
};

/** Whether two listings are the same, byte for byte and in the same order. */
export function sameListings(a: ServerListing, b: ServerListing): boolean {
  return (
    a.instructions === b.instructions &&
    sameCacheHints(a.hints, b.hints) &&
    JSON.stringify(a.metas) === JSON.stringify(b.metas) &&
    JSON.stringify(a.declared) === JSON.stringify(b.declared) &&
    KINDS.every((kind) => sameItems(a[kind], b[kind]))
  );
}

function sameCacheHints(a: CacheHints | undefined, b: CacheHints | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return KINDS.every((kind) => {
    const [own, other] = [a[kind], b[kind]];
    return own?.ttlMs === other?.ttlMs && own?.cacheScope === other?.cacheScope;
  });
}

/** The cache hint of a combined list: the shortest TTL and the narrowest scope. */
export function mergeCacheHints(kind: Kind, listings: readonly ServerListing[]): CacheHint {
  let merged: CacheHint | undefined;
  for (const { hints, [kind]: items } of listings) {
    // A modern server without such a list gives no hint for it and contributes no entries.
    if (hints !== undefined && hints[kind] === undefined && items.length === 0) continue;
    const { ttlMs, cacheScope } = hints?.[kind] ?? NO_CACHING;
    merged = {
      ttlMs: Math.min(ttlMs, merged?.ttlMs ?? ttlMs),
      cacheScope: merged?.cacheScope === "private" ? "private" : cacheScope,
    };
  }
  return merged ?? NO_CACHING;
}

/** The `_meta` of a combined list, as JSON: that of the only server that has one, else undefined. */
export function mergeListMetas(kind: Kind, listings: readonly ServerListing[]): string | undefined {
  const [only, ...others] = listings.flatMap(({ metas }) => metas?.[kind] ?? []);
  return others.length === 0 ? only : undefined;
}

/**
 * Combines what servers declare. A server whose capabilities are not known may declare anything, so capabilities that
 * clients cannot be told later are announced while one is unknown.
 * @param listings in the order of the manifest
 * @param isComplete whether these are all servers, with known listings
 */
export function mergeCapabilities(
  listings: readonly ServerListing[],
  isComplete: boolean,
): CombinedCapabilities {
  const all = listings.flatMap(({ declared }) => declared ?? []);
  const isKnown = isComplete && all.length === listings.length;
  const supportsTasks = (era: "legacy" | "modern"): boolean =>
    !isKnown || all.some(({ tasks }) => tasks === era);
  const mergeSettings = (key: "extensions" | "experimental"): CapabilitySettings =>
    Object.fromEntries(all.flatMap((declared) => Object.entries(declared[key])).toReversed());
  return {
    canSubscribe: !isKnown || all.some(({ canSubscribe }) => canSubscribe),
    tasks: { legacy: supportsTasks("legacy"), modern: supportsTasks("modern") },
    extensions: {
      ...mergeSettings("extensions"),
      ...mergeSkillsCapability(all.map((each) => each.extensions)),
    },
    experimental: mergeSettings("experimental"),
  };
}

/** Combines the servers' instructions, each under its server's name; undefined if there are none. */
export function mergeInstructions(
  sources: readonly {
    readonly server: string;
    readonly listing: Pick<ServerListing, "instructions">;
  }[],
): string | undefined {
  const texts = sources.flatMap(({ server, listing }) => {
    const text = listing.instructions?.trim().toWellFormed();
    return text === undefined || text === "" ? [] : [`# ${server}\n\n${text}`];
  });
  return texts.length === 0 ? undefined : texts.join("\n\n");
}
