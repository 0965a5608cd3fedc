import { HubError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import type { HubClient } from "../frontend/hub-client.ts";
import type { HubReader, HubReaderOptions } from "./hub-reader.ts";
import { clientOfHub, connectToHub, type RunningHub } from "./running-hubs.ts";

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
  const ask = clientOfHub(hub, { signal });
  return {
    client,
    servers: async () => (await ask("GET /servers")).value.servers,
    catalog: async () => (await ask("GET /catalog", { query: { mode } })).value,
    async tool(name) {
      if (name === "") return undefined;
      try {
        return (await ask("GET /tools/:name", { params: { name } })).value;
      } catch (error) {
        if (error instanceof HubError && error.code === "notFound") return undefined;
        throw error;
      }
    },
    find: async (query, request) =>
      (await ask("GET /find", { query: { query, mode, ...request } })).value,
    exposureCosts: async () => (await ask("GET /exposures", { query: { mode } })).value,
    findings: async (server) => (await ask("GET /scan", { query: { server } })).value.servers,
    pins: async (server) => (await ask("GET /pins", { query: { server } })).value.servers,
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
