import { resolve } from "node:path";
import { type ClientApp, clientFoldersOf, type ServerTable } from "../../client-configs/clients.ts";
import { editClientFile } from "../../client-configs/edit.ts";
import { prepareInstall, prepareUndo, tableAt } from "../../client-configs/install.ts";
import {
  type ClientFileProblem,
  listServerTables,
  readClientFileText,
} from "../../client-configs/read.ts";
import { loadManifest } from "../../manifest/load.ts";
import { describeModeFault } from "../../manifest/modes.ts";
import { TOOLMUX_KEY } from "../../manifest/own-entry.ts";
import type { PlannedServer } from "../../client-configs/import-plan.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { expandHome } from "../../base/paths.ts";
import type { Table } from "../../manifest/table.ts";
import { installedCommand } from "../../base/runtime.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { loadOptions } from "../../operations/load-manifest.ts";
import type { TerminalStyle } from "../../terminal/terminal.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import {
  applyImport,
  describeImport,
  type ImportSources,
  openSecretStore,
  pickClients,
  readImportSources,
} from "./import.ts";

/** The change that was made to a client's file. */
interface InstallOutcome {
  readonly action: "install" | "restore" | "remove" | "edit" | "none";
  /** Path of the backup file; undefined: none was made. */
  readonly backup: string | undefined;
}

interface InstallOptions {
  readonly project: boolean;
  readonly http: string | undefined;
  readonly "http-token-env": string | undefined;
  readonly approval: "auto" | "always" | undefined;
  readonly mode: string | undefined;
  readonly replace: boolean;
  readonly secrets: boolean;
  readonly undo: boolean;
  readonly print: boolean;
  readonly "dry-run": boolean;
  readonly json: boolean;
}

/** `toolmux install`: writes the entry of toolmux into a client's file, or removes it (`--undo`). */
export async function install(
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [client] = pickClients(args);
  if (client === undefined) throw usageError("Name a client: toolmux install CLIENT");
  const table = await findServerTable(client, options.project, context);
  if (options.print) return printEntry(client, table, invocation, context);
  const print = (text: string): void => {
    if (!options.json) context.terminal.print(text);
  };
  const outcome = options.undo
    ? await undo(client, table, options["dry-run"], context, print)
    : await write(client, table, invocation, context, print);
  const written = outcome.action !== "none" && !options["dry-run"];
  if (written && outcome.action === "install") {
    print(`Next, in ${client.title}: ${client.restartHint}`);
    print(`To undo this: toolmux install ${client.name} --undo`);
  } else if (written) {
    print(`Next: restart ${client.title}. toolmux is no longer one of its servers.`);
  }
  if (options.json) {
    context.terminal.printJson({ client: client.name, file: table.file, ...outcome, written });
  }
  return 0;
}

/** Prints the entry of toolmux, for a person to copy it into the client's file. */
async function printEntry(
  client: ClientApp,
  { file, keys }: ServerTable,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { undo: isUndo, replace, json } = invocation.options;
  if (isUndo || replace) {
    throw usageError("--print only shows the entry: leave out --undo and --replace.");
  }
  const set = { [TOOLMUX_KEY]: makeEntry(client, invocation, context) };
  const edited = await editClientFile("", client.format, { keys, remove: [], set });
  if (!edited.ok) throw new HubError("internal", edited.reason);
  const text = edited.text.trim();
  if (json) {
    const { name, format, restartHint } = client;
    terminal.printJson({ client: name, file, format, text, next: restartHint });
    return 0;
  }
  terminal.note(`For ${file}; if it has ${keys.join(".")} already, add only toolmux to it:`);
  terminal.print(text);
  terminal.note(`Next, in ${client.title}: ${client.restartHint}`);
  return 0;
}

