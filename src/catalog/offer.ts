import { type Item, type Kind, KINDS, sameItems } from "./item.ts";
import { joinSkills } from "./skills.ts";

/** Everything that a server lists. */
export type Listings = Readonly<Record<Kind, readonly Item[]>>;

/** What a server offers, in its own words. */
export interface Offer extends Listings {
  /** What it wants models to know; undefined if it says nothing. */
  readonly instructions: string | undefined;
  /** For how long its lists hold, as far as it says so; undefined of one of the legacy era, which has no word for it. */
  readonly hints?: Hints | undefined;
  /** The `_meta` of its lists, as JSON. */
  readonly metas?: Metas | undefined;
  /** What it declares beside its lists; undefined: not known. */
  readonly declared?: Declared | undefined;
}

export type Metas = Readonly<Partial<Record<Kind, string>>>;

/** Capabilities by name, each with its settings. */
export type Settings = Readonly<Record<string, object>>;

/** What a server declares beside its lists (lifecycle, capability negotiation). */
export interface Declared {
  /** `resources.subscribe` */
  readonly canSubscribe: boolean;
  /** The era in whose form it makes tasks of calls; undefined: it makes none. */
  readonly tasks?: "legacy" | "modern" | undefined;
  readonly extensions: Settings;
  readonly experimental: Settings;
}

/** The same of all servers of a client together. */
export interface Offered {
  readonly canSubscribe: boolean;
  readonly tasks: Readonly<Record<"legacy" | "modern", boolean>>;
  /** Of a name that several servers have the settings are those of the first of them. */
  readonly extensions: Settings;
  readonly experimental: Settings;
}

/** What clients are told if nothing is known of the servers. */
export const UNKNOWN_OFFERED: Offered = {
  canSubscribe: true,
  tasks: { legacy: true, modern: true },
  extensions: {},
  experimental: {},
};

/** For how long, in ms, and for whom what a server says holds (caching). */
export interface CacheHint {
  readonly ttlMs: number;
  readonly cacheScope: "public" | "private";
}

export type Hints = Readonly<Partial<Record<Kind, CacheHint>>>;

/** Nothing tells for how long something stays as it is, nor who else would be shown the same. */
export const NO_CACHE: CacheHint = { ttlMs: 0, cacheScope: "private" };

export const NO_OFFER: Offer = {
  tools: [],
  prompts: [],
  resources: [],
  resourceTemplates: [],
  skills: [],
  instructions: undefined,
};

/** How people call an entry of a kind. */
export const NOUNS: Readonly<Record<Kind, string>> = {
  tools: "tool",
  prompts: "prompt",
  resources: "resource",
  resourceTemplates: "resource template",
  skills: "skill",
};

/** Whether two offers are the same, byte for byte and in the same order. */
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

/** The hint for a list of that kind that has all of these in it: none holds for longer than the shortest. */
export function joinHints(kind: Kind, offers: readonly Offer[]): CacheHint {
  let joined: CacheHint | undefined;
  for (const { hints, [kind]: items } of offers) {
    // A modern server that has no such list says nothing of it, and has nothing in it.
    if (hints !== undefined && hints[kind] === undefined && items.length === 0) continue;
    const { ttlMs, cacheScope } = hints?.[kind] ?? NO_CACHE;
    joined = {
      ttlMs: Math.min(ttlMs, joined?.ttlMs ?? ttlMs),
      cacheScope: joined?.cacheScope === "private" ? "private" : cacheScope,
    };
  }
  return joined ?? NO_CACHE;
}

/** The `_meta` of a list of that kind that has all of these in it, as JSON: that of the one server which has one. */
export function joinMetas(kind: Kind, offers: readonly Offer[]): string | undefined {
  const [only, ...others] = offers.flatMap(({ metas }) => metas?.[kind] ?? []);
  return others.length === 0 ? only : undefined;
}

/**
 * What servers declare, together. A server of which it is not known may declare anything: what clients cannot be told later
 * is then said to be there.
 * @param offers in the order of the manifest; @param isWhole whether there is no other server
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

/** What servers want models to know, each under its name; undefined if they say nothing. */
export function joinInstructions(
  sources: readonly { readonly server: string; readonly offer: Pick<Offer, "instructions"> }[],
): string | undefined {
  const texts = sources.flatMap(({ server, offer }) => {
    const text = offer.instructions?.trim().toWellFormed();
    return text === undefined || text === "" ? [] : [`# ${server}\n\n${text}`];
  });
  return texts.length === 0 ? undefined : texts.join("\n\n");
}
