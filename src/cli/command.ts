import type { LogFormat } from "../terminal/log.ts";
import type { LogLevel } from "../base/events.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { Terminal } from "../terminal/terminal.ts";
import type { OptionTable, OptionValues, ValueChoices } from "./options.ts";

/** Groups of commands, in the order of the help. */
export const COMMAND_GROUPS = [
  "Start here",
  "Use the tools",
  "Servers",
  "Diagnose",
  "Advanced",
] as const;

/** Kinds that `list` accepts. */
export const LISTS = ["tools", "prompts", "resources", "skills", "servers"] as const;

/** Shells that `completions` supports. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

/** Defaults of `bench`. */
export const BENCH_DEFAULTS = {
  concurrency: "1,4,16,64",
  duration: "10s",
  timeout: "30s",
} as const;

/** Verbs of `secret`. */
export const SECRET_VERBS = ["set", "list", "remove"] as const;

/** The environment of a command: system environment, abort signal, process-wide hooks. */
export interface CommandContext extends SystemEnvironment {
  /** Aborted with a HubError (`cancelled`) when the process is told to end. */
  readonly signal: AbortSignal;
  /** Handlers of uncaught errors: each returns whether the error is a plugin's and has been handled. */
  readonly uncaughtErrorHandlers: Set<(error: unknown) => boolean>;
  readonly terminal: Terminal;
  /** Handlers of SIGHUP; while there are none, SIGHUP ends the process. */
  readonly hangupHandlers: Set<() => void>;
}

/** Runs a command. @returns the exit code. @throws {HubError} reported by `runCli`, with its exit code */
export type CommandRun<Options = unknown> = (
  invocation: Invocation<Options>,
  context: CommandContext,
) => Promise<number>;

/** A command's declaration. Its options decide which values its code gets. */
interface CommandDeclaration<Options extends OptionTable> {
  readonly name: string;
  /** Its group in the help; there the commands of a group have the order of their declarations. */
  readonly group: (typeof COMMAND_GROUPS)[number];
  /** Half a sentence for the list of commands. */
  readonly summary: string;
  /** The arguments after the command's name, without options; may be empty. */
  readonly usage: string;
  /** Minimum and maximum number of arguments after the command's name. */
  readonly words: readonly [least: number, most: number];
  /** Values of the first argument, if shells can complete them. */
  readonly choices?: ValueChoices;
  /** Whether the completion scripts ask toolmux for the other values of arguments (complete.ts). */
  readonly hasKnownWords?: true;
  /** Further arguments are KEY=VALUE, so an unknown option is probably meant as one. */
  readonly takesPairs?: true;
  /** Lines of its help: paragraphs with empty lines between them, and indented rows `  TERM  EXPLANATION`. */
  readonly details: readonly string[];
  readonly options: Options;
  readonly examples: readonly string[];
  /** Loads the command's code, so that other commands start without it. */
  load(): Promise<CommandRun<OptionValues<Options>>>;
}

/** A declared command, the source of help, parsing and completions. */
export type Command = CommandDeclaration<OptionTable>;

/** Declares a command; the compiler checks its code against its options. */
export function command<Options extends OptionTable>(
  declaration: CommandDeclaration<Options>,
): Command {
  // The command's code gets the values that `parseCommandLine` has read with these very options.
  return declaration as unknown as Command;
}

/** A parsed command line. */
export interface Invocation<Options = unknown> {
  /** Arguments after the command's name, without options. */
  readonly args: readonly string[];
  /** The `--config` files, in order. */
  readonly config: readonly string[];
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
  /** Values of the command's own options. */
  readonly options: Options;
}
