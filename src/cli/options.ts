import { HubError } from "../base/errors.ts";

/** Kinds of words that completion takes from the manifest, from saved listings of servers, or from running hubs. */
export type KnownWords =
  | "servers"
  | "modes"
  | "agents"
  | "tools"
  | "prompts"
  | "resources"
  | "arguments"
  | "alerts"
  | "calls"
  | "hubs";

/**
 * Values of an option or argument, for completion in shells: a list, or a kind of value (complete.ts). `arguments`: the
 * arguments of the tool or prompt that the first argument names.
 */
export type ValueChoices = readonly string[] | "file" | "folder" | "command" | KnownWords;

/** An option of a command, as help, parsing and completion need it. Its name is its key in an `OptionTable`. */
export interface Option<Value = unknown> {
  /** One-letter alias. */
  readonly letter?: string;
  /** A second one-letter alias, which the help does not show. */
  readonly otherLetter?: string;
  /** Name of the option's value in the help; absent: the option takes no value. */
  readonly value?: string;
  /** The allowed values, if they are a fixed set, or the kind of value that shells complete. */
  readonly choices?: ValueChoices;
  /** May be given several times. */
  readonly repeats?: true;
  /** The value may be empty: `--prefix ''`. */
  readonly empty?: true;
  readonly summary: string;
  /**
   * Converts the texts that the command line gives for the option to its value.
   * @param given the texts, in order, already checked against `choices`; one empty text for an option without a value
   * @param name without dashes, for the message
   * @throws {HubError} usage
   */
  read(given: readonly string[], name: string): Value;
}

/** The options of a command, by name without dashes. */
export type OptionTable = Readonly<Record<string, Option>>;

export type NamedOption = Option & { readonly name: string };

/** The options of all tables, in order. */
export function namedOptions(...tables: readonly OptionTable[]): readonly NamedOption[] {
  return tables.flatMap((table) =>
    Object.entries(table).map(([name, option]) => ({ ...option, name })),
  );
}

export function takesValue({ value }: Option): boolean {
  return value !== undefined;
}

/** The values that the options of a table have on a command line. */
export type OptionValues<Table extends OptionTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Option<infer Value> ? Value : never;
};

/** An option without a value. */
export function flag(
  summary: string,
  more: Pick<Option, "letter" | "otherLetter"> = {},
): Option<boolean> {
  return { ...more, summary, read: (given) => given.length > 0 };
}

/**
 * An option with a text; if it is given several times, the last one counts.
 * @param value the name of the option's value in the help
 */
export function text(
  value: string,
  summary: string,
  more: Pick<Option, "letter" | "choices" | "empty"> = {},
): Option<string | undefined> {
  return { ...more, value, summary, read: (given) => given.at(-1) };
}

/** An option with a text that may be given several times. @param value the name of the option's value in the help */
export function texts(
  value: string,
  summary: string,
  more: Pick<Option, "choices"> = {},
): Option<readonly string[]> {
  return { ...more, value, summary, repeats: true, read: (given) => given };
}

/** An option with one of a fixed set of values. */
export function oneOf<const Choice extends string>(
  value: string,
  choices: readonly Choice[],
  summary: string,
): Option<Choice | undefined> {
  const read = (given: readonly string[]): Choice | undefined =>
    choices.find((choice) => choice === given.at(-1));
  return { value, choices, summary, read };
}

/** An option with a whole number; `preset` is its value if it is not given. */
export function integer(
  value: string,
  summary: string,
  {
    preset,
    min,
    max,
    ...more
  }: { readonly preset: number; readonly min: number; readonly max: number } & Pick<
    Option,
    "letter"
  >,
): Option<number> {
  return {
    ...more,
    value,
    summary,
    read(given, name) {
      const last = given.at(-1);
      if (last === undefined) return preset;
      const number = /^\d{1,15}$/.test(last) ? Number(last) : Number.NaN;
      if (number >= min && number <= max) return number;
      const message = `--${name} must be a whole number from ${min} to ${max}, not "${last}".`;
      throw new HubError("usage", message);
    },
  };
}
