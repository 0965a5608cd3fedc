import { formatAge } from "../../base/format.ts";

import { wrapText } from "../../terminal/terminal.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  findRejections,
  type HubOptions,
  listInEach,
  printRejections,
  severalHubs,
} from "../running-hub.ts";

interface AlertsOptions extends HubOptions {
  readonly all: boolean;
}

/**
 * `toolmux alerts`: prints the alerts of running hubs; `alerts dismiss ID` and `alerts dismiss --all` dismiss alerts.
 */
export async function alerts(
  invocation: Invocation<AlertsOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [verb, ...ids] = args;
  if (verb !== undefined && verb !== "dismiss") {
    throw usageError(
      `There is no "alerts ${verb}". Use toolmux alerts, or toolmux alerts dismiss ID.`,
    );
  }
  const { terminal } = context;
  const hubs = await chosenHubs(invocation, context);
  const listed = await listInEach(
    hubs,
    async (hub) => (await askFor(hub, "GET /alerts", context)).alerts,
  );
  const all = listed.map(({ hub, entry: alert }) => ({ hub, alert }));
  if (verb === undefined) {
    const shown = all.filter(({ alert }) => options.all || alert.dismissed !== true);
    if (options.json) {
      const rejected = (await findRejections(hubs, context)).map(({ hub, problems }) => ({
        hub: hub.pid,
        problems,
      }));
      const described = shown.map(({ hub, alert }) => ({ hub: hub.pid, ...alert }));
      terminal.printJson({ alerts: described, ...(rejected.length > 0 && { rejected }) });
      return 0;
    }
    const { colors, width } = terminal.stdout;
    const hasRejections = await printRejections(hubs, context);
    if (shown.length === 0 && !hasRejections) terminal.printWrapped("no alerts");
    for (const { hub, alert } of shown) {
      const { id, client, server, kind, at, text, dismissed } = alert;
      const subject = server ?? (client === undefined ? "hub" : `client ${client}`);
      const note = dismissed === true ? ", dismissed" : "";
      const where = hubs.length > 1 ? `toolmux ${hub.pid}  ` : "";
      const head = `${where}${id}  ${subject}: ${kind} (${formatAge(Date.now() - at)}${note})`;
      terminal.printWrapped(colors.bold(sanitizeLine(head)));
      for (const line of text.split("\n"))
        terminal.print(wrapText(sanitizeLine(line), width, "   "));
    }
    return 0;
  }
  if (options.all === ids.length > 0) {
    throw usageError("Which alert? toolmux alerts dismiss ID …, or --all.");
  }
  const wanted = options.all
    ? all.filter(({ alert }) => alert.dismissed !== true)
    : ids.map((id) => {
        const [found, ...others] = all.filter(({ alert }) => alert.id === id);
        if (found === undefined)
          throw usageError(`There is no alert ${id}: toolmux alerts shows them.`);
        if (others.length > 0) throw severalHubs(`Alert ${id} is`, [found, ...others]);
        return found;
      });
  await Promise.all(
    wanted.map(({ hub, alert: { id } }) =>
      askFor(hub, "POST /alerts/:id/dismiss", context, { params: { id } }),
    ),
  );
  const dismissed = wanted.map(({ alert }) => alert.id);
  if (options.json) terminal.printJson({ dismissed });
  else terminal.printWrapped(`dismissed: ${dismissed.join(", ") || "none"}`);
  return 0;
}
