import type { Child } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { ViewName } from "./state.ts";

/** A view of the page. */
export type View = (props: ViewProps) => Child;

/** Loads the module of the search. */
export const loadSearch = async (): Promise<View> => (await import("./search.tsx")).Search;

/** Loads the module of each view. The bundler makes a file of each, which the page requests when the view is opened. */
export const VIEW_MODULES: Readonly<Record<ViewName, () => Promise<View>>> = {
  overview: async () => (await import("./overview.tsx")).OverviewView,
  hubs: async () => (await import("./hubs.tsx")).HubsView,
  servers: async () => (await import("./servers.tsx")).ServersView,
  calls: async () => (await import("./calls.tsx")).CallsView,
  approvals: async () => (await import("./approvals.tsx")).ApprovalsView,
  agents: async () => (await import("./agents.tsx")).AgentsView,
  tools: async () => (await import("./tools.tsx")).ToolsView,
  modes: async () => (await import("./modes.tsx")).ModesView,
  fleet: async () => (await import("./fleet.tsx")).FleetView,
  clients: async () => (await import("./clients.tsx")).ClientsView,
  logs: async () => (await import("./logs.tsx")).LogsView,
  usage: async () => (await import("./usage.tsx")).UsageView,
  add: async () => (await import("./add.tsx")).AddView,
  configure: async () => (await import("./configure.tsx")).ConfigureView,
  connect: async () => (await import("./connect.tsx")).ConnectView,
};
