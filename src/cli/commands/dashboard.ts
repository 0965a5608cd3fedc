import {
  type DashboardAddress,
  findDashboard,
  openDashboard,
  writeRedirect,
} from "../../host/dashboard.ts";
import { untilSignal } from "../../host/serve-hub.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { wrapText } from "../../terminal/terminal.ts";

export interface DashboardCommandOptions {
  readonly port: number;
  readonly "no-browser": boolean;
  readonly json: boolean;
}

const DEFAULT_PORT = 8701;
/** The address in messages. Other machines cannot connect, because users of the page can run commands here. */
const HOST = "127.0.0.1";
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
  // From here on a signal closes the dashboard, also while its address is printed.
  const { signal } = context;
  const running = await openDashboard(port, context, (text) => context.terminal.printStderr(text));
  try {
    const text = `The dashboard is running; Ctrl-C stops it.${running.hasHubs ? "" : ` ${NO_HUBS}`}`;
    await show({ url: running.makeLink(), port: running.port }, options, context, text);
    await untilSignal(signal);
  } finally {
    await running.close();
  }
  return 0;
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
    terminal.printWrapped(
      `It listens on http://${HOST}:${port}. In a terminal, or with --json, ${again} shows the link that opens it.`,
    );
    return;
  }
  terminal.printWrapped(`\n  ${address.url}\n`);
  const note = `The link works once, within 5 minutes; ${again} shows a new one. Anyone who opens it can change your servers and call your tools.`;
  terminal.print(wrapText(note, width));
  if (options["no-browser"]) return;
  const { openBrowser } = await import("../../auth/browser.ts");
  await openBrowser(await writeRedirect(address, context), context);
}
