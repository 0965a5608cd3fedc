import process from "node:process";
import type { HubEvent } from "../events.ts";
import { OwnStdio } from "../frontend/stdio.ts";
import { LIMIT_DEFAULTS, type Manifest } from "../manifest/schema.ts";
import type { Invocation, World } from "./command.ts";
import { Notices } from "./notices.ts";
import { type Log, openHub, openLog, openManifest } from "./open.ts";
import { describeFailure } from "./report.ts";

/** For what can wait until the first answer is out, in ms. */
const SETTLING = 100;
/** How often it is looked whether the parent still is the same, in ms. */
const PARENT_INTERVAL = 2000;

/** Serves one client on stdin and stdout until it leaves, its process is gone, or this one is told to end. */
export async function serve(invocation: Invocation, world: World): Promise<number> {
  const notices = new Notices();
  const log = openLog(invocation, (text) => notices.print(text));
  const manifest = await openManifest(invocation, world, log);
  const { hub, bus } = openHub(manifest, world, log);
  bus.subscribe((event) => tellFailure(event, log));
  const gone = hub.accept(new OwnStdio(messageLimit(manifest)), world.signal);
  setTimeout(() => void settle(manifest, log), SETTLING).unref();
  await Promise.race([gone, aborted(world.signal), orphaned()]);
  await hub.close();
  return 0;
}

function tellFailure(event: HubEvent, log: Log): void {
  if (event.kind !== "state" || event.cause === undefined) return;
  log("warn", `${event.server}: ${describeFailure(event.cause)}`);
}

function tellUnsupported({ servers }: Manifest, log: Log): void {
  for (const spec of servers) {
    if (spec.kind !== "unsupported" || !spec.enabled) continue;
    log("warn", `${spec.name}: this server cannot be used: ${spec.reason}`);
  }
}

/** A message that no server would take need not be read. */
function messageLimit({ servers }: Manifest): number {
  const limits = servers.map((spec) => (spec.kind === "stdio" ? spec.maxMessage : 0));
  return Math.max(LIMIT_DEFAULTS.maxMessage, ...limits);
}

async function settle(manifest: Manifest, log: Log): Promise<void> {
  const { isatty } = await import("node:tty");
  if (isatty(0)) await greet(manifest);
  tellUnsupported(manifest, log);
  const { sweepOrphans } = await import("../wire/owner.ts");
  const count = await sweepOrphans();
  if (count > 0) log("info", `${count} processes of a hub that was killed were ended`);
}

async function greet({ servers, sources }: Manifest): Promise<void> {
  const { describeEntry } = await import("./entry.ts");
  const count = servers.filter(({ enabled }) => enabled).length;
  console.warn(
    [
      `toolmux serves ${count} ${count === 1 ? "server" : "servers"} as one on stdin and stdout, and waits for an MCP client there.`,
      "It is not meant to be typed to: let a client start it, with this in its configuration:",
      "",
      describeEntry(sources),
      "",
      "To look around by hand: toolmux list, toolmux call NAME. To end it: Ctrl-C.",
    ].join("\n"),
  );
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
