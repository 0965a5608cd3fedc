import { access, constants, stat } from "node:fs/promises";
import { delimiter, isAbsolute, join, resolve } from "node:path";
import process from "node:process";
import { HubError } from "../base/errors.ts";
import { suggestArgs } from "../manifest/syntax/command-line.ts";
import { splitCommand } from "../manifest/interpolate.ts";
import { maskCommandLine } from "../manifest/plaintext-secrets.ts";
import {
  type ChildCommand,
  childEnvironment,
  type EnvironmentVariables,
  spawnChild,
} from "./child-process.ts";
import { settlesWithin } from "../base/clock.ts";
import { ownerVariableOf } from "./orphans.ts";
import { OWNER_VARIABLE } from "./process-table.ts";

/** The file of a command, and the PATH in which it was found. */
export interface ResolvedCommand {
  readonly file: string;
  readonly path: string;
}

/** A command to look up. */
export interface CommandQuery {
  readonly server: string;
  readonly command: string;
  /** The folder to which a command with a slash is relative. */
  readonly cwd: string;
  /** PATH of the server's environment. */
  readonly path: string | undefined;
  /** A further PATH to search if a bare command is not found on `path`. */
  extraPath(): Promise<string | undefined>;
}

/** Searched if PATH is not set. */
const DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin";

/**
 * Finds the file of a command as a shell does. A command without a slash is never taken from the working directory.
 * @throws {HubError} commandNotFound (`searchedPathOf` returns the searched PATH), or notExecutable (the message names
 * the file)
 */
export async function resolveCommand(query: CommandQuery): Promise<ResolvedCommand> {
  const { server, command, cwd } = query;
  const path = query.path ?? DEFAULT_PATH;
  if (command.includes("/")) {
    const file = resolve(cwd, command);
    const status = await checkFile(file);
    if (status === "runs") return { file, path };
    if (status === "missing") await rejectCommandLine(query);
    throw status === "missing"
      ? notFoundError(
          query,
          `The command of server "${server}" does not exist: ${maskCommandLine(file)}.`,
        )
      : notExecutableError(query, file);
  }
  const file = await searchPath(query, path);
  if (file !== undefined) return { file, path };
  const extra = await query.extraPath();
  const extendedPath = extra === undefined ? path : mergePaths(path, extra);
  const second = extra === undefined ? undefined : await searchPath(query, extendedPath);
  if (second !== undefined) return { file: second, path: extendedPath };
  await rejectCommandLine(query);
  const text = `"${command}" is not installed, or not in PATH (--log-level debug shows PATH).`;
  throw notFoundError(query, text, extendedPath);
}

/** @throws {HubError} commandNotFound if the command was written together with its arguments */
async function rejectCommandLine(query: CommandQuery): Promise<void> {
  const { command, cwd } = query;
  const settings = suggestArgs(command);
  if (settings === undefined) return;
  const [program = ""] = splitCommand(command) ?? [];
  // A path that contains a space may be one misspelt path. It counts as a command line only if its first word is a
  // program.
  if (program.includes("/") && (await checkFile(resolve(cwd, program))) !== "runs") return;
  const text = `There is no program called "${maskCommandLine(command)}". command is one program; put the rest into args: ${settings}`;
  throw notFoundError(query, text);
}

async function searchPath(query: CommandQuery, path: string): Promise<string | undefined> {
  let notExecutable: string | undefined;
  for (const folder of path.split(delimiter)) {
    if (!isAbsolute(folder)) continue;
    const file = join(folder, query.command);
    const status = await checkFile(file);
    if (status === "runs") return file;
    if (status === "forbidden") notExecutable ??= file;
  }
  if (notExecutable !== undefined) throw notExecutableError(query, notExecutable);
  return undefined;
}

async function checkFile(file: string): Promise<"runs" | "missing" | "forbidden"> {
  const isFile = await stat(file).then(
    (stats) => stats.isFile(),
    () => false,
  );
  if (!isFile) return "missing";
  return access(file, constants.X_OK).then(
    () => "runs",
    () => "forbidden",
  );
}

