import { systemClock } from "../../base/clock.ts";
import { count } from "../../base/format.ts";
import type { RunningHub } from "../../control/running-hubs.ts";

import { sanitizeLine } from "../../terminal/log.ts";
import { showWaiting } from "../../terminal/terminal.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, CommandRun, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  findServers,
  type FoundServer,
  type HubOptions,
  runningHubs,
  severalHubs,
} from "../running-hub.ts";

interface VerbOptions extends HubOptions {
  readonly "no-wait"?: boolean;
  readonly failed?: boolean;
  readonly all?: boolean;
}

type Verb = "start" | "stop" | "reconnect" | "refresh";

/** How long a command waits for a server, in s: longer than the usual `connectTimeout`. */
const WAIT = 60;

/**
 * `toolmux start|stop|reconnect|refresh SERVER …`: controls servers of a running hub, and prints their new states.
 */
export function operate(verb: Verb): CommandRun<VerbOptions> {
  return async (invocation, context) => {
    const { args, options } = invocation;
    if (verb === "stop" && args.length === 0) return stopHub(invocation, context);
    const found = await targets(verb, invocation, context);
    const line = options.json ? undefined : context.terminal.openStatusLine();
    const names = found.map(({ server }) => server.name).join(", ");
    const endWaiting = line && showWaiting(line, `${verb}: ${names}`, systemClock);
    const isWaiting = options["no-wait"] !== true;
    const servers = await Promise.all(
      found.map(async ({ hub, server }) => {
        const limits = {
          signal: context.signal,
          ...(isWaiting && { timeout: (WAIT + 10) * 1000 }),
        };
        const input = {
          params: { name: server.name },
          query: { wait: isWaiting ? `${WAIT}s` : undefined },
        };
        return { hub, server: await askFor(hub, `POST /servers/:name/${verb}`, limits, input) };
      }),
    ).finally(endWaiting);
    printServers(servers, options, context);
    if (servers.length === 0 && !options.json)
      context.terminal.print(
        options.failed === true ? "no server has failed" : `there is no server to ${verb}`,
      );
    const hasFailed = servers.some(
      ({ server: { state } }) => state === "failed" || state === "reconnecting",
    );
    return isWaiting && verb !== "stop" && hasFailed ? 3 : 0;
  };
}

/**
 * The servers that a command acts on. If servers are named: with `--all` those of every hub that has them, otherwise
 * those of the only hub that has them. If none is named: with `--failed` the servers that have failed; with `--all`
 * those that are not stopped, or to start, those that are not disabled.
 */
async function targets(
  verb: Verb,
  invocation: Invocation<VerbOptions>,
  context: CommandContext,
): Promise<readonly FoundServer[]> {
  const { args, options } = invocation;
  const isForMany = options.failed === true || options.all === true;
  if (args.length > 0) {
    if (options.failed === true)
      throw usageError("--failed selects the servers: do not name servers with it.");
    return findServers(args, invocation, context, options.all === true ? "all" : "only");
  }
  if (!isForMany)
    throw usageError(`Which server? toolmux ${verb} SERVER; toolmux status shows them.`);
  const { allServers } = await import("../running-hub.ts");
  const all = await allServers(await chosenHubs(invocation, context), context);
  if (options.all === true && verb === "start")
    return all.filter(({ server }) => server.state !== "disabled");
  if (options.all === true) return all.filter(({ server }) => server.goal !== "down");
  return all.filter(({ server: { state } }) => state === "failed" || state === "reconnecting");
}

function printServers(
  found: readonly FoundServer[],
  { json }: HubOptions,
  { terminal }: CommandContext,
): void {
  if (json) {
    terminal.printJson({ servers: found.map(({ hub, server }) => ({ hub: hub.pid, ...server })) });
    return;
  }
  const isInMany = new Set(found.map(({ hub }) => hub)).size > 1;
  for (const { hub, server } of found) {
    const { name, state, statusText, shown } = server;
    const tools = state === "connected" ? `, ${count(shown, "tool")}` : "";
    const failed = state === "failed" ? "failed: " : "";
    terminal.print(
      sanitizeLine(
        `${isInMany ? `in toolmux ${hub.pid}: ` : ""}${name}: ${failed}${statusText}${tools}`,
      ),
    );
  }
}

