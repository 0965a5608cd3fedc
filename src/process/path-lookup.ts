import { access, constants, stat } from "node:fs/promises";
import { delimiter, isAbsolute, join, resolve } from "node:path";
import process from "node:process";
import { HubError } from "../base/errors.ts";
import { type Program, startChild } from "./child-process.ts";
import { childEnvironment, type Environment } from "./environment.ts";
import { within } from "../base/grace.ts";
import { tagVariable } from "./orphans.ts";
import { TAG_VARIABLE } from "./process-table.ts";
import { endOf } from "./child-streams.ts";

/** The file of a command, and the PATH on which it was found. */
export interface Found {
  readonly file: string;
  readonly path: string;
}

/** A command to look up. */
export interface Search {
  readonly server: string;
  readonly command: string;
  /** The folder to which a command with a slash is relative. */
  readonly cwd: string;
  /** PATH of the server's environment. */
  readonly path: string | undefined;
  /** A further PATH to search if a bare command is not found on `path`. */
  morePath(): Promise<string | undefined>;
}

/** Searched if PATH is not set. */
const DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin";

/**
 * Resolves a command as a shell does, but never in the working directory unless it contains a slash.
 * @throws {HubError} commandNotFound (with the searched PATH) or notExecutable (with the file)
 */
export async function findCommand(search: Search): Promise<Found> {
  const { server, command, cwd } = search;
  const path = search.path ?? DEFAULT_PATH;
  if (command.includes("/")) {
    const file = resolve(cwd, command);
    const answer = await examine(file);
    if (answer === "runs") return { file, path };
    throw answer === "missing"
      ? notFound(search, `Command "${command}" of server "${server}" does not exist (${file}).`)
      : forbidden(search, file);
  }
  const first = await searchPath(search, path);
  if (first !== undefined) return { file: first, path };
  const more = await search.morePath();
  const wider = more === undefined ? path : mergePaths(path, more);
  const second = more === undefined ? undefined : await searchPath(search, wider);
  if (second !== undefined) return { file: second, path: wider };
  const text = `Command "${command}" of server "${server}" was not found in PATH (${wider}).`;
  throw notFound(search, text);
}

async function searchPath(search: Search, path: string): Promise<string | undefined> {
  let refused: string | undefined;
  for (const folder of path.split(delimiter)) {
    if (!isAbsolute(folder)) continue;
    const file = join(folder, search.command);
    const answer = await examine(file);
    if (answer === "runs") return file;
    if (answer === "forbidden") refused ??= file;
  }
  if (refused !== undefined) throw forbidden(search, refused);
  return undefined;
}

async function examine(file: string): Promise<"runs" | "missing" | "forbidden"> {
  const isFile = await stat(file).then(
    (found) => found.isFile(),
    () => false,
  );
  if (!isFile) return "missing";
  return access(file, constants.X_OK).then(
    () => "runs",
    () => "forbidden",
  );
}

function forbidden(search: Search, file: string): HubError {
  const text = `Command "${search.command}" of server "${search.server}" is there (${file}), but may not be executed: permission denied.`;
  return new HubError("notExecutable", text, { server: search.server, step: "spawn" });
}

function notFound({ server }: Search, text: string): HubError {
  return new HubError("commandNotFound", text, { server, step: "spawn" });
}

function mergePaths(path: string, more: string): string {
  return [...new Set([...path.split(delimiter), ...more.split(delimiter)])].join(delimiter);
}

/** On macOS, programs started from the desktop have a minimal PATH that lacks the user's own folders. */
const HAS_BARE_PATH = process.platform === "darwin";
/** For a login shell with all its start-up files, in ms. */
const SHELL_LIMIT = 3000;
const MARK = "__toolmux_path__";
/** How much of the shell's output is kept, in characters: start-up files may print a lot. */
const MOST_OUTPUT = 64 * 1024;

let loginPath: Promise<string | undefined> | undefined;

/** PATH of the user's login shell: read once per process, and only on macOS. */
export function readLoginPath(hub: Environment, tag: string): Promise<string | undefined> {
  if (!HAS_BARE_PATH || !hub.SHELL) return Promise.resolve(undefined);
  const owners = tagVariable(tag, hub[TAG_VARIABLE]);
  loginPath ??= askShell(hub.SHELL, childEnvironment({}, hub, { [TAG_VARIABLE]: owners }), tag);
  return loginPath;
}

/**
 * Runs a shell to print its PATH. Only the text between two marks is used of its output. The shell gets no input and no
 * terminal, and is killed with its descendants after `limit` ms.
 * @param tag the owner tag, which is also in `env`
 */
export async function askShell(
  shell: string,
  env: Program["env"],
  tag: string,
  limit = SHELL_LIMIT,
): Promise<string | undefined> {
  const script = `command printf '%s%s%s' '${MARK}' "$PATH" '${MARK}'`;
  const program = { file: shell, args: ["-ilc", script], env, cwd: undefined, tag };
  const child = await startChild(program).catch(() => undefined);
  if (child === undefined) return undefined;
  const { stdin, stdout, stderr } = child;
  stdin.on("error", () => {}).end();
  stderr.on("error", () => {}).resume();
  let output = "";
  const said = new Promise<void>((settle) => {
    stdout.setEncoding("utf8").on("data", (text: string) => {
      output = (output + text).slice(-MOST_OUTPUT);
      if (output.split(MARK).length > 2) settle();
    });
    void endOf(stdout).then(settle);
  });
  await within(limit, said);
  child.killNow();
  for (const stream of [stdin, stdout, stderr]) stream.destroy();
  void child.sweep();
  const value = output.split(MARK)[1];
  return value === "" ? undefined : value;
}
