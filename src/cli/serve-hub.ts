import process from "node:process";
import type { RunningHttpServer, ServedHub } from "../frontend/http/server.ts";
import { StdioServerTransport } from "../frontend/stdio.ts";
import { isRunnable, LIMIT_DEFAULTS, type Manifest } from "../manifest/schema.ts";
import type { ManifestWatcher } from "../manifest/watch.ts";
import type { Snapshots } from "../snapshot/snapshots.ts";
import { settlesWithin } from "../base/clock.ts";
import { type HttpAddress, TOKEN_NAME, withManifestToken } from "./http-address.ts";
import { type CommandLog, type LoadedBasis, loadOptions } from "./load-manifest.ts";
import type { CommandContext, Invocation } from "./command.ts";
import type { LogTapeLogger } from "../terminal/logtape.ts";
import { eventKindsAtLevel, formatLogRecord, makeLogRecord } from "../terminal/log.ts";
import { type OpenedHub, openHub, openSnapshots, type PluginSetup } from "./open-hub.ts";
import { usageError } from "./args.ts";
import { isStaticServer } from "./recalled-instructions.ts";
import type { HubRecording } from "./commands/record.ts";

/** Delay of work that can wait until the first response is sent, in ms. */
const SETTLING = 100;
/** Interval for checking that the parent process is the same, in ms. */
const PARENT_INTERVAL = 2000;
/** Longest wait for writing the initialize cache at shutdown, in ms. */
const KEEP_LIMIT = 500;

const OPEN =
  "no token is asked for: every user of this machine can call every tool here, with what the servers were given; --token auto makes one";

/** Outputs for people: log records, and plain text. */
export interface HostOutput {
  readonly journal: LogTapeLogger;
  readonly log: CommandLog;
  tell(text: string): void;
}

/** What to serve, and how. */
export interface ServeOptions {
  readonly invocation: Invocation;
  readonly world: CommandContext;
  readonly voices: HostOutput;
  readonly basis: LoadedBasis;
  /** The HTTP address from the command line; undefined: stdio only. */
  readonly wanted: HttpAddress | undefined;
}

/** Serves the servers of a manifest; see `serve`. */
export async function serveHub({
  invocation,
  world,
  voices,
  basis,
  wanted,
}: ServeOptions): Promise<number> {
  const { journal, log } = voices;
  const address = wanted && (await withManifestToken(wanted, basis.manifest.httpToken, world));
  if (address !== undefined && address.token === undefined) log("warn", OPEN);
  const recording = await openRecording(invocation, world, address, log);
  const classes = new Set<string>();
  const opened = await openHub(basis.manifest, world, log, {
    kinds: eventKindsAtLevel(invocation.logLevel),
    snapshots: noteClasses(openSnapshots(world, log), classes),
    openTap: recording?.openTap,
    secrets: address?.token === undefined ? [] : [address.token],
  });
  const { hub, bus, close } = opened;
  recording?.manifest(opened.manifest);
  // The first state event of a server follows the first client's first response, so LogTape is loaded after
  // that.
  const forget = bus.subscribe(() => {
    forget();
    setImmediate(() => journal.open());
  }, ["state"]);
  const limit = messageLimit(basis.manifest);
  const isOnStdio = address === undefined || invocation.stdio;
  const ends = [untilSignal(world.signal)];
  if (isOnStdio) {
    const own = new StdioServerTransport(limit, world.welcome);
    ends.push(hub.accept(recording?.client(own) ?? own, world.signal), untilParentGone());
  }
  let isOver = false;
  let following: ManifestWatcher | undefined;
  const look = (): void => following?.check();
  // A client's process ends with its terminal; a hub that serves over HTTP goes on, and SIGHUP reloads its
  // manifest.
  if (!isOnStdio) world.hangups.add(look);
  const follow = async (): Promise<void> => {
    journal.open();
    const { followManifest } = await import("./reload.ts");
    if (isOver) return;
    const equip: PluginSetup = async (manifest, stay) => {
      const equipped = await opened.equip(manifest, stay);
      if (equipped.ok) recording?.manifest(equipped.manifest);
      return equipped;
    };
    const options = {
      ...loadOptions(invocation, world),
      runningPrefixes: () => hub.prefixes,
    };
    following = followManifest({ hub, equip }, options, basis, log);
    await settle(basis.manifest, isOnStdio, invocation, voices);
  };
  setTimeout(() => void follow(), SETTLING).unref();
  let face: RunningHttpServer | undefined;
  try {
    if (address !== undefined) {
      face = await openHttp(recording?.face(hub) ?? hub, address, limit);
    }
    if (face !== undefined) {
      tellPlace(face, basis.manifest, invocation, voices);
      if (address !== undefined) await tellToken(face, address, invocation, voices);
    }
    await Promise.race(ends);
  } finally {
    isOver = true;
    world.hangups.delete(look);
    following?.close();
    await face?.close();
    const kept = keepGreeting(opened, classes, world);
    await close();
    await recording?.close();
    await settlesWithin(KEEP_LIMIT, kept);
  }
  return 0;
}

/** Opens the recording of `--record`; without that option nothing is loaded or checked. */
async function openRecording(
  invocation: Invocation,
  world: CommandContext,
  address: HttpAddress | undefined,
  log: CommandLog,
): Promise<HubRecording | undefined> {
  const path = invocation.values.get("record")?.at(-1);
  if (path === undefined) {
    if (!invocation.values.has("record-limit")) return undefined;
    throw usageError("--record-limit says how much a recording holds: it needs --record.");
  }
  const { openHubRecording: open } = await import("./commands/record.ts");
  const secrets = address?.token === undefined ? [] : [address.token];
  return open(path, invocation, world, secrets, (text) => log("warn", text));
}

