import { Buffer } from "node:buffer";
import { basename, dirname, resolve } from "node:path";
import { expandHome, type SystemEnvironment } from "../base/paths.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { readClientFile } from "./client-file.ts";
import {
  describeNoManifest,
  discoverManifests,
  listManifestPaths,
  type ManifestFile,
  type SearchResult,
} from "./discover.ts";
import type { ConfigSource, FileConfig, ServerConfig, SourcedProblem } from "./file-config.ts";
import { mergeSources } from "./merge.ts";
import { detectFormat, parseText } from "./parse.ts";
import { mergePlugins, missingPluginProblem, type PluginList } from "./plugins.ts";
import {
  fileProblem,
  formatPath,
  type PositionFinder,
  type Problem,
  type UnplacedProblem,
} from "./problems.ts";
import {
  describeTokenExposure,
  pickHttpToken,
  pickRegistries,
  readManifestFile,
  readServers,
} from "./read.ts";
import type { Manifest, ServerSpec } from "./manifest.ts";
import { MAIN_KEYS } from "./schema.ts";
import { isTable } from "./table.ts";
import { MAX_MANIFEST_SIZE } from "./trust.ts";

/**
 * Reads the content of `file`: a manifest, or a client's file if it looks like one. `duplicates` are the problems of
 * duplicate keys.
 */
export function readConfigFile(
  root: unknown,
  file: string,
  duplicates: readonly UnplacedProblem[] = [],
): FileConfig {
  const isClientFileName = /^\.?mcp\.json$/.test(basename(file));
  if (!isTable(root) || !(isClientFileName || "mcpServers" in root || "inputs" in root)) {
    const fileConfig = readManifestFile(root);
    return { ...fileConfig, problems: [...duplicates, ...fileConfig.problems] };
  }
  const fileConfig = readClientFile(root);
  const notes = [...fileConfig.notes, ...duplicates.flatMap(describeDuplicate)];
  if (isClientFileName || !("mcpServers" in root && "servers" in root))
    return { ...fileConfig, notes };
  const message = `cannot stand in one file with "servers"; move the servers into one of the two`;
  const conflict: UnplacedProblem = { path: ["mcpServers"], at: "key", message };
  return { ...fileConfig, problems: [conflict, ...fileConfig.problems], notes };
}

/** Reads an object of servers in the manifest's schema, or one that holds it under `servers` or `mcpServers`. */
export function readConfigVariable(
  root: unknown,
  duplicates: readonly UnplacedProblem[],
): FileConfig {
  if (isWrapped(root)) return readConfigFile(root, "", duplicates);
  const serverTable = readServers(root, []);
  const problems = [...duplicates, ...serverTable.problems];
  return { hub: {}, defaults: {}, plugins: [], ...serverTable, problems, notes: [] };
}

/**
 * Whether the only key is a wrapper, and not a server called "servers": a server has `command`, `url`, … as text, while
 * a table of servers holds only tables.
 */
function isWrapped(root: unknown): boolean {
  if (!isTable(root)) return false;
  const [key = "", ...others] = Object.keys(root);
  const inner = root[key];
  const isKnown = key === "servers" || key === "mcpServers";
  const isServer =
    isTable(inner) && MAIN_KEYS.some((main) => main in inner && !isTable(inner[main]));
  return isKnown && others.length === 0 && isTable(inner) && !isServer;
}

/**
 * A note about a server that occurs twice in a client's file. Other duplicate keys get none, because MCP clients
 * silently use the last.
 */
function describeDuplicate({ path }: UnplacedProblem): readonly string[] {
  const isServer = path[0] === "mcpServers" || path[0] === "servers";
  return isServer ? [`${formatPath(path)} stands twice, the last one counts`] : [];
}

/**
 * Adds positions to the problems of a file. Returns pairs of each given problem (`source`) and the same with its
 * position, in the order of the text.
 */
