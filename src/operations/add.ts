import { HubError, usageError } from "../base/errors.ts";
import { findPlaintextSecrets, type PlaintextSecret } from "../client-configs/import-plan.ts";
import { prepareEdit } from "../manifest/edit/write.ts";
import { loadManifest, type LoadOptions } from "../manifest/load.ts";
import {
  isRunnable,
  type RunnableServer,
  SERVERS_VARIABLE,
  type ServerSpec,
} from "../manifest/manifest.ts";
import { isPrefix, sanitizePrefix } from "../manifest/merge/merge.ts";
import { formatProblem } from "../manifest/problems.ts";
import { parsePackage, runnersOf } from "../manifest/package.ts";
import { createTable, isTable, type Table } from "../manifest/table.ts";
import {
  makeManifestEntry,
  type ManifestEntry,
  type RequiredValue,
  serverKeyOf,
} from "../registry/manifest-entry.ts";
import type { RegistryEntry } from "../registry/registry.ts";
import { findServer } from "../registry/search.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { type CommandLog, loadOptions } from "./load-manifest.ts";
import {
  editManifestFile,
  type ExistingServers,
  manifestToEdit,
  readExistingServers,
} from "./manifest-file.ts";
import { logRegistryFailures, openRegistries, unreachableRegistriesError } from "./registries.ts";
import { findInstalledRunner } from "./server-description.ts";
import type { TrialResult } from "./try-server.ts";

/** Settings that are added to any kind of entry, and override what a registry says. */
export interface EntrySettings {
  readonly env: Table;
  readonly prefix: string | undefined;
}

export interface AddRequest extends EntrySettings {
  /** The name of the server, or the name under which registries have it. */
  readonly name: string;
  /** The entry, as in a manifest; undefined: the name is looked up in registries. */
  readonly entry: Table | undefined;
  /** The key in the manifest, if it is not made of the name. */
  readonly key: string | undefined;
  /** The registries to search; if there are none, those of the environment or the manifest. */
  readonly from: readonly string[];
  /** The manifest to add the server to; undefined: the last one that was chosen, or the user's own. */
  readonly file: string | undefined;
}

/** A server to add, and what stands in the manifest beside it. */
export interface ServerToAdd {
  readonly key: string;
  readonly entry: Table;
  /** Values that must be set before the server can start. */
  readonly requiredValues: readonly RequiredValue[];
  /** Names of optional settings. */
  readonly optional: readonly string[];
  /** The manifest, as an absolute path. */
  readonly file: string;
  readonly existing: ExistingServers;
}

/** A change of the manifest that adds a server, tried in memory. */
export interface PreparedAddition {
  readonly server: RunnableServer;
  /** Values of the entry that look like secrets. */
  readonly plaintextSecrets: readonly PlaintextSecret[];
  /** Whether values are missing without which the server cannot start. */
  readonly isIncomplete: boolean;
  /** Writes the manifest. */
  readonly apply: () => Promise<AddedServer>;
}

/** A server that was added to a manifest. */
export interface AddedServer {
  readonly outcome: "created" | "added" | "replaced";
  /** Names of the environment variables that the replaced server sets and its replacement does not. */
  readonly lostVariables: readonly string[];
}

/**
 * Finds out what to add: the given entry, or what a registry says of the name.
 * @throws {HubError} usage, unreachable, notSupported
 */
