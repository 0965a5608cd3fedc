import { count } from "../../base/format.ts";
import { access } from "node:fs/promises";
import { basename } from "node:path";
import { HubError, usageError } from "../../base/errors.ts";
import { CLIENT_NAMES } from "../../client-configs/client-names.ts";
import {
  type ClientApp,
  clientFoldersOf,
  CLIENTS,
  findClientApp,
} from "../../client-configs/clients.ts";
import type { ServerEntry } from "../../client-configs/entry-to-manifest.ts";
import {
  planImport,
  type PlannedServer,
  replacePlaintextSecrets,
  type SkippedServer,
  type TakenNames,
} from "../../client-configs/import-plan.ts";
import { type ClientFile, readClientFiles, readClientFileText } from "../../client-configs/read.ts";
import { prepareEdit } from "../../manifest/edit/write.ts";
import { loadManifest } from "../../manifest/load.ts";
import { detectFormat } from "../../manifest/parse.ts";
import { manifestError, suggestName } from "../../manifest/problems.ts";
import { HUB_DEFAULTS } from "../../manifest/manifest.ts";
import { openSecrets, type SecretStore } from "../../secrets/secrets.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { alignTable, type TerminalStyle } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { loadOptions } from "../../operations/load-manifest.ts";
import { editManifestFile, manifestToEdit } from "../../operations/manifest-file.ts";
import { isYes, withPrompt } from "../prompt.ts";
import { describeCommand, describeUrl } from "../../operations/server-description.ts";

/** The secret store that receives values which look like secrets. */
export function openSecretStore(context: CommandContext): SecretStore {
  return openSecrets(context).file;
}

/**
 * The servers of the manifest, and the separator between prefix and tool name; no servers if there is no manifest yet.
 * @throws {HubError} manifestInvalid
 */
export async function readTakenNames(
  invocation: Invocation,
  context: CommandContext,
): Promise<TakenNames> {
  const none = { servers: [], separator: HUB_DEFAULTS.separator };
  const file = await manifestToEdit(invocation.config.at(-1), context);
  const loaded = await loadManifest(loadOptions(invocation, context));
  if (loaded.ok)
    return { servers: loaded.manifest.servers, separator: loaded.manifest.hub.separator };
  if (!(await exists(file))) return none;
  throw manifestError(loaded.problems);
}

/**
 * Adds servers to a manifest, all or none, and changes nothing else in it.
 * @param beforeWrite runs after the edit was tried in memory and before the file is written
 * @throws {HubError} usage, manifestInvalid
 */
export async function addServers(
  file: string,
  servers: ReadonlyMap<string, ServerEntry>,
  beforeWrite: () => Promise<void>,
  context: CommandContext,
): Promise<void> {
  const change = { kind: "addAll", servers } as const;
  await rejectClientFile(file);
  await prepareEdit(file, change);
  await beforeWrite();
  await editManifestFile(file, change, context);
}

/**
 * Throws if the manifest to edit is the configuration file of an MCP client, because the client might not understand
 * the entries that toolmux writes.
 * @throws {HubError} usage
 */
async function rejectClientFile(file: string): Promise<void> {
  const content = await readClientFileText(file, detectFormat(file, ""));
  const isClientFile =
    content.kind === "read" && ["mcpServers", "inputs"].some((key) => key in content.root);
  if (!isClientFile && !/^\.?mcp\.json$/.test(basename(file))) return;
  const text = `${file} is the configuration file of an MCP client. Name a manifest of toolmux with --config.`;
  throw new HubError("usage", text);
}

function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}

/** The clients' files, and the plan of importing their servers. */
export interface ImportSources {
  readonly files: readonly ClientFile[];
  readonly planned: readonly PlannedServer[];
  readonly skipped: readonly SkippedServer[];
  /** The manifest to add the servers to. */
  readonly manifest: string;
}

