import { type Item, type Kind, KINDS, sameItems } from "./item.ts";

/** Everything that a server lists. */
export type Listings = Readonly<Record<Kind, readonly Item[]>>;

/** What a server offers, in its own words. */
export interface Offer extends Listings {
  /** What it wants models to know; undefined if it says nothing. */
  readonly instructions: string | undefined;
}

export const NO_OFFER: Offer = {
  tools: [],
  prompts: [],
  resources: [],
  resourceTemplates: [],
  instructions: undefined,
};

/** How people call an entry of a kind. */
export const NOUNS: Readonly<Record<Kind, string>> = {
  tools: "tool",
  prompts: "prompt",
  resources: "resource",
  resourceTemplates: "resource template",
};

/** Whether two offers are the same, byte for byte and in the same order. */
export function sameOffers(a: Offer, b: Offer): boolean {
  return a.instructions === b.instructions && KINDS.every((kind) => sameItems(a[kind], b[kind]));
}
