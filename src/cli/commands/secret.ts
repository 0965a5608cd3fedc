import { suggestName } from "../../manifest/problems.ts";
import process from "node:process";
import { loadManifest } from "../../manifest/load.ts";
import { SECRET_NAME, secretsOf } from "../../manifest/interpolate.ts";
import { secretsOfModels } from "../../manifest/resolve.ts";
import {
  isReservedName,
  openSecrets,
  readSecretVariable,
  type Secrets,
  secretVariableOf,
} from "../../secrets/secrets.ts";
import { abortable } from "../../base/clock.ts";
import { type CommandContext, type Invocation, SECRET_VERBS as VERBS } from "../command.ts";
import { loadOptions } from "../../operations/load-manifest.ts";
import { usageError } from "../../base/errors.ts";
import type { Terminal } from "../../terminal/terminal.ts";
import { askHidden, canAsk, isYes, withPrompt } from "../prompt.ts";

/** Maximum size of a value, in bytes. */
const MAX_VALUE_SIZE = 64 * 1024;

interface SecretOptions {
  readonly json: boolean;
}

/** `toolmux secret`: stores, lists or removes secrets. Values are neither read from the command line nor printed. */
export async function secret(
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<number> {
  const [word = "", ...rest] = invocation.args;
  const secrets = openSecrets(context);
  switch (VERBS.find((verb) => verb === word)) {
    case "set":
      return setSecret(rest, secrets, context);
    case "list":
      if (rest.length > 0) throw usageError("toolmux secret list takes no name.");
      return printSecrets(invocation, secrets, context);
    case "remove":
      return removeSecret(rest, secrets, invocation, context);
    case undefined:
      throw usageError(
        `"toolmux secret" needs one of: ${VERBS.join(", ")}.${suggestName(word, VERBS)}`,
      );
  }
}

/**
 * Reads the name of a secret. Messages do not repeat arguments, because one of them may be a misplaced value.
 * @throws {HubError} usage
 */
function readName(words: readonly string[], verb: string): string {
  const [name, ...more] = words;
  if (name === undefined) throw usageError(`Which secret? toolmux secret ${verb} NAME`);
  if (more.length > 0 && verb === "set") {
    throw usageError(
      "Do not write the value on the command line, because other programs and the shell history can see it. Pipe the value in, or type it when toolmux asks for it.",
    );
  }
  if (more.length > 0) throw usageError(`toolmux secret ${verb} takes one name.`);
  if (!SECRET_NAME.test(name)) {
    throw usageError("The name of a secret can contain only letters, digits, _ - . and /.");
  }
  return name;
}

async function setSecret(
  words: readonly string[],
  secrets: Secrets,
  { env, signal, terminal }: CommandContext,
): Promise<number> {
  const name = readName(words, "set");
  if (isReservedName(name))
    throw usageError(`${name} is reserved for the tokens of toolmux: choose another name.`);
  // Lists the store first: if it cannot be used, the command fails before the user types a value.
  await secrets.file.list();
  const value = canAsk()
    ? await askHidden(`Value of ${name} (hidden): `, signal)
    : await abortable(readValue(), signal);
  if (value === "") throw usageError("The value is empty: nothing was changed.");
  if (value.includes("\0"))
    throw usageError("The value contains a NUL character: nothing was changed.");
  await secrets.file.set(name, value);
  terminal.print(`stored ${name} in ${secrets.file.location}`);
  await warnProtection(secrets, terminal);
  if (readSecretVariable(env, name) !== undefined) {
    const variables = `${name}, or ${secretVariableOf(name)}`;
    terminal.note(
      `the environment variable (${variables}) has the same secret and takes precedence`,
    );
  }
  return 0;
}

/** Reads all of stdin, without its last line break. @throws {HubError} usage */
async function readValue(): Promise<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let value = "";
  let size = 0;
  try {
    for await (const chunk of process.stdin) {
      size += (chunk as Uint8Array).length;
      value += decoder.decode(chunk as Uint8Array, { stream: true });
      if (size > MAX_VALUE_SIZE)
        throw usageError(`A value can have at most ${MAX_VALUE_SIZE} bytes.`);
    }
    value += decoder.decode();
  } catch (error) {
    if (error instanceof TypeError) throw usageError("The value is not UTF-8 text.");
    throw error;
  }
  return value.replace(/\r?\n$/, "");
}

/** Warns if the encryption key of the secret store is in the same folder as the store. */
async function warnProtection(secrets: Secrets, terminal: Terminal): Promise<void> {
  if ((await secrets.protection()) !== "beside") return;
  const reason = secrets.keychainFault === undefined ? "" : ` (${secrets.keychainFault})`;
  terminal.note(
    `there is no usable keychain${reason}, so the key of the store is in the same directory: ${secrets.folder}. Everyone who can read that directory can read the secrets.`,
  );
}

