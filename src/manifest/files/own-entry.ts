import { basename, delimiter, join, resolve } from "node:path";
import process from "node:process";
import { ownCommand } from "../../base/runtime.ts";
import { expandHome } from "../../base/paths.ts";
import { splitCommand } from "../interpolate.ts";

/** The key of toolmux's own entry in clients' files. */
export const TOOLMUX_KEY = "toolmux";

/** The reason for skipping an entry that starts toolmux, as the end of a sentence in a note. */
export const SELF_REASON = "it is toolmux itself";

/** The parts of a client's entry that determine what it starts. */
export interface LaunchEntry {
  readonly name?: string | undefined;
  readonly command?: unknown;
  readonly args?: unknown;
}

/** The names of release files and of installed executables. */
const PROGRAM_NAME = /^toolmux(?:-(?:darwin|linux|windows)-[\w-]+)?(?:\.exe|\.[cm]?js)?$/i;
/** The entry point in a folder with the sources. */
const SOURCE_ENTRY_POINT = /(?:^|\/)toolmux[^/]*\/src\/main\.[jt]s$/;
/** Runtimes that run a program named in their arguments. */
const RUNTIMES = /^(?:node|nodejs|bun|deno)(?:[-\d.]*)(?:\.exe)?$/i;
const PACKAGE_RUNNERS = /^(?:npx|bunx|pnpx|npm|pnpm|yarn|bun|deno|dlx)(?:\.\w+)?$/i;
const WRAPPERS = /^(?:env|nice|nohup|setsid|stdbuf|time|timeout|sudo|doas|exec|command)$/;
const SHELLS = /^(?:ba|da|z|k|fi)?sh$/;
/** Words before the program: subcommands of runners, such as `run`, and assignments, such as `A=1`. */
const SUBCOMMAND = /^(?:run|x|dlx|exec|--)$|^\w+=/;
/** Runner options that take no value. */
const VALUELESS_OPTION = /^(?:-y|--yes|-q|--quiet|-A|--allow-\w+(?:=.*)?|--bun|--silent|--.*=.*)$/;
/** Maximum depth of nested commands, such as `env sh -c …`. */
const MAX_DEPTH = 4;

/**
 * Whether an entry of a client's file starts toolmux, under any name. As a server, toolmux would start itself
 * endlessly. Follows symbolic links. Used by the loader of manifests and by the importer.
 */
export function startsItself({ name, command, args }: LaunchEntry): boolean {
  if (name === TOOLMUX_KEY) return true;
  if (typeof command !== "string") return false;
  const words = Array.isArray(args) ? (args as readonly unknown[]) : [];
  return isOwnCommand([command, ...words.filter((word) => typeof word === "string")], MAX_DEPTH);
}

function isOwnCommand(words: readonly string[], depth: number): boolean {
  const [command = "", ...rest] = words;
  if (isOwnProgram(command, true)) return true;
  if (depth === 0) return false;
  const name = basename(command);
  if (SHELLS.test(name)) return isInShellScript(rest, depth);
  if (WRAPPERS.test(name)) {
    const at = rest.findIndex((word) => !/^-|^\w+=|^\d+[smhd]?$/.test(word));
    return at >= 0 && isOwnCommand(rest.slice(at), depth - 1);
  }
  if (!RUNTIMES.test(name) && !PACKAGE_RUNNERS.test(name)) return false;
  return programCandidatesOf(rest).some((word) => isOwnProgram(word, false));
}

/**
 * The words among a runner's arguments that may be the program. A word after an option may be the option's value, so
 * the next word is a candidate, too.
 */
function programCandidatesOf(args: readonly string[]): readonly string[] {
  const found: string[] = [];
  for (const [at, word] of args.entries()) {
    if (word.startsWith("-") || SUBCOMMAND.test(word)) continue;
    found.push(word);
    const before = args[at - 1] ?? "";
    if (!before.startsWith("-") || before === "--" || VALUELESS_OPTION.test(before)) break;
  }
  return found;
}

/** Checks the commands of `sh -c '…'`. */
function isInShellScript(args: readonly string[], depth: number): boolean {
  const at = args.findIndex((word) => /^-\w*c$/.test(word));
  const script = at < 0 ? args.find((word) => !word.startsWith("-")) : args[at + 1];
  if (script === undefined) return false;
  if (at < 0) return isOwnProgram(script, false);
  return script.split(/&&|\|\||[;|&\n]/).some((part) => {
    const words = splitCommand(part);
    return words !== undefined && isOwnCommand(words, depth - 1);
  });
}

/** @param isCommand whether a word without slashes is looked up in PATH */
function isOwnProgram(word: string, isCommand: boolean): boolean {
  const plain = word.replace(/^npm:/, "").replace(/(?<=.)@[^/@]*$/, "");
  if (PROGRAM_NAME.test(basename(plain)) || SOURCE_ENTRY_POINT.test(word)) return true;
  const { env } = process;
  const path = expandHome(
    word.replaceAll(/\$\{(?:userHome|HOME|env:HOME)\}/g, () => env["HOME"] ?? ""),
    env,
  );
  if (path.includes("/")) return isOwnFile(resolve(path));
  if (!isCommand || path === "" || RUNTIMES.test(path) || PACKAGE_RUNNERS.test(path)) return false;
  const folders = (env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  const first = folders
    .map((folder) => join(folder, path))
    .find((file) => statOf(file) !== undefined);
  return first !== undefined && isOwnFile(first);
}

/** Whether a path leads to the program file of this process (same device and inode). */
function isOwnFile(path: string): boolean {
  const [own, other] = [statOf(ownCommand().at(-1) ?? ""), statOf(path)];
  return own !== undefined && own.dev === other?.dev && own.ino === other.ino;
}

function statOf(path: string): { readonly dev: number; readonly ino: number } | undefined {
  try {
    return process.getBuiltinModule("node:fs").statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
