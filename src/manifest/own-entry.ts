import { basename, delimiter, join, resolve } from "node:path";
import process from "node:process";
import { ownCommand } from "../base/runtime.ts";
import { expandHome } from "../base/paths.ts";
import { splitWords } from "./words.ts";

/** The key of toolmux's own entry in clients' files. */
export const OWN_NAME = "toolmux";

/** Why an entry that starts toolmux is skipped: the end of a sentence. */
export const ITSELF = "it is toolmux itself";

/** The parts of a client's entry that determine what it starts. */
export interface Entry {
  /** Its key in the file. */
  readonly name?: string | undefined;
  readonly command?: unknown;
  readonly args?: unknown;
}

/** The names of release files and of installed executables. */
const NAME = /^toolmux(?:-(?:darwin|linux|windows)-[\w-]+)?(?:\.exe|\.[cm]?js)?$/i;
/** The entry point in a folder with the sources. */
const SOURCES = /(?:^|\/)toolmux[^/]*\/src\/main\.[jt]s$/;
/** Runtimes that run a program named in their arguments. */
const RUNTIMES = /^(?:node|nodejs|bun|deno)(?:[-\d.]*)(?:\.exe)?$/i;
const PACKAGE_RUNNERS = /^(?:npx|bunx|pnpx|npm|pnpm|yarn|bun|deno|dlx)(?:\.\w+)?$/i;
const PREFIXES = /^(?:env|nice|nohup|setsid|stdbuf|time|timeout|sudo|doas|exec|command)$/;
const SHELLS = /^(?:ba|da|z|k|fi)?sh$/;
/** Words between a runner and the program: subcommands and variable assignments. */
const SUBCOMMAND = /^(?:run|x|dlx|exec|--)$|^\w+=/;
/** Options of runners that take no value. */
const SWITCH = /^(?:-y|--yes|-q|--quiet|-A|--allow-\w+(?:=.*)?|--bun|--silent|--.*=.*)$/;
/** The maximum depth of commands within commands. */
const DEPTH = 4;

/**
 * Whether an entry of a client's file starts toolmux, under any name; as a server it would start itself endlessly.
 * Follows symbolic links. Used by the loader of manifests and by the importer.
 */
export function startsItself({ name, command, args }: Entry): boolean {
  if (name === OWN_NAME) return true;
  if (typeof command !== "string") return false;
  const words = Array.isArray(args) ? (args as readonly unknown[]) : [];
  return isOwn([command, ...words.filter((word) => typeof word === "string")], DEPTH);
}

function isOwn(words: readonly string[], depth: number): boolean {
  const [command = "", ...rest] = words;
  if (isProgram(command, true)) return true;
  if (depth === 0) return false;
  const name = basename(command);
  if (SHELLS.test(name)) return isInScript(rest, depth);
  if (PREFIXES.test(name)) {
    const at = rest.findIndex((word) => !/^-|^\w+=|^\d+[smhd]?$/.test(word));
    return at >= 0 && isOwn(rest.slice(at), depth - 1);
  }
  if (!RUNTIMES.test(name) && !PACKAGE_RUNNERS.test(name)) return false;
  return programsOf(rest).some((word) => isProgram(word, false));
}

/**
 * The candidates for the program among a runner's arguments: the first word that is no option, and words before it that
 * may be values of options.
 */
function programsOf(args: readonly string[]): readonly string[] {
  const found: string[] = [];
  for (const [at, word] of args.entries()) {
    if (word.startsWith("-") || SUBCOMMAND.test(word)) continue;
    found.push(word);
    const before = args[at - 1] ?? "";
    if (!before.startsWith("-") || before === "--" || SWITCH.test(before)) break;
  }
  return found;
}

/** Checks the commands of `sh -c '…'`. */
function isInScript(args: readonly string[], depth: number): boolean {
  const at = args.findIndex((word) => /^-\w*c$/.test(word));
  const script = at < 0 ? args.find((word) => !word.startsWith("-")) : args[at + 1];
  if (script === undefined) return false;
  if (at < 0) return isProgram(script, false);
  return script.split(/&&|\|\||[;|&\n]/).some((part) => {
    const words = splitWords(part);
    return words !== undefined && isOwn(words, depth - 1);
  });
}

/** @param isCommand whether a word that is not a path is looked up in PATH */
function isProgram(word: string, isCommand: boolean): boolean {
  const plain = word.replace(/^npm:/, "").replace(/(?<=.)@[^/@]*$/, "");
  if (NAME.test(basename(plain)) || SOURCES.test(word)) return true;
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

/** Whether a path leads to the file that runs here (same device and inode). */
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
