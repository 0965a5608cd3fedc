import { constants, open, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, resolve, sep } from "node:path";
import process from "node:process";
import { HubError, toHubError } from "../base/errors.ts";
import {
  configFolders,
  dataFolder,
  expandHome,
  stateFolder,
  type SystemEnvironment,
} from "../base/paths.ts";
import { decodeUtf8, type FileBytes } from "../base/read-file.ts";
import type { Agents, AgentSpec } from "../manifest/agents.ts";
import { parseText, type ParsedFile } from "../manifest/syntax/parse.ts";
import { addPositions } from "../manifest/syntax/positions.ts";
import { fileProblem, findNearest, type Problem } from "../manifest/problems.ts";
import { isTable } from "../manifest/table.ts";
import { readToolsets, type ToolsetMappings } from "../manifest/toolsets.ts";
import {
  findTrustedAgentFile,
  isDigestTrusted,
  isHashTrusted,
  sha256Hex,
  type TrustedAgentFile,
} from "../manifest/trust.ts";
import {
  type AgentFile,
  type AgentFileResult,
  agentInvalidError,
  MAX_AGENT_FILE,
  restrictUntrusted,
} from "./agent-file.ts";
import type { SiblingFileReader } from "./docker-agent.ts";
import { parseReference, parseReferenceOrThrow } from "./reference.ts";
import type { RegistryOptions } from "./registry.ts";
import { AgentStore, type StoredAgent } from "./store.ts";
import { provideToolsets } from "./toolsets.ts";

/** The settings for agent files (`[agentFiles]`). */
export interface AgentFileSettings {
  /** The user's own folder for files of agents; undefined: `agents` in the configuration folder. */
  readonly directory?: string | undefined;
  /** Further folders, whose files are used, but not trusted. */
  readonly paths: readonly string[];
  /** Whether a file with settings that toolmux does not support is refused. */
  readonly strict: boolean;
  /** The hosts of the registries from which agents may be pulled, as `Reference.host`; undefined: all registries. */
  readonly registries?: readonly string[] | undefined;
  /** What provides the toolsets of the files. */
  readonly toolsets?: ToolsetMappings | undefined;
  /** The base folder of relative paths in these settings; undefined: the working directory. */
  readonly baseDir?: string | undefined;
}

export const AGENT_FILE_DEFAULTS: AgentFileSettings = {
  paths: ["~/.cagent/agents"],
  strict: false,
};

export interface AgentLibraryOptions extends SystemEnvironment {
  /** The agents of the manifest. */
  readonly agents: Agents;
  readonly settings: AgentFileSettings;
  /**
   * The base folder of relative paths that name agents. If a client of the hub names the agent, this is the folder of
   * the manifest.
   */
  readonly baseDir: string;
}

/** An agent that was found by its name, path or reference. */
export type FoundAgent =
  | { readonly source: "manifest"; readonly spec: AgentSpec }
  | { readonly source: "files"; readonly file: AgentFile }
  | { readonly source: "store"; readonly file: AgentFile; readonly stored: StoredAgent };

/** One line of a list of agents. */
export interface ListedAgent {
  readonly name: string;
  /** The text with which `find` finds the agent: a name, a path or a reference. */
  readonly spec: string;
  readonly source: FoundAgent["source"];
  readonly description?: string | undefined;
  readonly model?: string | undefined;
  /** The digest of an agent that was pulled from a registry. */
  readonly digest?: string | undefined;
  /** Whether the agent may do everything that its file says. */
  readonly trusted: boolean;
  /** The reason why the agent cannot be used; undefined if it can. */
  readonly problem?: string | undefined;
}

/** Says why the agents of a list cannot be used, apart from what is wrong with their texts; undefined: they can be. */
export interface AgentChecks {
  /** Checks an agent of the manifest. */
  spec(spec: AgentSpec): Promise<string | undefined>;
  /** Checks the entry agent of a file that was read. */
  file(file: AgentFile): Promise<string | undefined>;
}

const NO_CHECKS: AgentChecks = {
  spec: () => Promise.resolve(undefined),
  file: () => Promise.resolve(undefined),
};

