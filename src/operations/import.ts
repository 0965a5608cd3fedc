import { basename } from "node:path";
import { HubError, usageError } from "../base/errors.ts";
import { exists } from "../base/paths.ts";
import { CLIENT_NAMES } from "../client-configs/client-names.ts";
import {
  type ClientApp,
  clientFoldersOf,
  CLIENTS,
  findClientApp,
} from "../client-configs/clients.ts";
import type { ServerEntry } from "../client-configs/entry-to-manifest.ts";
import {
  type ImportPlan,
  planImport,
  type PlannedServer,
  type SecretReader,
  replacePlaintextSecrets,
  type SkippedServer,
  type TakenNames,
} from "../client-configs/import-plan.ts";
import { type ClientFile, readClientFiles, readClientFileText } from "../client-configs/read.ts";
import { prepareEdit, requireWritable } from "../manifest/edit/write.ts";
import { loadManifest } from "../manifest/load.ts";
import { HUB_DEFAULTS } from "../manifest/manifest.ts";
import { detectFormat } from "../manifest/syntax/parse.ts";
import { manifestError, suggestName } from "../manifest/problems.ts";
import { openSecrets, type SecretStore } from "../secrets/secrets.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { loadOptions } from "./load-manifest.ts";
import { editManifestFile, manifestToEdit } from "./manifest-file.ts";
import { refuseSuspiciousListings } from "./scan.ts";

/** The secret store that receives values which look like secrets. */
export function openSecretStore(context: OperationContext): SecretStore {
  return openSecrets(context).file;
}

/**
 * The servers of the manifest, and the separator between prefix and tool name; no servers if there is no manifest yet.
 * @throws {HubError} manifestInvalid
 */
