import { Buffer } from "node:buffer";
import type { ListedRoute, Section } from "./section.ts";

/** The difference between two versions of a list, by exposed names. */
export interface SectionDiff {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Same name, other content or another owner. */
  readonly altered: readonly string[];
  /** Same name, now leading to an entry of another server or another remote name. */
  readonly moved: readonly { readonly from: ListedRoute; readonly to: ListedRoute }[];
}

/** Compares two sections of one kind; undefined if clients see no difference. */
export function diffSections(before: Section, after: Section): SectionDiff | undefined {
  const added: string[] = [];
  const altered: string[] = [];
  const moved: { from: ListedRoute; to: ListedRoute }[] = [];
  for (const to of after.routes) {
    const from = before.find(to.name);
    // Unchanged routes are usually the same object.
    if (from === to) continue;
    if (from === undefined) added.push(to.name);
    else if (from.server !== to.server || from.remoteName !== to.remoteName) {
      moved.push({ from, to });
      altered.push(to.name);
    } else if (Buffer.compare(from.item.bytes, to.item.bytes) !== 0) {
      altered.push(to.name);
    }
  }
  const hasRemoved = before.routes.length + added.length > after.routes.length;
  const removed = hasRemoved
    ? before.routes.filter(({ name }) => after.find(name) === undefined)
    : [];
  if (removed.length + added.length + altered.length === 0) return undefined;
  return { added, removed: removed.map(({ name }) => name), altered, moved };
}
