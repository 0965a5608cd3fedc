import { makeDashboard } from "../dashboard/dashboard.ts";
import { ownHub } from "../dashboard/hubs.ts";
import { loadPage } from "../dashboard/page-files.ts";
import { addressOf, registerDashboard } from "../dashboard/running-dashboard.ts";
import type { MountedApp } from "../frontend/http/server.ts";
import { formatLogRecord, makeLogRecord } from "../terminal/log.ts";
import type { CommandContext, Invocation } from "./command.ts";
import type { Control } from "./control.ts";
import type { HostOutput } from "./serve-hub.ts";

const PATH = "/ui";

/** The dashboard that a hub serves on its HTTP address beside MCP. It shows only this hub. */
export interface HubDashboard extends MountedApp {
  /**
   * Prints the address of the dashboard. The token that opens it is printed only on a terminal.
   * @param mcpUrl the URL of the hub's MCP endpoint
   */
  announce(
    mcpUrl: string,
    invocation: Pick<Invocation, "logFormat">,
    output: Pick<HostOutput, "print" | "log">,
  ): Promise<void>;
  close(): Promise<void>;
}

/** Makes the dashboard of a hub. @param openControl opens the control API of the hub */
export function makeHubDashboard(
  openControl: () => Promise<Control>,
  context: Pick<CommandContext, "env" | "platform">,
  logFault: (text: string) => void,
): HubDashboard {
  const hubs = ownHub(openControl);
  const dashboard = makeDashboard({ base: PATH, hubs, page: loadPage, logFault });
  let withdraw = (): Promise<void> => Promise.resolve();
  return {
    path: PATH,
    fetch: (request, info) => dashboard.fetch(request, info),
    async announce(mcpUrl, { logFormat }, { print, log }) {
      const url = new URL(`${PATH}/`, mcpUrl).href;
      const { port } = new URL(url);
      try {
        withdraw = await registerDashboard(dashboard, url, context);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        log("warn", `toolmux dashboard --port ${port} will not find the dashboard: ${reason}`);
      }
      const { isatty } = await import("node:tty");
      if (logFormat === "text" && isatty(2)) {
        const link = addressOf(url, dashboard.createToken());
        print(`dashboard (this link works once, within 5 minutes): ${link}`);
      } else {
        const text = `the dashboard is at ${url}; for a link that opens it, run in a terminal: toolmux dashboard --port ${port}`;
        print(formatLogRecord(makeLogRecord("info", text, { url }), logFormat));
      }
    },
    async close() {
      dashboard.close();
      await withdraw();
    },
  };
}
