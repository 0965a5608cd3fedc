import { resolve } from "node:path";
import { HubError, usageError } from "../base/errors.ts";
import { expandHome, type SystemEnvironment } from "../base/paths.ts";
import { installedCommand } from "../base/runtime.ts";
import {
  type ClientApp,
  clientFoldersOf,
  CLIENTS,
  type ServerTable,
} from "../client-configs/clients.ts";
import { editClientFile } from "../client-configs/edit.ts";
import type { PlannedServer } from "../client-configs/import-plan.ts";
import {
  prepareInstall,
  prepareUndo,
  tableAt,
  type UndoResult,
} from "../client-configs/install.ts";
import {
  type ClientFileProblem,
  listServerTables,
  readClientFiles,
  readClientFileText,
} from "../client-configs/read.ts";
import type { Exposure } from "../manifest/exposures.ts";
import { loadManifest } from "../manifest/load.ts";
import { describeModeFault } from "../manifest/modes.ts";
import { TOOLMUX_KEY } from "../manifest/files/own-entry.ts";
import { isTable, type Table } from "../manifest/table.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import {
  type ClientAppDocument,
  type InstallationDocument,
  type SnippetDocument,
  type WithUndefined,
  withoutUndefined,
} from "./documents.ts";
import {
  applyImport,
  type ImportSources,
  openSecretStore,
  pickClients,
  readImportSources,
} from "./import.ts";
import { loadOptions } from "./load-manifest.ts";

/** The file of an MCP client, and the table in it that lists the client's servers. */
export interface InstallTarget {
  readonly client: ClientApp;
  readonly table: ServerTable;
}

/** The entry of toolmux in the file of a client. */
export interface EntryRequest {
  /** The URL of a hub that the client connects to; undefined: the client starts toolmux. */
  readonly http?: string | undefined;
  /** With `http`: the environment variable of the client that has the token. */
  readonly httpTokenEnv?: string | undefined;
  readonly approval?: "auto" | "always" | undefined;
  readonly mode?: string | undefined;
  /** The form in which the client gets its tools. */
  readonly expose?: Exposure | undefined;
  /** Whether the client shares a hub with the other clients of this machine. */
  readonly shared?: boolean | undefined;
}

export interface InstallRequest extends EntryRequest {
  /** Whether the target is the client's file in the working directory. */
  readonly project: boolean;
  /** Whether the client's other servers move into the manifest. */
  readonly replace: boolean;
  /** With `replace`: whether values that look like secrets move into the secret store. */
  readonly secrets: boolean;
}

/** A change of a client's file that was prepared, and can be made. */
interface PreparedChange {
  /** The outcome if the change is not made, or there is none to make. */
  readonly planned: InstallationDocument;
  /** Makes the change. */
  readonly apply: () => Promise<InstallationDocument>;
}

/** A prepared installation. */
export interface PreparedInstallation extends PreparedChange {
  /** The servers that move into the manifest; undefined without `replace`, or if nothing is to be changed. */
  readonly sources: ImportSources | undefined;
  /**
   * Names of the client's servers that the manifest has, too, and that are not replaced: their tools will be there
   * twice.
   */
  readonly doubled: readonly string[];
}

/** A prepared removal of toolmux from a client's file. */
export interface PreparedRemoval extends PreparedChange {
  readonly undo: Exclude<UndoResult, { readonly kind: "refused" }>;
}

/** Finds the file of the named client. @throws {HubError} usage if there is no such client, or it has no file */
export async function findInstallTarget(
  name: string,
  isProject: boolean,
  context: OperationContext,
): Promise<InstallTarget> {
  const [client] = pickClients([name]);
  if (client === undefined) throw usageError(`There is no client "${name}".`);
  return { client, table: await findServerTable(client, isProject, context) };
}