async function write(
  client: ClientApp,
  table: ServerTable,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
  print: (text: string) => void,
): Promise<InstallOutcome> {
  const { options } = invocation;
  await checkMode(invocation, context);
  const entry = makeEntry(client, invocation, context);
  const movesSecrets = options.secrets;
  const sources = options.replace
    ? await readReplacedServers(client, table, invocation, context)
    : undefined;
  const removed = sources?.names ?? [];
  const prepared = await prepareInstall(client, table, entry, removed);
  switch (prepared.kind) {
    case "refused":
      throw installError(table.file, prepared.problem);
    case "same":
      print(`${table.file} already has this entry of toolmux: nothing was changed`);
      return { action: "none", backup: undefined };
    case "ready": {
      const { before, after } = prepared;
      const style = context.terminal.stdout;
      if (sources) print(describeImport(sources, movesSecrets, style));
      print(formatDifference(table.file, before, after, removed, style));
      if (options["dry-run"]) return { action: "install", backup: undefined };
      if (sources)
        await applyImport(sources, movesSecrets ? openSecretStore(context) : undefined, context);
      const backup = await prepared.apply(Date.now());
      print(`written: ${table.file}`);
      if (backup !== undefined) print(`backup of the original file: ${backup}`);
      return { action: "install", backup };
    }
  }
}

async function undo(
  client: ClientApp,
  table: ServerTable,
  isDryRun: boolean,
  { terminal }: CommandContext,
  print: (text: string) => void,
): Promise<InstallOutcome> {
  const { file } = table;
  const prepared = await prepareUndo(client, table);
  switch (prepared.kind) {
    case "refused":
      throw installError(file, prepared.problem);
    case "absent":
      print(`${file} has no entry of toolmux: nothing was changed`);
      return { action: "none", backup: undefined };
    case "restore":
      print(`${isDryRun ? "would restore" : "restored"} ${file} from ${prepared.backup}`);
      break;
    case "remove":
      print(`${isDryRun ? "would delete" : "deleted"} ${file}: it did not exist before`);
      break;
    case "edit":
      print(`${file} was changed after toolmux wrote it, so only the entry of toolmux is removed`);
      print(terminal.stdout.colors.red(`- "${TOOLMUX_KEY}"`));
      if (prepared.former !== undefined && prepared.former.servers.length > 0) {
        const { backup, servers } = prepared.former;
        const names = servers.map((name) => `"${name}"`).join(", ");
        print(`not restored: ${names}. To restore them, copy them from ${backup}`);
      }
  }
  if (!isDryRun) await prepared.apply();
  return {
    action: prepared.kind,
    backup: prepared.kind === "restore" ? prepared.backup : undefined,
  };
}

/**
 * Finds the table in a client's files that lists its servers: the first whose file exists, or else the first.
 * @throws {HubError} usage
 */
async function findServerTable(
  client: ClientApp,
  isProject: boolean,
  context: CommandContext,
): Promise<ServerTable> {
  const { env, cwd, platform } = context;
  const all = listServerTables(client, clientFoldersOf(env, platform), isProject ? cwd : undefined);
  const [first] = all;
  // A client can have several tables of servers, under different keys. Only those with the same keys as the first table
  // are candidates: the other tables are for older versions of the client, or for another purpose.
  const tables = all.filter(({ keys }) => keys.join() === first?.keys.join());
  for (const table of tables) {
    const content = await readClientFileText(table.file, client.format);
    if (content.kind !== "absent") return table;
  }
  if (first !== undefined) return first;
  throw usageError(`${client.title} has no configuration file for a project: leave out --project.`);
}

