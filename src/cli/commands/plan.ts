import { parsePackage } from "../../manifest/package.ts";
import { createTable, isTable, type Table } from "../../manifest/table.ts";
import { splitCommand } from "../../manifest/words.ts";
import type { Invocation } from "../command.ts";
import { usageError } from "../args.ts";

/** What the command line says that a server is. */
export type ServerArguments =
  | { readonly kind: "entry"; readonly entry: Table }
  /** Nothing: its name is to be looked up. */
  | { readonly kind: "name" };

const MAIN = ["url", "package", "command"] as const;

/** Reads it. @throws {HubError} usage */
export function readServerArguments({ words, values }: Invocation): ServerArguments {
  const [, ...rest] = words;
  const said = MAIN.filter((option) => values.has(option)).map((option) => `--${option}`);
  const ways = rest.length > 0 && !values.has("package") ? [...said, "a command"] : said;
  if (ways.length > 1) throw usageError(`${ways.join(" and ")} say different things: choose one.`);
  const url = values.get("url")?.at(-1);
  checkBeside(values, "url", ["header", "transport"]);
  checkBeside(values, "package", ["runner"]);
  if (url !== undefined) {
    if (values.has("env"))
      throw usageError("--env is for what is started; with --url there is --header.");
    const transport = values.get("transport")?.at(-1);
    return { kind: "entry", entry: compose({ url, transport, headers: readHeaders(values) }) };
  }
  const named = values.get("package")?.at(-1);
  const env = readEnv(values);
  if (named !== undefined) {
    if (parsePackage(named) === undefined) {
      throw usageError(
        `"${named}" is no package; they are named npm:@scope/name@1.2.3, pypi:name==1.2 or docker:image:tag.`,
      );
    }
    const runner = values.get("runner")?.at(-1);
    return { kind: "entry", entry: compose({ package: named, runner, args: rest, env }) };
  }
  const line = values.get("command")?.at(-1);
  const [command, ...args] = line === undefined ? rest : (splitCommand(line) ?? []);
  if (command !== undefined) return { kind: "entry", entry: compose({ command, args, env }) };
  if (line !== undefined)
    throw usageError("--command has a quote that does not end, or no word in it.");
  return { kind: "name" };
}

/** What the command line says besides, whatever the server is: it wins over what a directory says. */
export function addOptionSettings(entry: Table, { values }: Invocation): Table {
  const prefix = values.get("prefix")?.at(-1);
  const env = values.has("env") ? merge(entry["env"], readEnv(values)) : entry["env"];
  return compose({ ...entry, env, prefix });
}

function merge(before: unknown, more: Table): Table {
  return { ...(isTable(before) ? before : {}), ...more };
}

type Values = Invocation["values"];

/** @throws {HubError} usage */
function checkBeside(values: Values, main: string, options: readonly string[]): void {
  const stray = options.find((option) => values.has(option) && !values.has(main));
  if (stray !== undefined) throw usageError(`--${stray} means something only beside --${main}.`);
}

function readEnv(values: Values): Table {
  return readPairs(values.get("env") ?? [], /^([^=\s]+)=(.*)$/s, "--env", "KEY=VALUE");
}

/** What requests are to bear, by --header. @throws {HubError} usage, without showing the value */
export function readHeaders(values: Values): Readonly<Record<string, string>> {
  return readPairs(values.get("header") ?? [], /^([^:\s]+):\s*(.*)$/s, "--header", "NAME: VALUE");
}

/** @throws {HubError} usage, without showing the value */
function readPairs(
  given: readonly string[],
  form: RegExp,
  option: string,
  shape: string,
): Record<string, string> {
  const pairs = createTable<string>();
  for (const text of given) {
    const [, key, value = ""] = form.exec(text) ?? [];
    if (key === undefined) throw usageError(`${option} is written ${shape}.`);
    pairs[key] = value;
  }
  return pairs;
}

/** Without what is not there, or empty. */
function compose(entry: Table): Table {
  const made = createTable<unknown>();
  for (const [key, value] of Object.entries(entry)) {
    const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
    if (value !== undefined && !isEmpty) made[key] = value;
  }
  return made;
}
