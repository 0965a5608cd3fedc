import { textOf, utf8 } from "../base/bytes.ts";
import { type ListedItem, readItem } from "../catalog/listing.ts";
import { ignoreRejection } from "./errors.ts";
import type { PluginInstance } from "./instance.ts";
import type { Tool } from "./plugin.ts";

/** Applies the plugins' `list` hooks to servers' listings. */
export class ListingRewriter {
  readonly #plugins: readonly PluginInstance[];
  /** A cache, by server: the last listing and its rewritten form. */
  readonly #cache = new Map<string, RewrittenListing>();
  /** Servers for whose listing some plugin's `list` failed at its last run. */
  readonly #failedServers = new Set<string>();
  /** By server and tool: the plugin that added the tool and must answer its calls. */
  readonly #addedBy = new Map<string, Map<string, PluginInstance>>();

  constructor(plugins: readonly PluginInstance[]) {
    this.#plugins = plugins.filter(({ hooks: parts }) => parts.list !== undefined);
  }

  /** The listing that clients may see; items that no plugin changed stay the same objects. Does not throw. */
  rewrite(server: string, items: readonly ListedItem[]): readonly ListedItem[] {
    const plugins = this.#plugins.filter((member) => member.isForServer(server));
    if (plugins.length === 0) return items;
    const cached = this.#cache.get(server);
    if (cached !== undefined && isSame(cached.items, items)) return cached.rewritten;
    let isComplete = true;
    const addedBy = new Map<string, PluginInstance>();
    // The innermost plugin comes last in the list and rewrites first.
    const rewritten = plugins.reduceRight((list, member) => {
      const result = rewriteWith(member, server, list);
      isComplete &&= result.isComplete;
      const before = new Set(list.map(({ key }) => key));
      for (const { key } of result.items) if (!before.has(key)) addedBy.set(key, member);
      return result.items;
    }, items);
    this.#addedBy.set(server, addedBy);
    // A result is cached only if every hook succeeded: a failed `list` is called again the next time.
    if (isComplete) {
      this.#cache.set(server, { items, rewritten });
      this.#failedServers.delete(server);
    } else {
      this.#failedServers.add(server);
    }
    return rewritten;
  }

  /** Whether the last run of every `list` hook succeeded, for every server. */
  get isComplete(): boolean {
    return this.#failedServers.size === 0;
  }

  /** Whether the plugin added the tool to the server's listing. */
  hasAdded(member: PluginInstance, server: string, tool: string): boolean {
    return this.#addedBy.get(server)?.get(tool) === member;
  }
}

interface RewrittenListing {
  readonly items: readonly ListedItem[];
  readonly rewritten: readonly ListedItem[];
}

function isSame(a: readonly ListedItem[], b: readonly ListedItem[]): boolean {
  return a.length === b.length && a.every((item, i) => item === b[i]);
}

/**
 * Applies one plugin. If it fails, the tools that it applies to are hidden, or stay unchanged if the plugin is
 * optional.
 */
function rewriteWith(
  plugin: PluginInstance,
  server: string,
  items: readonly ListedItem[],
): { readonly items: readonly ListedItem[]; readonly isComplete: boolean } {
  const matching = items.filter(({ key }) => plugin.isForTool(key));
  const rest = items.filter(({ key }) => !plugin.isForTool(key));
  const failed = { items: plugin.isOptional ? items : rest, isComplete: false };
  if (plugin.isCircuitOpen("list")) return failed;
  try {
    const tools = Object.freeze(matching.map(toTool));
    const rewritten: unknown = plugin.hooks.list?.(tools, server);
    if (!Array.isArray(rewritten)) {
      ignoreRejection(rewritten);
      throw new TypeError("its list() did not return an array");
    }
    const shown = rewritten.map((tool: unknown) => toItem(tool));
    plugin.recordSuccess("list");
    return { items: [...rest, ...shown], isComplete: true };
  } catch (error) {
    plugin.recordFailure("list", error);
    return failed;
  }
}

const toolCache = new WeakMap<ListedItem, Tool>();
const itemCache = new WeakMap<object, ListedItem>();

/** The tool that is parsed from a listed item, frozen. It is cached: the same item always yields the same object. */
export function toTool(item: ListedItem): Tool {
  const known = toolCache.get(item);
  if (known !== undefined) return known;
  const tool = freeze(JSON.parse(textOf(item.bytes)) as Tool);
  toolCache.set(item, tool);
  itemCache.set(tool, item);
  return tool;
}

/**
 * The item that a tool was parsed from; for any other tool, a new item.
 * @throws {TypeError} if the value is not a tool
 */
function toItem(tool: unknown): ListedItem {
  if (typeof tool === "object" && tool !== null) {
    const item = itemCache.get(tool) ?? readItem(utf8(JSON.stringify(tool)), "tools");
    if (item !== undefined) return item;
  }
  throw new TypeError("its list() returned an item that is not a tool with a name");
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
