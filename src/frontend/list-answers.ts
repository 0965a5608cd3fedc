import type { Catalog } from "../catalog/catalog.ts";
import type { Kind } from "../catalog/listing.ts";
import type { Section } from "../catalog/section.ts";
import { readCursorParam } from "../catalog/cursor.ts";
import { LIST_CHANGED } from "../protocol/legacy.ts";
import {
  buildNotification,
  buildResult,
  type EncodedMessage,
  type Request,
} from "../jsonrpc/message.ts";
import { legacySection } from "./edition.ts";

/** Answers the list requests of one legacy client, and knows which of its lists have changed since. */
export class ListAnswers {
  /** The section that the client was last given, or notified of. */
  readonly #lastSent = new Map<Kind, Section>();

  /**
   * Reads a list request.
   * @returns builds the answer from a catalog
   * @throws {HubError} invalidParams if the cursor is invalid
   */
  prepareAnswer(kind: Kind, request: Request): (catalog: Catalog) => EncodedMessage {
    const { id } = request;
    const after = readCursorParam(kind, request);
    if (after !== undefined) {
      return (catalog) => buildResult(id, legacySection(catalog[kind]).pageAfter(after));
    }
    return (catalog) => {
      this.#lastSent.set(kind, catalog[kind]);
      return buildResult(id, legacySection(catalog[kind]).result);
    };
  }

  /** The `list_changed` notifications due if the client's lists differ from this catalog. */
  compare(catalog: Catalog): readonly EncodedMessage[] {
    const methods = new Set<string>();
    for (const [kind, section] of this.#lastSent) {
      // An equal section replaces the older one, so that clients share one object.
      this.#lastSent.set(kind, catalog[kind]);
      if (!section.equals(catalog[kind])) methods.add(LIST_CHANGED[kind]);
    }
    return [...methods].map((method) => buildNotification(method));
  }
}
