import type { Env } from "../base/paths.ts";

/** A prompt of an agent's file that a person sends by its name (`commands` of docker-agent): `/fix-lint src`. */
export interface NamedPrompt {
  readonly description: string | undefined;
  /** The text, with placeholders as they are written. */
  readonly instruction: string;
}

/**
 * `${…}` or `$NAME`. Groups: what is in the braces; the name without braces.
 */
const PLACEHOLDER = /\$\{([^{}]*)\}|\$([A-Za-z_]\w*|\d+)/g;

/** What is in the braces of a placeholder that is replaced: arguments, or a variable, perhaps with a default. */
const ARGUMENTS =
  /^\s*args(?:\[(\d+)\]|\.join\((?:"([^"]*)"|'([^']*)')\))?\s*(?:\|\|\s*(?:"([^"]*)"|'([^']*)')\s*)?$/;
const VARIABLE = /^\s*(?:env\.)?([A-Za-z_]\w*)\s*(?:\|\|\s*(?:"([^"]*)"|'([^']*)')\s*)?$/;

/**
 * The text of a prompt. `${args}`, `${args[0]}`, `${args.join(" ")}`, `$1` are what the person has written after the
 * name; `${NAME}`, `${env.NAME}` and `$NAME` are environment variables, empty if they are not set, as is each after
 * which `|| "default"` stands. If the prompt has no place for arguments, they follow its text.
 * @param rest what follows the name
 * @param env undefined: no variable is replaced
 */
export function renderPrompt(
  { instruction }: NamedPrompt,
  rest: string,
  env: Env | undefined,
): string {
  const words = wordsOf(rest);
  let hasArguments = false;
  const text = instruction.replaceAll(PLACEHOLDER, (whole, inside?: string, plain?: string) => {
    if (plain !== undefined && /^\d/.test(plain)) {
      hasArguments = true;
      return words[Number(plain) - 1] ?? "";
    }
    const found = inside === undefined ? undefined : ARGUMENTS.exec(inside);
    if (found) {
      hasArguments = true;
      const [, place, joint, otherJoint, fallback = found[5] ?? ""] = found;
      const all = words.join(joint ?? otherJoint ?? " ");
      return (place === undefined ? all : words[Number(place)]) || fallback;
    }
    const variable = VARIABLE.exec(inside ?? plain ?? "");
    if (!variable || env === undefined) return whole;
    const [, name = "", fallback = variable[3] ?? ""] = variable;
    return env[name] || fallback;
  });
  return rest.trim() === "" || hasArguments ? text : `${text} ${rest.trim()}`;
}

/**
 * The text that an agent gets for a message of a person: that of the prompt that a message such as `/fix-lint src` names,
 * else the message itself.
 */
export function expandMessage(
  message: string,
  prompts: ReadonlyMap<string, NamedPrompt> | undefined,
  env: Env | undefined,
): string {
  const [, name = "", rest = ""] = /^\/(\S+)([^]*)$/.exec(message) ?? [];
  const prompt = prompts?.get(name);
  return prompt === undefined ? message : renderPrompt(prompt, rest, env);
}

/** The first placeholder that is a program, such as `${shell({cmd: "ls"})}`; undefined: the prompt has none. */
export function unsupportedPlaceholder({ instruction }: NamedPrompt): string | undefined {
  for (const [whole, inside] of instruction.matchAll(/\$\{([^}]*)\}?/g)) {
    if (inside !== undefined && !ARGUMENTS.test(inside) && !VARIABLE.test(inside)) return whole;
  }
  return undefined;
}

/** The words of a line; quotes keep spaces together, and are removed. */
function wordsOf(line: string): readonly string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote = "";
  for (const character of line) {
    if (quote === "" && /["']/.test(character)) {
      quote = character;
      word ??= "";
    } else if (character === quote) quote = "";
    else if (quote === "" && /\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + character;
  }
  return word === undefined ? words : [...words, word];
}