const EXTENSION = /\.(?:ya?ml|toml|json)$/i;
const MAX_SPEC = 2048;
/** Maximum number of files of a folder that are listed, and of parsed files in the cache. */
const MAX_FILES = 1000;
const MAX_CACHED = 64;

/**
 * Tells a path from the other texts that name an agent. A path begins with `/`, `~/`, `./` or `../`, or has a slash and
 * the ending of an agent's file. Names of agents in the folders have no slash, and references no such ending.
 */
export function isAgentPath(text: string): boolean {
  return /^(?:~?\/|\.{1,2}\/)/.test(text) || (text.includes("/") && EXTENSION.test(text));
}

/** A parsed file in the cache, with the stamps that show whether it has changed since. */
interface CachedFile {
  /** By path: the stamps (`formatStamp`) of the file itself, and of the sibling files that were read for it. */
  readonly stamps: ReadonlyMap<string, string>;
  readonly hash: string;
  readonly result: AgentFileResult;
}

/** Finds agents: those of the manifest, those in files, and those that were pulled from registries. */
export class AgentLibrary {
  readonly store: AgentStore;
  readonly #options: AgentLibraryOptions;
  readonly #cache = new Map<string, CachedFile>();
  /** The results of `#applySettings`, by the file as it was read, for the same trust. */
  readonly #applied = new WeakMap<
    AgentFile,
    { readonly state: string; readonly file: AgentFile }
  >();

  constructor(options: AgentLibraryOptions) {
    this.#options = options;
    this.store = new AgentStore(options);
  }

