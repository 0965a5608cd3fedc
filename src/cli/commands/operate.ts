import { systemClock } from "../../base/clock.ts";
import { count } from "../../base/format.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type { ServerDocument } from "../../control/schemas.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { showWaiting } from "../../terminal/terminal.ts";
import { HubError, usageError } from "../../base/errors.ts";
import type { CommandContext, CommandRun, Invocation } from "../command.ts";
import {
  allServers,
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
 * `toolmux cancel SERVER` cancels the server's attempt to connect or its login; `toolmux cancel N`, or `--call N`,
 * cancels a call. If there is nothing to cancel, the exit code is 1.
 */
export async function cancel(
  invocation: Invocation<CancelOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  if ((options.call === undefined) === (args.length === 0)) {
    throw usageError("Cancel what? toolmux cancel SERVER, or a call: toolmux cancel N");
  }
  const hubs = await chosenHubs(invocation, context);
  const call = options.call ?? (await callNamed(args[0], hubs, context));
  if (call !== undefined) return cancelCall(call, hubs, options, context);
  const [found] = await findServers(args, invocation, context);
  if (found === undefined) return 0;
  const { name, state, statusText } = found.server;
  if (!CANCELLABLE.includes(state)) {
    const text = `nothing to cancel: ${name} is neither connecting nor logging in (${statusText})`;
    return reportNothing(text, options, context);
  }
  const input = { params: { name } };
  const server = await askFor(found.hub, "POST /servers/:name/cancel", context, input);
  printServers([{ hub: found.hub, server }], options, context);
  return 0;
}

/** The states in which something of a server can be cancelled. */
const CANCELLABLE: readonly ServerDocument["state"][] = [
  "connecting",
  "authenticating",
  "reconnecting",
];

/** The number of the call that a word stands for; undefined if it is the name of a server, or no number. */
async function callNamed(
  word: string | undefined,
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<string | undefined> {
  if (word === undefined || !/^\d+$/.test(word)) return undefined;
  const isServer = (await allServers(hubs, context)).some(({ server }) => server.name === word);
  return isServer ? undefined : word;
}

async function cancelCall(
  call: string,
  hubs: readonly RunningHub[],
  options: CancelOptions,
  context: CommandContext,
): Promise<number> {
  if (!/^\d+$/.test(call)) throw usageError(`--call needs the number of a call, not "${call}".`);
  const hub = await hubOfCall(call, hubs, context);
  const isCancelled =
    hub !== undefined &&
    (await askFor(hub, "POST /calls/:call/cancel", context, { params: { call } }).then(
      () => true,
      (error: unknown) => {
        // It has ended since.
        if (error instanceof HubError && error.code === "notFound") return false;
        throw error;
      },
    ));
  if (!isCancelled) {
    const text = `nothing to cancel: no call ${call} is running; toolmux calls shows those that are`;
    return reportNothing(text, options, context);
  }
  if (options.json) context.terminal.printJson({ cancelled: Number(call), hub: hub.pid });
  else context.terminal.print(`cancelled call ${call}`);
  return 0;
}

/** Says that there is nothing to cancel. @returns the exit code */
function reportNothing(text: string, { json }: HubOptions, { terminal }: CommandContext): number {
  if (json) terminal.printJson({ cancelled: null, reason: text });
  else terminal.note(sanitizeLine(text));
  return 1;
}

/** The hub in which a call runs; undefined if none runs. @throws {HubError} usage if it runs in several hubs */
async function hubOfCall(
  call: string,
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<RunningHub | undefined> {
  const found = await Promise.all(
    hubs.map(async (hub) => {
      const { calls } = await askFor(hub, "GET /calls", context);
      return calls.some((one) => String(one.call) === call) ? [{ hub }] : [];
    }),
  );
  const [first, ...others] = found.flat();
  if (first !== undefined && others.length > 0)
    throw severalHubs(`Call ${call} runs`, [first, ...others]);
  return first?.hub;
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
