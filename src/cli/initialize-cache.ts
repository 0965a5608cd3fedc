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
  /** Server capabilities other than lists; absent if unknown. */
  readonly offered?: CombinedCapabilities | undefined;
  /** The client capability class for which this result is valid; absent if it does not depend on that. */
  readonly capabilities?: string | undefined;
}

/** A cached result and what it depends on. */
interface Kept {
  /** Command line and environment; see `cacheKeyOf`. */
  readonly cause: string;
  /** State of each file that the manifest depends on; see `fileIdentity`. */
  readonly files: Readonly<Record<string, string>>;
  readonly greeting: CachedInitialize;
}

/** Maximum number of cached command lines, latest first, and maximum size of the cache file in bytes. */
const MOST = 16;
const LONGEST = 256 * 1024;
/**
 * In ms. Two changes within this time may leave the same timestamps; the second value is for file systems
 * with a resolution of seconds or worse.
 */
const GRAIN = 100;
const COARSE_GRAIN = 2100;

/**
 * Cached `initialize` results of earlier starts, in one file of the state folder. An entry is valid while
 * none of the files that the manifest is, or would be, loaded from has changed; then `initialize` is answered
 * before the hub is loaded.
 */
export class InitializeCache {
  readonly #path: string | undefined;
  readonly #cause: string;
  readonly #now: () => number;
  #files: Readonly<Record<string, string>> | undefined;
  #kept: readonly Kept[] = [];

  /** @param argv the command line, without the executable; @param now ms since the epoch */
  constructor(
    argv: readonly string[],
    { env, cwd, platform }: SystemEnvironment,
    now: () => number = Date.now,
  ) {
    this.#now = now;
    this.#path = locate(env, platform);
    this.#cause = spellCause(argv, env, cwd);
  }

  /** The cached result; undefined if it may be outdated. Never throws. */
  recall(): CachedInitialize | undefined {
    if (this.#path === undefined) return undefined;
    this.#kept = readKept(this.#path);
    const known = this.#kept.find(({ cause }) => cause === this.#cause);
    if (known === undefined) return undefined;
    const isSame = Object.entries(known.files).every(
      ([path, was]) => identify(path, this.#now()) === was,
    );
    return isSame ? known.greeting : undefined;
  }

  /** Records the state of the files that a manifest is about to be loaded from. @param files absolute paths */
  note(files: readonly string[]): void {
    this.#files = identifyAll(files, this.#now());
  }

  /**
   * Stores a result, or deletes the old one, unless files have changed since `note`: the loaded manifest may
   * be outdated then. Never rejects.
   */
  async keep(greeting: CachedInitialize | undefined): Promise<void> {
    const [path, files] = [this.#path, this.#files];
    if (path === undefined || files === undefined) return;
    const now = identifyAll(Object.keys(files), this.#now());
    if (JSON.stringify(now) !== JSON.stringify(files)) return;
    const kept = greeting && { cause: this.#cause, files, greeting };
    const before = this.#kept.find(({ cause }) => cause === this.#cause);
    if (JSON.stringify(before) === JSON.stringify(kept)) return;
    try {
      // Another hub may have written since. If two hubs exit at the same time, one entry may be lost.
      const others = readKept(path).filter(({ cause }) => cause !== this.#cause);
      const bytes = pack([...(kept ? [kept] : []), ...others].slice(0, MOST));
      const { ensurePrivateFolder, replacePrivate } = await import("../base/private-files.ts");
      await ensurePrivateFolder(path.slice(0, path.lastIndexOf("/")));
      await replacePrivate(path, bytes);
    } catch {
      // Without it the next start is only slower.
    }
  }
}

/** Path of the cache file. Not by `stateFolder`, because loading that module takes as long as all of this. */
function locate(
  { XDG_STATE_HOME: state = "", HOME: home = "", TOOLMUX_SERVERS: servers = "" }: Env,
  platform: string,
): string | undefined {
  // Servers in an environment variable may contain secrets, and there is no file whose change could be
  // detected.
  if (servers.trim() !== "") return undefined;
  const name = "toolmux/greetings.json";
  if (state.startsWith("/")) return `${state}/${name}`;
  if (!home.startsWith("/")) return undefined;
  return platform === "darwin"
    ? `${home}/Library/Application Support/${name}`
    : `${home}/.local/state/${name}`;
}

/** All inputs that decide which files are loaded and how, apart from the files. */
function spellCause(argv: readonly string[], env: Env, cwd: string): string {
  const { HOME: home = "", XDG_CONFIG_HOME: config = "", TOOLMUX_HUBS: hubs = "" } = env;
  // The hubs above this one decide by their manifests whether it may start; their process ids are irrelevant.
  return JSON.stringify([VERSION, argv, cwd, home, config, hubs.replaceAll(/\d+:/g, "")]);
}

/** undefined if the state of a file cannot be determined. */
function identifyAll(
  files: readonly string[],
  now: number,
): Readonly<Record<string, string>> | undefined {
  const identities: Record<string, string> = {};
  for (const path of files) {
    const identity = identify(path, now);
    if (identity === undefined) return undefined;
    identities[path] = identity;
  }
  return identities;
}

/**
 * A text that changes whenever the file's content may have changed; empty if there is no file. undefined:
 * changed so recently that a further change might not show, or not accessible.
 */
function identify(path: string, now: number): string | undefined {
  try {
    const stats = process.getBuiltinModule("node:fs").statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return "";
    const { dev, ino, size, mode, mtimeMs, ctimeMs } = stats;
    const changed = Math.max(mtimeMs, ctimeMs);
    const grain = changed % 1000 === 0 ? COARSE_GRAIN : GRAIN;
    if (Math.abs(now - changed) < grain) return undefined;
    return [dev, ino, size, mode, mtimeMs, ctimeMs].join(" ");
  } catch {
    return undefined;
  }
}

/** As many entries as fit, as JSON. */
function pack(kept: readonly Kept[]): Uint8Array {
  const bytes = new TextEncoder().encode(JSON.stringify(kept));
  return bytes.length <= LONGEST ? bytes : pack(kept.slice(0, -1));
}

/**
 * No entries if the file is missing or damaged. Only regular files are read: reading a FIFO would block every
 * start.
 */
function readKept(path: string): readonly Kept[] {
  try {
    const { readFileSync, statSync } = process.getBuiltinModule("node:fs");
    const stats = statSync(path);
    if (!stats.isFile() || stats.size > LONGEST) return [];
    const kept: unknown = JSON.parse(readFileSync(path, "utf8"));
    return Array.isArray(kept) ? kept.filter(isKept) : [];
  } catch {
    return [];
  }
}

function isKept(value: unknown): value is Kept {
  if (!isObject(value) || !isObject(value["files"]) || !isObject(value["greeting"])) return false;
  const { name, instructions = "", capabilities = "", offered } = value["greeting"];
  return (
    isOffered(offered) &&
    [value["cause"], name, instructions, capabilities].every((it) => typeof it === "string")
  );
}

function isOffered(value: unknown): boolean {
  if (value === undefined) return true;
  return (
    isObject(value) &&
    [value["tasks"], value["extensions"], value["experimental"]].every((it) => isObject(it))
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