  /**
   * Finds an agent: by a name in the manifest, else by the path of a file, else in the store.
   * @throws {HubError} agentNotFound; agentInvalid with the places of the problems; notTrusted if the path is outside of
   * the folders for agents; storeBroken
   */
  async find(text: string): Promise<FoundAgent> {
    if (text === "" || text.length > MAX_SPEC || text.includes("\0"))
      throw await this.#notFound("");
    const spec = this.#options.agents.get(text);
    if (spec !== undefined && "problems" in spec) throw agentInvalidError(spec.problems);
    if (spec !== undefined) return { source: "manifest", spec };
    const isPath = isAgentPath(text);
    if (isPath || EXTENSION.test(text)) {
      const file = await this.#findFile(text, isPath);
      if (file !== undefined) return { source: "files", file };
    }
    const stored = isPath ? undefined : await this.store.find(text);
    if (stored === undefined) throw await this.#notFound(text);
    return { source: "store", file: await this.#readStored(stored), stored };
  }

  /**
   * All agents of these sources. Does not reject if an agent cannot be used: the agent is listed with its problem.
   */
  async list(
    sources: readonly FoundAgent["source"][],
    checks: AgentChecks = NO_CHECKS,
  ): Promise<readonly ListedAgent[]> {
    const listed: ListedAgent[] = [];
    if (sources.includes("manifest")) {
      for (const [name, agent] of this.#options.agents) {
        const base = { name, spec: name, source: "manifest", trusted: true } as const;
        if ("problems" in agent) {
          listed.push({ ...base, problem: agentInvalidError(agent.problems).message });
        } else {
          const { description, model } = agent;
          listed.push({ ...base, description, model, problem: await checks.spec(agent) });
        }
      }
    }
    if (sources.includes("files")) {
      for (const path of await this.#listFiles()) {
        const name = basename(path);
        const base = { name, spec: path, source: "files" } as const;
        const read = async (): Promise<AgentFile> => requireFile(await this.#findFile(path, true));
        const line = await describe(base, read, checks);
        if (line.problem === undefined || !(await this.#isScript(path))) listed.push(line);
      }
    }
    if (sources.includes("store")) {
      for (const stored of await this.store.list()) {
        const { reference, digest } = stored;
        const name = reference.slice(reference.lastIndexOf("/") + 1);
        const base = { name, spec: reference, source: "store", digest } as const;
        listed.push(await describe(base, () => this.#readStored(stored), checks));
      }
    }
    return listed;
  }

  /**
   * Pulls an agent from its registry into the store. An agent that cannot be read is not stored.
   * @throws {HubError} usage if the text is no reference, notTrusted if the manifest does not allow the registry,
   * agentInvalid; the errors of `pullAgent` and `AgentStore.add`
   */
  async pull(text: string, registry: RegistryOptions, signal: AbortSignal): Promise<StoredAgent> {
    const reference = parseReferenceOrThrow(text);
    const { registries } = this.#options.settings;
    if (registries !== undefined && !registries.includes(reference.host)) {
      const message = `The manifest does not allow the registry ${reference.host}. It allows: ${registries.join(", ") || "none"} (agentFiles.registries).`;
      throw new HubError("notTrusted", message);
    }
    const { pullAgent } = await import("./registry.ts");
    const pulled = await pullAgent(reference, registry, signal);
    const result = await readAgentText(pulled.content, `${text}.yaml`, "", noFiles);
    if (!result.ok) throw agentInvalidError(result.problems);
    return this.store.add(pulled, signal);
  }

  /** The folders whose files may be used, absolute; the first is the user's own. */
  folders(): readonly string[] {
    const { settings, env, platform, cwd } = this.#options;
    const { baseDir = cwd } = settings;
    const [config = baseDir] = configFolders(env, platform);
    const own = settings.directory ?? join(config, "agents");
    return [own, ...settings.paths].map((path) => resolve(baseDir, expandHome(path, env)));
  }

  /** Looks in the cache for a file that was just read. True if it is the script of a model, which may lie beside agents. */
  async #isScript(path: string): Promise<boolean> {
    const real = await realpath(path).catch(() => "");
    const result = this.#cache.get(real)?.result;
    return result?.ok === false && result.isScript === true;
  }

  /** The real path of the first file with this name, without a slash, in the folders; undefined if there is none. */
  async locate(name: string): Promise<string | undefined> {
    if (!EXTENSION.test(name) || isAgentPath(name)) return undefined;
    for (const folder of this.folders()) {
      const real = await realpath(join(folder, name)).catch(() => undefined);
      if (real !== undefined) return real;
    }
    return undefined;
  }

  async #listFiles(): Promise<readonly string[]> {
    const lists = this.folders().map(async (folder) => {
      const names = await readdir(folder).catch(() => []);
      const files = names.filter((name) => EXTENSION.test(name)).toSorted();
      return files.slice(0, MAX_FILES).map((name) => join(folder, name));
    });
    return (await Promise.all(lists)).flat();
  }

  /**
   * Reads the file that a text names.
   * @param isPath whether the text is a path; otherwise it is a name in one of the folders
   * @returns undefined if a name is in none of the folders
   */
  async #findFile(text: string, isPath: boolean): Promise<AgentFile | undefined> {
    const { baseDir, env } = this.#options;
    const folders = this.folders();
    const candidates = isPath
      ? [resolve(baseDir, expandHome(text, env))]
      : folders.map((folder) => resolve(folder, text));
    for (const path of candidates) {
      const file = await this.#readFile(path, folders);
      if (file !== undefined) return file;
    }
    if (!isPath) return undefined;
    throw await this.#notFound(text);
  }

  /** Reads a file of one of the folders. @returns undefined if there is no such file */
  async #readFile(path: string, folders: readonly string[]): Promise<AgentFile | undefined> {
    // Refused before the file system is asked, so that the error does not reveal whether there is such a file.
    if (!folders.some((folder) => isWithin(path, folder))) throw outside(path, folders);
    const real = await realpath(path).catch(() => undefined);
    if (real === undefined) return undefined;
    if (!(await this.isInFolders(real))) throw outside(path, folders);
    if (!EXTENSION.test(path) || !EXTENSION.test(real)) {
      const message = "is not an agent file; their names end with .yaml, .yml, .toml or .json";
      throw agentInvalidError([fileProblem(path, message)]);
    }
    const { result, hash } = await this.#readReal(real);
    if (!result.ok) throw agentInvalidError(result.problems);
    return this.#applySettings(result.file, real, hash, () => this.#isTrusted(real, hash));
  }

  /**
   * The file with servers for its toolsets, and with the restrictions of a file that is not trusted.
   * @param key the real path, or the digest
   * @param of the hash of the content, or the digest
   * @throws {HubError} agentInvalid if something of it is not supported, and the settings are strict
   */
  async #applySettings(
    file: AgentFile,
    key: string,
    of: string,
    isTrusted: () => Promise<boolean>,
  ): Promise<AgentFile> {
    const { env, platform } = this.#options;
    const shown = await findTrustedAgentFile(key, of, stateFolder(env, platform));
    const trusted = await isTrusted();
    const state = JSON.stringify([trusted, shown]);
    const known = this.#applied.get(file);
    if (known?.state === state) return known.file;
    const provided = this.#checkStrict(this.provide(file, shown));
    const applied: AgentFile = trusted
      ? { ...provided, allows: shown === undefined ? "readOnly" : "all" }
      : restrictUntrusted(provided);
    this.#applied.set(file, { state, file: applied });
    return applied;
  }

  /**
   * The file with servers for its toolsets, without restrictions.
   * @param shown what a person has seen and chosen when the file was trusted; undefined: nobody has, so its agents get no
   * shell
   */
  provide(file: AgentFile, shown: Pick<TrustedAgentFile, "toolsets"> | undefined): AgentFile {
    const { env, platform, settings, cwd } = this.#options;
    const folder = isAbsolute(file.source) ? dirname(file.source) : cwd;
    const source = { file: file.source, baseDir: folder };
    const chosen = readToolsets(shown?.toolsets, source).toolsets;
    const mappings = new Map(
      [...chosen, ...(settings.toolsets ?? [])].map(([type, mapping]) => {
        if ("server" in mapping || mapping.roots === undefined) return [type, mapping] as const;
        const roots = mapping.roots.map((root) => resolve(mapping.baseDir, expandHome(root, env)));
        return [type, { ...mapping, roots }] as const;
      }),
    );
    const ownFolders = [
      ...configFolders(env, platform),
      stateFolder(env, platform),
      dataFolder(env, platform),
    ].map(realPathOf);
    return provideToolsets(file, { mappings, mayUseShell: shown !== undefined, ownFolders });
  }

  /**
   * Whether a file is trusted. Files in the user's configuration folder always are; all others need `toolmux trust`.
   */
  async #isTrusted(real: string, hash: string): Promise<boolean> {
    const { env, platform } = this.#options;
    const own = configFolders(env, platform);
    const realOwn = await Promise.all(own.map((one) => realpath(one).catch(() => one)));
    if (realOwn.some((folder) => isWithin(real, folder))) return true;
    return isHashTrusted(real, hash, stateFolder(env, platform));
  }

