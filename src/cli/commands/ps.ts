import { nameAndIdOfClient } from "../../base/client-name.ts";
import { formatAge } from "../../base/format.ts";
import { findSharingOffers } from "../../control/sharing.ts";
import { SERVERS_VARIABLE } from "../../manifest/manifest.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { Cell } from "../../terminal/terminal.ts";
import { describeIndicator } from "../../upstream/verdict.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { askFor, describeOldHub, runningHubs } from "../running-hub.ts";

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
      return { ...document, socket: hub.socket, clients };
    }),
  );
  const offers = await findSharingOffers(running, context);
  if (options.json) {
    terminal.printJson({ hubs, ...(offers.length > 0 && { offers }) });
    return 0;
  }
  // Text that people copy has lines of its own: one for each endpoint and file.
  const most = (lists: readonly (readonly string[])[]): number =>
    Math.max(1, ...lists.map((list) => list.length));
  const endpoints = most(hubs.map((hub) => hub.endpoints));
  const files = most(hubs.map((hub) => hub.manifest));
  const rows = hubs.map((hub) => {
    const { servers, calls, tools } = hub.counts;
    return [
      String(hub.pid),
      formatAge(Date.now() - hub.startedAt),
      [hub.version, describeOldHub(hub)].filter((text) => text !== undefined).join(", "),
      describeIndicator(servers),
      String(tools),
      String(calls),
      hub.clients.map(nameAndIdOfClient).join(", ") || "none",
      ...wholeCells(hub.endpoints, endpoints),
      ...wholeCells(hub.manifest.length > 0 ? hub.manifest : [SERVERS_VARIABLE], files),
    ];
  });
  const inLine = ["PID", "STARTED", "VERSION", "SERVERS", "TOOLS", "CALLS"];
  const below = [
    "CLIENTS",
    ...Array.from({ length: endpoints }, () => "ENDPOINT"),
    ...Array.from({ length: files }, () => "MANIFEST"),
  ];
  terminal.printTable([...inLine, ...below], rows, inLine.length);
  for (const { text } of offers) terminal.printWrapped(sanitizeLine(text));
  return 0;
}

/** The texts as cells that are not wrapped, filled up with empty ones. */
function wholeCells(texts: readonly string[], length: number): readonly Cell[] {
  return Array.from({ length }, (_, at) => ({ text: texts[at] ?? "", isWhole: true }));
}
