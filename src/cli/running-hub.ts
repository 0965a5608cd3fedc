import { abortable, pause, sleep, systemClock } from "../base/clock.ts";
import { suggestName } from "../manifest/problems.ts";
import { HubError, toHubError, usageError } from "../base/errors.ts";
import { isOlder, VERSION } from "../base/version.ts";
import { count, formatAge } from "../base/format.ts";
import {
  clientOfHub,
  findHubAbove,
  findIgnoredFolders,
  findRunningHubs,
  type HubRequest,
  type RunningHub,
} from "../control/running-hubs.ts";
import { runningHubReader } from "../control/running-hub-reader.ts";
import type { InputArguments } from "../control/client.ts";
import type { Answer, Route, StreamRoute } from "../control/endpoints.ts";
import type { ServerDocument } from "../control/schemas.ts";
import { sanitizeLine } from "../terminal/log.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { findManifests } from "../manifest/files/discover.ts";
import { manifestIdentity } from "../manifest/identity.ts";
import { serversVariableOf } from "../manifest/manifest.ts";

/** The options of commands that use running hubs. */
export interface HubOptions {
  /** The process id of the hub. */
  readonly hub: string | undefined;
  readonly json: boolean;
}

const NONE_RUNS = "No toolmux of yours is running.";
const HOW_TO_START =
  "An MCP client starts one (toolmux install CLIENT), or start one with: toolmux serve --http 8700";

/** All hubs of this user. @throws {HubError} hubNotRunning if there is none */
export async function runningHubs(context: CommandContext): Promise<readonly RunningHub[]> {
  const hubs = await findRunningHubs(context);
  for (const { path, fault } of findIgnoredFolders(context))
    context.terminal.note(sanitizeLine(`hubs in ${path} are not looked for: ${fault}`));
  if (hubs.length === 0) throw new HubError("hubNotRunning", NONE_RUNS, { hint: HOW_TO_START });
  return hubs;
}

/**
 * The hub that `--hub` names, or else the hubs that serve the manifest in use; all hubs if there is no manifest.
 * @throws {HubError} hubNotRunning if none runs; usage if no hub has the process id of `--hub`
 */
export async function chosenHubs(
  invocation: Invocation<Pick<HubOptions, "hub">>,
  context: CommandContext,
): Promise<readonly [RunningHub, ...RunningHub[]]> {
  const all = await runningHubs(context);
  const { hub: wanted } = invocation.options;
  const listed = `${all.map(({ pid }) => pid).join(", ")} (toolmux ps)`;
  if (wanted !== undefined) {
    const named = all.find(({ pid }) => String(pid) === wanted);
    if (named !== undefined) return [named];
    throw usageError(`No toolmux with process id "${wanted}" is running. Running: ${listed}.`);
  }
  const [first, ...others] = await hubsOfManifest(invocation, context, all);
  if (first !== undefined) return [first, ...others];
  const text = "No toolmux that serves this manifest is running.";
  throw new HubError("hubNotRunning", text, {
    hint: `Others run: ${listed}. Choose one with --hub PID.`,
  });
}

/** The hubs of `hubs` that serve the manifest in use; all if no manifest is found. */
export async function hubsOfManifest(
  invocation: Invocation,
  context: CommandContext,
  hubs: readonly RunningHub[],
): Promise<readonly RunningHub[]> {
  const { env, cwd, platform } = context;
  const options = { files: invocation.config, env, cwd, platform };
  const { files } = await findManifests(options);
  if (files.length === 0 && invocation.config.length === 0) {
    if (serversVariableOf(env) === "") return hubs;
    const { loadManifest } = await import("../manifest/load.ts");
    if (!(await loadManifest(options)).ok) return hubs;
  }
  // A manifest is identified by its files, so that its code and schemas need not be loaded.
  const sources = files.map(({ path }) => path);
  const id = await manifestIdentity({ sources, servers: [] }, env);
  return hubs.filter(({ manifestId }) => manifestId === id);
}

/**
 * The hub through which a command works: the one that `--hub` names, or else the oldest one that serves the manifest.
 * @returns undefined if no hub serves the manifest, or with `--fresh`
 * @throws {HubError} usage if no hub has the process id of `--hub`
 */
export async function hubToUse(
  invocation: Invocation<{ readonly fresh: boolean; readonly hub: string | undefined }>,
  context: CommandContext,
): Promise<RunningHub | undefined> {
  const { fresh, hub } = invocation.options;
  if (hub !== undefined) return (await chosenHubs(invocation, context))[0];
  const hubs = fresh ? [] : await servingHubs(invocation, context);
  noteChoice(hubs, context);
  return hubs[0];
}

