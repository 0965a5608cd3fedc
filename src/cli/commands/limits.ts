import { usageError } from "../../base/errors.ts";
import type { LimitDocument } from "../../control/schemas.ts";
import { formatCallCount } from "../../manifest/call-limits.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { alignTable } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  hubColumn,
  type HubOptions,
  listInEach,
  refuseInsideHub,
} from "../running-hub.ts";

/** `toolmux limits`: shows the limits of running hubs; `limits reset CLIENT` forgets the calls of a client. */
export async function limits(
  invocation: Invocation<HubOptions>,
  context: CommandContext,
): Promise<number> {
  const [verb, client] = invocation.args;
  if (verb === undefined) return showLimits(invocation, context);
  if (verb !== "reset")
    throw usageError(
      `There is no "limits ${verb}". Use toolmux limits, or toolmux limits reset CLIENT.`,
    );
  if (client === undefined) throw usageError("Which client? toolmux limits reset CLIENT");
  await refuseInsideHub(context, "reset limits");
  const { terminal } = context;
  const hubs = await chosenHubs(invocation, context);
  const results = await Promise.allSettled(
    hubs.map((hub) => askFor(hub, "POST /limits/:client/reset", context, { params: { client } })),
  );
  // A client without a name in the manifest is known to one hub.
  const [failed] = results.flatMap((result) => (result.status === "rejected" ? [result] : []));
  if (failed !== undefined && results.every(({ status }) => status === "rejected"))
    throw failed.reason;
  if (invocation.options.json) terminal.printJson({ reset: client });
  else terminal.printWrapped(`the calls of client ${sanitizeLine(client)} count anew`);
  return 0;
}

async function showLimits(
  invocation: Invocation<HubOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const hubs = await chosenHubs(invocation, context);
  const all = await listInEach(
    hubs,
    async (hub) => (await askFor(hub, "GET /limits", context)).limits,
  );
  if (invocation.options.json) {
    terminal.printJson({ limits: all.map(({ hub, entry }) => ({ hub: hub.pid, ...entry })) });
    return 0;
  }
  if (all.length === 0) {
    terminal.printWrapped("no calls are limited");
    return 0;
  }
  const { titles, cells } = hubColumn(hubs);
  const rows = all.map(({ hub, entry: limit }) => {
    const { rate, quota, running, maxConcurrent, queued, maxQueued, refused } = limit;
    return [
      ...cells(hub),
      sanitizeLine(subjectOf(limit)),
      rate === undefined ? "-" : `${rate.left} left of ${formatCallCount(rate)}`,
      quota === undefined ? "-" : `${quota.used} of ${formatCallCount(quota)}`,
      maxConcurrent === undefined ? String(running) : `${running} of ${maxConcurrent}`,
      maxQueued === undefined ? String(queued) : `${queued} of ${maxQueued}`,
      String(refused),
    ];
  });
  const heads = [...titles, "OF", "RATE", "QUOTA", "RUNNING", "WAITING", "REFUSED"];
  terminal.print(alignTable(heads, rows, terminal.stdout));
  return 0;
}

/** Whose limit it is: `all calls`, `client ci`, `server db`, `tool search_* of db`. */
function subjectOf({ kind, client = "", server = "", tool = "" }: LimitDocument): string {
  switch (kind) {
    case "hub":
      return "all calls";
    case "client":
      return client === "anybody" ? "clients without a name" : `client ${client}`;
    case "server":
      return `server ${server}`;
    case "tool":
      return `tool ${tool} of ${server}`;
  }
}
