import { Buffer } from "node:buffer";
import process from "node:process";
import { decodeUtf8 } from "../base/read-file.ts";
import {
  describeNoManifest,
  findManifests,
  listManifestPaths,
  namedPaths,
  type ManifestFile,
  type SearchOptions,
  type SearchResult,
} from "./files/discover.ts";
import { readConfigFile, readConfigVariable } from "./files/read-file.ts";
import type { FileConfig, ServerConfig, SourceFile } from "./files/file-config.ts";
import { baseFolderOf } from "./files/client-file.ts";
import { describeShellVariables, parseTemplate, secretsMentionedIn } from "./interpolate.ts";
import type { Agents, AgentSpec, Models } from "./agents.ts";
import { mergeAgents } from "./merge/agent-list.ts";
import {
  FULL_MODE,
  isExternal,
  type Manifest,
  SERVERS_VARIABLE,
  type ServerSpec,
  serversVariableOf,
} from "./manifest.ts";
import { missingServers } from "./toolsets.ts";
import { isTable } from "./table.ts";
import { type MergedManifest, mergeConfigs, problemAtSetting } from "./merge/merge.ts";
import { makeModes, type ModeConfig, modeFault } from "./modes.ts";
import { makeNamedClients } from "./named-clients.ts";
import { detectFormat, type ParsedFile, parseText, type PositionFinder } from "./syntax/parse.ts";
import type { ReadPinFile } from "./pin-file.ts";
import { mergePlugins, missingPluginProblem, type PluginList } from "./merge/plugins.ts";
import { addPositions } from "./syntax/positions.ts";
import { fileProblem, formatPath, formatProblem, type Problem } from "./problems.ts";

export interface LoadOptions extends SearchOptions {
  /**
   * The prefixes of running servers. If two servers have the same prefix, the running one keeps it, whatever their
   * order.
   */
  readonly runningPrefixes?: (() => ReadonlyMap<string, string>) | undefined;
}

export type LoadedManifest = LoadOutcome & LoadedFiles;

type LoadOutcome =
  /**
   * If `ok` is true, `problems` concern only servers, modes, clients, models and agents that are invalid in the
   * manifest, or that a later file replaces.
   */
  (
    | { readonly ok: true; readonly manifest: Manifest; readonly problems: readonly Problem[] }
    /** At least one problem makes the whole manifest invalid. */
    | { readonly ok: false; readonly problems: readonly Problem[] }
  ) & {
    readonly notes: readonly string[];
  };

/** The files that a manifest was loaded from. */
interface LoadedFiles {
  /** The files with the bytes that were read, in the order of merging. */
  readonly files: readonly ManifestFile[];
  /** A fingerprint of everything loaded: it changes if and only if contents, files or trust change. */
  readonly fingerprint: string;
  /** A fingerprint of the plugins: it changes if and only if their specifications or their own files change. */
  readonly pluginFingerprint: string;
  /**
   * The absolute paths of the plugins' files and of the agents' instruction files, whether they exist or not. The
   * manifest depends on them, as on the files of `listDependencies`.
   */
  readonly dependentFiles: readonly string[];
  /**
   * The absolute paths of files in the working directory that were skipped because their current content is not trusted.
   */
  readonly untrusted: readonly string[];
  /** The pin file (`hub.pinFile`); undefined if there is none. */
  readonly pinFile?: ReadPinFile | undefined;
  /** Whether a file is empty, perhaps because an editor is just writing that file. */
  readonly hasEmptyFile: boolean;
}

/**
 * Loads the manifest: the named files, or the discovered ones (see `discoverManifests`), then the servers in the
 * environment variable `TOOLMUX_SERVERS`. Later ones win. All problems are found at once. A problem in the table of a
 * server, mode, client, model or agent makes only that entry invalid; any other problem makes the whole manifest
 * invalid. Never throws because of a file's content. The steps: discover the files, parse and validate each, merge
 * them, check the merged manifest.
 */
