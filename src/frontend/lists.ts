import type { Catalog } from "../catalog/catalog.ts";
import type { Kind } from "../catalog/item.ts";
import type { Section } from "../catalog/section.ts";
import { readAfter } from "../protocol/cursor.ts";
import { LIST_CHANGED } from "../protocol/legacy.ts";
import { buildNotification, buildResult, type Message, type Request } from "../wire/jsonrpc.ts";
import { legacyEdition } from "./edition.ts";

/** The lists that one client is given, and whether they are still those that there are. */
export class Lists {
  /** What the client was last given or told about. */
  readonly #known = new Map<Kind, Section>();

  /**
   * Reads a list request. @returns what makes the answer to it.
   * @throws {HubError} invalidParams
   */
  read(kind: Kind, request: Request): (catalog: Catalog) => Message {
    const { id } = request;
    const after = readAfter(kind, request);
    if (after !== undefined) {
      return (catalog) => buildResult(id, legacyEdition(catalog[kind]).page(after));
    }
    return (catalog) => {
      this.#known.set(kind, catalog[kind]);
      return buildResult(id, legacyEdition(catalog[kind]).result);
    };
  }

  /** What to tell the client if the lists that it has are not those of this catalog. */
  compare(catalog: Catalog): readonly Message[] {
    const methods = new Set<string>();
    for (const [kind, section] of this.#known) {
      // One that is the same takes its place, so that clients who have the same have one and the same.
      this.#known.set(kind, catalog[kind]);
      if (!section.isSame(catalog[kind])) methods.add(LIST_CHANGED[kind]);
    }
    return [...methods].map((method) => buildNotification(method));
  }
}
