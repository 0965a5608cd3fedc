import type { LogFormat } from "../terminal/log.ts";
import type { LogLevel } from "../base/events.ts";
import type { EarlyInitialize } from "../frontend/early-initialize.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { InitializeCache } from "./initialize-cache.ts";

/** What `list` can list. */
export const LISTS = ["tools", "prompts", "resources", "skills", "servers"] as const;

/** What `completions` has scripts for. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

/** How `bench` measures if it is not told. */
export const BENCH_DEFAULTS = {
  concurrency: "1,4,16,64",
  duration: "10s",
  timeout: "30s",
} as const;

/** What `secret` can do, and where it can keep what it is given. */
export const SECRET_VERBS = ["set", "list", "remove"] as const;
export const STORES = ["file", "keychain"] as const;

/** What a command runs in: its surroundings, and when it has to end. */
export interface CommandContext extends SystemEnvironment {
  /** Aborted with a HubError (`cancelled`) when the process is told to end. */
  readonly signal: AbortSignal;
  /** Where those register who can tell whether an error that nobody caught is a plugin's, and take it. */
  readonly claims: Set<(error: unknown) => boolean>;
  /** What a hangup (SIGHUP) does; if there is nothing, it ends the process. */
  readonly hangups: Set<() => void>;
  /** What was said to clients by this very command line; absent where nothing is kept of that. */
  readonly greetings?: InitializeCache | undefined;
  /** Own stdin and stdout, if a client has been, or may be, greeted there. */
  readonly welcome?: EarlyInitialize | undefined;
}

/** What an option's value or a word of a command can be, as far as a shell can complete it without running anything. */
export type ValueChoices = readonly string[] | "file" | "folder" | "command";

export interface Option {
  /** Without the dashes. */
  readonly name: string;
  /** One letter that means the same. */
  readonly letter?: string;
  /** What stands for the option's value in the help; an option without it takes none. */
  readonly value?: string;
  /** Its values, where they can be told; no others are taken. */
  readonly choices?: ValueChoices;
  /** It may be given several times. */
  readonly repeats?: true;
  /** It may be given as nothing: `--prefix ''`. */
  readonly empty?: true;
  readonly summary: string;
}

/** Carries a command out. @returns the exit code. @throws {HubError} what `runCli` reports, with its exit code */
export type CommandRun = (invocation: Invocation, world: CommandContext) => Promise<number>;

/** One command, as declared: help and parsing are made from it. */
export interface Command {
  readonly name: string;
  /** Half a sentence, for the list of commands. */
  readonly summary: string;
  /** What follows the command's name, apart from options; empty = nothing. */
  readonly usage: string;
  /** How many words may follow its name: at least, and at most. */
  readonly words: readonly [least: number, most: number];
  /** What the first of these words can be, where that can be told. */
  readonly choices?: ValueChoices;
  /** Whole lines for its help. */
  readonly details: readonly string[];
  readonly options: readonly Option[];
  readonly examples: readonly string[];
  /** Loads the code, so that no command pays for another. */
  load(): Promise<CommandRun>;
}

/** A command line, parsed. */
export interface Invocation {
  readonly command: Command;
  /** What follows the command's name, without options. */
  readonly words: readonly string[];
  /** The manifests that were named, in order. */
  readonly config: readonly string[];
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
  /** `--json`: as a switch, or with its value where the command says that it takes one. */
  readonly json: boolean | string;
  readonly raw: boolean;
  readonly all: boolean;
  readonly structured: boolean;
  /** Where to serve over HTTP, and the variable with the token for that. */
  readonly http: string | undefined;
  readonly httpTokenEnv: string | undefined;
  readonly stdio: boolean;
  /** Where a secret is to be kept. */
  readonly store: (typeof STORES)[number] | undefined;
  /** A page to visit is only printed. */
  readonly noBrowser: boolean;
  /** What to ask an authorization for: texts with spaces or commas between them. */
  readonly scope: string | undefined;
  /** The folder for what is no text. */
  readonly output: string | undefined;
  /** The names of all options without a value that were given, for those that one command alone has. */
  readonly switches: ReadonlySet<string>;
  /** The values of all options with one that were given, by their names, in order. */
  readonly values: ReadonlyMap<string, readonly string[]>;
}