  /** @param real the real path, which has been checked to be in one of the folders */
  async #readReal(real: string): Promise<Pick<CachedFile, "result" | "hash">> {
    const cached = this.#cache.get(real);
    if (cached !== undefined && (await isUnchanged(cached))) return cached;
    const { bytes, stamp } = await readRegularFile(real);
    const stamps = new Map([[real, stamp]]);
    const readSibling = siblingFileReader(dirname(real), (path) => stamps.set(path, stampOf(path)));
    const result = await readAgentText(bytes, real, dirname(real), readSibling);
    const entry: CachedFile = { stamps, hash: await sha256Hex(bytes), result };
    this.#cache.delete(real);
    this.#cache.set(real, entry);
    const [oldest] = this.#cache.keys();
    if (this.#cache.size > MAX_CACHED && oldest !== undefined) this.#cache.delete(oldest);
    return entry;
  }

  /**
   * Reads a pulled agent without restrictions, and without servers for its toolsets.
   * @throws {HubError} storeBroken, agentInvalid
   */
  async readTrusted(stored: StoredAgent): Promise<AgentFile> {
    const bytes = await this.store.read(stored);
    const result = await readAgentText(bytes, `${stored.reference}.yaml`, "", noFiles);
    if (!result.ok) throw agentInvalidError(result.problems);
    return result.file;
  }

  /** Whether a file is in one of the folders. @param real its real path */
  async isInFolders(real: string): Promise<boolean> {
    const folders = this.folders().map((folder) => realpath(folder).catch(() => folder));
    return (await Promise.all(folders)).some((folder) => isWithin(real, folder));
  }

