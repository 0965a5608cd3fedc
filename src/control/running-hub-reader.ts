import { HubError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import type { HubClient } from "../frontend/hub-client.ts";
import type { HubReader, HubReaderOptions } from "./hub-reader.ts";
import { askHub, connectToHub, type RunningHub } from "./running-hubs.ts";
import type { CatalogDocument, ServerDocument, ToolDefinitionDocument } from "./schemas.ts";

/** Reads a hub of another process over its socket. */
export function runningHubReader(
  hub: RunningHub,
  { mode, signal, ...options }: HubReaderOptions,
): HubReader {
  let connecting: Promise<HubClient> | undefined;
  const client = (): Promise<HubClient> =>
    (connecting ??= connectToHub(hub, { name: "toolmux", version: VERSION }, signal, {
      ...options,
      mode,
    }));
  const ask = async <T>(path: string): Promise<T> =>
    (await askHub(hub, { path, signal })).document as T;
  return {
    client,
    async servers() {
      const { servers } = await ask<{ servers: readonly ServerDocument[] }>("/servers");
      return servers;
    },
    catalog: () =>
      ask<CatalogDocument>(
        mode === undefined ? "/catalog" : `/catalog?mode=${encodeURIComponent(mode)}`,
      ),
    async tool(name) {
      if (name === "") return undefined;
      try {
        return await ask<ToolDefinitionDocument>(`/tools/${encodeURIComponent(name)}`);
      } catch (error) {
        if (error instanceof HubError && error.code === "usage") return undefined;
        throw error;
      }
    },
    async list(kind) {
      if (kind !== "skills") return (await client()).list(kind);
      throw new HubError("notSupported", "A hub lists no skills for clients of its socket.");
    },
    async close() {
      // A client that could not connect has nothing to disconnect.
      const connected = await connecting?.catch(() => undefined);
      await connected?.close();
    },
  };
}
