import type { LogFormat } from "../terminal/log.ts";
import type { LogLevel } from "../base/events.ts";
import type { EarlyInitialize } from "../frontend/early-initialize.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { InitializeCache } from "./hub-initialize-cache.ts";

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

/** Verbs of `secret`, and the stores it can write to. */
export const SECRET_VERBS = ["set", "list", "remove"] as const;
export const STORES = ["file", "keychain"] as const;

/** The environment of a command: system environment, abort signal, process-wide hooks. */
export interface CommandContext extends SystemEnvironment {
  /** Aborted with a HubError (`cancelled`) when the process is told to end. */
  readonly signal: AbortSignal;
  /** Handlers of uncaught errors: each returns whether the error is a plugin's and has been handled. */
  readonly uncaughtErrorHandlers: Set<(error: unknown) => boolean>;
  /** Handlers of SIGHUP; while there are none, SIGHUP ends the process. */
  readonly hangupHandlers: Set<() => void>;
  /** Cached `initialize` answers for this command line; absent: nothing is cached. */
  readonly initializeCache?: InitializeCache | undefined;
  /**
   * The process's stdin and stdout as a client's streams. Set if `initialize` has been answered on them before the hub
   * is loaded, or may still be.
   */
  readonly earlyInitialize?: EarlyInitialize | undefined;
}

/** Values of an option or argument that shells can complete without running toolmux. */
export type ValueChoices = readonly string[] | "file" | "folder" | "command";

export interface Option {
  /** Without dashes. */
  readonly name: string;
  /** One-letter alias. */
  readonly letter?: string;
  /** Name of the option's value in the help; absent: the option takes no value. */
  readonly value?: string;
  /** Allowed values, if they are a fixed set. */
  readonly choices?: ValueChoices;
  /** May be given several times. */
  readonly repeats?: true;
  /** The value may be empty: `--prefix ''`. */
  readonly empty?: true;
  readonly summary: string;
}

/** Runs a command. @returns the exit code. @throws {HubError} reported by `runCli`, with its exit code */
export type CommandRun = (invocation: Invocation, context: CommandContext) => Promise<number>;

/** A command's declaration, the source of help, parsing and completions. */
export interface Command {
  readonly name: string;
  /** Half a sentence for the list of commands. */
  readonly summary: string;
  /** The arguments after the command's name, without options; may be empty. */
  readonly usage: string;
  /** Minimum and maximum number of arguments after the command's name. */
  readonly words: readonly [least: number, most: number];
  /** Values of the first argument, if shells can complete them. */
  readonly choices?: ValueChoices;
  /** Lines of its help. */
  readonly details: readonly string[];
  readonly options: readonly Option[];
  readonly examples: readonly string[];
  /** Loads the command's code, so that other commands start without it. */
  load(): Promise<CommandRun>;
}

/** A parsed command line. */
export interface Invocation {
  readonly command: Command;
  /** Arguments after the command's name, without options. */
  readonly words: readonly string[];
  /** The `--config` files, in order. */
  readonly config: readonly string[];
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
  /** `--json`: a boolean, or its value for commands where it takes one. */
  readonly json: boolean | string;
  readonly raw: boolean;
  readonly all: boolean;
  readonly structured: boolean;
  /** `--http` and `--http-token-env`. */
  readonly http: string | undefined;
  readonly httpTokenEnv: string | undefined;
  readonly stdio: boolean;
  /** Where to store a secret. */
  readonly store: (typeof STORES)[number] | undefined;
  /** Print login pages instead of opening a browser. */
  readonly noBrowser: boolean;
  /** OAuth scopes to request, separated by spaces or commas. */
  readonly scope: string | undefined;
  /** Folder for attachments. */
  readonly output: string | undefined;
  /** Names of all given options that take no value. */
  readonly switches: ReadonlySet<string>;
  /** Values of all given options that take one, by name, in order. */
  readonly values: ReadonlyMap<string, readonly string[]>;
}