export async function loadManifest(options: LoadOptions): Promise<LoadedManifest> {
  const variable = serversVariableOf(options.env);
  const search = await discover(options, variable);
  const documents = await parseDocuments(search.files, variable, options);
  const configs = documents.flatMap((document) => (document.ok ? [readDocument(document)] : []));
  const plugins = await mergePlugins(configs, options.env);
  const agents = await mergeAgents(configs, options.env);
  const pinFile = await loadPinFile(configs, documents, options);
  const found = problemsOf(configs, plugins);
  const serverAt = makeServerFinder(configs);
  const merged = mergeConfigs(configs, {
    invalid: new Set(found.flatMap((problem) => serverAt(problem) ?? [])),
    runningPrefixes: options.runningPrefixes?.() ?? new Map(),
  });
  const isReadable = search.problems.length === 0 && documents.every(({ ok }) => ok);
  const broken = [
    ...checkMerged(merged, plugins, configs, isReadable),
    ...checkModeNames(merged, configs, found),
  ];
  const placed = await placeProblems(documents, [...found, ...broken, ...agents.problems]);
  const problems = [...search.problems, ...placed];
  const files = {
    files: search.files,
    fingerprint: fingerprintOf(search, variable, plugins, agents.instructions, pinFile),
    pluginFingerprint: plugins.fingerprint,
    dependentFiles: [
      ...plugins.files,
      ...agents.files,
      ...(pinFile === undefined ? [] : [pinFile.path]),
    ],
    pinFile,
    untrusted: search.untrusted,
    hasEmptyFile: plugins.hasEmptyFile || search.files.some(({ bytes }) => bytes.length === 0),
  };
  const notes = [...search.notes, ...(await placeNotes(configs, documents)), ...merged.notes];
  const isUsable = problems.every(
    (problem) => serverAt(problem) !== undefined || isInNamedEntry(problem),
  );
  if (!isUsable) return { ok: false, problems, notes, ...files };
  const names = merged.servers.map(({ name }) => name);
  notes.push(...missingServers(merged.agentFiles?.toolsets ?? new Map(), names));
  // A manifest with plugins is not empty: plugins may provide servers. So may other hubs of the fleet.
  const isImporting = (merged.fleet?.import ?? []).length > 0;
  const isEmpty = merged.servers.length === 0 && plugins.specs.length === 0 && !isImporting;
  if (isEmpty) notes.push("the manifest has no servers");
  notes.push(...merged.servers.flatMap((spec) => noteShellVariables(spec, options.env)));
  const { hub, httpToken, registries, toolSearch, limits, agentFiles, defaults, approval } = merged;
  const { telemetry, fleet } = merged;
  const clients = makeNamedClients(
    configs.map((config) => config.clients ?? []),
    problems,
  );
  for (const [what, token] of [
    ["hub.httpToken", httpToken] as const,
    ...clients.map((client) =>
      client.kind === "client"
        ? ([`the token of client "${client.name}"`, client.token] as const)
        : (["", undefined] as const),
    ),
  ]) {
    if (token !== undefined) notes.push(...(await describeExposure(what, token.text, token.file)));
  }
  for (const { name, file, input } of configs.flatMap((it) => [...(it.models?.values() ?? [])])) {
    if (input?.apiKey === undefined) continue;
    const key = formatPath(["models", name, "apiKey"]);
    notes.push(...(await describeExposure(key, input.apiKey, file)));
  }
  for (const [name, value] of Object.entries(telemetry?.input.headers ?? {})) {
    const key = formatPath(["telemetry", "headers", name]);
    notes.push(...(await describeExposure(key, value, telemetry?.file ?? "")));
  }
  const manifest: Manifest = {
    hub,
    httpToken,
    ...(pinFile && { pinFile: { path: pinFile.path, content: pinFile.content } }),
    registries,
    toolSearch,
    limits,
    telemetry,
    servers: await placeReasons(
      markInvalid(merged.servers, problems, configs, documents),
      configs,
      documents,
    ),
    defaults,
    models: markInvalidModels(merged.models, problems, configs),
    agentFiles,
    fleet,
    agents: markInvalidAgents(agents.specs, problems, configs),
    approval,
    plugins: plugins.specs,
    modes: makeModes(modeConfigsOf(configs), problems),
    clients,
    sources: configs.map(({ file }) => file).filter((file) => file !== SERVERS_VARIABLE),
  };
  return { ok: true, manifest, problems, notes, ...files };
}

