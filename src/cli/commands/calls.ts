import { pause, systemClock } from "../../base/clock.ts";
import { formatDuration } from "../../base/format.ts";
import type { CallDocument } from "../../control/schemas.ts";
import { alignTable } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  hubColumn,
  type HubOptions,
  untilInterrupted,
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
  const { terminal, signal } = context;
  const hubs = await chosenHubs(invocation, context);
  const show = async (): Promise<void> => {
    const lists = await Promise.all(
      hubs.map(async (hub) => {
        const answer = await askFor(hub, "GET /calls", context);
        return answer.calls.map((call) => ({ hub, call }));
      }),
    );
    const all = lists.flat();
    if (json) {
      const document = { calls: all.map(({ hub, call }) => ({ hub: hub.pid, ...call })) };
      if (watch) terminal.printJsonText(JSON.stringify(document));
      else terminal.printJson(document);
    } else {
      const { titles, cells } = hubColumn(hubs);
      const rows = all.map(({ hub, call }) => [...cells(hub), ...rowOf(call)]);
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
      const table =
        rows.length === 0 ? "no call is running" : alignTable(heads, rows, terminal.stdout);
      if (watch) terminal.printOnClearScreen(table);
      else terminal.print(table);
    }
  };
  await show();
  if (!watch) return 0;
  return untilInterrupted(context, async () => {
    for (;;) {
      await pause(systemClock, INTERVAL, signal);
      await show();
    }
  });
}

function rowOf(call: CallDocument): readonly string[] {
  const { clientName, client = "", principal, progress, waitingFor } = call;
  return [
    String(call.call),
    call.name,
    call.server,
    principal ?? (clientName || client),
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
