import process from "node:process";
import type { CombinedCapabilities } from "../catalog/listing.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import { VERSION } from "../base/version.ts";

/** What the hub says of itself to the client that has started it, in the answer to `initialize`. */
export interface CachedInitialize {
  /** The name of the hub. */
  readonly name: string;
  /** What the servers want models to know; absent if they say nothing. */
  readonly instructions?: string | undefined;
  /** What the servers declare beside their lists; absent if it is not known. */
  readonly offered?: CombinedCapabilities | undefined;
  /** The class of what the client can be asked for to whom they say that; absent if they say nothing. */
  readonly capabilities?: string | undefined;
}

/** A greeting, and what it was made of. */
interface Kept {
  /** The command line, and what else it depends on; see `spellCause`. */
  readonly cause: string;
  /** What there was under each path that the manifest depends on; see `identify`. */
  readonly files: Readonly<Record<string, string>>;
  readonly greeting: CachedInitialize;
}

/** Of so many command lines greetings are kept, the latest first, in so many bytes in all. */
const MOST = 16;
const LONGEST = 256 * 1024;
/** ms. Two changes within so little may leave the same times on a file; the latter where a file system counts in seconds. */
const GRAIN = 100;
const COARSE_GRAIN = 2100;

/**
 * The greetings of earlier starts, in one file of the state folder. One is good as long as no file is another that the
 * manifest was loaded from, or would be: then it would be the same manifest again, and the hub need not be put together
 * before its client is answered.
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

  /** What the hub said, or would have said, to its last client; undefined if it may be something else now. Never throws. */
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

  /** Notes what there is before a manifest is loaded from it. @param files those that it depends on, absolute */
  note(files: readonly string[]): void {
    this.#files = identifyAll(files, this.#now());
  }

  /**
   * Keeps a greeting, or forgets that of before, unless files have changed meanwhile: then another manifest may be in force.
   * Never rejects.
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
      // Others may have kept theirs since. What one of two hubs that end at once keeps may be lost.
      const others = readKept(path).filter(({ cause }) => cause !== this.#cause);
      const bytes = pack([...(kept ? [kept] : []), ...others].slice(0, MOST));
      const { ensurePrivateFolder, replacePrivate } = await import("../base/private-files.ts");
      await ensurePrivateFolder(path.slice(0, path.lastIndexOf("/")));
      await replacePrivate(path, bytes);
    } catch {
      // The next start takes longer, and nothing else.
    }
  }
}

/** Spelled out rather than found by `stateFolder`: what that loads takes as long as all that is done here. */
function locate(
  { XDG_STATE_HOME: state = "", HOME: home = "", TOOLMUX_SERVERS: servers = "" }: Env,
  platform: string,
): string | undefined {
  // Servers in a variable may hold secrets, and are in no file that tells of changes.
  if (servers.trim() !== "") return undefined;
  const name = "toolmux/greetings.json";
  if (state.startsWith("/")) return `${state}/${name}`;
  if (!home.startsWith("/")) return undefined;
  return platform === "darwin"
    ? `${home}/Library/Application Support/${name}`
    : `${home}/.local/state/${name}`;
}

/** All that decides which files the manifest is loaded from, and what becomes of it. */
function spellCause(argv: readonly string[], env: Env, cwd: string): string {
  const { HOME: home = "", XDG_CONFIG_HOME: config = "", TOOLMUX_HUBS: hubs = "" } = env;
  // The manifests of the hubs above this one decide whether it starts at all; their processes do not.
  return JSON.stringify([VERSION, argv, cwd, home, config, hubs.replaceAll(/\d+:/g, "")]);
}

/** undefined: of one of them it cannot be told. */
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
 * Another text for other content, as no two versions of a file have all of this in common; empty if there is no file.
 * undefined: it was changed so lately that it cannot be told from what it is a moment later, or it is out of reach.
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

/** As many as there is room for. */
function pack(kept: readonly Kept[]): Uint8Array {
  const bytes = new TextEncoder().encode(JSON.stringify(kept));
  return bytes.length <= LONGEST ? bytes : pack(kept.slice(0, -1));
}

/** None if there is no such file, or it is damaged; what is no file could keep each start waiting for ever. */
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
