import assert from "node:assert/strict";
import { poll } from "../harness/clock.ts";
import type { Guest, Side } from "./guest.ts";
import type { Params } from "./kit.ts";
import type { ServerFlavour, Upstream } from "./servers.ts";

/** A client before the hub and a server behind it: the first letter of a cell is the client's era, the second the server's. */
export type Cell = "LL" | "LM" | "ML" | "MM";

export interface Peers {
  readonly guest: Guest;
  readonly server: Upstream;
  /** Whose code the server runs on, and whose the client. */
  readonly flavour: ServerFlavour;
  readonly client: ServerFlavour;
  readonly side: Side;
  readonly cell: Cell;
}

/** Waits for what is told without having been asked for. */
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

/** What a result says at its top, which the other era has no word for. The SDKs show of that what they do not use themselves. */
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
  // Between peers of the modern era a result passes as it is, with the name of the server that made it.
  assert.match(String(info?.["name"]), isRelayed ? /^(everything|raw)$/ : /^toolmux$/);
}
