import process from "node:process";
import type { HubError } from "../base/errors.ts";
import { ownCommand } from "../base/runtime.ts";
import { usageError } from "./args.ts";

/**
 * The programs that toolmux starts as child processes of itself, as `toolmux internal NAME`: an embedded server of the
 * demo, the server that `toolmux bench` measures by default, and the proxy that `toolmux bench` puts in front of servers.
 * Help and completions do not list them.
 */
export const INTERNAL_PROGRAMS = ["demo-server", "echo-server", "stdio-proxy"] as const;
export type InternalProgram = (typeof INTERNAL_PROGRAMS)[number];

/** The word before the program's name on the command line. */
export const INTERNAL = "internal";

/** The command line that starts an internal program: the executable and its arguments. */
export function internalCommand(
  program: InternalProgram,
  ...args: readonly string[]
): readonly [string, ...string[]] {
  return [...ownCommand(), INTERNAL, program, ...args];
}

/** The servers that the executable contains, in the order of the demo's manifest. */
export const DEMO_SERVERS = ["clock", "text", "slow", "broken"] as const;
type DemoServer = (typeof DEMO_SERVERS)[number];

/** What the broken server prints to stderr before it exits. */
export const BROKEN_SERVER_MESSAGE = "cannot read the price list: no such file";

/**
 * Runs `toolmux internal NAME ARGS …`, see `INTERNAL_PROGRAMS`. The arguments are not parsed for options, because those
 * of the proxy contain the command line of a server.
 * @param argv the command line after the word `internal`
 * @throws {HubError} usage if the program lacks what toolmux gives it when it starts it
 */
export async function runInternal([name, ...args]: readonly string[]): Promise<number> {
  const program = INTERNAL_PROGRAMS.find((one) => one === name);
  switch (program) {
    case "demo-server":
      return runDemoServer(args);
    case "echo-server":
      if (args.length > 0 || (await isStdinTerminal())) throw refusal();
      await (await import("../bench/echo-server.ts")).serveEcho();
      return 0;
    case "stdio-proxy":
      return runProxy(args);
    case undefined:
      throw refusal();
  }
}

async function runDemoServer([word, ...rest]: readonly string[]): Promise<number> {
  const server = DEMO_SERVERS.find((one) => one === word);
  const isUsable = server !== undefined && rest.length === 0 && !(await isStdinTerminal());
  if (!isUsable) throw refusal();
  if (server === "broken") {
    console.warn(BROKEN_SERVER_MESSAGE);
    return 1;
  }
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  serveStdio(await loadDemoServer(server));
  await new Promise((resolve) => process.stdin.once("end", resolve).once("close", resolve));
  return 0;
}

async function loadDemoServer(server: Exclude<DemoServer, "broken">) {
  const servers = await import("../demo/servers.ts");
  switch (server) {
    case "clock":
      return servers.createClockServer;
    case "text":
      return servers.createTextServer;
    case "slow":
      return servers.createSlowServer;
  }
}

async function runProxy([folder, delay, command, ...args]: readonly string[]): Promise<number> {
  const isDelay = delay !== undefined && /^\d+$/.test(delay);
  if (folder === undefined || !isDelay || command === undefined) throw refusal();
  const { runStdioProxy } = await import("../bench/stdio-proxy.ts");
  return runStdioProxy({ folder, delay: Number(delay), command, args });
}

/** Asks the file descriptor: `process.stdin` would create a second stream beside that of the echo server. */
async function isStdinTerminal(): Promise<boolean> {
  return (await import("node:tty")).isatty(0);
}

function refusal(): HubError {
  return usageError(
    `"toolmux ${INTERNAL}" is what toolmux starts by itself, for demo and bench. It cannot be used by hand.`,
  );
}
