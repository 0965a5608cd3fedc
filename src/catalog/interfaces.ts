import { type Edit, utf8 } from "../bytes.ts";
import { lastMember, type Member, scanObject, stringOf } from "../json.ts";
import type { Item } from "./item.ts";

/** Where a tool names the resource that is its user interface (Apps: `_meta.ui.resourceUri`, or how drafts of it had it). */
export function interfacesOf({ bytes, meta }: Item): readonly Member[] {
  if (meta === undefined) return [];
  const members = scanObject(bytes, meta.start)?.items ?? [];
  const ui = lastMember(members, "ui");
  const nested = (ui && scanObject(bytes, ui.start)?.items) ?? [];
  return [
    ...members.filter(({ key }) => key === "ui/resourceUri"),
    ...nested.filter(({ key }) => key === "resourceUri"),
  ];
}

/** What has to be replaced in a tool so that its user interface is that of its own server, although that has another name. */
export function interfaceEdits(item: Item, names: ReadonlyMap<string, string>): readonly Edit[] {
  if (names.size === 0) return [];
  return interfacesOf(item).flatMap(({ start, end }) => {
    const name = names.get(stringOf(item.bytes, { start, end }) ?? "");
    return name === undefined ? [] : [{ start, end, by: utf8(JSON.stringify(name)) }];
  });
}
