import assert from "node:assert/strict";
import { poll } from "../harness/wait.ts";
import type { Guest, Side } from "./client.ts";
import type { Params } from "./server-behaviour.ts";
import type { ServerFlavour, Upstream } from "./servers.ts";

/** Era of the client, then era of the server: L legacy, M modern. */
export type Cell = "LL" | "LM" | "ML" | "MM";

export interface Peers {
  readonly guest: Guest;
  readonly server: Upstream;
  /** Implementations of the server and of the client. */
  readonly flavour: ServerFlavour;
  readonly client: ServerFlavour;
  readonly side: Side;
  readonly cell: Cell;
}

/** Waits until `holds` is true, for notifications. */
export function until(what: string, holds: () => boolean): Promise<true> {
  return poll(
    3000,
    () => what,
    () => holds() || undefined,
  );
}

export function tool(name: string): object {
  return { name, arguments: {} };
}

export function failing(code: number): object {
  return { name: "test_fail", arguments: { code: String(code) } };
}

export function has(items: readonly Params[], key: string, value: string): boolean {
  return items.some((item) => item[key] === value);
}

export function asked({ heard }: Guest): readonly string[] {
  return heard.asked.map(({ method }) => method);
}

export function textOf(result: Params): string {
  const content = result["content"] as { readonly text?: string }[];
  return content.map(({ text }) => text).join("\n");
}

export async function failure(guest: Guest, method: string, params: object): Promise<Params> {
  try {
    await guest.request(method, params);
  } catch (error) {
    return { ...(error as object) };
  }
  throw new Error("It did not fail");
}

/** Checks the members of a result that only the modern era has: cache hints and the server's name. */
export function assertStamped(
  { guest, cell }: Peers,
  result: Params,
  { isCached, isList = false }: { readonly isCached: boolean; readonly isList?: boolean },
): void {
  const isRelayed = cell === "MM" && !isList;
  if (guest.era === "legacy") {
    for (const key of ["resultType", "ttlMs", "cacheScope"])
      assert.equal(key in result, false, key);
    assert.doesNotMatch(JSON.stringify(result["_meta"] ?? {}), /serverInfo/);
    return;
  }
  if (isCached) {
    assert.equal(typeof result["ttlMs"], "number");
    assert.match(String(result["cacheScope"]), /^(public|private)$/);
  }
  const { _meta } = result as { readonly _meta?: Params };
  const info = _meta?.["io.modelcontextprotocol/serverInfo"] as Params | undefined;
  // Between modern peers a result is relayed unchanged, with its server's name.
  assert.match(String(info?.["name"]), isRelayed ? /^(everything|raw)$/ : /^toolmux$/);
}
