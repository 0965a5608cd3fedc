import type { LogFormat } from "../terminal/log.ts";
import type { LogLevel } from "../base/hub-events.ts";
import type { HostContext } from "../host/context.ts";
import type { Terminal } from "../terminal/terminal.ts";
import type { OptionTable, OptionValues, ValueChoices } from "./options.ts";

/** Groups of commands, in the order of the help. */
export const COMMAND_GROUPS = [
  "Start here",
  "Use the tools",
  "Servers",
  "Running hubs",
  "Diagnose",
  "Advanced",
] as const;

/** The lists that `toolmux list` can print. */
export const LISTS = ["tools", "prompts", "resources", "skills", "servers"] as const;

export const SHELLS = ["bash", "zsh", "fish"] as const;

export const BENCH_DEFAULTS = {
  concurrency: "1,4,16,64",
  duration: "10s",
  timeout: "30s",
} as const;

export const AGENT_VERBS = ["list", "show", "add", "pull", "remove", "serve"] as const;

export const CHAT_VERBS = ["list", "forget"] as const;

/** The words with which `toolmux pins` begins. */
export const PIN_VERBS = ["accept", "forget", "export"] as const;
export const APPROVAL_VERBS = ["allow", "deny", "list", "forget", "accept"] as const;

/** The verbs of `toolmux daemon`. */
export const DAEMON_VERBS = ["run", "start", "stop", "restart", "status"] as const;
/** The verbs of `toolmux clients`. */
export const CLIENT_VERBS = ["add", "list"] as const;
/** The verbs of `toolmux secret`. */
export const SECRET_VERBS = ["set", "list", "remove"] as const;

/** The verbs of `toolmux share`. */
export const SHARE_VERBS = ["on", "off"] as const;

/** The arguments of `toolmux fleet`. */
export const FLEET_VERBS = ["ping"] as const;
/** The verbs of `toolmux service`. */
export const SERVICE_VERBS = ["install", "remove", "status", "log"] as const;

/** The context of a command's run: what a hub and an operation need, and the terminal. */
export interface CommandContext extends HostContext {
  readonly terminal: Terminal;
}

/** Runs a command. @returns the exit code. @throws {HubError} reported by `runCli`, with its exit code */
export type CommandRun<Options = unknown> = (
  invocation: Invocation<Options>,
  context: CommandContext,
) => Promise<number>;

/** The declaration of a command. Its options determine the type of the values that its code gets. */
interface CommandDeclaration<Options extends OptionTable> {
  readonly name: string;
  /** The command's group in the help. Within a group, commands are listed in the order of their declarations. */
  readonly group: (typeof COMMAND_GROUPS)[number];
  /** A short phrase for the list of commands in the help. */
  readonly summary: string;
  /** The arguments after the command's name, without options; may be empty. */
  readonly usage: string;
  /** Minimum and maximum number of arguments after the command's name. */
  readonly argumentCount: readonly [least: number, most: number];
  /**
   * What shells may offer for each argument, by position; the last entry holds for all further arguments. An argument
   * may have words of several kinds.
   */
  readonly completes?: readonly (readonly ValueChoices[])[];
  /** Set if further arguments are KEY=VALUE. The error for an unknown option such as `--a 1` then suggests `a=1`. */
  readonly takesPairs?: true;
  /**
   * Lines of the command's help: paragraphs with empty lines between them, and indented rows `  TERM  EXPLANATION`.
   */
  readonly details: readonly string[];
  readonly options: Options;
  readonly examples: readonly string[];
  /** Loads the command's code, so that other commands start without it. */
  load(): Promise<CommandRun<OptionValues<Options>>>;
}

/** A declared command. The help, the parser and shell completion are made from it. */
export type Command = CommandDeclaration<OptionTable>;

/** Declares a command; the compiler checks its code against its options. */
export function command<Options extends OptionTable>(
  declaration: CommandDeclaration<Options>,
): Command {
  // The cast is safe: `parseCommandLine` reads the values with these options.
  return declaration as unknown as Command;
}

/** A parsed command line. */
export interface Invocation<Options = unknown> {
  /** Arguments after the command's name, without options. */
  readonly args: readonly string[];
  /** The `--config` files, in order. */
  readonly config: readonly string[];
  readonly logLevel: LogLevel;
  /** Present if the command line has no `--log-level`. */
  readonly hasDefaultLogLevel?: true;
  readonly logFormat: LogFormat;
  readonly options: Options;
}