/** The named clients; all if none is named. @throws {HubError} usage */
export function pickClients(names: readonly string[]): readonly ClientApp[] {
  if (names.length === 0) return CLIENTS;
  return names.map((name) => {
    const client = findClientApp(name);
    if (client !== undefined) return client;
    const near = suggestName(name, CLIENT_NAMES) || ` There are ${CLIENT_NAMES.join(", ")}.`;
    throw usageError(`There is no client "${name}".${near}`);
  });
}

/** Reads the files of the given clients and plans the import of their servers. @throws {HubError} manifestInvalid */
export async function readImportSources(
  clients: readonly ClientApp[],
  invocation: Invocation<{ readonly project: boolean; readonly all?: boolean }>,
  context: CommandContext,
): Promise<ImportSources> {
  const { env, cwd, platform } = context;
  const home = clientFoldersOf(env, platform);
  const project = invocation.options.project ? cwd : undefined;
  const read = await Promise.all(clients.map((client) => readClientFiles(client, home, project)));
  const files = read.flat();
  const taken = await readTakenNames(invocation, context);
  const plan = await planImport(files, taken, home, invocation.options.all);
  return { files, ...plan, manifest: await manifestToEdit(invocation.config.at(-1), context) };
}

/**
 * Adds servers to the manifest. Secrets are stored first, so that the manifest never refers to a missing one.
 * @param store receives the values that look like secrets; if undefined, these values stay in the entries
 */
export async function applyImport(
  { planned, manifest }: Pick<ImportSources, "planned" | "manifest">,
  store: SecretStore | undefined,
  context: CommandContext,
): Promise<void> {
  if (planned.length === 0) return;
  const servers = new Map(
    planned.map(({ name, entry, plaintextSecrets }): [string, ServerEntry] => [
      name,
      store === undefined ? entry : replacePlaintextSecrets(entry, plaintextSecrets),
    ]),
  );
  const storeSecrets = async (): Promise<void> => {
    for (const { secretName: secret, value } of planned.flatMap(
      ({ plaintextSecrets }) => plaintextSecrets,
    )) {
      await store?.set(secret, value);
    }
  };
  await addServers(manifest, servers, storeSecrets, context);
}

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
  const found = await readImportSources(pickClients(words), invocation, context);
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
  if (!isForPeople) context.terminal.printJson(toJson(sources, isDone, movesSecrets));
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

/** The servers of `--only`, or all but those of `--except`. @throws {HubError} usage */
function pickServers(
  planned: readonly PlannedServer[],
  { only, except }: Pick<ImportOptions, "only" | "except">,
): readonly PlannedServer[] {
  const names = planned.map(({ name }) => name);
  const unknown = [...only, ...except].find((name) => !names.includes(name));
  if (unknown !== undefined) {
    const near = suggestName(unknown, names) || ` These can be: ${names.join(", ") || "none"}.`;
    throw usageError(`No server named "${unknown}" can be added.${near}`);
  }
  return planned.filter(
    ({ name }) => (only.length === 0 || only.includes(name)) && !except.includes(name),
  );
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
    const rows = skipped.map(({ source, reason }) => [source.client, source.name, reason]);
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

/** The plan as JSON. Values that look like secrets are replaced by the placeholders that an import would write. */
function toJson(
  { files, planned, skipped, manifest }: ImportSources,
  isDone: boolean,
  movesSecrets: boolean,
): object {
  return {
    manifest,
    written: isDone,
    files: files.map(({ client, file, servers, problem }) => ({
      client: client.name,
      file,
      servers: servers.length,
      ...(problem && { problem: problem.message, line: problem.position?.line ?? null }),
    })),
    additions: planned.map(
      ({ name, entry, source: origin, notes, requiredSecrets: wanted, plaintextSecrets }) => ({
        name,
        origin,
        entry: replacePlaintextSecrets(entry, plaintextSecrets),
        notes,
        wanted,
        secrets: plaintextSecrets.map(({ label, secretName: secret }) => ({
          at: label,
          name: secret,
          moved: movesSecrets && isDone,
        })),
      }),
    ),
    omissions: skipped.map(({ source: origin, reason, identicalServer: same }: SkippedServer) => ({
      origin,
      reason,
      same,
    })),
  };
}
