import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { type ErrorCode, HubError } from "../base/errors.ts";
import { type Child, startChild } from "../process/child-process.ts";
import { findCommand, type Found, readLoginPath, type Search } from "../process/path-lookup.ts";
import { childEnvironment, type Environment } from "../process/environment.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import { newTag, tagVariable } from "../process/orphans.ts";
import { TAG_VARIABLE } from "../process/process-table.ts";
import type { Redactor } from "./redact.ts";

/** How to start a server as a child process. */
export interface StdioTarget {
  /** The server's name, for messages. */
  readonly server: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Alternatives to start if `command` is not found, best first. */
  readonly others?: readonly Pick<StdioTarget, "command" | "args">[] | undefined;
  /** The variables from the manifest: `env`, and the values of `inheritEnv`. */
  readonly env: Environment;
  /** The hub's own environment; the server gets only the safe part. */
  readonly hubEnv: Environment;
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
export async function launch(
  target: StdioTarget,
  redactor: Redactor,
  signal: AbortSignal,
): Promise<Child> {
  try {
    signal.throwIfAborted();
    const child = await start(target, signal);
    if (!signal.aborted) return child;
    child.killNow();
    await child.sweep();
  } catch (error) {
    if (!signal.aborted) throw explain(error, target, redactor);
  }
  const reason: unknown = signal.reason;
  if (reason instanceof HubError) throw reason;
  const { server } = target;
  throw new HubError("cancelled", `The start of server "${server}" was cancelled.`, { server });
}

async function start(target: StdioTarget, signal: AbortSignal): Promise<Child> {
  const { server, hubEnv } = target;
  const tag = await newTag();
  const owners = tagVariable(tag, hubEnv[TAG_VARIABLE]);
  const env = childEnvironment(hubEnv, target.env, {
    [TAG_VARIABLE]: owners,
    [HUBS_VARIABLE]: hubEnv[HUBS_VARIABLE],
  });
  const cwd = resolve(target.cwd ?? ".");
  if (target.cwd !== undefined) await checkFolder(server, cwd);
  const search = {
    server,
    cwd,
    path: env.PATH,
    morePath: () => Promise.race([readLoginPath(hubEnv, tag), aborted(signal)]),
  };
  const { args, ...found } = await findFirst(target, search);
  signal.throwIfAborted();
  // A command that was found on an extended PATH needs that PATH for the programs that it starts.
  if (env.PATH !== undefined) env.PATH = found.path;
  return startChild({ file: found.file, args, env, cwd, tag });
}

/** The first of a command and its alternatives that is found. @throws {HubError} commandNotFound, notExecutable */
export async function findFirst(
  {
    server,
    command,
    args,
    others = [],
  }: Pick<StdioTarget, "server" | "command" | "args" | "others">,
  search: Omit<Search, "command">,
): Promise<Found & Pick<StdioTarget, "args">> {
  const choices = [{ command, args }, ...others];
  for (const one of choices) {
    try {
      return { ...(await findCommand({ ...search, command: one.command })), args: one.args };
    } catch (error) {
      const isAbsent = error instanceof HubError && error.code === "commandNotFound";
      if (!isAbsent || others.length === 0) throw error;
    }
  }
  const names = new Intl.ListFormat("en").format(choices.map((one) => one.command));
  const text = `None of ${names} was found in PATH (${search.path ?? ""}); server "${server}" needs one of them.`;
  throw new HubError("commandNotFound", text, { server, step: "spawn" });
}

/** Checked first, since systems report a missing working directory as ENOENT, like a missing command. */
async function checkFolder(server: string, cwd: string): Promise<void> {
  const isFolder = await stat(cwd).then(
    (found) => found.isDirectory(),
    () => undefined,
  );
  if (isFolder === true) return;
  const wrong = isFolder === undefined ? "does not exist" : "is not a folder";
  throw new HubError("spawnFailed", `The working directory of server "${server}" ${wrong}: ${cwd}`);
}

function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((settle) => {
    signal.addEventListener("abort", () => settle(undefined), { once: true });
  });
}

function explain(error: unknown, target: StdioTarget, redactor: Redactor): HubError {
  const [code, text] =
    error instanceof HubError ? [error.code, error.message] : explainSystem(error, target);
  return new HubError(code, redactor.apply(text), { server: target.server, step: "spawn" });
}

/** Describes a spawn error of a command whose file exists and is executable, in a folder that exists. */
function explainSystem(error: unknown, { server, command }: StdioTarget): [ErrorCode, string] {
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
