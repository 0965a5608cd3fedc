import { formatAge } from "../../base/format.ts";

import { describeIndicator } from "../../upstream/verdict.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { askFor, nameOfClient, runningHubs } from "../running-hub.ts";

/** `toolmux ps`: prints the running hubs of this user. */
export async function ps(
  { options }: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const running = await runningHubs(context);
  const hubs = await Promise.all(
    running.map(async (hub) => {
      const [document, { clients }] = await Promise.all([
        askFor(hub, "GET /hub", context),
        askFor(hub, "GET /clients", context),
      ]);
      return { ...document, clients };
    }),
  );
  if (options.json) {
    terminal.printJson({ hubs });
    return 0;
  }
  const rows = hubs.map((hub) => {
    const { servers, calls, tools } = hub.counts;
    const clients = hub.clients.map(nameOfClient);
    return [
      String(hub.pid),
      formatAge(Date.now() - hub.startedAt),
      hub.version,
      describeIndicator(servers),
      String(tools),
      clients.join(", ") || "none",
      String(calls),
      hub.endpoints.join(" "),
      hub.manifest.join(" ") || "TOOLMUX_SERVERS",
    ];
  });
  const titles = "PID STARTED VERSION SERVERS TOOLS CLIENTS CALLS ENDPOINT MANIFEST".split(" ");
  terminal.printTable(titles, rows);
  return 0;
}