/** The running hubs that serve the manifest in use. */
export async function servingHubs(
  invocation: Invocation,
  context: CommandContext,
): Promise<readonly RunningHub[]> {
  const running = await findRunningHubs(context);
  return running.length === 0 ? [] : hubsOfManifest(invocation, context, running);
}

/** Says which hub a command uses, the oldest, if several serve the manifest. */
export function noteChoice(hubs: readonly RunningHub[], { terminal }: CommandContext): void {
  const [first, ...others] = hubs;
  if (first === undefined || others.length === 0) return;
  const pids = others.map(({ pid }) => pid).join(", ");
  terminal.note(
    `${hubs.length} hubs serve this manifest: this is toolmux ${first.pid}; to choose ${pids}: --hub PID`,
  );
}

/** How long a command waits until a server of a running hub is neither starting nor stopping any more, in s. */
const SETTLE_WAIT = 30;

/** Describes a server of a running hub: `in toolmux 4711: files: connected, 5 tools`. */
export function describeInHub({ pid }: RunningHub, server: ServerDocument): string {
  const tools = server.state === "connected" ? `, ${count(server.shown, "tool")}` : "";
  return `in toolmux ${pid}: ${server.name}: ${server.statusText}${tools}`;
}

/**
 * Makes the hubs that serve the manifest in use read it again.
 * @returns one line for each hub
 */
export async function reloadHubs(
  invocation: Invocation,
  context: CommandContext,
): Promise<readonly string[]> {
  const hubs = await servingHubs(invocation, context);
  return Promise.all(
    hubs.map(async (hub) => {
      try {
        const { counts } = await askFor(hub, "POST /reload", context);
        return `toolmux ${hub.pid}: reloaded, ${count(counts.servers.total, "server")}`;
      } catch (error) {
        return `toolmux ${hub.pid}: ${toHubError(error).message}`;
      }
    }),
  );
}

/**
 * Makes the hubs that serve the manifest in use read it again.
 * @returns one line for each hub: the state of `server` in that hub, or that the hub does not have it; hubs that
 * reject the manifest are left out
 */
export async function applyToHubs(
  server: string,
  invocation: Invocation,
  context: CommandContext,
): Promise<readonly string[]> {
  const { signal } = context;
  const hubs = await servingHubs(invocation, context);
  const lines = await Promise.all(
    hubs.map(async (hub): Promise<readonly string[]> => {
      try {
        await askFor(hub, "POST /reload", context);
        const timeout = (SETTLE_WAIT + 10) * 1000;
        const described = await askFor(
          hub,
          "GET /servers/:name",
          { signal, timeout },
          {
            params: { name: server },
            query: { wait: `${SETTLE_WAIT}s` },
          },
        );
        return [describeInHub(hub, described)];
      } catch (error) {
        signal.throwIfAborted();
        const isGone = error instanceof HubError && error.code === "notFound";
        return isGone ? [`in toolmux ${hub.pid}: ${server} no longer exists`] : [];
      }
    }),
  );
  return lines.flat();
}

/**
 * The hub that a command acts on, if there is exactly one.
 * @throws {HubError} hubNotRunning; usage if there are several
 */
export async function onlyHub(
  invocation: Invocation<Pick<HubOptions, "hub">>,
  context: CommandContext,
): Promise<RunningHub> {
  const hubs = await chosenHubs(invocation, context);
  if (hubs.length === 1) return hubs[0];
  const found = hubs.map((hub) => ({ hub }));
  throw severalHubs("The manifest is served", found);
}

/**
 * Sends a request to an endpoint of a hub's control API.
 * @param options `timeout`: a time limit in ms
 * @throws {HubError} what `askHub` throws
 */
export async function askFor<R extends Exclude<Route, StreamRoute>>(
  hub: RunningHub,
  route: R,
  options: Pick<HubRequest, "signal" | "timeout">,
  ...input: InputArguments<R>
): Promise<Answer<R>> {
  return (await clientOfHub(hub, options)(route, ...input)).value;
}