/** Reads the pin file of the last file that sets one. */
async function loadPinFile(
  configs: readonly FileConfig[],
  documents: readonly Document[],
  options: LoadOptions,
): Promise<ReadPinFile | undefined> {
  const config = configs.findLast(({ pinFile }) => pinFile !== undefined);
  if (config?.pinFile === undefined) return undefined;
  const { readPinFile } = await import("./pin-file.ts");
  const isOfFolder = documents.some(
    (each) => each.file === config.file && each.isOfFolder === true,
  );
  return readPinFile(config.pinFile, isOfFolder ? config.file : undefined, options);
}

function noteShellVariables(spec: ServerSpec, env: LoadOptions["env"]): readonly string[] {
  const isUsed = spec.enabled && isExternal(spec);
  return isUsed ? describeShellVariables(spec, env) : [];
}

/**
 * The absolute paths of all files that the result of `loadManifest` depends on, except `dependentFiles`, whether the
 * files exist or not.
 */
export function listDependencies(options: LoadOptions): readonly string[] {
  return options.files.length > 0 ? namedPaths(options) : listManifestPaths(options);
}

async function discover(options: LoadOptions, variable: string): Promise<SearchResult> {
  const search = await findManifests(options);
  const isMissing = search.files.length + search.problems.length === 0 && variable === "";
  return isMissing ? { ...search, problems: [describeNoManifest(options)] } : search;
}

/** A file that was read, or the environment variable `TOOLMUX_SERVERS`, with its parsed text. */
type Document = SourceFile & ParsedFile & Pick<ManifestFile, "isOfFolder">;

function parseDocuments(
  files: readonly ManifestFile[],
  variable: string,
  { env, cwd }: LoadOptions,
): Promise<readonly Document[]> {
  const documents = files.map(async ({ path, bytes, isOfFolder = false }): Promise<Document> => {
    const text = decodeUtf8(bytes);
    const parsed: ParsedFile =
      text === undefined
        ? { ok: false, message: "is not UTF-8 text", position: undefined }
        : await parseText(text, detectFormat(path, text));
    return { file: path, baseDir: baseFolderOf(path, { env, cwd }), isOfFolder, ...parsed };
  });
  const parseVariable = async (): Promise<Document> => {
    return { file: SERVERS_VARIABLE, baseDir: cwd, ...(await parseText(variable, "json")) };
  };
  return Promise.all([...documents, ...(variable === "" ? [] : [parseVariable()])]);
}

function readDocument(document: Document & { readonly ok: true }): FileConfig {
  const { root, duplicates } = document;
  if (document.file === SERVERS_VARIABLE) return readConfigVariable(root, document, duplicates);
  const config = readConfigFile(root, document, duplicates);
  return document.isOfFolder === true ? withoutUserSettings(config) : config;
}

/**
 * The settings of `hub` that count only in files that are the user's own: those of the user's config folder, and those
 * that the user names. A folder does not decide which processes of this user share servers, and what is kept for them.
 */
const USER_SETTINGS = ["shared", "linger", "conversationDays", "conversationSize"] as const;

