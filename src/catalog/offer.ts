import { type Item, type Kind, KINDS, sameItems } from "./listing.ts";
import { joinSkills } from "./skills.ts";

/** Everything that a server lists, by kind. */
export type Listings = Readonly<Record<Kind, readonly Item[]>>;

/** What a server offers: its lists, instructions and capabilities. */
export interface Offer extends Listings {
  /** The server's `instructions`. */
  readonly instructions: string | undefined;
  /** The cache hints of its lists; undefined for a legacy server, whose protocol has none. */
  readonly hints?: Hints | undefined;
  /** The `_meta` of its list results, as JSON. */
  readonly metas?: Metas | undefined;
  /** The capabilities it declares beside its lists; undefined: not known. */
  readonly declared?: Declared | undefined;
}

export type Metas = Readonly<Partial<Record<Kind, string>>>;

/** Capabilities by name, each with its settings. */
export type Settings = Readonly<Record<string, object>>;

/** What a server declares beside its lists (lifecycle, capability negotiation). */
export interface Declared {
  /** `resources.subscribe` */
  readonly canSubscribe: boolean;
  /** The era in whose form it runs calls as tasks; undefined: no tasks. */
  readonly tasks?: "legacy" | "modern" | undefined;
  readonly extensions: Settings;
  readonly experimental: Settings;
}

/** The combined capabilities of all servers that a client sees. */
export interface Offered {
  readonly canSubscribe: boolean;
  readonly tasks: Readonly<Record<"legacy" | "modern", boolean>>;
  /** If several servers declare one name, the settings of the first apply. */
  readonly extensions: Settings;
  readonly experimental: Settings;
}

/** What clients are told while nothing is known of the servers. */
export const UNKNOWN_OFFERED: Offered = {
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

export type Hints = Readonly<Partial<Record<Kind, CacheHint>>>;

/** The result must not be cached. */
export const NO_CACHE: CacheHint = { ttlMs: 0, cacheScope: "private" };

export const NO_OFFER: Offer = {
  tools: [],
  prompts: [],
  resources: [],
  resourceTemplates: [],
  skills: [],
  instructions: undefined,
};

/** The singular noun for an entry of each kind. */
export const NOUNS: Readonly<Record<Kind, string>> = {
  tools: "tool",
  prompts: "prompt",
  resources: "resource",
  resourceTemplates: "resource template",
  skills: "skill",
};

/** Whether two listings are the same, byte for byte and in the same order. */
export function sameOffers(a: Offer, b: Offer): boolean {
  return (
    a.instructions === b.instructions &&
    sameHints(a.hints, b.hints) &&
    JSON.stringify(a.metas) === JSON.stringify(b.metas) &&
    JSON.stringify(a.declared) === JSON.stringify(b.declared) &&
    KINDS.every((kind) => sameItems(a[kind], b[kind]))
  );
}

function sameHints(a: Hints | undefined, b: Hints | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return KINDS.every((kind) => {
    const [own, other] = [a[kind], b[kind]];
    return own?.ttlMs === other?.ttlMs && own?.cacheScope === other?.cacheScope;
  });
}

/** The cache hint of a combined list: the shortest TTL and the narrowest scope. */
export function joinHints(kind: Kind, offers: readonly Offer[]): CacheHint {
  let joined: CacheHint | undefined;
  for (const { hints, [kind]: items } of offers) {
    // A modern server without such a list gives no hint for it and contributes no entries.
    if (hints !== undefined && hints[kind] === undefined && items.length === 0) continue;
    const { ttlMs, cacheScope } = hints?.[kind] ?? NO_CACHE;
    joined = {
      ttlMs: Math.min(ttlMs, joined?.ttlMs ?? ttlMs),
      cacheScope: joined?.cacheScope === "private" ? "private" : cacheScope,
    };
  }
  return joined ?? NO_CACHE;
}

/** The `_meta` of a combined list, as JSON: that of the only server that has one, else undefined. */
export function joinMetas(kind: Kind, offers: readonly Offer[]): string | undefined {
  const [only, ...others] = offers.flatMap(({ metas }) => metas?.[kind] ?? []);
  return others.length === 0 ? only : undefined;
}

/**
 * Combines what servers declare. A server whose capabilities are not known may declare anything, so capabilities that
 * clients cannot be told later are announced while one is unknown.
 * @param listings in the order of the manifest
 * @param isComplete whether these are all servers, with known listings
 */
export function joinDeclared(offers: readonly Offer[], isWhole: boolean): Offered {
  const all = offers.flatMap(({ declared }) => declared ?? []);
  const isKnown = isWhole && all.length === offers.length;
  const makesTasks = (era: "legacy" | "modern"): boolean =>
    !isKnown || all.some(({ tasks }) => tasks === era);
  const join = (key: "extensions" | "experimental"): Settings =>
    Object.fromEntries(all.flatMap((declared) => Object.entries(declared[key])).toReversed());
  return {
    canSubscribe: !isKnown || all.some(({ canSubscribe }) => canSubscribe),
    tasks: { legacy: makesTasks("legacy"), modern: makesTasks("modern") },
    extensions: { ...join("extensions"), ...joinSkills(all.map((each) => each.extensions)) },
    experimental: join("experimental"),
  };
}

/** Combines the servers' instructions, each under its server's name; undefined if there are none. */
export function joinInstructions(
  sources: readonly { readonly server: string; readonly offer: Pick<Offer, "instructions"> }[],
): string | undefined {
  const texts = sources.flatMap(({ server, offer }) => {
    const text = offer.instructions?.trim().toWellFormed();
    return text === undefined || text === "" ? [] : [`# ${server}\n\n${text}`];
  });
  return texts.length === 0 ? undefined : texts.join("\n\n");
}