/** The hubs that have rejected their manifest, with its problems as `toolmux check` prints them. */
export async function findRejections(
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<readonly { readonly hub: RunningHub; readonly problems: string }[]> {
  const found = await Promise.all(
    hubs.map(async (hub) => {
      const { rejected } = await askFor(hub, "GET /hub", context);
      return rejected === undefined ? [] : [{ hub, problems: rejected }];
    }),
  );
  return found.flat();
}

/** Prints which of the hubs have rejected their manifest, and why. @returns whether there are any */
export async function printRejections(
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<boolean> {
  const { terminal } = context;
  const rejections = await findRejections(hubs, context);
  for (const { hub, problems } of rejections) {
    const head = `toolmux ${hub.pid} has rejected its manifest, and goes on with the one before:`;
    terminal.printWrapped(terminal.stdout.colors.red(head));
    for (const line of problems.split("\n")) terminal.printWrapped(`   ${sanitizeLine(line)}`);
  }
  return rejections.length > 0;
}

/** A server, and the hub that it belongs to. */
export interface FoundServer {
  readonly hub: RunningHub;
  readonly server: ServerDocument;
}

/**
 * Finds the named servers and the hub of each.
 * @param which `only`: just one hub may have a server of that name; `all`: takes the server of every hub that has one
 * @throws {HubError} usage if no hub has a server of that name, or, with `only`, several hubs have one
 */
export async function findServers(
  names: readonly string[],
  invocation: Invocation<Pick<HubOptions, "hub">>,
  context: CommandContext,
  which: "only" | "all" = "only",
): Promise<readonly FoundServer[]> {
  const hubs = await chosenHubs(invocation, context);
  const all = await allServers(hubs, context);
  return names.flatMap((name) => {
    const [found, ...others] = all.filter(({ server }) => server.name === name);
    if (found === undefined) {
      const known = [...new Set(all.map(({ server }) => server.name))];
      const more = suggestName(name, known) || ` It has ${known.join(", ") || "none"}.`;
      throw usageError(`The running toolmux has no server "${name}".${more}`);
    }
    if (which === "all") return [found, ...others];
    if (others.length > 0) throw severalHubs(`Server "${name}" is`, [found, ...others]);
    return [found];
  });
}

/** The error if a command needs a single hub, but several hubs match. @param what the beginning of the message */
export function severalHubs(
  what: string,
  found: readonly { readonly hub: RunningHub }[],
): HubError {
  const pids = found.map(({ hub }) => hub.pid).join(", ");
  return usageError(`${what} in several hubs: ${pids}. Choose one with --hub PID.`);
}

/** What each of several hubs lists, together with the hub; hub after hub. */
export async function listInEach<Entry>(
  hubs: readonly RunningHub[],
  list: (hub: RunningHub) => Promise<readonly Entry[]>,
): Promise<readonly { readonly hub: RunningHub; readonly entry: Entry }[]> {
  const ofEach = hubs.map(async (hub) => (await list(hub)).map((entry) => ({ hub, entry })));
  return (await Promise.all(ofEach)).flat();
}

export async function allServers(
  hubs: readonly RunningHub[],
  { signal }: CommandContext,
): Promise<readonly FoundServer[]> {
  const all = await listInEach(hubs, (hub) => runningHubReader(hub, { signal }).servers());
  return all.map(({ hub, entry: server }) => ({ hub, server }));
}

/**
 * Refuses a decision of a person inside a process that a running hub has started: a tool does not approve itself.
 * @param what what a tool does not do
 * @throws {HubError} usage
 */
export async function refuseInsideHub(
  context: CommandContext,
  what = "approve calls",
): Promise<void> {
  const hub = await findHubAbove(await findRunningHubs(context), context.env);
  if (hub === undefined) return;
  throw usageError(
    `This command runs inside toolmux ${hub.pid}, started by one of its servers: a tool does not ${what}. Decide in a terminal of your own, or on the page.`,
  );
}

/** Describes a hub: `toolmux 4711 (stdio, started 5 min ago)`, `… (shared, 0.2.9, older than the installed 0.3.0, …)`. */
export function describeHub({ pid, endpoints, startedAt, version }: RunningHub): string {
  const age = describeOldHub({ version });
  const facts = [
    ...endpoints,
    ...(age === undefined ? [] : [`${version}, ${age}`]),
    `started ${formatAge(Date.now() - startedAt)}`,
  ];
  return `toolmux ${pid} (${facts.join(", ")})`;
}

/** Says that a hub is older than this program; undefined if it is not. */
export function describeOldHub({ version }: Pick<RunningHub, "version">): string | undefined {
  return isOlder(version) ? `older than the installed ${VERSION}` : undefined;
}

/** The title and the cells of a table column with the hub's process id; without content if there is only one hub. */
export function hubColumn(hubs: readonly RunningHub[]): {
  readonly titles: readonly string[];
  readonly cells: (hub: RunningHub) => readonly string[];
} {
  return hubs.length > 1
    ? { titles: ["HUB"], cells: ({ pid }) => [String(pid)] }
    : { titles: [], cells: () => [] };
}

/** Interval of the searches for hubs that have started since, in ms. */
const SEARCH_INTERVAL = 1000;
/** Delay before a lost connection to a hub is opened again, in ms. */
const RECONNECT_DELAY = 200;

/**
 * The hubs that a command goes on with: those of the manifest in use that run now. With `--hub`, the named hub, or, when
 * it has ended, the hubs that serve the same manifest.
 */
async function hubsNow(
  before: readonly [RunningHub, ...RunningHub[]],
  invocation: Invocation<Pick<HubOptions, "hub">>,
  context: CommandContext,
): Promise<readonly RunningHub[]> {
  const running = await findRunningHubs(context);
  if (invocation.options.hub === undefined) return hubsOfManifest(invocation, context, running);
  const [{ socket, manifestId }] = before;
  const named = running.find((hub) => hub.socket === socket);
  return named === undefined ? running.filter((hub) => hub.manifestId === manifestId) : [named];
}

/**
 * Follows the chosen hubs, and the hubs of the same manifest that start later, until the signal is aborted. Says when one
 * has ended, and when it goes on with another one.
 * @param follow settles when the hub has ended, or the connection to it is lost. `isLater`: the hub has started since
 */
export async function followHubs(
  invocation: Invocation<Pick<HubOptions, "hub">>,
  context: CommandContext,
  hubs: readonly [RunningHub, ...RunningHub[]],
  follow: (hub: RunningHub, isLater: boolean) => Promise<void>,
): Promise<never> {
  const { signal, terminal } = context;
  const followed = new Set<Promise<void>>();
  const seen = new Set((await findRunningHubs(context)).map(({ socket }) => socket));
  const add = (hub: RunningHub, isLater: boolean): void => {
    seen.add(hub.socket);
    const run = async (): Promise<void> => {
      await followToEnd(hub, () => follow(hub, isLater), context);
      followed.delete(done);
      const next = followed.size > 0 ? "" : "; waiting until one serves its manifest again";
      terminal.note(`toolmux ${hub.pid} has ended${next}`);
    };
    const done = run();
    followed.add(done);
  };
  for (const hub of hubs) add(hub, false);
  for (;;) {
    await Promise.race([...followed, abortable(sleep(SEARCH_INTERVAL), signal)]);
    signal.throwIfAborted();
    if (invocation.options.hub !== undefined && followed.size > 0) continue;
    const now = await hubsNow(hubs, invocation, context);
    for (const hub of now.filter(({ socket }) => !seen.has(socket))) {
      terminal.note(`goes on with ${describeHub(hub)}`);
      add(hub, true);
    }
  }
}

/** Follows a hub until it has ended, also after a lost connection. @throws the signal's reason */
async function followToEnd(
  { socket }: RunningHub,
  follow: () => Promise<void>,
  context: CommandContext,
): Promise<void> {
  const { signal } = context;
  do {
    await follow().catch((error: unknown) => {
      // The hub has ended before a request to it was answered.
      if (!(error instanceof HubError) || error.code !== "hubNotRunning") throw error;
    });
    signal.throwIfAborted();
    await pause(systemClock, RECONNECT_DELAY, signal);
  } while ((await findRunningHubs(context)).some((hub) => hub.socket === socket));
}

/**
 * Shows something of the chosen hubs again and again, until Ctrl-C. While none runs, says so, and goes on with the next.
 * @param interval the time between two requests to the hubs, in ms
 * @param show prints the state of the hubs
 * @returns the exit code
 */
export async function watchHubs(
  invocation: Invocation<HubOptions>,
  context: CommandContext,
  interval: number,
  show: (hubs: readonly [RunningHub, ...RunningHub[]]) => Promise<unknown>,
): Promise<number> {
  const { terminal, signal } = context;
  const chosen = await chosenHubs(invocation, context);
  let hubs: readonly RunningHub[] = chosen;
  const draw = async (): Promise<void> => {
    const [first, ...others] = hubs;
    if (first === undefined) throw new HubError("hubNotRunning", "The hub has ended.");
    const text = await terminal.gather(() => show([first, ...others]));
    if (invocation.options.json) terminal.printJsonText(JSON.stringify(JSON.parse(text)));
    else terminal.printOnClearScreen(text);
  };
  let isMissing = false;
  return untilInterrupted(context, async () => {
    for (;;) {
      try {
        await draw();
        isMissing = false;
      } catch (error) {
        if (!(error instanceof HubError) || error.code !== "hubNotRunning") throw error;
        const text = "the hub has ended; waiting until one serves its manifest again";
        if (!isMissing) terminal.note(text);
        isMissing = true;
      }
      await pause(systemClock, interval, signal);
      hubs = await hubsNow(chosen, invocation, context);
    }
  });
}

/**
 * Runs work that usually only Ctrl-C ends.
 * @returns the exit code: 0 if the work ends by itself, else that of `cancelled`
 */
export async function untilInterrupted(
  { signal }: CommandContext,
  work: () => Promise<unknown>,
): Promise<number> {
  try {
    await work();
    return 0;
  } catch (error) {
    if (!signal.aborted) throw error;
    return new HubError("cancelled", "Interrupted.").properties.exit;
  }
}
