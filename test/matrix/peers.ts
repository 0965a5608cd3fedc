import assert from "node:assert/strict";
import { waitFor } from "../harness/wait.ts";
import type { MatrixClient, ClientTransportName } from "./client.ts";
import type { Params } from "./server-behaviour.ts";
import type { ServerSdk, MatrixServer } from "./servers.ts";

/** Era of the client, then era of the server: L legacy, M modern. */
export type Cell = "LL" | "LM" | "ML" | "MM";

export interface MatrixPeers {
  readonly mcpClient: MatrixClient;
  readonly server: MatrixServer;
  /** Implementations of the server and of the client. */
  readonly serverSdk: ServerSdk;
  readonly clientSdk: ServerSdk;
  readonly transport: ClientTransportName;
  readonly cell: Cell;
}

/** Waits until `holds` is true, for notifications. */
export function until(what: string, holds: () => boolean): Promise<true> {
  return waitFor(what, () => holds() || undefined, 3000);
}

export function callParamsOf(name: string): object {
  return { name, arguments: {} };
}

export function failParamsOf(code: number): object {
  return { name: "test_fail", arguments: { code: String(code) } };
}

export function hasItem(items: readonly Params[], key: string, value: string): boolean {
  return items.some((item) => item[key] === value);
}

export function requestMethodsOf({ received }: MatrixClient): readonly string[] {
  return received.requests.map(({ method }) => method);
}

export function textOf(result: Params): string {
  const content = result["content"] as { readonly text?: string }[];
  return content.map(({ text }) => text).join("\n");
}

export async function errorOf(
  mcpClient: MatrixClient,
  method: string,
  params: object,
): Promise<Params> {
  try {
    await mcpClient.request(method, params);
  } catch (error) {
    return { ...(error as object) };
  }
  throw new Error("It did not fail");
}

/** Checks the members of a result that only the modern era has: cache hints and the server's name. */
export function assertEraMembers(
  { mcpClient, cell }: MatrixPeers,
  result: Params,
  { isCached, isList = false }: { readonly isCached: boolean; readonly isList?: boolean },
): void {
  const isRelayed = cell === "MM" && !isList;
  if (mcpClient.era === "legacy") {
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
