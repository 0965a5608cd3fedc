import { invalidError } from "../manifest/problems.ts";
import { HubError } from "../base/errors.ts";
import type { Hub } from "./hub.ts";
import type { Manifest, ServerSpec } from "../manifest/manifest.ts";
import { type ConnectionStatus, unavailableReasonOf } from "../upstream/status.ts";

/**
 * The state of a server of the manifest once its start has succeeded, failed or taken too long. `tools`: number of its
 * tools that clients see.
 */
export type ServerState =
  | {
      readonly at: "connected";
      readonly server: string;
      readonly tools: number;
      readonly connection: ConnectionStatus;
    }
  /** The server does not run until it is called; its listing is known. */
  | {
      readonly at: "idle";
      readonly server: string;
      readonly tools: number;
      /** Time of the server's last listing, in ms since the epoch; absent if the server was listed during this run. */
      readonly listedAt?: number;
    }
  /**
   * The server's start has taken longer than `connectTimeout` and still goes on; `elapsed` is its time so far, in ms.
   */
  | { readonly at: "starting"; readonly server: string; readonly elapsed: number }
  | { readonly at: "failed"; readonly server: string; readonly cause: HubError }
  | { readonly at: "disabled"; readonly server: string };

type HubStatus = Pick<Hub, "status" | "catalog">;

/** The states of all servers, in the order of the manifest. */
export function serverStatesOf({ servers }: Manifest, hub: HubStatus): readonly ServerState[] {
  return servers.map((spec) => serverStateOf(spec, hub));
}

/** The state of one server. An entry that the hub cannot use counts as failed. */
export function serverStateOf(spec: ServerSpec, hub: HubStatus): ServerState {
  const server = spec.name;
  if (!spec.enabled) return { at: "disabled", server };
  if (spec.kind === "unsupported") {
    const text = `Server "${server}" cannot be used: ${spec.reason}.`;
    return { at: "failed", server, cause: new HubError("notSupported", text, { server }) };
  }
  if (spec.kind === "invalid") return { at: "failed", server, cause: invalidError(spec) };
  const connections = hub.status().find((it) => it.server === server)?.connections ?? [];
  const tools = hub.catalog.tools.routes.filter((route) => route.server === server).length;
  const connection = connections.find(({ state }) => state === "connected");
  if (connection !== undefined) return { at: "connected", server, tools, connection };
  const [elapsed] = connections.flatMap(({ late }) => late ?? []);
  if (elapsed !== undefined) return { at: "starting", server, elapsed };
  const idle = connections.find(isIdle);
  if (idle !== undefined) {
    const { listedAt } = idle;
    return { at: "idle", server, tools, ...(listedAt !== undefined && { listedAt }) };
  }
  return { at: "failed", server, cause: unavailableReasonOf(server, connections) };
}

/**
 * Whether a server is idle and can be called. An earlier failure no longer counts if the listing came from the server
 * itself and not from a snapshot of an earlier run.
 */
function isIdle({ state, cause, lastError, listing }: ConnectionStatus): boolean {
  if (cause !== undefined || !(state === "idle" || state === "stopping")) return false;
  return listing === "server" || (listing === "snapshot" && lastError === undefined);
}
