import process from "node:process";
import { utf8 } from "../../base/bytes.ts";
import type { DifferingEntry } from "../transport.ts";
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
  /** What the replica offers: see `offerOf`. */
  readonly offer: string;
  /** The names of the machines that offer the same. */
  readonly machines: readonly string[];
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

/**
 * What a replica offers: equal for those that announce the same digest of their lists. A hub that has not listed its
 * server yet announces none, and so is equal to no other.
 */
export function offerOf({ name, servers }: Peer, server: string): string {
  const digest = servers.get(server);
  return digest === undefined ? `of ${name}` : `= ${digest}`;
}

/** One replica of each offer, in order of name. */
export function distinctReplicas(replicas: readonly Peer[], server: string): readonly Peer[] {
  const seen = new Set<string>();
  return replicas.filter((replica) => {
    const offer = offerOf(replica, server);
    if (seen.has(offer)) return false;
    seen.add(offer);
    return true;
  });
}

/** Maximum number of entries that are kept because they differ from what is listed. */
const MAX_DIFFERING = 1000;

/**
 * What the replicas of a server list if they do not all list the same: each item has the definition of the first
 * replica that has it, in order of name, and belongs to the replicas that define it in the same way.
 */
export class ReplicaListings {
  /** For each list: the digests of its items by their keys, for each offer and for each machine that was asked. */
  readonly #lists = new Map<string, Map<string, ReadonlyMap<string, string>>>();
  /** For each list: the replica that was asked for all, if all offered the same. */
  readonly #only = new Map<string, { readonly offer: string; readonly machine: string }>();
  /** For each list: the digest of each listed item. */
  readonly #listed = new Map<string, ReadonlyMap<string, string>>();
  /** For each list: the entries of replicas that differ from those that are listed. */
  readonly #differing = new Map<string, readonly DifferingEntry[]>();

  /** The tools and prompts that some replicas define otherwise than they are listed. */
  get differing(): readonly DifferingEntry[] {
    return [...this.#differing.values()].flat();
  }

  /** All replicas offer what this one lists. */
  setOnly(method: string, replica: Peer, server: string): void {
    const { member } = LISTS.get(method) ?? { member: "" };
    this.#lists.delete(member);
    this.#listed.delete(member);
    this.#differing.delete(member);
    this.#only.set(member, { offer: offerOf(replica, server), machine: replica.name });
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
    const digests = new Map<string, ReadonlyMap<string, string>>();
    const differing: DifferingEntry[] = [];
    const kind = member === "tools" || member === "prompts" ? member : undefined;
    for (const { offer, machines, items } of lists) {
      const own = new Map<string, string>();
      for (const item of items) {
        const name = recordOf(item)[key];
        if (typeof name !== "string") continue;
        const json = JSON.stringify(item);
        const itemDigest = digestOf(json);
        // Of several items of one name, the first counts.
        if (own.has(name)) continue;
        own.set(name, itemDigest);
        const known = listed.get(name);
        if (known === undefined) {
          listed.set(name, itemDigest);
          merged.push(item);
        } else if (known !== itemDigest && kind !== undefined && differing.length < MAX_DIFFERING)
          differing.push({ kind, entry: utf8(json), machines });
      }
      digests.set(offer, own);
      for (const machine of machines) digests.set(machineKey(machine), own);
    }
    this.#only.delete(member);
    this.#differing.set(member, differing);
    this.#lists.set(member, digests);
    this.#listed.set(member, listed);
    const { nextCursor: _, ...others } = recordOf(first);
    return { ...others, [member]: merged };
  }

  /**
   * The replicas that define the item of a request as it is listed. A machine that has announced another offer since it
   * was asked counts as before, until it is asked again.
   */
  replicasFor(
    replicas: readonly Peer[],
    server: string,
    method: string,
    name: string | undefined,
  ): readonly Peer[] {
    const member = LIST_OF_METHOD.get(method);
    if (member === undefined) return replicas;
    const only = this.#only.get(member);
    if (only !== undefined)
      return replicas.filter(
        (replica) => replica.name === only.machine || offerOf(replica, server) === only.offer,
      );
    const listed = name === undefined ? undefined : this.#listed.get(member)?.get(name);
    const lists = this.#lists.get(member);
    if (name === undefined || listed === undefined || lists === undefined) return replicas;
    return replicas.filter((replica) => {
      const own = lists.get(offerOf(replica, server)) ?? lists.get(machineKey(replica.name));
      return own?.get(name) === listed;
    });
  }
}

function machineKey(name: string): string {
  return `at ${name}`;
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function digestOf(text: string): string {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(text).digest("base64");
}
