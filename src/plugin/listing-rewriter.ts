import { textOf, utf8 } from "../base/bytes.ts";
import { type ListedItem, readItem } from "../catalog/listing.ts";
import { disown } from "./errors.ts";
import type { Member } from "./instance.ts";
import type { Tool } from "./plugin.ts";

/** Applies the plugins' `list` hooks to servers' listings. */
export class Reviser {
  readonly #members: readonly Member[];
  /** By server: the last listing, and the result. */
  readonly #known = new Map<string, Revision>();
  /** Servers for which a plugin's `list` failed the last time. */
  readonly #unrevised = new Set<string>();
  /** By server and tool: the plugin that added the tool and has to answer its calls. */
  readonly #adders = new Map<string, Map<string, Member>>();

  constructor(members: readonly Member[]) {
    this.#members = members.filter(({ parts }) => parts.list !== undefined);
  }

  /** The listing that clients may see; items that no plugin changed stay the same objects. Does not throw. */
  revise(server: string, items: readonly ListedItem[]): readonly ListedItem[] {
    const members = this.#members.filter((member) => member.isForServer(server));
    if (members.length === 0) return items;
    const known = this.#known.get(server);
    if (known !== undefined && isSame(known.items, items)) return known.revised;
    let isWhole = true;
    const adders = new Map<string, Member>();
    // From the innermost plugin to the outermost.
    const revised = members.reduceRight((list, member) => {
      const result = reviseWith(member, server, list);
      isWhole &&= result.isWhole;
      const before = new Set(list.map(({ key }) => key));
      for (const { key } of result.items) if (!before.has(key)) adders.set(key, member);
      return result.items;
    }, items);
    this.#adders.set(server, adders);
    // A failed `list` is called again the next time.
    if (isWhole) {
      this.#known.set(server, { items, revised });
      this.#unrevised.delete(server);
    } else {
      this.#unrevised.add(server);
    }
    return revised;
  }

  /** Whether every `list` hook succeeded the last time, for every server. */
  get isWhole(): boolean {
    return this.#unrevised.size === 0;
  }

  /** Whether the plugin has added that tool of the server. */
  hasAdded(member: Member, server: string, tool: string): boolean {
    return this.#adders.get(server)?.get(tool) === member;
  }
}

interface Revision {
  readonly items: readonly ListedItem[];
  readonly revised: readonly ListedItem[];
}

function isSame(a: readonly ListedItem[], b: readonly ListedItem[]): boolean {
  return a.length === b.length && a.every((item, i) => item === b[i]);
}

/**
 * Applies one plugin. If it fails, the tools that it applies to are hidden, or stay unchanged if the plugin is
 * optional.
 */
function reviseWith(
  member: Member,
  server: string,
  items: readonly ListedItem[],
): { readonly items: readonly ListedItem[]; readonly isWhole: boolean } {
  const own = items.filter(({ key }) => member.isForTool(key));
  const rest = items.filter(({ key }) => !member.isForTool(key));
  const failed = { items: member.isOptional ? items : rest, isWhole: false };
  if (member.isBroken("list")) return failed;
  try {
    const tools = Object.freeze(own.map(toTool));
    const revised: unknown = member.parts.list?.(tools, server);
    if (!Array.isArray(revised)) {
      disown(revised);
      throw new TypeError("its list() did not return an array");
    }
    const shown = revised.map((tool: unknown) => toItem(tool));
    member.succeed("list");
    return { items: [...rest, ...shown], isWhole: true };
  } catch (error) {
    member.fail("list", error);
    return failed;
  }
}

const tools = new WeakMap<ListedItem, Tool>();
const items = new WeakMap<object, ListedItem>();

/** The parsed entry, frozen; the same object for the same item. */
export function toTool(item: ListedItem): Tool {
  const known = tools.get(item);
  if (known !== undefined) return known;
  const tool = freeze(JSON.parse(textOf(item.bytes)) as Tool);
  tools.set(item, tool);
  items.set(tool, item);
  return tool;
}

/**
 * The item that a tool was parsed from, else a new one.
 * @throws {TypeError} if it is not a tool
 */
function toItem(tool: unknown): ListedItem {
  if (typeof tool === "object" && tool !== null) {
    const item = items.get(tool) ?? readItem(utf8(JSON.stringify(tool)), "tools");
    if (item !== undefined) return item;
  }
  throw new TypeError("its list() returned something that is no tool with a name");
}

/** Freezes recursively, with an explicit stack: a schema may be nested deeper than the call stack allows. */
function freeze<T>(value: T): T {
  const open: unknown[] = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== "object" || next === null) continue;
    Object.freeze(next);
    for (const inner of Object.values(next)) {
      if (typeof inner === "object" && inner !== null) open.push(inner);
    }
  }
  return value;
}