/** The content of a file of the working directory, without the settings that only the user's own files may have. */
function withoutUserSettings(config: FileConfig): FileConfig {
  const ignored = USER_SETTINGS.filter((key) => config.hub[key] !== undefined);
  if (ignored.length === 0 && config.fleet === undefined) return config;
  const {
    shared: _,
    linger: __,
    conversationDays: ___,
    conversationSize: ____,
    ...hub
  } = config.hub;
  const paths = [
    ...ignored.map((key) => ["hub", key]),
    ...(config.fleet === undefined ? [] : [["fleet"]]),
  ];
  const notes = paths.map((path) => ({
    path,
    text: `${path.join(".")} is ignored: it counts only in your own manifest`,
  }));
  return { ...config, hub, fleet: undefined, notes: [...config.notes, ...notes] };
}

/**
 * Collects the problems within each file. An unknown placeholder is a problem only without plugins, because a plugin
 * may know it.
 */
function problemsOf(configs: readonly FileConfig[], plugins: PluginList): Problem[] {
  const hasNone = hasNoPlugins(configs, plugins);
  return [...configsByFile(configs).values()].flatMap(({ problems, schemeProblems }) => [
    ...problems,
    ...(hasNone ? schemeProblems : []),
  ]);
}

/** Collects problems that involve several keys or files. */
function checkMerged(
  merged: MergedManifest,
  plugins: PluginList,
  configs: readonly FileConfig[],
  isReadable: boolean,
): Problem[] {
  // Rules that involve several keys are skipped if a setting is invalid or a file is unreadable, because they would
  // only report consequences of that setting or file.
  const areSettingsValid =
    isReadable && !configs.some((config) => hasProblemUnder(config, ["hub", "defaults"]));
  return [
    ...(areSettingsValid ? merged.problems : []),
    ...plugins.problems,
    ...(hasNoPlugins(configs, plugins) ? missingPluginProblems(merged.servers) : []),
  ];
}

/**
 * Returns the problems of documents that cannot be read, followed by the given problems with their positions, in the
 * order of the files and of their text.
 */
async function placeProblems(
  documents: readonly Document[],
  problems: readonly Problem[],
): Promise<readonly Problem[]> {
  const placed = documents.flatMap((document) =>
    document.ok ? [] : [fileProblem(document.file, document.message, document.position)],
  );
  const documentsByFile = new Map(documents.map((document) => [document.file, document]));
  for (const document of documentsByFile.values()) {
    if (!document.ok) continue;
    const own = problems.filter(({ file }) => file === document.file);
    placed.push(...(await addPositions(own, document.preparePositions)));
  }
  return placed;
}

/** The notes of all files, with the places that they are about. */
async function placeNotes(
  configs: readonly FileConfig[],
  documents: readonly Document[],
): Promise<readonly string[]> {
  const placed: string[] = [];
  for (const { file, notes } of configs) {
    const document = documents.find((it) => it.file === file);
    const isAnyPlaced = notes.some(({ path }) => path.length > 0);
    const find = document?.ok && isAnyPlaced ? await document.preparePositions() : undefined;
    for (const { path, text } of notes) {
      const position = path.length > 0 ? find?.(path, "key") : undefined;
      placed.push(formatProblem({ file, path: [], at: "key", message: text, position }));
    }
  }
  return placed;
}

/** Adds the file and the line to the reasons of servers that cannot be run. */
async function placeReasons(
  servers: readonly ServerSpec[],
  configs: readonly FileConfig[],
  documents: readonly Document[],
): Promise<readonly ServerSpec[]> {
  const placed: ServerSpec[] = [];
  const finders = new Map<string, PositionFinder>();
  for (const spec of servers) {
    if (spec.kind !== "unsupported") {
      placed.push(spec);
      continue;
    }
    const config = configs.findLast((it) => it.servers.has(spec.name))?.servers.get(spec.name);
    const document = documents.find(({ file }) => file === config?.file);
    if (config?.kind !== "unsupported" || document?.ok !== true) {
      placed.push(spec);
      continue;
    }
    const find = finders.get(document.file) ?? (await document.preparePositions());
    finders.set(document.file, find);
    const line = find(config.faultPath, "key")?.line;
    const place = line === undefined ? document.file : `${document.file}:${line}`;
    placed.push({ ...spec, reason: `${spec.reason} (${place})` });
  }
  return placed;
}