function notExecutableError(query: CommandQuery, file: string): HubError {
  const text = `The command of server "${query.server}" is not executable: ${file}.`;
  return new HubError("notExecutable", text, { server: query.server, step: "spawn" });
}

function notFoundError({ server }: CommandQuery, text: string, path?: string): HubError {
  return new HubError("commandNotFound", text, {
    server,
    step: "spawn",
    ...(path !== undefined && { cause: { searchedPath: path } }),
  });
}

/** The PATH that was searched for a missing command, from the error's cause: the message would be too long with it. */
export function searchedPathOf(error: unknown): string | undefined {
  const cause: unknown = error instanceof HubError ? error.cause : undefined;
  const hasPath = typeof cause === "object" && cause !== null && "searchedPath" in cause;
  return hasPath && typeof cause.searchedPath === "string" ? cause.searchedPath : undefined;
}

function mergePaths(path: string, extra: string): string {
  return [...new Set([...path.split(delimiter), ...extra.split(delimiter)])].join(delimiter);
}

/** Whether PATH may be minimal: on macOS, programs started from the desktop lack the user's own folders in PATH. */
const HAS_MINIMAL_PATH = process.platform === "darwin";
/** Time limit for a login shell with all its start-up files, in ms. */
const SHELL_TIMEOUT = 3000;
const PATH_MARK = "__toolmux_path__";
/** Maximum length of the shell's output that is kept, in characters: start-up files may print a lot. */
const MAX_SHELL_OUTPUT = 64 * 1024;

let loginPath: Promise<string | undefined> | undefined;

/**
 * The folders in which a command is looked up that is not in the hub's PATH: those of the user's login shell, then those
 * of `morePath`.
 */
export async function extraPathOf(
  hubEnv: EnvironmentVariables,
  tag: string,
  morePath: string | undefined,
): Promise<string | undefined> {
  const shellPath = await loginShellPath(hubEnv, tag);
  return shellPath === undefined || morePath === undefined
    ? (shellPath ?? morePath)
    : mergePaths(shellPath, morePath);
}

/** PATH of the user's login shell: read once per process, and only on macOS. */
export function loginShellPath(
  hubEnv: EnvironmentVariables,
  tag: string,
): Promise<string | undefined> {
  if (!HAS_MINIMAL_PATH || !hubEnv.SHELL) return Promise.resolve(undefined);
  const ownerTags = ownerVariableOf(tag, hubEnv[OWNER_VARIABLE]);
  loginPath ??= readShellPath(
    hubEnv.SHELL,
    childEnvironment({}, hubEnv, { [OWNER_VARIABLE]: ownerTags }),
    tag,
  );
  return loginPath;
}

/**
 * Runs a shell that prints its PATH. Only the text between two markers in its output is used. The shell gets no input
 * and no terminal. It is killed with its descendants when it has printed PATH, or after `timeout` ms.
 * @param tag the owner tag, which is also in `env`
 */
export async function readShellPath(
  shell: string,
  env: ChildCommand["env"],
  tag: string,
  timeout = SHELL_TIMEOUT,
): Promise<string | undefined> {
  const script = `command printf '%s%s%s' '${PATH_MARK}' "$PATH" '${PATH_MARK}'`;
  const command = { file: shell, args: ["-ilc", script], env, cwd: undefined, tag };
  const child = await spawnChild(command).catch(() => undefined);
  if (child === undefined) return undefined;
  const { stdin, stdout, stderr } = child;
  stdin.end();
  const ignore = (): void => {};
  stderr.read(ignore, ignore);
  const decoder = new TextDecoder();
  let output = "";
  const pathPrinted = new Promise<void>((settle) => {
    stdout.read((chunk) => {
      output = (output + decoder.decode(chunk, { stream: true })).slice(-MAX_SHELL_OUTPUT);
      if (output.split(PATH_MARK).length > 2) settle();
    }, settle);
  });
  await settlesWithin(timeout, pathPrinted);
  child.killNow();
  child.closePipes();
  void child.terminate();
  const value = output.split(PATH_MARK)[1];
  return value === "" ? undefined : value;
}