async function readTakenNames(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<TakenNames> {
  const none = { servers: [], separator: HUB_DEFAULTS.separator };
  const file = await manifestToEdit(choice.config.at(-1), context);
  const loaded = await loadManifest(loadOptions(choice, context));
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
async function addServers(
  file: string,
  servers: ReadonlyMap<string, ServerEntry>,
  beforeWrite: () => Promise<void>,
  context: OperationContext,
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

/** Which files of clients are read, and which of their servers are planned. */
export interface ImportRequest {
  /** Whether the files in the working directory are read instead of the user's. */
  readonly project: boolean;
  /** Whether other versions of present servers, and servers of a single project, are added, too. */
  readonly all?: boolean;
}

/** Names of the servers to add; `only` may be empty for all. */
export interface ServerSelection {
  readonly only: readonly string[];
  readonly except: readonly string[];
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

/**
 * Reads the files of the given clients and plans the import of their servers. Nothing is planned that the manifest could
 * not take: the edit is tried in memory.
 * @throws {HubError} manifestInvalid; usage if the manifest cannot be edited
 */
export async function readImportSources(
  clients: readonly ClientApp[],
  { project: isProject, all }: ImportRequest,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<ImportSources> {
  const { env, cwd, platform } = context;
  const home = clientFoldersOf(env, platform);
  const project = isProject ? cwd : undefined;
  const read = await Promise.all(clients.map((client) => readClientFiles(client, home, project)));
  const files = read.flat();
  const taken = await readTakenNames(choice, context);
  const readSecret: SecretReader = (name) =>
    openSecretStore(context)
      .get(name)
      .catch(() => undefined);
  const plan = await planImport(files, taken, home, all, readSecret);
  const manifest = await manifestToEdit(choice.config.at(-1), context);
  return { files, ...(await withoutRefused(plan, manifest)), manifest };
}

/**
 * Tries to add the planned servers to the manifest, in memory, and skips those that it cannot take.
 * @throws {HubError} if it can take none
 */
async function withoutRefused(plan: ImportPlan, manifest: string): Promise<ImportPlan> {
  if (plan.planned.length === 0) return plan;
  await rejectClientFile(manifest);
  if (await exists(manifest)) await requireWritable(manifest);
  const servers = new Map<string, ServerEntry>();
  const tryAll = (): Promise<unknown> => prepareEdit(manifest, { kind: "addAll", servers });
  for (const { name, entry } of plan.planned) servers.set(name, entry);
  try {
    await tryAll();
    return plan;
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
  }
  servers.clear();
  const planned: PlannedServer[] = [];
  const skipped = [...plan.skipped];
  let first: HubError | undefined;
  for (const server of plan.planned) {
    servers.set(server.name, server.entry);
    try {
      await tryAll();
      planned.push(server);
    } catch (error) {
      if (!(error instanceof HubError)) throw error;
      first ??= error;
      servers.delete(server.name);
      const reason = `the manifest cannot take it: ${error.message}`;
      skipped.push({ source: server.source, reason, identicalServer: undefined });
    }
  }
  if (planned.length === 0 && first !== undefined) throw first;
  return { planned, skipped };
}

/**
 * Adds servers to the manifest. Secrets are stored first, so that the manifest never refers to a missing one.
 * @param store receives the values that look like secrets; if undefined, these values stay in the entries
 * @param plain the servers whose values stay in their entries
 */
export async function applyImport(
  { planned, manifest }: Pick<ImportSources, "planned" | "manifest">,
  store: SecretStore | undefined,
  context: OperationContext,
  plain: ReadonlySet<PlannedServer> = new Set(),
): Promise<void> {
  if (planned.length === 0) return;
  const moved = store === undefined ? [] : planned.filter((server) => !plain.has(server));
  const servers = new Map(
    planned.map((server): [string, ServerEntry] => {
      const { name, entry, plaintextSecrets } = server;
      const isMoved = moved.includes(server);
      return [name, isMoved ? replacePlaintextSecrets(entry, plaintextSecrets) : entry];
    }),
  );
  const storeSecrets = async (): Promise<void> => {
    for (const { secretName: secret, value } of moved.flatMap(
      ({ plaintextSecrets }) => plaintextSecrets,
    )) {
      await store?.set(secret, value);
    }
  };
  await addServers(manifest, servers, storeSecrets, context);
}

/**
 * Scans what servers to be imported listed in earlier runs. Starts nothing.
 * @throws {HubError} notTrusted if there is a hard finding
 */
export async function refuseSuspiciousImport(
  planned: readonly PlannedServer[],
  context: OperationContext,
): Promise<void> {
  const { cwd, platform } = context;
  const servers = Object.fromEntries(planned.map(({ name, entry }) => [name, entry]));
  const env = { ...context.env, TOOLMUX_SERVERS: JSON.stringify({ servers }) };
  const loaded = await loadManifest({ files: [], env, cwd, platform });
  if (!loaded.ok) return;
  const { manifest } = loaded;
  const added = manifest.servers.filter(({ name }) => Object.hasOwn(servers, name));
  await refuseSuspiciousListings({ ...manifest, servers: added }, context);
}

/** The servers of `only`, or all but those of `except`. @throws {HubError} usage */
export function pickServers(
  planned: readonly PlannedServer[],
  { only, except }: ServerSelection,
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

/** An import, as planned or done. `wanted`: the secrets that must be set before the server can start. */
export interface ImportDocument {
  readonly manifest: string;
  readonly written: boolean;
  /** `servers`: their number; `line`: the line of the problem, null if unknown. */
  readonly files: readonly {
    readonly client: string;
    readonly file: string;
    readonly servers: number;
    readonly problem?: string;
    readonly line?: number | null;
  }[];
  readonly additions: readonly {
    readonly name: string;
    readonly origin: PlannedServer["source"];
    readonly entry: ServerEntry;
    readonly notes: readonly string[];
    readonly wanted: readonly string[];
    readonly secrets: readonly {
      /** Where in the entry the secret stands. */
      readonly at: string;
      readonly name: string;
      readonly moved: boolean;
    }[];
  }[];
  readonly omissions: readonly {
    readonly origin: SkippedServer["source"];
    readonly reason: string;
    /** The line of the client's file that the reason is about. */
    readonly line?: number;
    /** The name of the manifest's server that is the same. */
    readonly same: SkippedServer["identicalServer"];
  }[];
}

/** The document of an import. Values that look like secrets are replaced by the placeholders that an import would write. */
export function importDocument(
  { files, planned, skipped, manifest }: ImportSources,
  isDone: boolean,
  movesSecrets: boolean,
): ImportDocument {
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
    omissions: skipped.map(
      ({ source: origin, reason, position, identicalServer: same }: SkippedServer) => ({
        origin,
        reason,
        ...(position && { line: position.line }),
        same,
      }),
    ),
  };
}
