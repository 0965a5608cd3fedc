import { join } from "node:path";
import process from "node:process";
import { readFileLimited, type FileBytes, type FileReadResult } from "../base/read-file.ts";
import { configFolders, stateFolder, type SystemEnvironment } from "../base/paths.ts";
import type { Problem } from "./problems.ts";
import { isTrusted, locateStore, MAX_MANIFEST } from "./trust.ts";

/** In order of precedence. */
const NAMES = ["toolmux.toml", "toolmux.json", "toolmux.jsonc"] as const;

/** The project file of MCP clients. */
const CLIENTS = ".mcp.json";

export interface Found {
  /** Absolute. */
  readonly path: string;
  readonly bytes: FileBytes;
}

export interface Search {
  /** In the order of merging. */
  readonly found: readonly Found[];
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
  /** Existing files of the working directory that were skipped because their current content is not trusted. */
  readonly distrusted: readonly string[];
}

/**
 * Discovers manifests when none is named. Merged in this order, so that later ones win per server: one `toolmux.*` of
 * the user's config folder, then `.mcp.json` and one `toolmux.*` of the working directory. Files of the working
 * directory count only while their current content is trusted.
 */
export async function searchFiles({ env, cwd, platform }: SystemEnvironment): Promise<Search> {
  const folders = configFolders(env, platform);
  const user = pickFirst(await readAll(listNames(folders)));
  if (isAmong(cwd, folders)) return user;
  const state = stateFolder(env, platform);
  const local = await Promise.all([
    searchLocal([join(cwd, CLIENTS)], state),
    searchLocal(listNames([cwd]), state),
  ]);
  return {
    found: [user, ...local].flatMap(({ found }) => found),
    problems: user.problems,
    notes: [user, ...local].flatMap(({ notes }) => notes),
    distrusted: local.flatMap(({ distrusted }) => distrusted),
  };
}

/** Every file that `discoverManifests` depends on, whether it exists or not. */
export function listCandidates({ env, cwd, platform }: SystemEnvironment): readonly string[] {
  return [
    ...listNames([...configFolders(env, platform), cwd]),
    join(cwd, CLIENTS),
    locateStore(stateFolder(env, platform)),
  ];
}

/** The problem that there is no manifest: where it was searched for, and how to begin. */
export function describeAbsence({ env, cwd, platform }: SystemEnvironment): Problem {
  const folders = configFolders(env, platform);
  const [first = cwd] = folders;
  const message = [
    "there is no manifest yet, and none was found elsewhere; looked for",
    ...folders.map((folder) => `  ${join(folder, "toolmux.{toml,json,jsonc}")}`),
    `  ${join(cwd, "toolmux.{toml,json,jsonc}")} and ${join(cwd, CLIENTS)}, if trusted`,
    "To begin, one of these:",
    "  toolmux import                                 takes over what other MCP clients have",
    "  toolmux add files -- npx -y @modelcontextprotocol/server-filesystem ~",
    "  toolmux --config path/to/mcp.json              uses the file of an MCP client as it is",
  ].join("\n");
  return { file: join(first, NAMES[0]), path: "", message };
}

function listNames(folders: readonly string[]): readonly string[] {
  return folders.flatMap((folder) => NAMES.map((name) => join(folder, name)));
}

interface Candidate {
  readonly path: string;
  readonly read: Exclude<FileReadResult, { kind: "absent" }>;
}

async function readAll(paths: readonly string[]): Promise<readonly Candidate[]> {
  const reads = await Promise.all(paths.map((path) => readFileLimited(path, MAX_MANIFEST)));
  return paths.flatMap((path, i) => {
    const read = reads[i];
    return read === undefined || read.kind === "absent" ? [] : [{ path, read }];
  });
}

/** Uses the first file, and notes the others. */
function pickFirst([first, ...others]: readonly Candidate[]): Search {
  if (first === undefined) return { found: [], problems: [], notes: [], distrusted: [] };
  const { path, read } = first;
  const notes = others.map((other) => `${other.path} was passed over: ${path} comes first`);
  const [found, problems] =
    read.kind === "read"
      ? [[{ path, bytes: read.bytes }], []]
      : [[], [{ file: path, path: "", message: read.reason }]];
  return { found, problems, notes, distrusted: [] };
}

async function searchLocal(paths: readonly string[], state: string): Promise<Search> {
  const trusted: Candidate[] = [];
  const distrusted: string[] = [];
  const notes: string[] = [];
  for (const candidate of await readAll(paths)) {
    const { path, read } = candidate;
    if (read.kind === "read" && (await isTrusted(path, read.bytes, state))) {
      trusted.push(candidate);
      continue;
    }
    const reason = read.kind === "refused" ? `it ${read.reason}` : explainDistrust(path);
    distrusted.push(path);
    notes.push(`${path} was passed over: ${reason}`);
  }
  const picked = pickFirst(trusted);
  return { ...picked, notes: [...notes, ...picked.notes], distrusted };
}

function explainDistrust(path: string): string {
  const word = /^[\w./@+-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
  return `it is not trusted as it is now; run \`toolmux trust ${word}\` if you want its commands run`;
}

/** The user's own config folder needs no trust, even as the working directory. */
function isAmong(cwd: string, folders: readonly string[]): boolean {
  const here = locateReally(cwd);
  return here !== undefined && folders.some((folder) => locateReally(folder) === here);
}

function locateReally(path: string): string | undefined {
  try {
    return process.getBuiltinModule("node:fs").realpathSync(path);
  } catch {
    return undefined;
  }
}
