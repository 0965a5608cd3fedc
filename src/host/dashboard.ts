import { makeDashboard } from "../dashboard/dashboard.ts";
import { ownHub } from "../dashboard/hubs.ts";
import { loadPage } from "../dashboard/page-files.ts";
import { listenBeside, openPageOrigin } from "../dashboard/page-origin.ts";
import { addressOf, isServedAt, registerDashboard } from "../dashboard/running-dashboard.ts";
import type { HttpListener } from "../frontend/http/listener.ts";
import type { MountedApp } from "../frontend/http/server.ts";
import { formatLogRecord, makeLogRecord } from "../terminal/log.ts";
import type { CommandContext, Invocation } from "../cli/command.ts";
import type { Control } from "./control.ts";
import type { HostOutput } from "./serve-hub.ts";

const PATH = "/ui";
/** How long to wait at the end for connections to send their last responses, in ms. */
const FLUSH_TIME = 250;

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
export async function makeHubDashboard(
  openControl: () => Promise<Control>,
  context: Pick<CommandContext, "env" | "platform">,
  logFault: (text: string) => void,
): Promise<HubDashboard> {
  const answer: MountedApp["fetch"] = (request, info) => dashboard.fetch(request, info);
  const origin = await openPageOrigin(context, answer);
  const hubs = ownHub(openControl);
  const dashboard = makeDashboard({ base: PATH, origin, hubs, page: loadPage, logFault });
  let withdraw = (): Promise<void> => Promise.resolve();
  let others: HttpListener | undefined;
  return {
    path: PATH,
    isHost: (host) => origin.isHost(host),
    fetch: answer,
    async announce(mcpUrl, { logFormat }, { print, log }) {
      const known = new URL(`${PATH}/`, mcpUrl);
      const port = Number(known.port);
      const url = origin.urlOf(port, known.pathname);
      const isOwn = (address: string): Promise<boolean> => isServedAt(address, url, dashboard);
      others = await listenBeside(port, answer, isOwn);
      try {
        withdraw = await registerDashboard(dashboard, { url, port }, context);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        log("warn", `toolmux dashboard --port ${port} will not find the dashboard: ${reason}`);
      }
      const { isatty } = await import("node:tty");
      if (logFormat === "text" && isatty(2)) {
        const link = addressOf(url, dashboard.createToken());
        print(`dashboard (this link works once, within 5 minutes): ${link}`);
      } else {
        const { href } = known;
        const text = `the dashboard is served below ${href}, at a host that only its links name; for a link, run in a terminal: toolmux dashboard --port ${port}`;
        print(formatLogRecord(makeLogRecord("info", text, { url: href }), logFormat));
      }
    },
    async close() {
      dashboard.close();
      await withdraw();
      await Promise.all([others?.close(FLUSH_TIME), origin.close(FLUSH_TIME)]);
    },
  };
}
