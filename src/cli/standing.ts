import { HubError } from "../errors.ts";
import type { Hub } from "../hub.ts";
import type { Manifest, ServerSpec } from "../manifest/schema.ts";

/** How one server of the manifest stands once all have settled. */
export type Standing =
  | { readonly at: "connected"; readonly server: string; readonly tools: number }
  | { readonly at: "failed"; readonly server: string; readonly cause: HubError }
  | { readonly at: "disabled"; readonly server: string };

/** In manifest order. What the hub cannot use at all has failed too. */
export function standingsOf({ servers }: Manifest, hub: Hub): readonly Standing[] {
  return servers.map((spec) => standingOf(spec, hub));
}

function standingOf(spec: ServerSpec, hub: Hub): Standing {
  const server = spec.name;
  if (!spec.enabled) return { at: "disabled", server };
  if (spec.kind === "unsupported") {
    const text = `Server "${server}" cannot be used: ${spec.reason}.`;
    return { at: "failed", server, cause: new HubError("notSupported", text, { server }) };
  }
  const status = hub.status().find((one) => one.server === server)?.connections[0];
  if (status?.state === "connected") {
    const tools = hub.catalog.routes.filter((route) => route.server === server).length;
    return { at: "connected", server, tools };
  }
  const text = `Server "${server}" does not run.`;
  const cause =
    status?.cause ?? status?.lastError ?? new HubError("serverStopped", text, { server });
  return { at: "failed", server, cause };
}