/** `toolmux stop --hub PID`: ends a hub. */
async function stopHub(
  invocation: Invocation<VerbOptions>,
  context: CommandContext,
): Promise<number> {
  const { options } = invocation;
  if (options.hub === undefined) {
    throw usageError(
      "What should stop? toolmux stop SERVER, or a whole hub: toolmux stop --hub PID",
    );
  }
  const [hub] = await chosenHubs(invocation, context);
  await askFor(hub, "POST /stop", context);
  const { terminal } = context;
  if (options.json) terminal.printJson({ stopped: hub.pid });
  else terminal.print(`stopped toolmux ${hub.pid}; a client that needs it may start it again`);
  return 0;
}

interface CancelOptions extends HubOptions {
  readonly call: string | undefined;
}

/**
 * `toolmux cancel SERVER` cancels the server's attempt to connect or its login; `toolmux cancel --call N` cancels a
 * call.
 */
export async function cancel(
  invocation: Invocation<CancelOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const { call } = options;
  if ((call === undefined) === (args.length === 0)) {
    throw usageError("Cancel what? toolmux cancel SERVER, or a call: toolmux cancel --call N");
  }
  if (call === undefined) {
    const found = await findServers(args, invocation, context);
    const servers = await Promise.all(
      found.map(async ({ hub, server }) => {
        const input = { params: { name: server.name } };
        return { hub, server: await askFor(hub, "POST /servers/:name/cancel", context, input) };
      }),
    );
    printServers(servers, options, context);
    return 0;
  }
  const hubs = await chosenHubs(invocation, context);
  const hub = hubs.length === 1 ? hubs[0] : await hubOfCall(call, hubs, context);
  await askFor(hub, "POST /calls/:call/cancel", context, { params: { call } });
  if (options.json) context.terminal.printJson({ cancelled: Number(call), hub: hub.pid });
  else context.terminal.print(`cancelled call ${sanitizeLine(call)}`);
  return 0;
}

async function hubOfCall(
  call: string,
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<RunningHub> {
  const found = await Promise.all(
    hubs.map(async (hub) => {
      const { calls } = await askFor(hub, "GET /calls", context);
      return calls.some((one) => String(one.call) === call) ? [{ hub }] : [];
    }),
  );
  const [first, ...others] = found.flat();
  if (first === undefined)
    throw usageError(`There is no running call ${call}: toolmux calls shows them.`);
  if (others.length > 0) throw severalHubs(`Call ${call} runs`, [first, ...others]);
  return first.hub;
}

/**
 * `toolmux reload`: makes every hub that serves the manifest read it again; with `--all`, all hubs read their
 * manifests.
 */
export async function reload(
  invocation: Invocation<HubOptions & { readonly all: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { all, hub: named } = invocation.options;
  if (all && named !== undefined) throw usageError("--all selects all hubs: leave out --hub.");
  const hubs = all ? await runningHubs(context) : await chosenHubs(invocation, context);
  const documents = await Promise.all(hubs.map((hub) => askFor(hub, "POST /reload", context)));
  const { terminal } = context;
  // Problems of single tables do not keep a hub from taking over the rest of its manifest.
  const checks = await Promise.all(hubs.map((hub) => askFor(hub, "POST /check", context)));
  const code = checks.every(({ ok }) => ok) ? 0 : 2;
  if (invocation.options.json) {
    const described = documents.map((hub, at) => ({
      ...hub,
      problems: checks[at]?.problems ?? [],
    }));
    terminal.printJson({ hubs: described });
    return code;
  }
  for (const [at, { pid, counts }] of documents.entries()) {
    terminal.print(`toolmux ${pid}: reloaded, ${count(counts.servers.total, "server")}`);
    for (const { file, line, column, message } of checks[at]?.problems ?? []) {
      const place = [file, line, column].filter((part) => part !== null && part !== undefined);
      terminal.note(sanitizeLine([...place, ` ${message}`].join(":").trim()));
    }
  }
  return code;
}