  async #readStored(stored: StoredAgent): Promise<AgentFile> {
    const { env, platform } = this.#options;
    const file = await this.readTrusted(stored);
    const { digest } = stored;
    return this.#applySettings(file, digest, digest, () =>
      isDigestTrusted(digest, stateFolder(env, platform)),
    );
  }

  #checkStrict(file: AgentFile): AgentFile {
    if (!this.#options.settings.strict || file.unsupported.length === 0) return file;
    throw agentInvalidError(file.unsupported);
  }

  async #notFound(text: string): Promise<HubError> {
    const stored = await this.store.list();
    const known = [
      ...this.#options.agents.keys(),
      ...(await this.#listFiles()).map((path) => basename(path)),
      ...stored.map(({ reference }) => reference.slice(reference.lastIndexOf("/") + 1)),
    ];
    const nearest = findNearest(basename(text), known);
    const advice =
      nearest !== undefined
        ? `Did you mean "${nearest}"?`
        : parseReference(text) === undefined
          ? "To see all: toolmux agents list"
          : `To see all: toolmux agents list. To get it from a registry: toolmux agents pull ${text}`;
    const shown = JSON.stringify(text.slice(0, 200));
    return new HubError("agentNotFound", `There is no agent ${shown}. ${advice}`);
  }
}

function requireFile(file: AgentFile | undefined): AgentFile {
  if (file === undefined) throw new HubError("agentNotFound", "The file does not exist any more.");
  return file;
}

async function describe(
  base: Pick<ListedAgent, "name" | "spec" | "source" | "digest">,
  read: () => Promise<AgentFile>,
  checks: AgentChecks,
): Promise<ListedAgent> {
  try {
    const file = await read();
    const { description, model } = file.agents.get(file.entry)?.spec ?? {};
    const trusted = file.forbiddenActions.length === 0;
    return { ...base, description, model, trusted, problem: await checks.file(file) };
  } catch (error) {
    return { ...base, trusted: false, problem: toHubError(error).message };
  }
}

/**
 * Reads the text of an agent's file.
 * @param name the name of the file; its extension determines the format
 * @param baseDir the base folder of relative paths in the file; empty for an agent of a registry, whose `name` is shown
 * in messages without the extension `.yaml`
 */
export async function readAgentText(
  bytes: FileBytes,
  name: string,
  baseDir: string,
  readSibling: SiblingFileReader,
): Promise<AgentFileResult> {
  const file = baseDir === "" ? name.replace(/\.yaml$/, "") : name;
  const text = decodeUtf8(bytes);
  const parsed: ParsedFile =
    text === undefined
      ? { ok: false, message: "is not UTF-8 text", position: undefined }
      : await parseAgentText(text, name);
  if (!parsed.ok)
    return { ok: false, problems: [fileProblem(file, parsed.message, parsed.position)] };
  const place = (problems: readonly Problem[]): Promise<readonly Problem[]> =>
    addPositions(problems, parsed.preparePositions);
  const duplicates = parsed.duplicates.map((key): Problem => {
    return { file, ...key, at: "key", message: "is set twice; remove one of the two" };
  });
  if (duplicates.length > 0) return { ok: false, problems: await place(duplicates) };
  const source = { file, baseDir };
  const read = /\.ya?ml$/i.test(name)
    ? (await import("./docker-agent.ts")).readDockerAgentFile
    : (await import("./manifest-format.ts")).readManifestFormat;
  const result = read(parsed.root, source, readSibling);
  if (!result.ok) {
    const { root } = parsed;
    const isScript = isTable(root) && "turns" in root && !("agents" in root);
    return { ok: false, problems: await place(result.problems), isScript };
  }
  const unsupported = await place(result.file.unsupported);
  const { toolsets = [] } = result.file;
  const places = await place(toolsets.map((use) => use.place));
  const placed = toolsets.map((use, at) => ({ ...use, place: places[at] ?? use.place }));
  return {
    ok: true,
    file: { ...result.file, unsupported, ...(placed.length > 0 && { toolsets: placed }) },
  };
}

