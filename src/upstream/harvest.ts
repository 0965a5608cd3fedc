import type { Kind } from "../catalog/item.ts";
import type { Hints, Listings, Offer } from "../catalog/offer.ts";
import { toHubError } from "../errors.ts";
import type { Session } from "./session.ts";

/** What a server was found to offer: all but what it was not asked for, or could not list. */
export type Harvest = Partial<Offer>;

const OPTIONAL = ["prompts", "resources", "resourceTemplates", "skills"] as const;

export interface HarvestParts {
  readonly session: Pick<Session, "list" | "met" | "era" | "hints" | "metas">;
  readonly signal: AbortSignal;
  /** When only the tools are still waited for. */
  readonly late: AbortSignal;
  /** A kind that is not tools could not be listed: that costs the server nothing but this kind. */
  warn(text: string): void;
}

/** Asks a server for everything that it offers. @throws {HubError} if it does not list its tools */
export async function harvest(parts: HarvestParts): Promise<Harvest> {
  const { session, signal } = parts;
  const late = AbortSignal.any([signal, parts.late]);
  const list = async (kind: Kind): Promise<Partial<Listings> | Error> =>
    session.list(kind, late).then((items) => ({ [kind]: items }), toHubError);
  // Asked for together: the answers are waited for one after the other anyway.
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

/** What it has said of its lists as wholes. */
export function readNotes(
  session: Pick<Session, "era" | "hints" | "metas">,
): Pick<Offer, "hints" | "metas"> {
  const { metas } = session;
  return {
    hints: readHints(session),
    metas: metas.size === 0 ? undefined : Object.fromEntries(metas),
  };
}

/** For how long what it has listed holds; undefined of a server of the legacy era. */
function readHints({ era, hints }: Pick<Session, "era" | "hints">): Hints | undefined {
  return era === "modern" ? Object.fromEntries(hints) : undefined;
}