/** Makes the entry of toolmux, for a person to copy it into the client's file. @throws {HubError} usage */
export async function makeSnippet(
  { client, table: { file, keys } }: InstallTarget,
  request: EntryRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<SnippetDocument> {
  const set = { [TOOLMUX_KEY]: makeEntry(client, request, choice, context) };
  const edited = await editClientFile("", client.format, { keys, remove: [], set });
  if (!edited.ok) throw new HubError("internal", edited.reason);
  const text = edited.text.trim();
  const { name, format, restartHint } = client;
  return { client: name, file, format, text, next: restartHint };
}

/**
 * Prepares writing the entry of toolmux into a client's file.
 * @throws {HubError} usage, manifestInvalid
 */
export async function prepareInstallation(
  target: InstallTarget,
  request: InstallRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<PreparedInstallation> {
  const { client, table } = target;
  await checkMode(request, choice, context);
  const entry = makeEntry(client, request, choice, context);
  const sources = request.replace
    ? await readReplacedServers(client, table, request, choice, context)
    : undefined;
  const removed = sources?.names ?? [];
  const prepared = await prepareInstall(client, table, entry, removed);
  if (prepared.kind === "refused") throw installError(table.file, prepared.problem);
  const doubled = request.replace ? [] : await findDoubled(client, table, request, choice, context);
  const more = { doubled: doubled.length > 0 ? doubled : undefined };
  switch (prepared.kind) {
    case "same": {
      const planned = installationDocument(target, { action: "none", written: false, ...more });
      return { sources: undefined, doubled, planned, apply: () => Promise.resolve(planned) };
    }
    case "ready": {
      const { before, after } = prepared;
      const shown = {
        ...more,
        change: differenceOf(before, after, removed),
        imported: sources?.planned.map(({ name }) => name),
      };
      return {
        sources,
        doubled,
        planned: installationDocument(target, { action: "install", written: false, ...shown }),
        async apply() {
          const store = request.secrets ? openSecretStore(context) : undefined;
          if (sources) await applyImport(sources, store, context);
          const backup = await prepared.apply(Date.now());
          return installationDocument(target, {
            action: "install",
            backup,
            written: true,
            ...shown,
          });
        },
      };
    }
  }
}

/** Prepares removing the entry of toolmux from a client's file. @throws {HubError} usage */
export async function prepareRemoval(target: InstallTarget): Promise<PreparedRemoval> {
  const { client, table } = target;
  const undo = await prepareUndo(client, table);
  if (undo.kind === "refused") throw installError(table.file, undo.problem);
  if (undo.kind === "absent") {
    const planned = installationDocument(target, { action: "none", written: false });
    return { undo, planned, apply: () => Promise.resolve(planned) };
  }
  const outcome = (written: boolean): InstallationDocument =>
    installationDocument(target, {
      action: undo.kind,
      backup: undo.kind === "restore" ? undo.backup : undefined,
      written,
      change: {
        removed: [TOOLMUX_KEY],
        added: undo.kind === "restore" ? undo.restored.map((name) => JSON.stringify(name)) : [],
      },
    });
  return {
    undo,
    planned: outcome(false),
    async apply() {
      await undo.apply();
      return outcome(true);
    },
  };
}

/**
 * The difference of two texts of a client's file: added lines in full; removed servers by name only, because their
 * entries may contain secrets.
 */
function differenceOf(
  before: string,
  after: string,
  removed: readonly string[],
): NonNullable<InstallationDocument["change"]> {
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
  // Leaves out blank lines, and the comma that only separates toolmux's entry from the entry before it, with what
  // follows it on a line of that entry.
  const lines = added
    .split(/\r?\n/)
    .map((text) => (text.includes(`"${TOOLMUX_KEY}"`) ? text.replace(/^\s*,\s*/, "") : text))
    .filter((text) => !/^\s*(?:,.*)?$/.test(text));
  return { line, removed, added: lines };
}

function installationDocument(
  { client, table: { file } }: InstallTarget,
  {
    action,
    backup,
    written,
    doubled,
    change,
    imported,
  }: Partial<WithUndefined<InstallationDocument>> &
    Pick<InstallationDocument, "action" | "written">,
): InstallationDocument {
  return withoutUndefined<InstallationDocument>({
    client: client.name,
    file,
    action,
    backup,
    written,
    doubled,
    change,
    imported,
  });
}

/**
 * Finds the table in a client's files that lists its servers: the first whose file exists, or else the first.
 * @throws {HubError} usage
 */
async function findServerTable(
  client: ClientApp,
  isProject: boolean,
  context: OperationContext,
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

/** Checks the mode of the entry. @throws {HubError} usage if the manifest is known and has no such mode */
async function checkMode(
  { mode, http }: EntryRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<void> {
  // With `http`, the client connects to a hub that may have another manifest, so the mode cannot be checked.
  if (mode === undefined || http !== undefined) return;
  const loaded = await loadManifest(loadOptions(choice, context));
  const fault = loaded.ok ? describeModeFault(mode, loaded.manifest.modes ?? []) : undefined;
  if (fault !== undefined) throw usageError(fault);
}

/**
 * Makes the entry for toolmux in the client's file.
 * @throws {HubError} usage if the client supports no URLs, or no token with a URL
 */
function makeEntry(
  client: ClientApp,
  { http, httpTokenEnv, approval, mode, expose, shared = false }: EntryRequest,
  { config }: ManifestChoice,
  { env, cwd }: OperationContext,
): Table {
  if (http !== undefined && approval !== undefined)
    throw usageError(
      "--approval cannot be used with --http, because the hub at the URL sets it: toolmux serve --http … --approval",
    );
  if (http !== undefined && shared)
    throw usageError(
      "--shared cannot be used with --http: all clients of the hub at the URL share it already.",
    );
  if (http === undefined) {
    const [command, ...firstArgs] = installedCommand(env);
    const files = config.map((file) => resolve(cwd, expandHome(file, env)));
    const args = [
      ...firstArgs,
      shared ? "attach" : "serve",
      ...files.flatMap((file) => ["--config", file]),
      ...(mode === undefined ? [] : ["--mode", mode]),
      ...(expose === undefined ? [] : ["--expose", expose]),
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
  if (expose !== undefined) url.searchParams.set("expose", expose);
  const isChanged = mode !== undefined || expose !== undefined;
  const entry = client.remote(isChanged ? url.href : http, httpTokenEnv);
  if (entry !== undefined) return entry;
  throw usageError(
    client.remote(http, undefined) === undefined
      ? `${client.title} cannot connect to a URL, it only starts programs: leave out --http.`
      : `${client.title} cannot read a token from an environment variable: leave out --http-token-env.`,
  );
}

/**
 * For `replace`: plans the import of the servers in the client's file. `names` are the servers that the manifest will
 * have after the import, by their names in the client's file.
 */
async function readReplacedServers(
  client: ClientApp,
  serverTable: ServerTable,
  { project }: InstallRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<ImportSources & { readonly names: readonly string[] }> {
  const all = await readImportSources([client], { project }, choice, context);
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

/** Names of the servers in the client's file that the manifest has, too; none if the manifest cannot be read. */
async function findDoubled(
  client: ClientApp,
  table: ServerTable,
  request: InstallRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<readonly string[]> {
  try {
    const { skipped } = await readReplacedServers(client, table, request, choice, context);
    return skipped.flatMap(({ source, identicalServer }) =>
      identicalServer === undefined ? [] : [source.name],
    );
  } catch (error) {
    if (error instanceof HubError) return [];
    throw error;
  }
}

function installError(file: string, { message, position }: ClientFileProblem): HubError {
  const place = position === undefined ? file : `${file}:${position.line}:${position.column}:`;
  return new HubError("usage", `${place} ${message}. Nothing was written.`);
}

/** Words of an entry by which toolmux is no private hub, or stays one whatever the manifest says. */
const DECIDING_WORDS: readonly string[] = ["attach", "--shared", "--private", "--http"];

/** The number of MCP clients that start toolmux, and whose manifest decides whether they share a hub. */
export async function countUndecidedClients({ env, platform }: SystemEnvironment): Promise<number> {
  const folders = clientFoldersOf(env, platform);
  const found = await Promise.all(
    CLIENTS.map(async (client) => {
      const files = await readClientFiles(client, folders, undefined);
      return files
        .flatMap(({ servers }) => servers)
        .some(({ name, entry }) => name === TOOLMUX_KEY && isUndecided(entry));
    }),
  );
  return found.filter(Boolean).length;
}

function isUndecided(entry: unknown): boolean {
  if (!isTable(entry) || entry["command"] === undefined) return false;
  const words = [entry["command"], entry["args"]].flat();
  return !words.some((word) => DECIDING_WORDS.includes(String(word)));
}

/** Lists the MCP clients whose configuration files toolmux knows. */
export async function listClientApps({
  env,
  platform,
}: SystemEnvironment): Promise<readonly ClientAppDocument[]> {
  const folders = clientFoldersOf(env, platform);
  return Promise.all(
    CLIENTS.map(async (client): Promise<ClientAppDocument> => {
      const { name, title } = client;
      const files = await readClientFiles(client, folders, undefined);
      const servers = files.flatMap((file) => file.servers);
      const isOwn = ({ name: server }: { readonly name: string }): boolean =>
        server === TOOLMUX_KEY;
      const [present] = files;
      const file = present?.file ?? listServerTables(client, folders, undefined)[0]?.file;
      const problem = files.find((one) => one.problem !== undefined)?.problem?.message;
      return {
        name,
        title,
        ...(file !== undefined && { file }),
        exists: present !== undefined,
        installed: servers.some(isOwn),
        servers: servers.filter((server) => !isOwn(server)).length,
        ...(problem !== undefined && { problem }),
      };
    }),
  );
}
