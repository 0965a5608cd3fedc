import process from "node:process";
import type { Peer } from "./peers.ts";

/** For each method that lists: the member of its result with the items, and the member by which an item is known. */
const LISTS: ReadonlyMap<string, { readonly member: string; readonly key: string }> = new Map([
  ["tools/list", { member: "tools", key: "name" }],
  ["prompts/list", { member: "prompts", key: "name" }],
  ["resources/list", { member: "resources", key: "uri" }],
  ["resources/templates/list", { member: "resourceTemplates", key: "uriTemplate" }],
]);

/** The list in which the item of a request is, by the method of the request. */
const LIST_OF_METHOD: ReadonlyMap<string, string> = new Map([
  ["tools/call", "tools"],
  ["prompts/get", "prompts"],
  ["resources/read", "resources"],
]);

/** What one replica lists, from all pages. */
export interface ReplicaList {
  /** The digest of all that the replica lists, as its hub has announced it. */
  readonly digest: string | undefined;
  readonly items: readonly unknown[];
}

export function isListMethod(method: string): boolean {
  return LISTS.has(method);
}

/** The items in the result of a method that lists. */
export function itemsOf(method: string, result: unknown): readonly unknown[] {
  const items = recordOf(result)[LISTS.get(method)?.member ?? ""];
  return Array.isArray(items) ? items : [];
}

/** The digests of the lists of these replicas, each with the first replica that has it, in order of name. */
export function distinctDigests(replicas: readonly Peer[], server: string): readonly Peer[] {
  const seen = new Set<string | undefined>();
  return replicas.filter(({ servers }) => {
    const digest = servers.get(server);
    if (seen.has(digest)) return false;
    seen.add(digest);
    return true;
  });
}

/**
 * What the replicas of a server list if they do not all list the same: each item has the definition of the first
 * replica that has it, in order of name, and belongs to the replicas that define it in the same way.
 */
export class ReplicaListings {
  /** For each list: for each digest of a replica, the digests of its items by their keys. */
  readonly #lists = new Map<string, Map<string | undefined, ReadonlyMap<string, string>>>();
  /** For each list: the digest of each listed item. */
  readonly #listed = new Map<string, ReadonlyMap<string, string>>();

  clear(): void {
    this.#lists.clear();
    this.#listed.clear();
  }

  /**
   * Merges the lists of replicas.
   * @param lists in order of the replicas' names
   * @param first the result of the first replica; the merged result has its other members
   */
  merge(method: string, lists: readonly ReplicaList[], first: unknown): object {
    const { member, key } = LISTS.get(method) ?? { member: "", key: "" };
    const listed = new Map<string, string>();
    const merged: unknown[] = [];
    const digests = new Map<string | undefined, ReadonlyMap<string, string>>();
    for (const { digest, items } of lists) {
      const own = new Map<string, string>();
      for (const item of items) {
        const name = recordOf(item)[key];
        if (typeof name !== "string") continue;
        const itemDigest = digestOf(JSON.stringify(item));
        own.set(name, itemDigest);
        if (listed.has(name)) continue;
        listed.set(name, itemDigest);
        merged.push(item);
      }
      digests.set(digest, own);
    }
    this.#lists.set(member, digests);
    this.#listed.set(member, listed);
    const { nextCursor: _, ...others } = recordOf(first);
    return { ...others, [member]: merged };
  }

  /** The replicas that define the item of a request as it is listed. */
  replicasFor(
    replicas: readonly Peer[],
    server: string,
    method: string,
    name: string | undefined,
  ): readonly Peer[] {
    const member = LIST_OF_METHOD.get(method) ?? "";
    const listed = name === undefined ? undefined : this.#listed.get(member)?.get(name);
    const lists = this.#lists.get(member);
    if (name === undefined || listed === undefined || lists === undefined) return replicas;
    return replicas.filter(({ servers }) => lists.get(servers.get(server))?.get(name) === listed);
  }
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function digestOf(text: string): string {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(text).digest("base64");
}