async function parseAgentText(text: string, name: string): Promise<ParsedFile> {
  if (!/\.ya?ml$/i.test(name)) return parseText(text, /\.toml$/i.test(name) ? "toml" : "json");
  try {
    return (await import("./yaml.ts")).parseYaml(text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { ok: false, message: "nested too deeply", position: undefined };
  }
}

/** The path without links; the path itself if it does not exist. */
function realPathOf(path: string): string {
  const { realpathSync } = process.getBuiltinModule("node:fs");
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function isWithin(path: string, folder: string): boolean {
  return path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function outside(path: string, folders: readonly string[]): HubError {
  const text = `${path} is not in a folder for agents (${folders.join(", ")}). Copy it there, or name its folder in agentFiles.paths of the manifest.`;
  return new HubError("notTrusted", text);
}

/** Reads a file whose real path has been checked, and refuses it if another file has replaced it since. */
async function readRegularFile(
  real: string,
): Promise<{ readonly bytes: FileBytes; readonly stamp: string }> {
  const refuse = (message: string): HubError => agentInvalidError([fileProblem(real, message)]);
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(real, flags).catch(() => undefined);
  if (handle === undefined) throw refuse("cannot be read");
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw refuse("is not a regular file");
    if (stats.size > MAX_AGENT_FILE) throw refuse(`is longer than ${MAX_AGENT_FILE} bytes`);
    const again = await realpath(real).catch(() => undefined);
    const named = await stat(real).catch(() => undefined);
    if (again !== real || named?.ino !== stats.ino || named.dev !== stats.dev)
      throw refuse("has just been replaced");
    const bytes = new Uint8Array(await handle.readFile());
    if (bytes.length > MAX_AGENT_FILE) throw refuse(`is longer than ${MAX_AGENT_FILE} bytes`);
    return { bytes, stamp: formatStamp(stats) };
  } finally {
    await handle.close();
  }
}

function formatStamp(stats: {
  readonly dev: number;
  readonly ino: number;
  readonly mtimeMs: number;
  readonly size: number;
}): string {
  return `${stats.dev}:${stats.ino}:${stats.mtimeMs}:${stats.size}`;
}

function stampOf(path: string): string {
  const { statSync } = process.getBuiltinModule("node:fs");
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats === undefined ? "" : formatStamp(stats);
}

async function isUnchanged({ stamps }: CachedFile): Promise<boolean> {
  const same = [...stamps].map(async ([path, stamp]) => {
    const now = await stat(path).catch(() => undefined);
    return stamp === (now === undefined ? "" : formatStamp(now));
  });
  return (await Promise.all(same)).every(Boolean);
}

const noFiles: SiblingFileReader = (path) => ({
  problem: `"${path}" is not read: an agent of a registry has no files`,
});

/**
 * Makes a reader of files below a folder; links must not lead out of it.
 * @param onRead called with the path of each file, even if reading it fails
 */
export function siblingFileReader(
  folder: string,
  onRead: (path: string) => void,
): SiblingFileReader {
  const { realpathSync } = process.getBuiltinModule("node:fs");
  return (path) => {
    const full = isAbsolute(path) ? path : resolve(folder, path);
    if (!isWithin(full, folder))
      return { problem: `"${path}" is not below the folder of this file` };
    onRead(full);
    let real: string;
    try {
      real = realpathSync(full);
    } catch {
      return { problem: `"${path}" does not exist` };
    }
    if (!isWithin(real, folder))
      return { problem: `"${path}" is not below the folder of this file` };
    return readTextNear(real, path);
  };
}

function readTextNear(real: string, path: string): ReturnType<SiblingFileReader> {
  const { readFileSync, statSync } = process.getBuiltinModule("node:fs");
  try {
    const stats = statSync(real);
    if (!stats.isFile()) return { problem: `"${path}" is not a regular file` };
    if (stats.size > MAX_AGENT_FILE)
      return { problem: `"${path}" is longer than ${MAX_AGENT_FILE} bytes` };
    const text = decodeUtf8(readFileSync(real));
    return text === undefined ? { problem: `"${path}" is not UTF-8 text` } : { text };
  } catch {
    return { problem: `"${path}" cannot be read` };
  }
}