export async function addPositions<T extends UnplacedProblem>(
  file: string,
  preparePositions: () => Promise<PositionFinder>,
  problems: readonly T[],
): Promise<readonly { readonly source: T; readonly problem: Problem }[]> {
  if (problems.length === 0) return [];
  const positionOf = await preparePositions().catch((): PositionFinder => () => undefined);
  const placed = problems.map((source) => {
    const { path, at, message, position = positionOf(path, at) } = source;
    const problem: Problem = { file, path, at, message, position };
    return { source, problem };
  });
  return placed.toSorted(
    ({ problem: { position: a } }, { problem: { position: b } }) =>
      (a?.line ?? 0) - (b?.line ?? 0) || (a?.column ?? 0) - (b?.column ?? 0),
  );
}

/**
 * Adds positions to problems that were found after the file was loaded, by reading it again. A path that no longer
 * exists gets no position.
 */
export async function addPositionsLater(
  file: string,
  problems: readonly UnplacedProblem[],
): Promise<readonly Problem[]> {
  const placed = await addPositions(file, () => readPositions(file), problems);
  return placed.map(({ problem }) => problem);
}

async function readPositions(file: string): Promise<PositionFinder> {
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  const text = read.kind === "read" ? decodeUtf8(read.bytes) : undefined;
  const parsed = text === undefined ? undefined : await parseText(text, detectFormat(file, text));
  return parsed?.ok === true ? parsed.preparePositions() : () => undefined;
}

const SERVERS_VARIABLE = "TOOLMUX_SERVERS";

export interface LoadOptions extends SystemEnvironment {
  /** Files named by the user, in order; empty: search for them. */
  readonly files: readonly string[];
  /**
   * The prefixes of running servers. If two servers have the same prefix, the running one keeps it, whatever their
   * order.
   */
  readonly runningPrefixes?: (() => ReadonlyMap<string, string>) | undefined;
}

export type LoadedManifest = LoadOutcome & LoadedFiles;

type LoadOutcome =
  /** `problems` concern only servers that are `invalid` in the manifest, or that a later file replaces. */
  (
    | { readonly ok: true; readonly manifest: Manifest; readonly problems: readonly Problem[] }
    /** At least one problem makes the whole manifest invalid. */
    | { readonly ok: false; readonly problems: readonly Problem[] }
  ) & {
    /** Lines for people, without a line end: what was skipped, ignored or changed. */
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
   * Files of plugins, absolute, whether they exist or not: the manifest depends on them, as on those of
   * `listDependencies`.
   */
  readonly pluginFiles: readonly string[];
  /**
   * Existing files of the working directory, absolute, that were skipped because their current content is not trusted.
   * If an earlier load used such a file, it has been changed since, not removed.
   */
  readonly untrusted: readonly string[];
  /** Whether a file is empty: an editor may just be writing it. */
  readonly hasEmptyFile: boolean;
}

/**
 * Loads the manifest: the named files, or those found (see `discoverManifests`), then the servers in the environment
 * variable `TOOLMUX_SERVERS`; later ones win. All problems are found at once. A problem in a server's table makes that
 * server invalid, any other problem the whole manifest. Never throws because of a file's content.
 */
export async function loadManifest(options: LoadOptions): Promise<LoadedManifest> {
  const search =
    options.files.length > 0 ? await readNamed(options) : await discoverManifests(options);
  const variable = options.env[SERVERS_VARIABLE]?.trim() ?? "";
  const documents = await readDocuments(options, search, variable);
  const sources = documents.flatMap((document) => (document.ok ? [document.source] : []));
  const plugins = await mergePlugins(sources, options.env);
  const isMissing = documents.length === 0 && search.problems.length === 0;
  const outcome = isMissing
    ? { ok: false as const, problems: [describeNoManifest(options)], notes: search.notes }
    : await mergeDocuments(documents, sources, plugins, search, options.runningPrefixes?.());
  return {
    ...outcome,
    files: search.files,
    fingerprint: fingerprintOf(search, variable, plugins),
    pluginFingerprint: plugins.fingerprint,
    pluginFiles: plugins.files,
    untrusted: search.untrusted,
    hasEmptyFile: plugins.hasEmptyFile || search.files.some(({ bytes }) => bytes.length === 0),
  };
}

