import type { Kind } from "../catalog/listing.ts";
import type { CacheHints, ItemsByKind, ServerListing } from "../catalog/offer.ts";
import { toHubError } from "../base/errors.ts";
import type { Session } from "./session.ts";

/** What a server lists and declares. A missing kind could not be listed, so that what was known of it stays. */
export type PartialListing = Partial<ServerListing>;

const OPTIONAL_KINDS = ["prompts", "resources", "resourceTemplates", "skills"] as const;

export interface ListOptions {
  readonly session: Pick<Session, "list" | "met" | "era" | "hints" | "metas">;
  readonly signal: AbortSignal;
  /** Aborts the listing of all kinds but tools. */
  readonly optionalSignal: AbortSignal;
  /** Reports a kind other than tools that could not be listed. */
  warn(text: string): void;
}

/** Lists all kinds of a server. @throws {HubError} if its tools cannot be listed */
export async function listServer(options: ListOptions): Promise<PartialListing> {
  const { session, signal } = options;
  const optionalSignal = AbortSignal.any([signal, options.optionalSignal]);
  const list = async (kind: Kind): Promise<Partial<ItemsByKind> | Error> =>
    session.list(kind, optionalSignal).then((items) => ({ [kind]: items }), toHubError);
  // All kinds are listed concurrently.
  const optionalLists = Promise.all(OPTIONAL_KINDS.map(list));
  const tools = await session.list("tools", signal);
  const listings: PartialListing[] = [];
  for (const result of await optionalLists) {
    if (result instanceof Error) options.warn(result.message);
    else listings.push(result);
  }
  const { instructions, declared } = session.met ?? {};
  const base = { tools, instructions, declared, ...readListMetadata(session) };
  return Object.assign(base, ...listings) as PartialListing;
}

/** The cache hints and `_meta` of its lists. */
export function readListMetadata(
  session: Pick<Session, "era" | "hints" | "metas">,
): Pick<ServerListing, "hints" | "metas"> {
  const { metas } = session;
  return {
    hints: readCacheHints(session),
    metas: metas.size === 0 ? undefined : Object.fromEntries(metas),
  };
}

/** The cache hints of its lists (caching); undefined for a legacy server. */
function readCacheHints({ era, hints }: Pick<Session, "era" | "hints">): CacheHints | undefined {
  return era === "modern" ? Object.fromEntries(hints) : undefined;
}
