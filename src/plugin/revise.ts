import { textOf, utf8 } from "../bytes.ts";
import { type Item, readItem } from "../catalog/item.ts";
import { disown } from "./fault.ts";
import type { Member } from "./member.ts";
import type { Tool } from "./plugin.ts";

/** What plugins make of servers' listings. */
export class Reviser {
  readonly #members: readonly Member[];
  /** By server: the listing that was last revised, and what became of it. */
  readonly #known = new Map<string, Revision>();
  /** Servers with whose listing some plugin has failed when it was last asked. */
  readonly #unrevised = new Set<string>();
  /** By server and tool: who has added it, and has to answer its calls. */
  readonly #adders = new Map<string, Map<string, Member>>();

  constructor(members: readonly Member[]) {
    this.#members = members.filter(({ parts }) => parts.list !== undefined);
  }

  /** The listing as clients may see it: items that no plugin touched are the same. Does not throw. */
  revise(server: string, items: readonly Item[]): readonly Item[] {
    const members = this.#members.filter((member) => member.isForServer(server));
    if (members.length === 0) return items;
    const known = this.#known.get(server);
    if (known !== undefined && isSame(known.items, items)) return known.revised;
    let isWhole = true;
    const adders = new Map<string, Member>();
    // From the innermost to the outermost, as answers go.
    const revised = members.reduceRight((list, member) => {
      const result = reviseWith(member, server, list);
      isWhole &&= result.isWhole;
      const before = new Set(list.map(({ key }) => key));
      for (const { key } of result.items) if (!before.has(key)) adders.set(key, member);
      return result.items;
    }, items);
    this.#adders.set(server, adders);
    // What a plugin has failed at is asked of it again.
    if (isWhole) {
      this.#known.set(server, { items, revised });
      this.#unrevised.delete(server);
    } else {
      this.#unrevised.add(server);
    }
    return revised;
  }

  /** Whether all that is shown has been revised by all plugins: none of them has failed at it. */
  get isWhole(): boolean {
    return this.#unrevised.size === 0;
  }

  /** Whether that plugin has added that tool of a server. */
  hasAdded(member: Member, server: string, tool: string): boolean {
    return this.#adders.get(server)?.get(tool) === member;
  }
}

interface Revision {
  readonly items: readonly Item[];
  readonly revised: readonly Item[];
}

function isSame(a: readonly Item[], b: readonly Item[]): boolean {
  return a.length === b.length && a.every((item, i) => item === b[i]);
}

/** One plugin's part. If it fails, what it was to look at is not shown, or is as it was if the plugin is optional. */
function reviseWith(
  member: Member,
  server: string,
  items: readonly Item[],
): { readonly items: readonly Item[]; readonly isWhole: boolean } {
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

const tools = new WeakMap<Item, Tool>();
const items = new WeakMap<object, Item>();

/** The parsed entry, frozen: the same one whenever it is asked for. */
export function toTool(item: Item): Tool {
  const known = tools.get(item);
  if (known !== undefined) return known;
  const tool = freeze(JSON.parse(textOf(item.bytes)) as Tool);
  tools.set(item, tool);
  items.set(tool, item);
  return tool;
}

/** The entry that a tool was parsed from, or that it is written as. @throws {TypeError} if it is none */
function toItem(tool: unknown): Item {
  if (typeof tool === "object" && tool !== null) {
    const item = items.get(tool) ?? readItem(utf8(JSON.stringify(tool)), "tools");
    if (item !== undefined) return item;
  }
  throw new TypeError("its list() returned something that is no tool with a name");
}

/** All the way down, with a stack of its own: a schema may be nested deeper than functions can call each other. */
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
