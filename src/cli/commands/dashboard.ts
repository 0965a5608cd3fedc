import { HubError } from "../../base/errors.ts";
import { findRunningHubs } from "../../control/running-hubs.ts";
import { type Dashboard, makeDashboard } from "../../dashboard/dashboard.ts";
import { allHubs } from "../../dashboard/hubs.ts";
import { loadPage } from "../../dashboard/page-files.ts";
import { listenOnLoopback, openPageOrigin } from "../../dashboard/page-origin.ts";
import {
  addressOf,
  type DashboardAddress,
  findDashboard,
  registerDashboard,
  writeRedirect,
} from "../../dashboard/running-dashboard.ts";
import type { HttpListener } from "../../frontend/http/listener.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { wrapText } from "../../terminal/terminal.ts";
import { explainListenError } from "../../host/listen-error.ts";
import { untilSignal } from "../../host/serve-hub.ts";

export interface DashboardCommandOptions {
  readonly port: number;
  readonly "no-browser": boolean;
  readonly json: boolean;
}

const DEFAULT_PORT = 8701;
/** The address in messages. Other machines cannot connect, because users of the page can run commands here. */
const HOST = "127.0.0.1";
/** How long to wait at the end for connections to send their last responses, in ms. */
const FLUSH_TIME = 250;
const NO_HUBS =
  "No toolmux of yours is running yet: an MCP client starts one, or toolmux serve --http 8700. A hub whose manifest has control = false under [hub] is not shown.";

/**
 * `toolmux dashboard`: serves the page that shows all hubs of this user, until a signal arrives. If a dashboard
 * already runs on that port, opens its page instead.
 */
export async function dashboard(
  { options }: Invocation<DashboardCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const { port } = options;
  const other = port === 0 ? undefined : await findDashboard(port, context);
  if (other !== undefined) {
    const { pid, url } = other;
    await show({ url, port }, options, context, `The dashboard is running already (pid ${pid}).`);
    return 0;
  }
  await loadPage();
  const origin = await openPageOrigin(context, (request, info) => served.fetch(request, info));
  const served = makeDashboard({
    base: "",
    origin,
    hubs: allHubs(context),
    page: loadPage,
    logFault: (text) => context.terminal.printStderr(text),
  });
  try {
    const listener = await listenOn(port, served, context);
    const url = origin.urlOf(listener.port, "/");
    try {
      const withdraw = await registerDashboard(served, { url, port: listener.port }, context);
      try {
        const hubs = await findRunningHubs(context);
        const text = `The dashboard is running; Ctrl-C stops it.${hubs.length > 0 ? "" : ` ${NO_HUBS}`}`;
        const link = addressOf(url, served.createToken());
        await show({ url: link, port: listener.port }, options, context, text);
        await untilSignal(context.signal);
      } finally {
        await withdraw();
      }
    } finally {
      served.close();
      await listener.close(FLUSH_TIME);
    }
  } finally {
    await origin.close(FLUSH_TIME);
  }
  return 0;
}

async function listenOn(
  port: number,
  served: Dashboard,
  context: CommandContext,
): Promise<HttpListener> {
  try {
    return await listenOnLoopback(port, (request, info) => served.fetch(request, info));
  } catch (error) {
    if (error instanceof HubError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    const address = { hostname: HOST, port };
    const { text, advice } = await explainListenError(address, code ?? message, context, "--port");
    throw new HubError("usage", text, { hint: advice });
  }
}

/**
 * Prints the address of the page, and opens it in a browser. The address contains a token, which is printed only on a
 * terminal or with `--json`.
 */
async function show(
  address: DashboardAddress,
  options: DashboardCommandOptions,
  context: CommandContext,
  text: string,
): Promise<void> {
  const { terminal } = context;
  if (options.json) {
    terminal.printJson({ url: address.url });
    return;
  }
  const { port } = address;
  const again = port === DEFAULT_PORT ? "toolmux dashboard" : `toolmux dashboard --port ${port}`;
  const { isTerminal, width } = terminal.stdout;
  terminal.print(wrapText(text, width));
  if (!isTerminal) {
    terminal.print(
      `It listens on http://${HOST}:${port}. In a terminal, or with --json, ${again} shows the link that opens it.`,
    );
    return;
  }
  terminal.print(`\n  ${address.url}\n`);
  const note = `The link works once, within 5 minutes; ${again} shows a new one. Anyone who opens it can change your servers and call your tools.`;
  terminal.print(wrapText(note, width));
  if (options["no-browser"]) return;
  const { openBrowser } = await import("../../auth/browser.ts");
  await openBrowser(await writeRedirect(address, context), context);
}
