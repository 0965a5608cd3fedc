import type { Kind } from "../catalog/item.ts";
import type { Session } from "./session.ts";
import type { Inspection } from "./status.ts";

/** Asks a connected server, and the system, for what is not known without asking. Listing may take `limit` ms. */
export async function inspect(session: Session, limit: number): Promise<Inspection> {
  const signal = AbortSignal.timeout(limit);
  const count = async (kind: Kind): Promise<number | undefined> => {
    if (!session.offers(kind)) return undefined;
    // A list that cannot be had says nothing against the server.
    return session.list(kind, signal).then(
      ({ length }) => length,
      () => undefined,
    );
  };
  const [prompts, resources, vitals] = await Promise.all([
    count("prompts"),
    count("resources"),
    session.vitals(),
  ]);
  return { prompts, resources, pid: vitals?.pid, memory: vitals?.memory };
}
