import process from "node:process";
import type { OpenFace } from "../frontend/http/listen.ts";
import { OwnStdio } from "../frontend/stdio.ts";
import type { Hub } from "../hub.ts";
import { LIMIT_DEFAULTS, type Manifest } from "../manifest/schema.ts";
import type { Watch } from "../manifest/watch.ts";
import { within } from "../wire/grace.ts";
import { type Address, closeAddress, readAddress } from "./address.ts";
import type { Invocation, World } from "./command.ts";
import { Journal } from "./journal.ts";
import { createRecord, kindsAt } from "./log.ts";
import { Notices } from "./notices.ts";
import { loadOptions, type Log, openBasis, openHub, openLog, openSnapshots } from "./open.ts";
import { formatRecord } from "./report.ts";

/** For what can wait until the first answer is out, in ms. */
const SETTLING = 100;
/** How often it is looked whether the parent still is the same, in ms. */
const PARENT_INTERVAL = 2000;
/** How long somebody who reads stderr slowly can hold up the end, in ms. */
const FLUSH_LIMIT = 250;

/**
 * Serves one client on stdin and stdout until it leaves, its process is gone, or this one is told to end; or any number over
 * HTTP, until this process is told to end.
 */
export async function serve(invocation: Invocation, world: World): Promise<number> {
  const { logFormat } = invocation;
  const notices = new Notices((missing) => {
    const text = `${missing} lines are missing here: nobody read`;
    return formatRecord(createRecord("warn", text, { missing }), logFormat);
  });
  const journal = new Journal((record) => notices.print(formatRecord(record, logFormat)));
  // An end that waits for nothing, as after a mistake in this program, must not cost the lines that explain it.
  process.once("exit", () => journal.flush());
  const log = openLog(invocation, (record) => journal.write(record));
  try {
    return await run(invocation, world, { journal, log, tell: (text) => notices.print(text) });
  } finally {
    journal.flush();
    await within(FLUSH_LIMIT, notices.drained());
  }
}

/** What takes lines for people: records, and texts as they are. */
interface Voices {
  readonly journal: Journal;
  readonly log: Log;
  tell(text: string): void;
}

async function run(invocation: Invocation, world: World, voices: Voices): Promise<number> {
  const { journal, log } = voices;
  const wanted = readAddress(invocation, world);
  const basis = await openBasis(invocation, world, log);
  const address = wanted && (await closeAddress(wanted, basis.manifest.httpToken, world));
  const { hub, bus, equip, close } = await openHub(basis.manifest, world, log, {
    kinds: kindsAt(invocation.logLevel),
    snapshots: openSnapshots(world, log),
  });
  // The first server moves when the first client has got its first answer, which is written before that.
  const forget = bus.subscribe(() => {
    forget();
    setImmediate(() => journal.open());
  }, ["state"]);
  const limit = messageLimit(basis.manifest);
  const isOnStdio = address === undefined || invocation.stdio;
  const ends = [aborted(world.signal)];
  if (isOnStdio) ends.push(hub.accept(new OwnStdio(limit), world.signal), orphaned());
  let isOver = false;
  let following: Watch | undefined;
  const look = (): void => following?.look();
  // A client's pipe ends with its terminal; who serves others goes on.
  if (!isOnStdio) world.hangups.add(look);
  const follow = async (): Promise<void> => {
    journal.open();
    const { followManifest } = await import("./reload.ts");
    if (isOver) return;
    following = followManifest({ hub, equip }, loadOptions(invocation, world), basis, log);
    await settle(basis.manifest, isOnStdio, invocation, voices);
  };
  setTimeout(() => void follow(), SETTLING).unref();
  let face: OpenFace | undefined;
  try {
    if (address !== undefined) face = await openHttp(hub, address, limit);
    if (face !== undefined) tellPlace(face, basis.manifest, invocation, voices);
    await Promise.race(ends);
  } finally {
    isOver = true;
    world.hangups.delete(look);
    following?.close();
    await face?.close();
    await close();
  }
  return 0;
}

/** Nothing of HTTP is loaded before somebody wants it. */
async function openHttp(hub: Hub, address: Address, maxMessage: number): Promise<OpenFace> {
  const { openFace } = await import("../frontend/http/listen.ts");
  return openFace(hub, { ...address, maxMessage });
}

/** Told whatever is wanted of the log: nothing else says which port it is, and that it is ready. */
function tellPlace(
  { url }: OpenFace,
  manifest: Manifest,
  { logFormat }: Invocation,
  { tell }: Pick<Voices, "tell">,
): void {
  const text = `${countServers(manifest)} served as one at ${url}`;
  tell(formatRecord(createRecord("info", text, { url }), logFormat));
}

function countServers({ servers }: Manifest): string {
  const count = servers.filter(({ enabled }) => enabled).length;
  return `${count} ${count === 1 ? "server" : "servers"}`;
}

function tellUnsupported({ servers }: Manifest, log: Log): void {
  for (const spec of servers) {
    if (spec.kind !== "unsupported" || !spec.enabled) continue;
    const text = `this server cannot be used: ${spec.reason}`;
    log("warn", createRecord("warn", text, { server: spec.name }));
  }
}

/** A message that no server would take need not be read. */
function messageLimit({ servers }: Manifest): number {
  const limits = servers.map((spec) => (spec.kind === "unsupported" ? 0 : spec.maxMessage));
  return Math.max(LIMIT_DEFAULTS.maxMessage, ...limits);
}

async function settle(
  manifest: Manifest,
  isOnStdio: boolean,
  { logFormat }: Invocation,
  { log, tell }: Pick<Voices, "log" | "tell">,
): Promise<void> {
  const { isatty } = await import("node:tty");
  if (isOnStdio && logFormat === "text" && isatty(0)) tell(await greet(manifest));
  tellUnsupported(manifest, log);
}

async function greet(manifest: Manifest): Promise<string> {
  const { describeEntry } = await import("./entry.ts");
  return [
    `toolmux serves ${countServers(manifest)} as one on stdin and stdout, and waits for an MCP client there.`,
    "It is not meant to be typed to: let a client start it, with this in its configuration:",
    "",
    describeEntry(manifest.sources),
    "",
    "To look around by hand: toolmux list, toolmux call NAME. To end it: Ctrl-C.",
  ].join("\n");
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
}

/** A client that was killed may leave stdin open in somebody else's hands. */
function orphaned(): Promise<void> {
  const parent = process.ppid;
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      if (process.ppid !== parent) resolve();
    }, PARENT_INTERVAL);
    timer.unref();
  });
}