/** Collects the client capability classes for which snapshots are loaded. */
function noteClasses(snapshots: Snapshots, classes: Set<string>): Snapshots {
  return {
    load(subject) {
      if (subject.era === "legacy") classes.add(subject.capabilities);
      return snapshots.load(subject);
    },
    save: (subject, offer, verdict) => snapshots.save(subject, offer, verdict),
    flush: () => snapshots.flush(),
  };
}

/**
 * Stores the `initialize` result for the next start, if it is known. Plugins may change it each time, so then
 * nothing is stored.
 */
async function keepGreeting(
  { hub, manifest }: Pick<OpenedHub, "hub" | "manifest">,
  classes: ReadonlySet<string>,
  { greetings }: CommandContext,
): Promise<void> {
  // With an invalid entry the instructions depend on the problem.
  if (manifest.servers.some(({ kind }) => kind === "invalid")) {
    await greetings?.keep(undefined);
    return;
  }
  const isKnown = hub.status().every(({ goal, connections }) => {
    const [first] = connections;
    return goal === "down" || (first && (first.listing ?? first.lastError)) !== undefined;
  });
  if (!isKnown || hub.activePlugins.set !== undefined) return;
  const { name } = hub.serverInfo;
  const { instructions, capabilities: offered } = hub.catalog;
  const [capabilities, other] = classes;
  const isSame = other === undefined && manifest.servers.every(isStaticServer);
  if (isSame && capabilities !== undefined)
    await greetings?.keep({ name, instructions, offered, capabilities });
  else await greetings?.keep(instructions === undefined ? { name } : undefined);
}

/** HTTP modules are loaded only if used. */
async function openHttp(
  hub: ServedHub,
  address: HttpAddress,
  maxMessage: number,
): Promise<RunningHttpServer> {
  const { startHttpServer } = await import("../frontend/http/server.ts");
  return startHttpServer(hub, { ...address, maxMessage });
}

/** Printed at any log level: it is the only way to learn the port, and that the hub is ready. */
function tellPlace(
  { url }: RunningHttpServer,
  manifest: Manifest,
  { logFormat }: Invocation,
  { tell }: Pick<HostOutput, "tell">,
): void {
  const text = `${countServers(manifest)} served as one at ${url}`;
  tell(formatLogRecord(makeLogRecord("info", text, { url }), logFormat));
}

/** Says where the generated token is stored. The token itself is shown on a terminal only. */
async function tellToken(
  { url }: RunningHttpServer,
  { token, kept }: HttpAddress,
  { logFormat }: Invocation,
  { tell }: Pick<HostOutput, "tell">,
): Promise<void> {
  if (kept === undefined || token === undefined) return;
  const place = `clients bear the token that is kept as ${TOKEN_NAME} in ${kept}`;
  const { isatty } = await import("node:tty");
  if (logFormat === "text" && isatty(2)) {
    const { describeRemoteEntry } = await import("./server-description.ts");
    tell(`${place}:\n\n${describeRemoteEntry(url, token)}\n`);
  } else {
    const text = `${place}; another toolmux refers to it as \${secret:${TOKEN_NAME}}, and at a terminal the same command shows what other clients need`;
    tell(formatLogRecord(makeLogRecord("info", text, { secret: TOKEN_NAME }), logFormat));
  }
}

function countServers({ servers }: Manifest): string {
  const count = servers.filter(({ enabled }) => enabled).length;
  return `${count} ${count === 1 ? "server" : "servers"}`;
}

function tellUnsupported({ servers }: Manifest, log: CommandLog): void {
  for (const spec of servers) {
    if (spec.kind !== "unsupported" || !spec.enabled) continue;
    const text = `this server cannot be used: ${spec.reason}`;
    log("warn", makeLogRecord("warn", text, { server: spec.name }));
  }
}

/** The largest message limit of all servers: no server accepts a longer message. */
function messageLimit({ servers }: Manifest): number {
  const limits = servers.map((spec) => (isRunnable(spec) ? spec.maxMessage : 0));
  return Math.max(LIMIT_DEFAULTS.maxMessage, ...limits);
}

async function settle(
  manifest: Manifest,
  isOnStdio: boolean,
  { logFormat }: Invocation,
  { log, tell }: Pick<HostOutput, "log" | "tell">,
): Promise<void> {
  const { isatty } = await import("node:tty");
  if (isOnStdio && logFormat === "text" && isatty(0)) tell(await greet(manifest));
  tellUnsupported(manifest, log);
}

async function greet(manifest: Manifest): Promise<string> {
  const { formatClientEntry } = await import("./server-description.ts");
  return [
    `toolmux serves ${countServers(manifest)} as one on stdin and stdout, and waits for an MCP client there.`,
    "It is not meant to be typed to: let a client start it, with this in its configuration:",
    "",
    formatClientEntry(manifest.sources),
    "",
    "To look around by hand: toolmux list, toolmux call NAME. To end it: Ctrl-C.",
  ].join("\n");
}

/** Resolves when the signal is aborted. */
export function untilSignal(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
}

/** Resolves when the parent process is gone: after a client was killed, another process may keep stdin open. */
export function untilParentGone(): Promise<void> {
  const parent = process.ppid;
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      if (process.ppid !== parent) resolve();
    }, PARENT_INTERVAL);
    timer.unref();
  });
}
