import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { type ErrorCode, HubError } from "../base/errors.ts";
import { type ChildProcess, spawnChild } from "../process/child-process.ts";
import {
  resolveCommand,
  type ResolvedCommand,
  loginShellPath,
  type CommandQuery,
} from "../process/path-lookup.ts";
import { childEnvironment, type EnvironmentVariables } from "../process/environment.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import { newOwnerTag, ownerVariableOf } from "../process/orphans.ts";
import { OWNER_VARIABLE } from "../process/process-table.ts";
import type { Redactor } from "./redact.ts";

/** How to start a server as a child process. */
export interface StdioTarget {
  /** The server's name, for messages. */
  readonly server: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Alternatives to start if `command` is not found, best first. */
  readonly alternatives?: readonly Pick<StdioTarget, "command" | "args">[] | undefined;
  /** The variables from the manifest: `env`, and the values of `inheritEnv`. */
  readonly env: EnvironmentVariables;
  /** The hub's own environment; the server gets only the safe part. */
  readonly hubEnv: EnvironmentVariables;
  /** undefined: the hub's own. */
  readonly cwd: string | undefined;
  /** The longest message that is read, in bytes. */
  readonly maxMessage: number;
  /** Values that no log line and no error may contain. */
  readonly secrets: readonly string[];
}

/**
 * Starts a server's process.
 * @throws {HubError} commandNotFound, notExecutable, spawnFailed, cancelled, or the signal's reason if that is a
 * HubError; then no process is left running
 */
export async function startServerProcess(
  target: StdioTarget,
  redactor: Redactor,
  signal: AbortSignal,
): Promise<ChildProcess> {
  try {
    signal.throwIfAborted();
    const child = await spawnServer(target, signal);
    if (!signal.aborted) return child;
    child.killNow();
    await child.terminate();
  } catch (error) {
    if (!signal.aborted) throw spawnErrorOf(error, target, redactor);
  }
  const reason: unknown = signal.reason;
  if (reason instanceof HubError) throw reason;
  const { server } = target;
  throw new HubError("cancelled", `The start of server "${server}" was cancelled.`, { server });
}

async function spawnServer(target: StdioTarget, signal: AbortSignal): Promise<ChildProcess> {
  const { server, hubEnv } = target;
  const tag = await newOwnerTag();
  const ownerTags = ownerVariableOf(tag, hubEnv[OWNER_VARIABLE]);
  const env = childEnvironment(hubEnv, target.env, {
    [OWNER_VARIABLE]: ownerTags,
    [HUBS_VARIABLE]: hubEnv[HUBS_VARIABLE],
  });
  const cwd = resolve(target.cwd ?? ".");
  if (target.cwd !== undefined) await checkWorkingDirectory(server, cwd);
  const query = {
    server,
    cwd,
    path: env.PATH,
    extraPath: () => Promise.race([loginShellPath(hubEnv, tag), whenAborted(signal)]),
  };
  const { args, ...resolved } = await resolveFirstCommand(target, query);
  signal.throwIfAborted();
  // A command that was found on an extended PATH needs that PATH for the programs that it starts.
  if (env.PATH !== undefined) env.PATH = resolved.path;
  return spawnChild({ file: resolved.file, args, env, cwd, tag });
}

/** The first of a command and its alternatives that is found. @throws {HubError} commandNotFound, notExecutable */
export async function resolveFirstCommand(
  {
    server,
    command,
    args,
    alternatives = [],
  }: Pick<StdioTarget, "server" | "command" | "args" | "alternatives">,
  query: Omit<CommandQuery, "command">,
): Promise<ResolvedCommand & Pick<StdioTarget, "args">> {
  const choices = [{ command, args }, ...alternatives];
  for (const choice of choices) {
    try {
      return {
        ...(await resolveCommand({ ...query, command: choice.command })),
        args: choice.args,
      };
    } catch (error) {
      const isNotFound = error instanceof HubError && error.code === "commandNotFound";
      if (!isNotFound || alternatives.length === 0) throw error;
    }
  }
  const names = new Intl.ListFormat("en").format(choices.map((choice) => choice.command));
  const text = `None of ${names} was found in PATH (${query.path ?? ""}); server "${server}" needs one of them.`;
  throw new HubError("commandNotFound", text, { server, step: "spawn" });
}

/** Checked first, since systems report a missing working directory as ENOENT, like a missing command. */
async function checkWorkingDirectory(server: string, cwd: string): Promise<void> {
  const isDirectory = await stat(cwd).then(
    (stats) => stats.isDirectory(),
    () => undefined,
  );
  if (isDirectory === true) return;
  const problem = isDirectory === undefined ? "does not exist" : "is not a folder";
  throw new HubError(
    "spawnFailed",
    `The working directory of server "${server}" ${problem}: ${cwd}`,
  );
}

function whenAborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((settle) => {
    signal.addEventListener("abort", () => settle(undefined), { once: true });
  });
}

function spawnErrorOf(error: unknown, target: StdioTarget, redactor: Redactor): HubError {
  const [code, text] =
    error instanceof HubError ? [error.code, error.message] : describeSystemError(error, target);
  return new HubError(code, redactor.apply(text), { server: target.server, step: "spawn" });
}

/** Describes a spawn error of a command whose file exists and is executable, in a folder that exists. */
function describeSystemError(
  error: unknown,
  { server, command }: StdioTarget,
): [ErrorCode, string] {
  const code = (error as NodeJS.ErrnoException).code ?? String(error);
  const subject = `Command "${command}" of server "${server}" cannot be run:`;
  switch (code) {
    case "ENOENT":
      return ["notExecutable", `${subject} the interpreter that its first line names is missing.`];
    case "ENOEXEC":
      return ["notExecutable", `${subject} it is no program for this system (ENOEXEC).`];
    case "EACCES":
      return ["notExecutable", `${subject} permission denied (EACCES).`];
    case "E2BIG":
      return ["notExecutable", `${subject} its arguments and environment are too long (E2BIG).`];
    default:
      return ["spawnFailed", `${subject} ${code}.`];
  }
}