async function removeSecret(
  words: readonly string[],
  secrets: Secrets,
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<number> {
  const { env, terminal, signal } = context;
  const name = readName(words, "remove");
  const uses = (await usersBySecret(invocation, context))?.get(name);
  const number = (uses?.servers.length ?? 0) + (uses?.models.length ?? 0);
  const verb = number === 1 ? "needs" : "need";
  const purpose = uses?.models.length === 0 ? " to start" : "";
  const needs = uses === undefined ? "" : `${describeUsers(uses)} ${verb} it${purpose}`;
  if (number > 0 && canAsk()) {
    const question = `${needs}. Remove ${name}? [y/N] `;
    if (!(await withPrompt(signal, async (ask) => isYes(await ask(question))))) {
      terminal.note("nothing was removed");
      return 1;
    }
  }
  const isListed = (await secrets.file.list()).includes(name);
  const isRemoved = isListed && (await secrets.file.remove(name));
  if (isRemoved) terminal.print(`removed ${name} from ${secrets.file.location}`);
  if (isRemoved && number > 0) terminal.note(needs);
  if (readSecretVariable(env, name) !== undefined) {
    terminal.note(`the environment still has it (variable ${name} or ${secretVariableOf(name)})`);
  }
  if (isRemoved) return 0;
  terminal.note(`there is no secret ${name}; to see all: toolmux secret list`);
  return 1;
}

interface SecretRow {
  readonly name: string;
  /** Where the secret was found: `environment`, `file`. */
  readonly places: readonly string[];
  /** The servers that refer to the secret, and the models that use it. */
  readonly servers: readonly string[];
  readonly models: readonly string[];
}

/** The servers and models that use a secret. */
interface SecretUses {
  readonly servers: string[];
  readonly models: string[];
  /** Environment variables of these models. If one of them is set, the secret need not be stored. */
  readonly variables: string[];
}

/** Formats the servers and models that use a secret, for people. */
function describeUsers({ servers, models }: Pick<SecretRow, "servers" | "models">): string {
  return [...servers, ...models.map((name) => `model ${name}`)].join(", ");
}

async function printSecrets(
  invocation: Invocation<SecretOptions>,
  secrets: Secrets,
  context: CommandContext,
): Promise<number> {
  const uses = await usersBySecret(invocation, context);
  const rows = await listRows(secrets, uses ?? new Map(), context);
  const key = await secrets.protection();
  if (invocation.options.json) {
    context.terminal.printJson({ secrets: rows, folder: secrets.folder, key });
    return 0;
  }
  if (rows.length === 0) {
    context.terminal.print(
      uses === undefined
        ? "There are no secrets."
        : "There are no secrets, and no server or model needs one.",
    );
  } else {
    const table = rows.map((row) => [
      row.name,
      row.places.join(", ") || "nowhere",
      isReservedName(row.name) ? "toolmux auth" : describeUsers(row),
    ]);
    context.terminal.printTable(["NAME", "WHERE", "USED BY"], table);
  }
  await warnProtection(secrets, context.terminal);
  return 0;
}

async function listRows(
  secrets: Secrets,
  uses: ReadonlyMap<string, SecretUses>,
  { env }: CommandContext,
): Promise<readonly SecretRow[]> {
  const stored = await secrets.file.list();
  const names = [...new Set([...stored, ...uses.keys()])].toSorted();
  return names.map((name) => {
    const { servers = [], models = [], variables = [] } = uses.get(name) ?? {};
    const isSet =
      readSecretVariable(env, name) !== undefined || variables.some((variable) => env[variable]);
    const places = [...(isSet ? ["environment"] : []), ...(stored.includes(name) ? ["file"] : [])];
    return { name, places, servers, models };
  });
}

/** The servers and models that use each secret, by its name; undefined if there is no usable manifest. */
async function usersBySecret(
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<ReadonlyMap<string, SecretUses> | undefined> {
  const uses = new Map<string, SecretUses>();
  const usesOf = (name: string): SecretUses => {
    const known = uses.get(name) ?? { servers: [], models: [], variables: [] };
    uses.set(name, known);
    return known;
  };
  const loaded = await loadManifest(loadOptions(invocation, context));
  if (!loaded.ok) {
    if (!invocation.options.json) {
      context.terminal.note(
        "the manifest has errors, so the servers and models that use a secret are not shown; to see the errors: toolmux check",
      );
    }
    return undefined;
  }
  for (const spec of loaded.manifest.servers) {
    for (const name of secretsOf(spec)) usesOf(name).servers.push(spec.name);
  }
  for (const { name, model, variables } of secretsOfModels(loaded.manifest)) {
    usesOf(name).models.push(model);
    usesOf(name).variables.push(...variables);
  }
  return uses;
}
