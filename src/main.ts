import process from "node:process";
import type { CommandContext } from "./cli/command.ts";
import { StderrWriter } from "./terminal/stderr.ts";
import { Terminal } from "./terminal/terminal.ts";
import { prefixLine } from "./terminal/log.ts";
import { HubError, outputFailedError } from "./base/errors.ts";
import { compileAsUsual, isBrokenPipe, runtimeName } from "./base/runtime.ts";

/** Exit codes by signal: 128 plus the signal number, as in shells. */
const SIGNAL_EXIT_CODES = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

const stopController = new AbortController();
/** Handlers for SIGHUP. While there are none, SIGHUP ends the process. */
const hangupHandlers = new Set<() => void>();
let signalExitCode: number | undefined;
/** Whether the command observes the signal of its context, and so ends by itself. */
let isObserved = false;
let areHandled = false;

/**
 * Handles signals instead of the system, whose default is to end the process at once. A handler runs only when the event
 * loop is free, so there is none as long as nothing is to be done at the end: a command that computes can be ended, too.
 */
function handleSignals(): void {
  if (areHandled) return;
  areHandled = true;
  for (const [signal, exitCode] of Object.entries(SIGNAL_EXIT_CODES)) {
    process.on(signal, () => {
      if (signal === "SIGHUP" && hangupHandlers.size > 0) {
        for (const handler of hangupHandlers) handler();
        return;
      }
      if (signalExitCode !== undefined || !isObserved) process.exit(exitCode);
      signalExitCode = exitCode;
      stopController.abort(new HubError("cancelled", "Interrupted."));
    });
  }
}

// Functions that are registered for the exit of the process, such as the end of child processes, have to run.
process.on("newListener", (event) => {
  if (event === "exit") handleSignals();
});

/** Functions that tell whether a plugin caused an uncaught error, and log the error if so. */
const pluginErrorChecks = new Set<(error: unknown) => boolean>();
process.on("uncaughtException", crash);
process.on("unhandledRejection", crash);

/** Handles an uncaught error: exits at once, unless a plugin caused the error. */
function crash(error: unknown): void {
  if ([...pluginErrorChecks].some((isPluginError) => isPluginError(error))) return;
  // Exit handlers run in the order of registration. This one is registered last, so that the handlers that kill child
  // processes run before a write to the terminal, which may block.
  process.once("exit", () => printError(error));
  process.exit(1);
}

/** Prints an error to stderr; if nobody reads stderr, the error is lost. */
function printError(error: unknown): void {
  const { inspect } = process.getBuiltinModule("node:util");
  const lines = inspect(error).split("\n").map(prefixLine);
  new StderrWriter(String).print(lines.join("\n"));
}

/** Exit code of a command whose reader has closed stdout: 128 plus the number of SIGPIPE, as in shells. */
const BROKEN_PIPE_EXIT_CODE = 141;

/** Ends the process because stdout cannot be written: silently if its reader has left. */
function endWithoutOutput(error: unknown): never {
  if (isBrokenPipe(error)) process.exit(BROKEN_PIPE_EXIT_CODE);
  const { message, properties } = outputFailedError(error);
  process.once("exit", () => new StderrWriter(String).print(prefixLine(message)));
  return process.exit(properties.exit);
}

/** Time after the start when a process is no longer starting, in ms. */
const START_TIME = 250;
if (compileAsUsual !== undefined) setTimeout(compileAsUsual, START_TIME).unref();

const argv = process.argv.slice(2);
const systemEnvironment = { env: process.env, cwd: process.cwd(), platform: process.platform };
const terminal = new Terminal(process.env, endWithoutOutput);
const context: CommandContext = {
  ...systemEnvironment,
  terminal,
  note: (text) => terminal.note(text),
  get signal() {
    isObserved = true;
    handleSignals();
    return stopController.signal;
  },
  uncaughtErrorHandlers: pluginErrorChecks,
  hangupHandlers,
};
/**
 * Attaches the client if the command line asks for it and its shared hub runs: that needs no table of commands.
 * @returns the exit code; undefined if the command is to be run as usual
 */
async function attachFirst(): Promise<number | undefined> {
  if (!argv.includes("attach") && !argv.includes("--shared")) return undefined;
  const { attachToRunningHub } = await import("./cli/attach-to-running-hub.ts");
  return attachToRunningHub(argv, context);
}

/** Runs the command line; the table of all commands is loaded only if the command is in none of the smaller ones. */
async function runCommandLine(): Promise<number> {
  try {
    const exitCode =
      (await attachFirst()) ??
      (await (await import("./cli/serve-first.ts")).serveFirst(argv, context));
    if (exitCode !== undefined) return exitCode;
  } catch (error) {
    return (await import("./cli/commands.ts")).reportError(error, argv, context);
  }
  return (await import("./cli/commands.ts")).runCli(argv, context);
}

const exitCode = await runCommandLine();

// Node writes to pipes asynchronously, and exits by itself when the writes are done. The timer ends the process if
// something else keeps it alive. Other runtimes are ended at once.
process.exitCode = signalExitCode ?? exitCode;
if (runtimeName === "node") setTimeout(() => process.exit(), 300).unref();
else process.exit();
