import { HubError } from "../base/errors.ts";
import { findRunningHubs } from "../control/running-hubs.ts";
import { HubStarter } from "./hub-starter.ts";
import { type Dashboard, type DashboardMachine, makeDashboard } from "../dashboard/dashboard.ts";
import { allHubs, ownHub } from "../dashboard/hubs.ts";
import { loadPage } from "../dashboard/page-files.ts";
import { listenBeside, listenOnLoopback, openPageOrigin } from "../dashboard/page-origin.ts";
import { addressOf, isServedAt, registerDashboard } from "../dashboard/running-dashboard.ts";
import type { HttpListener } from "../frontend/http/listener.ts";
import type { OperationContext } from "../operations/context.ts";
import type { MountedApp } from "../frontend/http/server.ts";
import { isDemo, type SystemEnvironment } from "../base/paths.ts";
import type { Control } from "./control.ts";
import { listenErrorOf } from "./listen-error.ts";

export {
  type DashboardAddress,
  findDashboard,
  writeRedirect,
} from "../dashboard/running-dashboard.ts";

const PATH = "/ui";
/** How long to wait at the end for connections to send their last responses, in ms. */
const FLUSH_TIME = 250;

/** A dashboard that a hub serves. */
export interface ServedDashboard {
  /** Its address below that of the hub; it opens only by a link. */
  readonly href: string;
  readonly port: number;
  /** Makes a link that works once, within 5 minutes. It contains a token, so only its user may see it. */
  readonly makeLink: () => string;
}

/** The dashboard that a hub serves on its HTTP address beside MCP. It shows only this hub. */
export interface HubDashboard extends MountedApp {
  /**
   * Makes the dashboard known to `toolmux dashboard`, and serves it on the other loopback address, too.
   * @param mcpUrl the URL of the hub's MCP endpoint
   */
  publish(mcpUrl: string, warn: (text: string) => void): Promise<ServedDashboard>;
  close(): Promise<void>;
}

/** Makes the dashboard of a hub. @param openControl opens the control API of the hub */
export async function makeHubDashboard(
  openControl: () => Promise<Control>,
  context: Pick<SystemEnvironment, "env" | "platform">,
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
    async publish(mcpUrl, warn) {
      const known = new URL(`${PATH}/`, mcpUrl);
      const port = Number(known.port);
      const url = origin.urlOf(port, known.pathname);
      const isOwn = (address: string): Promise<boolean> => isServedAt(address, url, dashboard);
      others = await listenBeside(port, answer, isOwn);
      try {
        withdraw = await registerDashboard(dashboard, { url, port }, context);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        warn(`toolmux dashboard --port ${port} will not find the dashboard: ${reason}`);
      }
      return {
        href: known.href,
        port,
        makeLink: () => addressOf(url, dashboard.createToken()),
      };
    },
    async close() {
      dashboard.close();
      await withdraw();
      await Promise.all([others?.close(FLUSH_TIME), origin.close(FLUSH_TIME)]);
    },
  };
}

/** A dashboard that shows all hubs of this user. */
export interface OpenedDashboard {
  readonly port: number;
  /** Whether hubs of this user were running when it was opened. */
  readonly hasHubs: boolean;
  /** See `ServedDashboard`. */
  readonly makeLink: () => string;
  close(): Promise<void>;
}

/**
 * Serves the dashboard of all hubs of this user on loopback addresses, which other machines cannot reach, because users
 * of the page can run commands here.
 * @param port 0: any free port
 * @throws {HubError} usage if the port cannot be used
 */
export async function openDashboard(
  port: number,
  context: OperationContext,
  logFault: (text: string) => void,
): Promise<OpenedDashboard> {
  await loadPage();
  const origin = await openPageOrigin(context, (request, info) => dashboard.fetch(request, info));
  const hubs = allHubs(context);
  const starter = new HubStarter(context);
  const machine: DashboardMachine = {
    async clients() {
      const { listClientApps } = await import("../operations/install-in-client.ts");
      return listClientApps(context);
    },
    async sharingOffers() {
      const { findSharingOffers } = await import("../control/sharing.ts");
      const running = await findRunningHubs(context);
      const { signal } = new AbortController();
      const offers = await findSharingOffers(running, { ...context, signal });
      return offers.map(({ figures, command }) => ({ figures, command }));
    },
    startHub: () => starter.start(),
  };
  const dashboard = makeDashboard({
    base: "",
    origin,
    hubs,
    // The demo has its own hub, and starts none of the user.
    ...(!isDemo(context.env) && { machine }),
    page: loadPage,
    logFault,
  });
  let listener: HttpListener | undefined;
  let withdraw = (): Promise<void> => Promise.resolve();
  const close = async (): Promise<void> => {
    try {
      await withdraw();
    } finally {
      dashboard.close();
      await starter.close();
      await listener?.close(FLUSH_TIME);
      await origin.close(FLUSH_TIME);
    }
  };
  try {
    listener = await listenOn(port, dashboard, context);
    const { port: ownPort } = listener;
    const url = origin.urlOf(ownPort, "/");
    withdraw = await registerDashboard(dashboard, { url, port: ownPort }, context);
    return {
      port: ownPort,
      hasHubs: (await findRunningHubs(context)).length > 0,
      makeLink: () => addressOf(url, dashboard.createToken()),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function listenOn(
  port: number,
  dashboard: Dashboard,
  context: Pick<SystemEnvironment, "platform">,
): Promise<HttpListener> {
  try {
    return await listenOnLoopback(port, (request, info) => dashboard.fetch(request, info));
  } catch (error) {
    if (error instanceof HubError) throw error;
    throw await listenErrorOf({ hostname: "127.0.0.1", port }, error, context, "--port");
  }
}
