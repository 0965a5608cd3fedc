import { invalidError } from "../manifest/problems.ts";
import { HubError } from "../base/errors.ts";
import type { Hub } from "../hub/hub.ts";
import type { Manifest, ServerSpec } from "../manifest/schema.ts";
import { type ConnectionStatus, unavailableReasonOf } from "../upstream/status.ts";

/** How one server of the manifest stands once all have settled; `tools` counts those of it that clients see. */
export type ServerState =
  | {
      readonly at: "connected";
      readonly server: string;
      readonly tools: number;
      readonly connection: ConnectionStatus;
    }
  /** It rests until it is called, and what it lists is known. */
  | { readonly at: "idle"; readonly server: string; readonly tools: number }
  /** Its start has taken longer than `connectTimeout` and goes on; `elapsed`: how long so far, in ms. */
  | { readonly at: "starting"; readonly server: string; readonly elapsed: number }
  | { readonly at: "failed"; readonly server: string; readonly cause: HubError }
  | { readonly at: "disabled"; readonly server: string };

/** What is asked of a hub. */
type Witness = Pick<Hub, "status" | "catalog">;

/** In manifest order. */
export function serverStatesOf({ servers }: Manifest, hub: Witness): readonly ServerState[] {
  return servers.map((spec) => serverStateOf(spec, hub));
}

/** What the hub cannot use at all has failed too. */
export function serverStateOf(spec: ServerSpec, hub: Witness): ServerState {
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
  if (connections.some(isResting)) return { at: "idle", server, tools };
  return { at: "failed", server, cause: unavailableReasonOf(server, connections) };
}

/** Who rests may have failed before; that is over if the server has been seen at work. */
function isResting({ state, cause, lastError, listing }: ConnectionStatus): boolean {
  if (cause !== undefined || !(state === "idle" || state === "stopping")) return false;
  return listing === "server" || (listing === "snapshot" && lastError === undefined);
}
