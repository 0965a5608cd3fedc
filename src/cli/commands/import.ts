import { CLIENTS } from "../../client-configs/clients.ts";
import type { PlannedServer } from "../../client-configs/import-plan.ts";
import type { ClientFile } from "../../client-configs/read.ts";
import { usageError } from "../../base/errors.ts";
import { count } from "../../base/format.ts";
import {
  applyImport,
  importDocument,
  type ImportSources,
  openSecretStore,
  pickClients,
  pickServers,
  readImportSources,
} from "../../operations/import.ts";
import { describeCommand, describeUrl } from "../../operations/server-description.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { alignTable, type TerminalStyle } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { isYes, withPrompt } from "../prompt.ts";

interface ImportOptions {
  readonly only: readonly string[];
  readonly except: readonly string[];
  readonly all: boolean;
  readonly project: boolean;
  readonly secrets: boolean;
  readonly yes: boolean;
  readonly "dry-run": boolean;
  readonly json: boolean;
}

/**
 * `toolmux import`: prints which servers of other clients would be added to the manifest, and adds them once
 * confirmed.
 */
export async function importServers(
  invocation: Invocation<ImportOptions>,
  context: CommandContext,
): Promise<number> {
  const { args: words, options } = invocation;
  const found = await readImportSources(pickClients(words), options, invocation, context);
  const sources = { ...found, planned: pickServers(found.planned, options) };
  const isForPeople = !options.json;
  const movesSecrets = options.secrets;
  if (isForPeople)
    context.terminal.print(describeImport(sources, movesSecrets, context.terminal.stdout));
  const shouldAdd = sources.planned.length > 0 && !options["dry-run"];
  const confirmed = !shouldAdd
    ? []
    : options.yes
      ? sources.planned
      : isForPeople
        ? await confirmImport(sources, context)
        : [];
  const isDone = confirmed !== undefined && confirmed.length > 0;
  if (isDone) {
    const store = movesSecrets ? openSecretStore(context) : undefined;
    await applyImport({ ...sources, planned: confirmed }, store, context);
    if (isForPeople) printImported({ ...sources, planned: confirmed }, movesSecrets, context);
  }
  if (!isForPeople) context.terminal.printJson(importDocument(sources, isDone, movesSecrets));
  // A malformed file of a client leads to exit code 2 only if the command line names the client.
  const isBroken = words.length > 0 && sources.files.some(({ problem }) => problem !== undefined);
  if (!shouldAdd || isDone) return isBroken ? 2 : 0;
  if (confirmed === undefined) {
    const hasSecrets = sources.planned.some((server) => server.plaintextSecrets.length > 0);
    const choice = hasSecrets && !movesSecrets ? ", or --yes --secrets to store its secrets" : "";
    throw usageError(
      `Nothing was added: to confirm, add --yes${choice}; to see what would be added, add --dry-run.`,
    );
  }
  context.terminal.note("Nothing was added.");
  return 2;
}

/** Asks which servers to add, all together or one by one. Returns undefined if there is no terminal. */
function confirmImport(
  { planned, manifest }: ImportSources,
  { signal }: CommandContext,
): Promise<readonly PlannedServer[] | undefined> {
  return withPrompt(signal, async (ask) => {
    const isOne = planned.length === 1;
    const question = `Add ${count(planned.length, "server")} to ${manifest}?`;
    const answer = await ask(`${question} ${isOne ? "[y/N]" : "[y/N/c]  (c: choose one by one)"}`);
    if (isYes(answer)) return planned;
    if (isOne || !/^c(?:hoose)?$/i.test(answer)) return [];
    const chosen: PlannedServer[] = [];
    for (const server of planned) {
      if (isYes(await ask(`Add ${server.name}, ${describeEntryStart(server.entry)}? [y/N]`)))
        chosen.push(server);
    }
    return chosen;
  });
}

