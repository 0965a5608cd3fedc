import process from "node:process";
import { sanitizeLine } from "../../terminal/log.ts";
import { usageError } from "../../base/errors.ts";
import { isTerminal } from "../../terminal/stderr.ts";
import type { Command, CommandContext } from "../command.ts";
import { BROKEN_SERVER_MESSAGE, DEMO_SERVERS } from "./demo.ts";

/** The programs that only toolmux itself starts, by name. */
const PROGRAMS: Readonly<
  Record<
    string,
    (
      args: readonly string[],
      context: CommandContext,
      commands: readonly Command[],
    ) => Promise<number>
  >
> = {
  complete: printCompletion,
  "demo-server": runDemoServer,
  "echo-server": runEchoServer,
  "script-server": runScriptServer,
  "stdio-proxy": runStdioProxy,
};

/**
 * `toolmux internal NAME …` runs a program that only toolmux itself starts: a server of the demo, a part of a
 * measurement, or the completion of a word. Help and completions do not list it.
 * @throws {HubError} usage
 */
export function runInternal(
  [name = "", ...args]: readonly string[],
  context: CommandContext,
  commands: readonly Command[],
): Promise<number> {
  const program = Object.hasOwn(PROGRAMS, name) ? PROGRAMS[name] : undefined;
  if (program === undefined) throw misuseError();
  return program(args, context, commands);
}

/**
 * Prints what may stand at the end of a command line, for the scripts of `toolmux completions`: `words`, `file` or
 * `folder`, then a word on each line, with a tab between it and its summary.
 */
async function printCompletion(
  words: readonly string[],
  context: CommandContext,
  commands: readonly Command[],
): Promise<number> {
  const { completeLine } = await import("../complete.ts");
  const completion = await completeLine(words, commands, context);
  const offered = completion.kind === "words" ? completion.words : [];
  const lines = offered.map(({ word, summary }) =>
    [word, ...(summary === undefined ? [] : [summary])].map(sanitizeLine).join("\t"),
  );
  context.terminal.print([completion.kind, ...lines].join("\n"));
  return 0;
}

async function runDemoServer([name, ...rest]: readonly string[]): Promise<number> {
  const server = DEMO_SERVERS.find((one) => one === name);
  const isUsable = server !== undefined && rest.length === 0 && !(await isTerminal(STDIN));
  if (!isUsable) throw misuseError();
  if (server === "broken") {
    console.warn(BROKEN_SERVER_MESSAGE);
    return 1;
  }
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  const { createClockServer, createSlowServer, createTextServer } =
    await import("../../demo/servers.ts");
  const makers = { clock: createClockServer, text: createTextServer, slow: createSlowServer };
  serveStdio(makers[server]);
  await new Promise((resolve) => process.stdin.once("end", resolve).once("close", resolve));
  return 0;
}

/** Runs the server of the commands in an agent's file. @param args the commands, as JSON text */
async function runScriptServer(
  [json, ...rest]: readonly string[],
  { env }: CommandContext,
): Promise<number> {
  if (json === undefined || rest.length > 0 || (await isTerminal(STDIN))) throw misuseError();
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  const { createScriptServer, killScripts } = await import("../../agent-files/script-server.ts");
  process.once("exit", killScripts);
  const scripts = JSON.parse(json) as Parameters<typeof createScriptServer>[0];
  serveStdio(() => createScriptServer(scripts, env));
  await new Promise((resolve) => {
    process.stdin.once("end", resolve).once("close", resolve);
    for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.once(name, resolve);
  });
  killScripts();
  return 0;
}

/** Runs the server that `toolmux bench` measures if none is named. */
async function runEchoServer(args: readonly string[]): Promise<number> {
  if (args.length > 0 || (await isTerminal(STDIN))) throw misuseError();
  const { serveEcho } = await import("../../bench/echo-server.ts");
  await serveEcho();
  return 0;
}

/**
 * Runs the proxy that `toolmux bench` puts in front of a server; see `src/hub/transport-factory.ts`. Arguments: a
 * folder, a delay in ms, and the server's command line.
 */
async function runStdioProxy(args: readonly string[]): Promise<number> {
  const [folder, delay, command, ...rest] = args;
  const isDelay = delay !== undefined && /^\d+$/.test(delay);
  if (folder === undefined || !isDelay || command === undefined) throw misuseError();
  const { runStdioProxy: run } = await import("../../bench/stdio-proxy.ts");
  return run({ folder, delay: Number(delay), command, args: rest });
}

/** The file descriptor of stdin. `process.stdin` would open a second stream beside that of the echo server. */
const STDIN = 0;

function misuseError(): Error {
  return usageError(
    "`toolmux internal` is for toolmux itself, not for people. See `toolmux help`.",
  );
}
