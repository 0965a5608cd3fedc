/**
 * `parseArgs` of Deno's standard library under its own specifier, `@std/cli/parse-args`: tsconfig.json and
 * deno.json both point that name here, so the same import works on every runtime and in the executable.
 */
// @ts-ignore: the package has no declarations; Deno reads its JavaScript, other type checkers see `any`.
import { parseArgs as parse } from "deno-std/cli/parse_args.js";

/** The flags, and how to read their values. */
export interface ParseOptions {
  /** Flags whose values stay strings. If `"_"` is among them, positionals that look like numbers stay strings, too. */
  readonly string?: string | readonly string[];
  /** Flags without a value (false when not given). If `true`, every `--flag` without `=` is one. */
  readonly boolean?: boolean | string | readonly string[];
  /** Flags that may be given several times; their values become an array. */
  readonly collect?: string | readonly string[];
  /** Flags that `--no-<flag>` sets to false. */
  readonly negatable?: string | readonly string[];
  /** Other names of a flag; the value is set under each of them. */
  readonly alias?: Readonly<Record<string, string | readonly string[]>>;
  /** Values of flags that are not given. */
  readonly default?: Readonly<Record<string, unknown>>;
  /** Puts the arguments after a bare `--` under `"--"` instead of at the end of `_`. */
  readonly "--"?: boolean;
  /** Takes the first positional and everything after it as positionals. */
  readonly stopEarly?: boolean;
  /**
   * Called for each positional (with `arg` alone), and for each flag that no other member of `ParseOptions` names (with
   * its key and value). If it returns false, the positional or flag is left out of the result.
   */
  readonly unknown?: (arg: string, key?: string, value?: unknown) => unknown;
}

/**
 * Positionals in `_`, flags under their names; a flag with dots in its name becomes nested objects.
 * Values that look like numbers are numbers unless `ParseOptions.string` names their flag.
 */
export interface ParsedArgs {
  readonly _: (string | number)[];
  readonly "--"?: string[];
  readonly [flag: string]: unknown;
}

/**
 * Splits a command line into flags and positionals. Unknown flags are not errors: they are reported to
 * `options.unknown`, or end up in the result.
 * @throws {TypeError} if `options.alias` has an undefined value
 */
export const parseArgs: (args: readonly string[], options?: ParseOptions) => ParsedArgs = parse;