/**
 * Every file that the result of `loadManifest` depends on, absolute, whether it exists or not, except files of plugins.
 */
export function listDependencies(options: LoadOptions): readonly string[] {
  return options.files.length > 0 ? namedPaths(options) : listManifestPaths(options);
}

function readDocuments(
  { cwd }: LoadOptions,
  { files: found }: SearchResult,
  variable: string,
): Promise<readonly Document[]> {
  return Promise.all([
    ...found.map(readDocument),
    ...(variable === "" ? [] : [readText(variable, SERVERS_VARIABLE, cwd)]),
  ]);
}

/**
 * The result contains the whole contents instead of a hash, because hashing would take longer than all other work on a
 * manifest.
 */
function fingerprintOf(
  { files: found, ...others }: SearchResult,
  variable: string,
  { fingerprint: pluginFingerprint }: PluginList,
): string {
  const files = found.map(({ path, bytes }) => [path, Buffer.from(bytes).toString("latin1")]);
  return JSON.stringify([files, others, variable, pluginFingerprint]);
}

/** A parsed file with its positions, or why it could not be read. */
type Document =
  | {
      readonly ok: true;
      readonly source: ConfigSource;
      readonly preparePositions: () => Promise<PositionFinder>;
    }
  | { readonly ok: false; readonly problem: Problem };

function namedPaths({ files, cwd, env }: LoadOptions): readonly string[] {
  return files.map((file) => resolve(cwd, expandHome(file, env)));
}

async function readNamed(options: LoadOptions): Promise<SearchResult> {
  const found: ManifestFile[] = [];
  const problems: Problem[] = [];
  for (const path of namedPaths(options)) {
    const read = await readFileLimited(path, MAX_MANIFEST_SIZE);
    if (read.kind === "read") found.push({ path, bytes: read.bytes });
    else {
      const message = read.kind === "absent" ? "does not exist" : read.reason;
      problems.push(fileProblem(path, message));
    }
  }
  return { files: found, problems, notes: [], untrusted: [] };
}

async function readDocument({ path, bytes }: ManifestFile): Promise<Document> {
  const text = decodeUtf8(bytes);
  if (text !== undefined) return readText(text, path, dirname(path));
  return { ok: false, problem: fileProblem(path, "is not UTF-8 text") };
}

async function readText(text: string, file: string, baseDir: string): Promise<Document> {
  const isVariable = file === SERVERS_VARIABLE;
  const parsed = await parseText(text, isVariable ? "json" : detectFormat(file, text));
  if (!parsed.ok) {
    const { position, message } = parsed;
    return { ok: false, problem: fileProblem(file, message, position) };
  }
  const { root, duplicates, preparePositions } = parsed;
  const fileConfig = isVariable
    ? readConfigVariable(root, duplicates)
    : readConfigFile(root, file, duplicates);
  return { ok: true, source: { file, baseDir, fileConfig }, preparePositions };
}

