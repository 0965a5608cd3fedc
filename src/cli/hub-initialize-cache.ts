import process from "node:process";
import type { CombinedCapabilities } from "../catalog/listing.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import { VERSION } from "../base/version.ts";

/** The hub's part of the `initialize` result, as cached for the client on stdio. */
export interface CachedInitialize {
  /** The hub's name (`serverInfo.name`). */
  readonly name: string;
  /** Merged instructions of the servers; absent if they have none. */
  readonly instructions?: string | undefined;
  /**
   * The combined capabilities of the servers, except whether they list tools, prompts or resources; absent if unknown.
   */
  readonly offered?: CombinedCapabilities | undefined;
  /** The capability class of the clients that the instructions are for; absent if there are no instructions. */
  readonly capabilities?: string | undefined;
}

/** A cached result and what it depends on. */
interface CacheEntry {
  /** Command line and environment; see `cacheKeyOf`. */
  readonly cause: string;
  /** State of each file that the manifest depends on; see `fileIdentity`. */
  readonly files: Readonly<Record<string, string>>;
  readonly greeting: CachedInitialize;
}

/** Maximum number of cached command lines, latest first, and maximum size of the cache file in bytes. */
const MAX_ENTRIES = 16;
const MAX_FILE_SIZE = 256 * 1024;
/**
 * Two changes of a file within this time, in ms, may leave the same timestamps. The second value is for file systems
 * whose timestamps have a resolution of seconds or worse.
 */
const TIMESTAMP_RESOLUTION = 100;
const COARSE_TIMESTAMP_RESOLUTION = 2100;

/**
 * Cached `initialize` results of earlier starts, in one file of the state folder. An entry is valid until one of the
 * files that the manifest may be loaded from changes, appears or disappears; with a valid entry, `initialize` is
 * answered before the hub is loaded.
 */
export class InitializeCache {
  readonly #path: string | undefined;
  readonly #key: string;
  readonly #now: () => number;
  #files: Readonly<Record<string, string>> | undefined;
  #entries: readonly CacheEntry[] = [];

  /** @param argv the command line, without the executable; @param now ms since the epoch */
  constructor(
    argv: readonly string[],
    { env, cwd, platform }: SystemEnvironment,
    now: () => number = Date.now,
  ) {
    this.#now = now;
    this.#path = cacheFilePath(env, platform);
    this.#key = cacheKeyOf(argv, env, cwd);
  }