/**
 * Finds references to modes that do not exist, or whose tables are invalid.
 * @param found the problems within files
 */
function checkModeNames(
  { hub }: MergedManifest,
  configs: readonly FileConfig[],
  found: readonly Problem[],
): Problem[] {
  const modes = makeModes(modeConfigsOf(configs), found);
  const fault = modeFault(hub.mode, modes);
  return [
    ...(fault === undefined ? [] : problemAtSetting(configs, "hub", ["mode"], fault)),
    ...configs.flatMap(({ clients = [] }) =>
      clients.flatMap(({ file, path, input: { mode = FULL_MODE } = {} }): Problem[] => {
        const message = modeFault(mode, modes);
        return message === undefined
          ? []
          : [{ file, path: [...path, "mode"], at: "value", message }];
      }),
    ),
  ];
}

function modeConfigsOf(configs: readonly FileConfig[]): readonly ModeConfig[] {
  return configs.flatMap(({ modes }) => [...(modes?.values() ?? [])]);
}

/** Whether a problem concerns a single mode, client, model or agent, so that the others can be used. */
export function isInNamedEntry(problem: Problem): boolean {
  const [table, key] = problem.path;
  return (
    nameIn("models", problem) !== undefined ||
    nameIn("agents", problem) !== undefined ||
    (table === "modes" && key !== FULL_MODE && key !== undefined) ||
    (table === "clients" && key !== undefined)
  );
}

function hasNoPlugins(configs: readonly FileConfig[], { specs }: PluginList): boolean {
  return specs.length === 0 && !configs.some((config) => hasProblemUnder(config, ["plugins"]));
}

function missingPluginProblems(servers: readonly ServerSpec[]): Problem[] {
  return servers.flatMap((spec) =>
    spec.kind === "plugin" ? [missingPluginProblem(spec.plugin, spec.origin, [])] : [],
  );
}

function hasProblemUnder({ problems }: FileConfig, keys: readonly unknown[]): boolean {
  return problems.some(({ path: [top] }) => keys.includes(top));
}

/** Replaces each server whose table has problems by an invalid one. */
function markInvalid(
  servers: readonly ServerSpec[],
  problems: readonly Problem[],
  configs: readonly FileConfig[],
  documents: readonly Document[],
): readonly ServerSpec[] {
  if (problems.length === 0) return servers;
  const byServer = Map.groupBy(problems, makeServerFinder(configs));
  return servers.map((spec): ServerSpec => {
    const { name, enabled, prefix } = spec;
    const config = configs.findLast((it) => it.servers.has(name))?.servers.get(name);
    const own = byServer.get(config);
    if (own === undefined) return spec;
    const table = config && tableIn(documents, config);
    const secrets = secretsMentionedIn(table);
    return { kind: "invalid", name, enabled, prefix, problems: own, secrets };
  });
}

/** Replaces each model whose table has problems by an invalid one, with the positions of its problems. */
function markInvalidModels(
  models: Models | undefined,
  problems: readonly Problem[],
  configs: readonly FileConfig[],
): Models | undefined {
  const own = problems.filter((problem) => nameIn("models", problem) !== undefined);
  if (models === undefined || own.length === 0) return models;
  return new Map(
    [...models].map(([name, model]) => {
      const file = configs.findLast((config) => config.models?.has(name) === true)?.file;
      const found = own.filter(
        (problem) => nameIn("models", problem) === name && problem.file === file,
      );
      return [name, found.length === 0 ? model : { name, problems: found }];
    }),
  );
}