async function mergeDocuments(
  documents: readonly Document[],
  sources: readonly ConfigSource[],
  plugins: PluginList,
  search: SearchResult,
  runningPrefixes: ReadonlyMap<string, string> = new Map(),
): Promise<LoadOutcome> {
  const unreadable = documents.flatMap((document) => (document.ok ? [] : [document.problem]));
  const problems = [...search.problems, ...unreadable];
  let isUsable = problems.length === 0;
  const hasNoPlugins =
    plugins.specs.length === 0 &&
    !sources.some(({ fileConfig }) => hasProblemUnder(fileConfig, ["plugins"]));
  const configProblems = sources.flatMap((source) => {
    const { fileConfig } = source;
    const all = [...fileConfig.problems, ...(hasNoPlugins ? fileConfig.schemeProblems : [])];
    return all.map((problem): SourcedProblem => ({ ...problem, source }));
  });
  const invalid = new Set(configProblems.flatMap((fault) => serverConfigAt(fault)?.draft ?? []));
  const merged = mergeSources(sources, { invalid, runningPrefixes });
  // Rules that involve several keys are skipped if a setting is invalid or a file is unreadable: they would only report
  // follow-on problems.
  const areSettingsValid =
    isUsable && !sources.some(({ fileConfig }) => hasProblemUnder(fileConfig, ["hub", "defaults"]));
  const missingPlugins = hasNoPlugins ? missingPluginProblems(merged.servers, sources) : [];
  const sourcedProblems = [
    ...configProblems,
    ...(areSettingsValid ? merged.problems : []),
    ...plugins.problems,
    ...missingPlugins,
  ];
  const problemsByConfig = new Map<ServerConfig, Problem[]>();
  for (const document of documents) {
    if (!document.ok) continue;
    const { source, preparePositions } = document;
    const own = sourcedProblems.filter((fault) => fault.source === source);
    for (const { source: fault, problem } of await addPositions(
      source.file,
      preparePositions,
      own,
    )) {
      problems.push(problem);
      const server = serverConfigAt(fault);
      if (server === undefined) isUsable = false;
      else
        problemsByConfig.set(server.draft, [
          ...(problemsByConfig.get(server.draft) ?? []),
          problem,
        ]);
    }
  }
  const notes = [
    ...search.notes,
    ...sources.flatMap(({ file, fileConfig }) =>
      fileConfig.notes.map((note) => `${file}: ${note}`),
    ),
    ...merged.notes,
  ];
  if (!isUsable) return { ok: false, problems, notes };
  // A manifest with plugins is not empty: plugins may provide servers.
  const isEmpty = merged.servers.length === 0 && plugins.specs.length === 0;
  if (isEmpty) notes.push("the manifest holds no servers");
  const files = sources.map(({ file }) => file).filter((file) => file !== SERVERS_VARIABLE);
  const { hub, defaults } = merged;
  const servers = merged.servers.map((spec): ServerSpec => {
    const draft = lastConfigOf(spec.name, sources);
    const own = draft && problemsByConfig.get(draft);
    const { name, enabled, prefix } = spec;
    return own === undefined ? spec : { kind: "invalid", name, enabled, prefix, problems: own };
  });
  const httpToken = pickHttpToken(sources);
  if (httpToken !== undefined) notes.push(...(await describeTokenExposure(httpToken)));
  const manifest = {
    hub,
    httpToken,
    registries: pickRegistries(sources),
    servers,
    defaults,
    plugins: plugins.specs,
    sources: files,
  };
  return { ok: true, manifest, problems, notes };
}

/** The server's config in the last file that has it. */
function lastConfigOf(name: string, sources: readonly ConfigSource[]): ServerConfig | undefined {
  return sources
    .findLast(({ fileConfig }) => fileConfig.servers.has(name))
    ?.fileConfig.servers.get(name);
}

/** The server whose table contains the problem; undefined if the problem lies elsewhere. */
function serverConfigAt({
  source,
  path,
}: SourcedProblem): { readonly draft: ServerConfig } | undefined {
  for (const draft of source.fileConfig.servers.values()) {
    const isWithin = draft.path.every((key, i) => path[i] === key);
    if (isWithin && path.length >= draft.path.length) return { draft };
  }
  return undefined;
}

/** Problems of plugin servers in a manifest without plugins. */
function missingPluginProblems(
  servers: readonly ServerSpec[],
  sources: readonly ConfigSource[],
): SourcedProblem[] {
  return servers.flatMap((spec) => {
    if (spec.kind !== "plugin") return [];
    const { file, path } = spec.origin;
    const source = sources.find((it) => it.file === file);
    return source === undefined ? [] : [{ source, ...missingPluginProblem(spec.plugin, path, []) }];
  });
}

/** Whether there is a problem under one of these keys. */
function hasProblemUnder(
  { problems: complaints }: ConfigSource["fileConfig"],
  keys: readonly unknown[],
): boolean {
  return complaints.some(({ path: [top] }) => keys.includes(top));
}
