import type { Kind } from "../catalog/listing.ts";
import type { CacheHints, ItemsByKind, ServerListing } from "../catalog/offer.ts";
import { toHubError } from "../base/errors.ts";
import type { Session } from "./session.ts";

/** What a server lists and declares. A missing kind could not be listed, so that what was known of it stays. */
export type Harvest = Partial<ServerListing>;

const OPTIONAL = ["prompts", "resources", "resourceTemplates", "skills"] as const;

export interface HarvestParts {
  readonly session: Pick<Session, "list" | "met" | "era" | "hints" | "metas">;
  readonly signal: AbortSignal;
  /** Aborts the listing of all kinds but tools. */
  readonly late: AbortSignal;
  /** Reports a kind other than tools that could not be listed. */
  warn(text: string): void;
}

/** Lists all kinds of a server. @throws {HubError} if its tools cannot be listed */
export async function harvest(parts: HarvestParts): Promise<Harvest> {
  const { session, signal } = parts;
  const late = AbortSignal.any([signal, parts.late]);
  const list = async (kind: Kind): Promise<Partial<ItemsByKind> | Error> =>
    session.list(kind, late).then((items) => ({ [kind]: items }), toHubError);
  // All kinds are listed concurrently.
  const rest = Promise.all(OPTIONAL.map(list));
  const tools = await session.list("tools", signal);
  const found: Harvest[] = [];
  for (const one of await rest) {
    if (one instanceof Error) parts.warn(one.message);
    else found.push(one);
  }
  const { instructions, declared } = session.met ?? {};
  const own = { tools, instructions, declared, ...readNotes(session) };
  return Object.assign(own, ...found) as Harvest;
}

/** The cache hints and `_meta` of its lists. */
export function readNotes(
  session: Pick<Session, "era" | "hints" | "metas">,
): Pick<ServerListing, "hints" | "metas"> {
  const { metas } = session;
  return {
    hints: readHints(session),
    metas: metas.size === 0 ? undefined : Object.fromEntries(metas),
  };
}

/** The cache hints of its lists (caching); undefined for a legacy server. */
function readHints({ era, hints }: Pick<Session, "era" | "hints">): CacheHints | undefined {
  return era === "modern" ? Object.fromEntries(hints) : undefined;
}
