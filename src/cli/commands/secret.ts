import process from "node:process";
import { abortable } from "../../base/clock.ts";
import { usageError } from "../../base/errors.ts";
import { count } from "../../base/format.ts";
import { SECRET_NAME } from "../../manifest/interpolate.ts";
import { suggestName } from "../../manifest/problems.ts";
import { describeSecretUsers } from "../../manifest/secret-users.ts";
import {
  listSecrets,
  openSecretToSet,
  removeStoredSecret,
  type StoreProtection,
  usersBySecret,
} from "../../operations/secrets.ts";
import { isReservedName, secretVariableOf } from "../../secrets/secret-name.ts";
import type { Terminal } from "../../terminal/terminal.ts";
import { type CommandContext, type Invocation, SECRET_VERBS as VERBS } from "../command.ts";
import { hubsOfManifest, runningHubs } from "../running-hub.ts";
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
  switch (VERBS.find((verb) => verb === word)) {
    case "set":
      return setSecret(rest, invocation, context);
    case "list":
      if (rest.length > 0) throw usageError("toolmux secret list takes no name.");
      return printSecrets(invocation, context);
    case "remove":
      return removeSecret(rest, invocation, context);
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
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<number> {
  const { signal, terminal } = context;
  const name = readName(words, "set");
  const opened = await openSecretToSet(name, context);
  const value = canAsk()
    ? await askHidden(`Value of ${name} (hidden): `, signal)
    : await abortable(readValue(), signal);
  const { location, protection, isInEnvironment } = await opened.set(value);
  terminal.printWrapped(`stored ${name} in ${location}`);
  warnProtection(protection, terminal);
  if (isInEnvironment) {
    const variables = `${name}, or ${secretVariableOf(name)}`;
    terminal.note(
      `the environment variable (${variables}) has the same secret and takes precedence`,
    );
  }
  await tellWhatToReload(name, invocation, context);
  return 0;
}

/** Tells which running servers still have the value from before, and how they get the new one. */
async function tellWhatToReload(
  name: string,
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<void> {
  const { terminal } = context;
  const uses = (await usersBySecret(invocation, context))?.get(name);
  const all = await runningHubs(context).catch(() => []);
  const hubs = all.length === 0 ? [] : await hubsOfManifest(invocation, context, all);
  if (uses === undefined || hubs.length === 0) return;
  const { servers } = uses;
  if (servers.length > 0) {
    const which = `${count(servers.length, "server")} of a running hub ${servers.length === 1 ? "uses" : "use"} it`;
    terminal.note(`${which}; to start with the new value: toolmux reconnect ${servers.join(" ")}`);
  }
  const others = describeSecretUsers({ ...uses, servers: [] });
  if (others.length > 0)
    terminal.note(
      `a running hub uses it for ${others.join(", ")}; to take the new value: toolmux reload`,
    );
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
function warnProtection({ folder, key, keychainFault }: StoreProtection, terminal: Terminal): void {
  if (key !== "beside") return;
  const reason = keychainFault === undefined ? "" : ` (${keychainFault})`;
  terminal.note(
    `there is no usable keychain${reason}, so the key of the store is in the same directory: ${folder}. Everyone who can read that directory can read the secrets.`,
  );
}

async function removeSecret(
  words: readonly string[],
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal, signal } = context;
  const name = readName(words, "remove");
  const users = await usersBySecret(invocation, context);
  if (users === undefined) noteUnusableManifest(invocation, terminal);
  const uses = users?.get(name);
  const all = uses === undefined ? [] : describeSecretUsers(uses);
  const number = all.length;
  const purpose = number === uses?.servers.length ? " to start" : "";
  const needs = `${all.join(", ")} ${number === 1 ? "needs" : "need"} it${purpose}`;
  if (number > 0 && canAsk()) {
    const question = `${needs}. Remove ${name}? [y/N] `;
    if (!(await withPrompt(signal, async (ask) => isYes(await ask(question))))) {
      terminal.note("nothing was removed");
      return 1;
    }
  }
  const { isRemoved, location, isInEnvironment } = await removeStoredSecret(name, context);
  if (isRemoved) terminal.printWrapped(`removed ${name} from ${location}`);
  if (isRemoved && number > 0) terminal.note(needs);
  if (isInEnvironment) {
    terminal.note(`the environment still has it (variable ${name} or ${secretVariableOf(name)})`);
  }
  if (isRemoved) return 0;
  terminal.note(`there is no secret ${name}; to see all: toolmux secret list`);
  return 1;
}

function noteUnusableManifest({ options }: Invocation<SecretOptions>, terminal: Terminal): void {
  if (options.json) return;
  terminal.note(
    "the manifest has errors, so what uses a secret is not shown; to see the errors: toolmux check",
  );
}

async function printSecrets(
  invocation: Invocation<SecretOptions>,
  context: CommandContext,
): Promise<number> {
  const { document, isManifestUsable, protection } = await listSecrets(invocation, context);
  const { secrets: rows } = document;
  if (!isManifestUsable) noteUnusableManifest(invocation, context.terminal);
  if (invocation.options.json) {
    context.terminal.printJson(document);
    return 0;
  }
  if (rows.length === 0) {
    context.terminal.printWrapped(
      !isManifestUsable
        ? "There are no secrets."
        : "There are no secrets, and nothing in the manifest needs one.",
    );
  } else {
    const table = rows.map((row) => [
      row.name,
      row.places.join(", ") || "nowhere",
      isReservedName(row.name) ? "toolmux auth" : describeSecretUsers(row).join(", "),
    ]);
    context.terminal.printTable(["NAME", "WHERE", "USED BY"], table);
  }
  warnProtection(protection, context.terminal);
  return 0;
}