function printImported(
  { planned, manifest }: ImportSources,
  movesSecrets: boolean,
  { terminal }: CommandContext,
): void {
  const secrets = planned.flatMap(({ plaintextSecrets }) => plaintextSecrets);
  terminal.print(`added ${count(planned.length, "server")} to ${manifest}`);
  if (movesSecrets && secrets.length > 0)
    terminal.print(`moved ${count(secrets.length, "secret")} into the secret store`);
  for (const name of new Set(planned.flatMap(({ requiredSecrets }) => requiredSecrets)))
    terminal.note(`Set this value before the server can start: toolmux secret set ${name}`);
  const clients = new Set(planned.map(({ source }) => source.client));
  terminal.print("Next:");
  terminal.print("  toolmux status    checks that every server starts");
  for (const title of clients) {
    const client = CLIENTS.find((one) => one.name === title || one.title === title);
    if (client === undefined) continue;
    const command = `toolmux install ${client.name} --replace`;
    terminal.print(`  ${command}    makes ${client.title} use toolmux instead of its own servers`);
  }
}

/**
 * Describes the import for people: the files found, the servers to be added or skipped, and the secrets in plain text.
 */
export function describeImport(
  { files, planned, skipped, manifest }: ImportSources,
  movesSecrets: boolean,
  style: TerminalStyle,
): string {
  const parts = [describeFiles(files, style)];
  if (planned.length > 0) {
    const rows = planned.map(({ name, source, entry }) => [
      source.client,
      name,
      describeEntryStart(entry),
    ]);
    parts.push(
      sanitizeLine(`can be added to ${manifest}:`),
      alignTable(["CLIENT", "SERVER", "STARTS"], rows, style),
    );
  } else if (skipped.length > 0 && skipped.every((it) => it.identicalServer !== undefined)) {
    parts.push(sanitizeLine(`All of these servers are in ${manifest} already.`));
  } else parts.push("There is nothing to add.");
  const notes = planned.flatMap((server) => describeNotes(server, movesSecrets));
  if (notes.length > 0) parts.push(notes.join("\n"));
  if (skipped.length > 0) {
    const rows = skipped.map(({ source, reason, position }) => {
      const place = position && `${source.file}:${position.line}:${position.column}: `;
      return [source.client, source.name, `${place ?? ""}${reason}`];
    });
    parts.push("left out:", alignTable(["CLIENT", "SERVER", "WHY"], rows, style));
  }
  return parts.join("\n");
}

function describeFiles(files: readonly ClientFile[], style: TerminalStyle): string {
  if (files.length === 0) return "No configuration file of an MCP client was found.";
  const rows = files.map(({ client, file, servers, problem }) => {
    const place = problem?.position && `${problem.position.line}:${problem.position.column}: `;
    const what = problem ? `${place ?? ""}${problem.message}` : count(servers.length, "server");
    return [client.title, what, file];
  });
  return alignTable(["CLIENT", "FOUND", "FILE"], rows, style);
}

function describeNotes(
  { name, source, notes, requiredSecrets: wanted, plaintextSecrets }: PlannedServer,
  movesSecrets: boolean,
): readonly string[] {
  const labels = plaintextSecrets.map(({ label }) => label).join(", ");
  const action = movesSecrets
    ? "will move into the secret store"
    : "would be readable in the manifest; --secrets moves it into the secret store";
  const isRenamed = name.replace(/-\d+$/, "") === source.name && name !== source.name;
  const lines = [
    ...(isRenamed
      ? [
          `another "${source.name}" is there; if this one is meant to replace it, remove that one first: toolmux remove ${source.name}`,
        ]
      : []),
    ...notes,
    ...(plaintextSecrets.length === 0 ? [] : [`${labels} ${action}`]),
    ...wanted.map((secret) => `needs a value before it can start: toolmux secret set ${secret}`),
  ];
  // Names and keys come from the client's file, so control characters are removed.
  return lines.map((text) => sanitizeLine(`  ${name}: ${text}`));
}

/** The command or URL of an entry, with values that look like secrets masked. */
function describeEntryStart(entry: PlannedServer["entry"]): string {
  const { command, args = [], env = {}, url } = entry;
  if (typeof url === "string") return describeUrl(url);
  return describeCommand({
    command: String(command),
    args: args as readonly string[],
    env: env as Readonly<Record<string, string>>,
  });
}
