import { type Edit, utf8 } from "../base/bytes.ts";
import { lastMember, type JsonMember, scanObject, readString } from "../base/json.ts";
import type { ListedItem } from "./listing.ts";

/**
 * The members in which a tool names the resource of its user interface (MCP Apps: `_meta.ui.resourceUri`; in earlier
 * drafts `_meta["ui/resourceUri"]`).
 */
export function uiResourcesOf({ bytes, meta }: ListedItem): readonly JsonMember[] {
  if (meta === undefined) return [];
  const members = scanObject(bytes, meta.start)?.items ?? [];
  const ui = lastMember(members, "ui");
  const nested = (ui && scanObject(bytes, ui.start)?.items) ?? [];
  return [
    ...members.filter(({ key }) => key === "ui/resourceUri"),
    ...nested.filter(({ key }) => key === "resourceUri"),
  ];
}

/**
 * The edits that point a tool at its own server's user interface where that is exposed under another URI.
 * @param renamedUris exposed URIs by the server's own URIs
 */
export function uiResourceEdits(
  item: ListedItem,
  renamedUris: ReadonlyMap<string, string>,
): readonly Edit[] {
  if (renamedUris.size === 0) return [];
  return uiResourcesOf(item).flatMap(({ start, end }) => {
    const name = renamedUris.get(readString(item.bytes, { start, end }) ?? "");
    return name === undefined ? [] : [{ start, end, replacement: utf8(JSON.stringify(name)) }];
  });
}
