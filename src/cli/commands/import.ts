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
  refuseSuspiciousImport,
} from "../../operations/import.ts";
import { describeCommand, describeUrl } from "../../operations/server-description.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { alignTable, type TerminalStyle, wrapText } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { isYes, withPrompt } from "../prompt.ts";

interface ImportOptions {
  readonly only: readonly string[];
  readonly except: readonly string[];
  readonly all: boolean;
  readonly project: boolean;
  readonly secrets: boolean;
  readonly yes: boolean;
  readonly force: boolean;
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
  const asWritten = (servers: readonly PlannedServer[]): ConfirmedImport => ({
    servers,
    plain: new Set(movesSecrets ? [] : servers),
  });
  const confirmed = !shouldAdd
    ? asWritten([])
    : options.yes
      ? asWritten(sources.planned)
      : isForPeople
        ? await confirmImport(sources, movesSecrets, context)
        : asWritten([]);
  const isDone = confirmed !== undefined && confirmed.servers.length > 0;
  if (isDone) {
    const { servers: planned, plain } = confirmed;
    if (!options.force) await refuseSuspiciousImport(planned, context);
    const isAnyMoved = planned.some((it) => it.plaintextSecrets.length > 0 && !plain.has(it));
    const store = isAnyMoved ? openSecretStore(context) : undefined;
    await applyImport({ ...sources, planned }, store, context, plain);
    if (isForPeople) printImported({ ...sources, planned }, plain, context);
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

/** The servers that a person wants to add. */
interface ConfirmedImport {
  readonly servers: readonly PlannedServer[];
  /** Those whose secrets stay in the manifest as plain text. */
  readonly plain: ReadonlySet<PlannedServer>;
}

/**
 * Asks which servers to add, all together or one by one, and, unless the command line says so, whether their secrets
 * move into the secret store. Returns undefined if there is no terminal.
 */
function confirmImport(
  { planned, manifest }: ImportSources,
  movesSecrets: boolean,
  { signal }: CommandContext,
): Promise<ConfirmedImport | undefined> {
  const secretsIn = (servers: readonly PlannedServer[]): number =>
    movesSecrets ? 0 : servers.reduce((sum, it) => sum + it.plaintextSecrets.length, 0);
  const choicesFor = (servers: readonly PlannedServer[], choose: boolean): string => {
    const hasSecrets = secretsIn(servers) > 0;
    if (hasSecrets)
      return `[y]es, secrets into the store / [p]lain / [N]o${choose ? " / [c]hoose" : ""}`;
    return choose ? "[y/N/c]  (c: choose one by one)" : "[y/N]";
  };
  return withPrompt(signal, async (ask) => {
    const servers: PlannedServer[] = [];
    const plain = new Set<PlannedServer>();
    const take = (wanted: readonly PlannedServer[], answer: string): void => {
      const isPlain = secretsIn(wanted) > 0 && /^p(?:lain)?$/i.test(answer.trim());
      if (!isPlain && !isYes(answer)) return;
      servers.push(...wanted);
      if (isPlain) for (const server of wanted) plain.add(server);
    };
    const mayChoose = planned.length > 1;
    const secrets = secretsIn(planned);
    const facts = secrets > 0 ? ` They have ${count(secrets, "secret")} in plain text.` : "";
    const question = `Add ${count(planned.length, "server")} to ${manifest}?${facts}`;
    const answer = await ask(`${question} ${choicesFor(planned, mayChoose)}`);
    if (!mayChoose || !/^c(?:hoose)?$/i.test(answer.trim())) {
      take(planned, answer);
      return { servers, plain };
    }
    for (const server of planned) {
      const start = describeEntryStart(server.entry);
      take([server], await ask(`Add ${server.name}, ${start}? ${choicesFor([server], false)}`));
    }
    return { servers, plain };
  });
}

function printImported(
  { planned, manifest }: ImportSources,
  plain: ReadonlySet<PlannedServer>,
  { terminal }: CommandContext,
): void {
  const secrets = planned.flatMap((server) => (plain.has(server) ? [] : server.plaintextSecrets));
  terminal.printWrapped(`added ${count(planned.length, "server")} to ${manifest}`);
  if (secrets.length > 0)
    terminal.printWrapped(`moved ${count(secrets.length, "secret")} into the secret store`);
  for (const name of new Set(planned.flatMap(({ requiredSecrets }) => requiredSecrets)))
    terminal.note(`Set this value before the server can start: toolmux secret set ${name}`);
  const clients = new Set(planned.map(({ source }) => source.client));
  terminal.printWrapped("Next:");
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
      { text: describeEntryStart(entry), isWhole: true },
    ]);
    parts.push(
      sanitizeLine(`can be added to ${manifest}:`),
      alignTable(["CLIENT", "SERVER", "STARTS"], rows, style),
    );
  } else if (skipped.length > 0 && skipped.every((it) => it.identicalServer !== undefined)) {
    parts.push(sanitizeLine(`All of these servers are in ${manifest} already.`));
  } else parts.push("There is nothing to add.");
  const notes = planned.flatMap((server) => describeNotes(server, movesSecrets));
  if (notes.length > 0)
    parts.push(notes.map((note) => wrapText(note, style.width, "    ", "")).join("\n"));
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
    return [client.title, what, { text: file, isWhole: true }];
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
    : "is in plain text: it can move into the secret store (--secrets, or when you are asked)";
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