/** Replaces each agent whose table has problems by an invalid one. */
function markInvalidAgents(
  specs: ReadonlyMap<string, AgentSpec | undefined>,
  problems: readonly Problem[],
  configs: readonly FileConfig[],
): Agents {
  return new Map(
    [...specs].map(([name, spec]) => {
      const file = configs.findLast((config) => config.agents?.has(name) === true)?.file;
      const found = problems.filter(
        (problem) => nameIn("agents", problem) === name && problem.file === file,
      );
      return [name, spec !== undefined && found.length === 0 ? spec : { name, problems: found }];
    }),
  );
}

/** The name of the model or agent whose table contains the problem; undefined if the problem lies elsewhere. */
function nameIn(table: "models" | "agents", { path: [top, name] }: Problem): string | undefined {
  return top === table && typeof name === "string" ? name : undefined;
}

/** The table of a server, not validated. */
function tableIn(documents: readonly Document[], { file, path }: ServerConfig): unknown {
  const document = documents.find((it) => it.file === file);
  const root: unknown = document?.ok === true ? document.root : undefined;
  return path.reduce<unknown>((at, key) => (isTable(at) ? at[key] : undefined), root);
}

/** Finds the server whose table contains a problem; undefined if the problem lies elsewhere. */
type ServerFinder = (problem: Problem) => ServerConfig | undefined;

/** Makes the function that finds servers. The paths of all servers are read once. */
function makeServerFinder(configs: readonly FileConfig[]): ServerFinder {
  const files = new Map(
    [...configsByFile(configs)].map(([file, { servers }]) => {
      const all = [...servers.values()];
      const lengths = [...new Set(all.map(({ path }) => path.length))];
      const byPath = new Map(
        all.toReversed().map((server) => [JSON.stringify(server.path), server]),
      );
      return [file, { lengths, byPath }];
    }),
  );
  return ({ file, path }) => {
    const { lengths = [], byPath } = files.get(file) ?? {};
    for (const length of lengths) {
      const server = byPath?.get(JSON.stringify(path.slice(0, length)));
      if (server !== undefined) return server;
    }
    return undefined;
  };
}

/** The configs by file. If a file was named and read twice, the later one counts. */
function configsByFile(configs: readonly FileConfig[]): ReadonlyMap<string, FileConfig> {
  return new Map(configs.map((config) => [config.file, config]));
}

/**
 * The fingerprint of everything loaded. It contains the files' contents instead of hashes, because hashing would take
 * longer than all other work on a manifest.
 */
function fingerprintOf(
  { files: found, ...others }: SearchResult,
  variable: string,
  { fingerprint: pluginFingerprint }: PluginList,
  instructions: readonly string[],
  pinFile: ReadPinFile | undefined,
): string {
  const pins = pinFile && [
    pinFile.path,
    pinFile.bytes && Buffer.from(pinFile.bytes).toString("latin1"),
    "unusable" in pinFile.content ? pinFile.content.unusable : "",
  ];
  const files = found.map(({ path, bytes }) => [path, Buffer.from(bytes).toString("latin1")]);
  return JSON.stringify([files, others, variable, pluginFingerprint, instructions, pins]);
}

/** Warns if the secret under a key is plain text in a file that other users can read. */
async function describeExposure(
  key: string,
  secret: string,
  file: string,
): Promise<readonly string[]> {
  if (parseTemplate(secret, "toolmux").some(({ kind }) => kind !== "text")) return [];
  const { stat } = process.getBuiltinModule("node:fs/promises");
  const mode = await stat(file).then(
    (stats) => stats.mode,
    () => 0,
  );
  if ((mode & OTHERS_READ) === 0) return [];
  return [
    `${file}: ${key} is plain text in a file that other users can read: write \${secret:NAME}, \${env:NAME} or \${file:PATH}, or run chmod 600 on the file`,
  ];
}
/** The mode bits for reading by group and others. */
const OTHERS_READ = 0o044;
