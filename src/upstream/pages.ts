import { type Item, readPage } from "../catalog/item.ts";
import { Method } from "../protocol/legacy.ts";
import type { Response } from "../wire/jsonrpc.ts";

/** What servers list. */
export type Kind = "tools" | "prompts" | "resources";

const METHODS: Readonly<Record<Kind, string>> = {
  tools: Method.toolsList,
  prompts: Method.promptsList,
  resources: Method.resourcesList,
};

/** A listing with more pages, or more bytes in all of them, is one that never ends. */
const MAX_LISTING = { pages: 1000, bytes: 64 * 1024 * 1024 };

export interface PagesParts {
  readonly kind: Kind;
  /** Asks for one page. @throws what the session says */
  ask(method: string, params: object | undefined): Promise<Response>;
  /** What an answer that is an error, or not a list, is thrown as. */
  refuse(response: Response, isError: boolean): Error;
  /** The server did something wrong that can be lived with. */
  complain(text: string): void;
}

/** Everything of a kind that a server has, all pages; a listing that never ends is cut. */
export async function listAll(parts: PagesParts): Promise<readonly Item[]> {
  const { kind } = parts;
  const items: Item[] = [];
  const cursors = new Set<string>();
  let size = 0;
  let cursor: string | undefined;
  for (;;) {
    const params = cursor === undefined ? undefined : { cursor };
    const response = await parts.ask(METHODS[kind], params);
    if (response.outcome === "error") throw parts.refuse(response, true);
    const page = readPage(response.bytes, response.body, kind);
    if (page === undefined) throw parts.refuse(response, false);
    if (page.unnamed > 0) parts.complain(`${page.unnamed} ${kind} without a name were left out.`);
    for (const item of page.items) items.push(item);
    size += response.bytes.length;
    cursor = page.nextCursor;
    if (cursor === undefined) return items;
    const full = cursors.size === MAX_LISTING.pages || size > MAX_LISTING.bytes;
    if (full || cursors.has(cursor)) {
      parts.complain(`The list of ${kind} never ends; it was cut.`);
      return items;
    }
    cursors.add(cursor);
  }
}