export async function findServerToAdd(
  request: AddRequest,
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<ServerToAdd> {
  const file = await manifestToEdit(request.file ?? choice.config.at(-1), context);
  const existing = await readExistingServers(file, choice, context);
  const found = await readServerToAdd(request, existing, choice, context, log);
  const entry = withPrefix(addSettings(found.entry, request), found.key, existing);
  return { ...found, entry, file, existing };
}

/**
 * Prepares adding a server to the manifest.
 * @param isNew whether the manifest must not have a server of that name
 * @throws {HubError} usage, manifestInvalid
 */
export async function prepareAddition(
  { key, entry, requiredValues, file, existing }: ServerToAdd,
  isNew: boolean,
  context: OperationContext,
): Promise<PreparedAddition> {
  const change = { kind: "add", name: key, entry, isNew } as const;
  const { server } = await prepareEdit(file, change);
  if (server === undefined || !isRunnable(server)) {
    throw usageError(
      `${file} is the configuration file of an MCP client. Name a manifest of toolmux with --file.`,
    );
  }
  const isMissing = ({ name, kind }: RequiredValue): boolean =>
    kind === "secret" || !context.env[name];
  return {
    server,
    plaintextSecrets: findPlaintextSecrets(entry, key),
    isIncomplete: requiredValues.some(isMissing),
    async apply() {
      const { before } = await editManifestFile(file, change, context);
      const replaced = isNew ? undefined : existing.servers.find((spec) => spec.name === key);
      return {
        outcome: before === undefined ? "created" : replaced === undefined ? "added" : "replaced",
        lostVariables: replaced === undefined ? [] : lostVariables(replaced, server),
      };
    },
  };
}

/** Adds settings to an entry. They override its own. */
export function addSettings(entry: Table, { env: more, prefix }: EntrySettings): Table {
  const env = Object.keys(more).length > 0 ? mergeTables(entry["env"], more) : entry["env"];
  return withoutEmpty({ ...entry, env, prefix });
}

function mergeTables(before: unknown, more: Table): Table {
  return { ...(isTable(before) ? before : {}), ...more };
}

/** An entry without the settings that are undefined or empty tables. */
export function withoutEmpty(entry: Table): Table {
  const made = createTable<unknown>();
  for (const [key, value] of Object.entries(entry)) {
    const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
    if (value !== undefined && !isEmpty) made[key] = value;
  }
  return made;
}

/** Names of the environment variables that the replaced server sets and its replacement does not. */
function lostVariables(before: ServerSpec, after: RunnableServer): readonly string[] {
  if (before.kind !== "stdio") return [];
  const kept = after.kind === "stdio" ? after.env : {};
  return Object.keys(before.env).filter((name) => !(name in kept));
}

/**
 * If the server's key cannot be its prefix, sets a valid prefix in the entry.
 * @throws {HubError} usage if another server has the prefix, or if the prefix contains a separator (the text between
 * prefix and tool name)
 */
function withPrefix(entry: Table, key: string, { separators, servers }: ExistingServers): Table {
  const given = entry["prefix"];
  const isAllowed = (text: string): boolean => separators.every((it) => isPrefix(text, it));
  const sanitized = separators.reduce((text, it) => sanitizePrefix(text, it), key);
  const prefix = typeof given === "string" ? given : isAllowed(key) ? key : sanitized;
  if (!isAllowed(prefix)) {
    const separatorList = [...new Set(separators)].map((it) => `"${it}"`).join(" or ");
    throw usageError(
      `"${prefix}" cannot be a prefix with the separator ${separatorList}: choose another one with --prefix.`,
    );
  }
  // Servers from files of MCP clients are not counted as owners of a prefix. Such a server gets another prefix if a
  // server of a toolmux manifest takes its prefix.
  const owner = servers.find(
    (spec) =>
      spec.enabled &&
      spec.name !== key &&
      spec.prefix === prefix &&
      prefix !== "" &&
      (spec.kind === "plugin" || ("syntax" in spec && spec.syntax === "toolmux")),
  );
  if (owner !== undefined) {
    throw usageError(
      `The server "${owner.name}" already has the prefix "${prefix}": choose another one with --prefix.`,
    );
  }
  return prefix === key || given !== undefined ? entry : { ...entry, prefix };
}

type FoundServer = Pick<ServerToAdd, "key" | "entry" | "requiredValues" | "optional">;

async function readServerToAdd(
  { name, entry, key: ownKey, from }: AddRequest,
  { separators }: ExistingServers,
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<FoundServer> {
  if (entry !== undefined) return { key: ownKey ?? name, entry, requiredValues: [], optional: [] };
  const directories = await openRegistries(from, choice, context);
  const { entry: registryEntry, failures } = await findServer(directories, name, context.signal);
  if (registryEntry === undefined && failures.length === directories.length)
    throw unreachableRegistriesError(
      failures,
      `To add a server without them: toolmux add ${name} -- COMMAND`,
    );
  logRegistryFailures(failures, log);
  if (registryEntry === undefined) {
    const hint = `To add it by its command: toolmux add ${name} -- COMMAND. To search: toolmux search ${name}`;
    throw usageError(`No directory has a server "${name}". ${hint}`);
  }
  const key = ownKey ?? serverKeyOf(registryEntry.name, separators[0]);
  const manifestEntry = await chooseOption(registryEntry, key, context);
  for (const note of registryEntry.omissions) log("info", note);
  return { key, ...manifestEntry };
}

/**
 * Chooses how to use the server of a registry entry: first a package that can be run here, then a remote server, then
 * any other package.
 * @throws {HubError} notSupported
 */
async function chooseOption(
  registryEntry: RegistryEntry,
  key: string,
  context: OperationContext,
): Promise<ManifestEntry> {
  const ranked = await Promise.all(
    registryEntry.options.map(async (option) => {
      if (option.kind === "remote") return { offer: option, rank: 1 };
      return { offer: option, rank: (await canRun(option.name, context)) ? 0 : 2 };
    }),
  );
  for (const { offer: option } of ranked.toSorted((a, b) => a.rank - b.rank)) {
    const manifestEntry = makeManifestEntry(option, key);
    if (manifestEntry !== undefined) return manifestEntry;
  }
  const reason =
    registryEntry.omissions.join(" ") || "Its directory does not describe how to start it.";
  throw new HubError(
    "notSupported",
    `${registryEntry.name} cannot be added by its name. ${reason}`,
  );
}

/** Whether PATH has a program that can run a package, such as npx, uvx or docker. */
async function canRun(name: string, context: OperationContext): Promise<boolean> {
  const runners = runnersOf(parsePackage(name)?.origin ?? "npm");
  return (await findInstalledRunner(runners, context)) !== undefined;
}

/** A server that was added to a manifest, or was not because it could not be started. */
export interface AdditionDocument {
  readonly server: string;
  readonly file: string;
  readonly added: boolean;
  readonly trial?:
    | Exclude<TrialResult, { readonly kind: "failed" }>
    | {
        readonly kind: "failed";
        readonly code: string;
        readonly message: string;
        readonly remedies: readonly string[];
      };
  readonly needs: readonly RequiredValue[];
  readonly optional: readonly string[];
}

/** The document of an addition. `result`: the outcome of a start of the server; undefined: it was not tried. */
export function additionDocument(
  { key, requiredValues: needs, optional, file }: ServerToAdd,
  result: TrialResult | undefined,
  added: boolean,
): AdditionDocument {
  const outcome =
    result?.kind === "failed"
      ? {
          kind: result.kind,
          code: result.cause.code,
          message: result.cause.message,
          remedies: result.hints,
        }
      : result;
  return { server: key, file, added, ...(outcome && { trial: outcome }), needs, optional };
}

/**
 * Reads the entry of a server that is written into no file, with the defaults and rules of the manifest, as if it were
 * there.
 * @param runningPrefixes the prefixes of the servers of the hub that the server is for
 * @throws {HubError} manifestInvalid; usage if the manifest has a server of that name
 */
export async function readUnsavedServer(
  name: string,
  entry: Readonly<Record<string, unknown>>,
  choice: ManifestChoice,
  context: OperationContext,
  runningPrefixes: LoadOptions["runningPrefixes"],
): Promise<RunnableServer> {
  const loading = loadOptions(choice, context);
  const present = await loadManifest(loading);
  if (present.ok && present.manifest.servers.some((spec) => spec.name === name)) {
    const text = `The manifest has a server "${name}": change it there, or use another name.`;
    throw new HubError("usage", text);
  }
  const variable = JSON.stringify({ servers: { [name]: entry } });
  const loaded = await loadManifest({
    ...loading,
    env: { ...context.env, TOOLMUX_SERVERS: variable },
    runningPrefixes,
  });
  const own = loaded.problems.filter(({ file }) => file === SERVERS_VARIABLE);
  const spec = loaded.ok ? loaded.manifest.servers.find((one) => one.name === name) : undefined;
  if (own.length === 0 && spec !== undefined && isRunnable(spec)) return spec;
  const problems = own.length > 0 ? own : loaded.problems;
  const text = problems.map(formatProblem).join("\n");
  throw new HubError("manifestInvalid", text || `Server "${name}" cannot be used.`);
}