/** Checks the mode of `--mode`. @throws {HubError} usage if the manifest is known and has no such mode */
async function checkMode(
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<void> {
  const { mode, http } = invocation.options;
  // With `--http`, the client connects to a hub that may have another manifest, so the mode cannot be checked.
  if (mode === undefined || http !== undefined) return;
  const loaded = await loadManifest(loadOptions(invocation, context));
  const fault = loaded.ok ? describeModeFault(mode, loaded.manifest.modes ?? []) : undefined;
  if (fault !== undefined) throw usageError(fault);
}

/**
 * Makes the entry for toolmux in the client's file.
 * @throws {HubError} usage if the client supports no URLs, or no token with a URL
 */
function makeEntry(
  client: ClientApp,
  { options, config }: Invocation<InstallOptions>,
  { env, cwd }: CommandContext,
): Table {
  const { http, "http-token-env": httpTokenEnv, approval, mode } = options;
  if (http !== undefined && approval !== undefined)
    throw usageError(
      "--approval cannot be used with --http, because the hub at the URL sets it: toolmux serve --http … --approval",
    );
  if (http === undefined) {
    const [command, ...firstArgs] = installedCommand(env);
    const files = config.map((file) => resolve(cwd, expandHome(file, env)));
    const args = [
      ...firstArgs,
      "serve",
      ...files.flatMap((file) => ["--config", file]),
      ...(mode === undefined ? [] : ["--mode", mode]),
      ...(approval === undefined ? [] : ["--approval", approval]),
    ];
    return client.command(command, args);
  }
  if (!URL.canParse(http) || !/^https?:/.test(http)) {
    throw usageError(
      `--http needs the URL of a hub, such as http://127.0.0.1:8700/mcp, not "${http}".`,
    );
  }
  const url = new URL(http);
  if (mode !== undefined) url.searchParams.set("mode", mode);
  const entry = client.remote(mode === undefined ? http : url.href, httpTokenEnv);
  if (entry !== undefined) return entry;
  throw usageError(
    client.remote(http, undefined) === undefined
      ? `${client.title} cannot connect to a URL, it only starts programs: leave out --http.`
      : `${client.title} cannot read a token from an environment variable: leave out --http-token-env.`,
  );
}

/**
 * For `--replace`: plans the import of the servers in the client's file. `names` are the servers that the manifest will
 * have after the import, by their names in the client's file.
 */
async function readReplacedServers(
  client: ClientApp,
  serverTable: ServerTable,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<ImportSources & { readonly names: readonly string[] }> {
  const all = await readImportSources([client], invocation, context);
  const content = await readClientFileText(serverTable.file, client.format);
  // Servers in per-project tables of the same file are not replaced.
  const table = content.kind === "read" ? tableAt(content.root, serverTable.keys) : undefined;
  const isHere = ({ source: origin }: Pick<PlannedServer, "source">): boolean =>
    origin.file === serverTable.file && origin.name in (table ?? {});
  const planned = all.planned.filter(isHere);
  const skipped = all.skipped.filter(isHere);
  const present = skipped.filter(({ identicalServer: same }) => same !== undefined);
  const names = [...planned, ...present].map(({ source: origin }) => origin.name);
  return { ...all, planned, skipped, names };
}

function installError(file: string, { message, position }: ClientFileProblem): HubError {
  const place = position === undefined ? file : `${file}:${position.line}:${position.column}:`;
  return new HubError("usage", `${place} ${message}. Nothing was written.`);
}

/**
 * Describes the change of the file: added lines in full, removed servers by name only, because their entries may
 * contain secrets.
 */
function formatDifference(
  file: string,
  before: string,
  after: string,
  removed: readonly string[],
  { colors }: TerminalStyle,
): string {
  const maxCommon = Math.min(before.length, after.length);
  let start = 0;
  while (start < maxCommon && before[start] === after[start]) start++;
  let end = 0;
  while (end < maxCommon - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  // The unchanged beginning of the text may end with the indentation of the first changed line, which is shown, too.
  const lineStart = after.lastIndexOf("\n", start - 1) + 1;
  if (after.slice(lineStart, start).trim() === "") start = lineStart;
  const line = before.slice(0, start).split("\n").length;
  // If servers are removed, the changed text may contain parts of their entries, so only toolmux's key is shown.
  const added = removed.length > 0 ? `"${TOOLMUX_KEY}"` : after.slice(start, after.length - end);
  // Leaves out blank lines, and lines that start with a comma. The comma only separates toolmux's entry from the entry
  // before it.
  const lines = added.split(/\r?\n/).filter((text) => !/^\s*(?:,.*)?$/.test(text));
  return [
    colors.bold(sanitizeLine(`${file}:${line}`)),
    ...removed.map((name) => colors.red(`- "${sanitizeLine(name)}"`)),
    ...lines.map((text) => colors.green(`+ ${sanitizeLine(text.replaceAll("\t", "  "))}`)),
  ].join("\n");
}
