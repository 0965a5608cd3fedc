import { HubError } from "../../base/errors.ts";
import { findRunningHubs } from "../../control/running-hubs.ts";
import { type Dashboard, makeDashboard } from "../../dashboard/dashboard.ts";
import { allHubs } from "../../dashboard/hubs.ts";
import { loadPage } from "../../dashboard/page-files.ts";
import {
  addressOf,
  registerDashboard,
  findDashboard,
  writeRedirect,
} from "../../dashboard/running-dashboard.ts";
import { type HttpListener, listen } from "../../frontend/http/listener.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { wrapText } from "../../terminal/terminal.ts";
import { explainListenError } from "../listen-error.ts";
import { untilSignal } from "../serve-hub.ts";

export interface DashboardCommandOptions {
  readonly port: number;
  readonly "no-browser": boolean;
  readonly json: boolean;
}

const DEFAULT_PORT = 8701;
/** The loopback address. Other machines must not connect, because users of the page can run commands here. */
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
    await show(other.url, options, context, `The dashboard is running already (pid ${other.pid}).`);
    return 0;
  }
  await loadPage();
  const served = makeDashboard({
    base: "",
    hubs: allHubs(context),
    page: loadPage,
    logFault: (text) => context.terminal.printStderr(text),
  });
  const listener = await listenOn(port, served, context);
  const url = `http://${HOST}:${listener.port}/`;
  const withdraw = await registerDashboard(served, url, context);
  try {
    const hubs = await findRunningHubs(context);
    const text = `The dashboard is running; Ctrl-C stops it.${hubs.length > 0 ? "" : ` ${NO_HUBS}`}`;
    await show(addressOf(url, served.createToken()), options, context, text);
    await untilSignal(context.signal);
  } finally {
    await withdraw();
    served.close();
    await listener.close(FLUSH_TIME);
  }
  return 0;
}

async function listenOn(
  port: number,
  served: Dashboard,
  context: CommandContext,
): Promise<HttpListener> {
  const address = { hostname: HOST, port };
  try {
    return await listen({ address, fetch: (request, info) => served.fetch(request, info) });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const { text, advice } = await explainListenError(address, code ?? message, context, "--port");
    throw new HubError("usage", text, { hint: advice });
  }
}

/**
 * Prints the address of the page, and opens it in a browser. The address contains a token, which is printed only on a
 * terminal or with `--json`.
 */
async function show(
  address: string,
  options: DashboardCommandOptions,
  context: CommandContext,
  text: string,
): Promise<void> {
  const { terminal } = context;
  if (options.json) {
    terminal.printJson({ url: address });
    return;
  }
  const { isTerminal, width } = terminal.stdout;
  terminal.print(wrapText(text, width));
  if (!isTerminal) {
    terminal.print(
      `It is at ${new URL("./", address).href}. In a terminal, or with --json, toolmux dashboard shows the link with the token that opens it.`,
    );
    return;
  }
  terminal.print(`\n  ${address}\n`);
  const port = Number(new URL(address).port);
  const again = port === DEFAULT_PORT ? "toolmux dashboard" : `toolmux dashboard --port ${port}`;
  const note = `The link works once, within 5 minutes; ${again} shows a new one. Anyone who opens it can change your servers and call your tools.`;
  terminal.print(wrapText(note, width));
  if (options["no-browser"]) return;
  const { openBrowser } = await import("../../auth/browser.ts");
  await openBrowser(await writeRedirect(address, context), context);
}
