import { access, constants, stat } from "node:fs/promises";
import { delimiter, isAbsolute, join, resolve } from "node:path";
import process from "node:process";
import { HubError } from "../errors.ts";
import { type Program, startChild } from "./child.ts";
import { childEnvironment, type Environment } from "./environment.ts";
import { within } from "./grace.ts";
import { tagVariable } from "./owner.ts";
import { TAG_VARIABLE } from "./table.ts";
import { endOf } from "./stream.ts";

/** Where a command's file is, and the PATH by which it was found. */
export interface Found {
  readonly file: string;
  readonly path: string;
}

/** What is looked for, and where. */
export interface Search {
  readonly server: string;
  readonly command: string;
  /** The folder from which a command with a slash is looked for. */
  readonly cwd: string;
  /** PATH as the server will see it. */
  readonly path: string | undefined;
  /** A PATH to search as well if a bare command is not found in `path`. */
  morePath(): Promise<string | undefined>;
}

/** What systems search if PATH is not set. */
const DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin";

/**
 * Finds a command as a shell would, but never in the working directory unless it was said with a slash.
 * @throws {HubError} commandNotFound: which command, and where it was looked for; notExecutable: which file.
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

/** Programs started from a desktop have a bare PATH on this system, and people's commands stand elsewhere. */
const HAS_BARE_PATH = process.platform === "darwin";
/** For a login shell and all its start files, in ms. */
const SHELL_LIMIT = 3000;
const MARK = "__toolmux_path__";
/** What is remembered of its output, in characters: start files may print much. */
const MOST_OUTPUT = 64 * 1024;

let loginPath: Promise<string | undefined> | undefined;

/** PATH as the user's login shell sets it: asked once, and only on systems where it differs from the hub's. */
export function readLoginPath(hub: Environment, tag: string): Promise<string | undefined> {
  if (!HAS_BARE_PATH || !hub.SHELL) return Promise.resolve(undefined);
  const owners = tagVariable(tag, hub[TAG_VARIABLE]);
  loginPath ??= askShell(hub.SHELL, childEnvironment({}, hub, { [TAG_VARIABLE]: owners }), tag);
  return loginPath;
}

/**
 * Asks a shell for its PATH. Of what its start files print nothing is taken but the value between two marks;
 * it gets no input and no terminal, and is killed after `limit` ms with all that it started.
 * @param tag the owner tag that stands in `env`
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