  /** The cached result; undefined if it may be outdated. Never throws. */
  load(): CachedInitialize | undefined {
    if (this.#path === undefined) return undefined;
    this.#entries = readEntries(this.#path);
    const known = this.#entries.find(({ cause }) => cause === this.#key);
    if (known === undefined) return undefined;
    const isSame = Object.entries(known.files).every(
      ([path, recorded]) => fileIdentity(path, this.#now()) === recorded,
    );
    return isSame ? known.greeting : undefined;
  }

  /** Records the state of the files that a manifest is about to be loaded from. @param files absolute paths */
  recordFiles(files: readonly string[]): void {
    this.#files = fileIdentities(files, this.#now());
  }

  /**
   * Stores a result, or deletes the old one, unless files have changed since `recordFiles`: the loaded
   * manifest may be outdated then. Never rejects.
   */
  async save(greeting: CachedInitialize | undefined): Promise<void> {
    const [path, files] = [this.#path, this.#files];
    if (path === undefined || files === undefined) return;
    const now = fileIdentities(Object.keys(files), this.#now());
    if (JSON.stringify(now) !== JSON.stringify(files)) return;
    const entry = greeting && { cause: this.#key, files, greeting };
    const previous = this.#entries.find(({ cause }) => cause === this.#key);
    if (JSON.stringify(previous) === JSON.stringify(entry)) return;
    try {
      // Another hub may have written the file since it was read. If two hubs exit at the same time, one entry may be
      // lost.
      const others = readEntries(path).filter(({ cause }) => cause !== this.#key);
      const bytes = encodeEntries([...(entry ? [entry] : []), ...others].slice(0, MAX_ENTRIES));
      const { ensurePrivateFolder, replacePrivate } = await import("../base/private-files.ts");
      await ensurePrivateFolder(path.slice(0, path.lastIndexOf("/")));
      await replacePrivate(path, bytes);
    } catch {
      // An error is ignored: without the cache, the next start is only slower.
    }
  }
}

/**
 * Path of the cache file. `stateFolder` is not used, because loading its module takes as long as all other work here.
 */
function cacheFilePath(
  { XDG_STATE_HOME: state = "", HOME: home = "", TOOLMUX_SERVERS: servers = "" }: Env,
  platform: string,
): string | undefined {
  // Servers in an environment variable may contain secrets, and there is no file that would show a change: nothing is
  // cached.
  if (servers.trim() !== "") return undefined;
  const name = "toolmux/greetings.json";
  if (state.startsWith("/")) return `${state}/${name}`;
  if (!home.startsWith("/")) return undefined;
  return platform === "darwin"
    ? `${home}/Library/Application Support/${name}`
    : `${home}/.local/state/${name}`;
}

/** Everything that decides which files are loaded and how, except the content of those files. */
function cacheKeyOf(argv: readonly string[], env: Env, cwd: string): string {
  const { HOME: home = "", XDG_CONFIG_HOME: config = "", TOOLMUX_HUBS: hubs = "" } = env;
  // The manifests of the outer hubs decide whether this one may start; their process ids are irrelevant.
  return JSON.stringify([VERSION, argv, cwd, home, config, hubs.replaceAll(/\d+:/g, "")]);
}

/** The state of each file, by path; undefined if that of any file cannot be determined. */
function fileIdentities(
  files: readonly string[],
  now: number,
): Readonly<Record<string, string>> | undefined {
  const identities: Record<string, string> = {};
  for (const path of files) {
    const identity = fileIdentity(path, now);
    if (identity === undefined) return undefined;
    identities[path] = identity;
  }
  return identities;
}

/**
 * A text that changes whenever the file's content may have changed; empty if there is no file. undefined if the file is
 * not accessible, or has changed so recently that a further change might leave the same timestamps.
 */
function fileIdentity(path: string, now: number): string | undefined {
  try {
    const stats = process.getBuiltinModule("node:fs").statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return "";
    const { dev, ino, size, mode, mtimeMs, ctimeMs } = stats;
    const changed = Math.max(mtimeMs, ctimeMs);
    const resolution = changed % 1000 === 0 ? COARSE_TIMESTAMP_RESOLUTION : TIMESTAMP_RESOLUTION;
    if (Math.abs(now - changed) < resolution) return undefined;
    return [dev, ino, size, mode, mtimeMs, ctimeMs].join(" ");
  } catch {
    return undefined;
  }
}

/** As many entries as fit into MAX_FILE_SIZE, as JSON. */
function encodeEntries(entries: readonly CacheEntry[]): Uint8Array {
  const bytes = new TextEncoder().encode(JSON.stringify(entries));
  return bytes.length <= MAX_FILE_SIZE ? bytes : encodeEntries(entries.slice(0, -1));
}

/**
 * No entries if the file is missing or damaged. Only regular files are read: reading a FIFO would block every
 * start.
 */
function readEntries(path: string): readonly CacheEntry[] {
  try {
    const { readFileSync, statSync } = process.getBuiltinModule("node:fs");
    const stats = statSync(path);
    if (!stats.isFile() || stats.size > MAX_FILE_SIZE) return [];
    const entries: unknown = JSON.parse(readFileSync(path, "utf8"));
    return Array.isArray(entries) ? entries.filter(isCacheEntry) : [];
  } catch {
    return [];
  }
}

function isCacheEntry(value: unknown): value is CacheEntry {
  if (!isObject(value) || !isObject(value["files"]) || !isObject(value["greeting"])) return false;
  const { name, instructions = "", capabilities = "", offered } = value["greeting"];
  return (
    isServerCapabilities(offered) &&
    [value["cause"], name, instructions, capabilities].every((it) => typeof it === "string")
  );
}

function isServerCapabilities(value: unknown): boolean {
  if (value === undefined) return true;
  return (
    isObject(value) &&
    [value["tasks"], value["extensions"], value["experimental"]].every((it) => isObject(it))
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
