import { nameAndIdOfClient } from "../../base/client-name.ts";
import { formatDuration } from "../../base/format.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type { CallDocument } from "../../control/schemas.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  hubColumn,
  type HubOptions,
  listInEach,
  watchHubs,
} from "../running-hub.ts";

interface CallsOptions extends HubOptions {
  readonly watch: boolean;
}

/** With `--watch`: the time between two requests to the hubs, in ms. */
const INTERVAL = 500;

/**
 * `toolmux calls`: prints the calls that running hubs have not answered yet; with `--watch` it prints them repeatedly.
 */
export async function calls(
  invocation: Invocation<CallsOptions>,
  context: CommandContext,
): Promise<number> {
  const { json, watch } = invocation.options;
  const { terminal } = context;
  const show = async (hubs: readonly RunningHub[]): Promise<void> => {
    const all = await listInEach(
      hubs,
      async (hub) => (await askFor(hub, "GET /calls", context)).calls,
    );
    if (json) {
      terminal.printJson({ calls: all.map(({ hub, entry }) => ({ hub: hub.pid, ...entry })) });
    } else {
      const { titles, cells } = hubColumn(hubs);
      const rows = all.map(({ hub, entry }) => [...cells(hub), ...rowOf(entry)]);
      const heads = [
        ...titles,
        "CALL",
        "NAME",
        "SERVER",
        "CLIENT",
        "TIME",
        "WAITS FOR",
        "PROGRESS",
      ];
      const [first] = all;
      if (first === undefined) {
        terminal.printWrapped("no call is running");
        return;
      }
      terminal.printTable(heads, rows);
      const which = hubs.length === 1 ? "" : ` --hub ${first.hub.pid}`;
      terminal.printWrapped(`To cancel one: toolmux cancel ${first.entry.call}${which}`);
    }
  };
  if (watch) return watchHubs(invocation, context, INTERVAL, show);
  await show(await chosenHubs(invocation, context));
  return 0;
}

function rowOf(call: CallDocument): readonly string[] {
  const { clientName: name, client: id = "", principal, progress, waitingFor } = call;
  return [
    String(call.call),
    call.name,
    call.server,
    nameAndIdOfClient({ id, name, ...(principal !== undefined && { principal }) }),
    formatDuration(call.duration),
    waitingFor,
    progress === undefined ? "" : describeProgress(progress),
  ];
}

function describeProgress({
  progress,
  total,
  message,
}: NonNullable<CallDocument["progress"]>): string {
  const done = total === undefined ? String(progress) : `${progress} of ${total}`;
  return message === undefined ? done : `${done}: ${message}`;
}
