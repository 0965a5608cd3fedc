import { join, resolve } from "node:path";
import { type FileBytes, type FileReadResult, readFileLimited } from "../../base/read-file.ts";
import {
  configFolders,
  expandHome,
  realPathOf,
  stateFolder,
  type SystemEnvironment,
} from "../../base/paths.ts";
import { fileProblem, type Problem } from "../problems.ts";
import { isTrusted, MAX_MANIFEST_SIZE, trustStorePath } from "../trust.ts";

/** The manifest file names; the first one that exists in a folder is used. */
const MANIFEST_NAMES = ["toolmux.toml", "toolmux.json", "toolmux.jsonc"] as const;

/** The file in which MCP clients keep a project's servers. */
const PROJECT_FILE = ".mcp.json";

export interface ManifestFile {
  /** The absolute path of the file. */
  readonly path: string;
  readonly bytes: FileBytes;
  /** Whether the file was found in the working directory; the user neither named it nor keeps it as their own. */
  readonly isOfFolder?: boolean;
}

export interface SearchResult {
  /** The files to merge, in this order. */
  readonly files: readonly ManifestFile[];
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
  /** Existing files of the working directory that were skipped because their current content is not trusted. */
  readonly untrusted: readonly string[];
}

/** Where to look for manifests. */
export interface SearchOptions extends SystemEnvironment {
  /** Files named by the user, in order; empty: they are discovered. */
  readonly files: readonly string[];
}

/** Reads the files that the user names, or those that are discovered. */
export async function findManifests(options: SearchOptions): Promise<SearchResult> {
  if (options.files.length === 0) return discoverManifests(options);
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

/** The absolute paths of the files that the user names. */
export function namedPaths({ files, cwd, env }: SearchOptions): readonly string[] {
  return files.map((file) => resolve(cwd, expandHome(file, env)));
}

/**
 * Discovers the manifests that are used if the user names no file. They are merged in this order: one `toolmux.*` of
 * the user's config folder, then `.mcp.json` and one `toolmux.*` of the working directory. If several of them have the
 * same server, the last one counts. Files of the working directory count only while their current content is trusted.
 */
export async function discoverManifests({
  env,
  cwd,
  platform,
}: SystemEnvironment): Promise<SearchResult> {
  const folders = configFolders(env, platform);
  const user = useFirst(await readAll(manifestPathsIn(folders)));
  if (isConfigFolder(cwd, folders)) return user;
  const state = stateFolder(env, platform);
  const local = await Promise.all([
    discoverTrusted([join(cwd, PROJECT_FILE)], state),
    discoverTrusted(manifestPathsIn([cwd]), state),
  ]);
  return {
    files: [
      ...user.files,
      ...local.flatMap(({ files: found }) => found.map((file) => ({ ...file, isOfFolder: true }))),
    ],
    problems: user.problems,
    notes: [user, ...local].flatMap(({ notes }) => notes),
    untrusted: local.flatMap(({ untrusted: distrusted }) => distrusted),
  };
}

/** Every file that `discoverManifests` depends on, whether it exists or not. */
export function listManifestPaths({ env, cwd, platform }: SystemEnvironment): readonly string[] {
  return [
    ...manifestPathsIn([...configFolders(env, platform), cwd]),
    join(cwd, PROJECT_FILE),
    trustStorePath(stateFolder(env, platform)),
  ];
}

/** The problem that there is no manifest. Its message says where toolmux looks for one, and how to begin. */
export function describeNoManifest({ env, cwd, platform }: SystemEnvironment): Problem {
  const folders = configFolders(env, platform);
  const [first = cwd] = folders;
  const message = [
    "there is no manifest yet, so there are no servers; toolmux looks for",
    ...folders.map((folder) => `  ${join(folder, "toolmux.{toml,json,jsonc}")}`),
    `  ${join(cwd, "toolmux.{toml,json,jsonc}")} and ${join(cwd, PROJECT_FILE)}, if trusted`,
    "To begin, run one of these:",
    "  toolmux demo      shows toolmux with four servers of its own",
    "  toolmux import    copies the servers of your other MCP clients",
    "  toolmux add files -- npx -y @modelcontextprotocol/server-filesystem ~",
    "  toolmux --config path/to/mcp.json",
    "      uses the config of an MCP client directly",
  ].join("\n");
  return fileProblem(join(first, MANIFEST_NAMES[0]), message);
}

function manifestPathsIn(folders: readonly string[]): readonly string[] {
  return folders.flatMap((folder) => MANIFEST_NAMES.map((name) => join(folder, name)));
}

interface CandidateFile {
  readonly path: string;
  readonly read: Exclude<FileReadResult, { kind: "absent" }>;
}

async function readAll(paths: readonly string[]): Promise<readonly CandidateFile[]> {
  const reads = await Promise.all(paths.map((path) => readFileLimited(path, MAX_MANIFEST_SIZE)));
  return paths.flatMap((path, i) => {
    const read = reads[i];
    return read === undefined || read.kind === "absent" ? [] : [{ path, read }];
  });
}

/** Uses the first existing file of a folder, and adds a note about the other files, which are ignored. */
function useFirst([first, ...others]: readonly CandidateFile[]): SearchResult {
  if (first === undefined) return { files: [], problems: [], notes: [], untrusted: [] };
  const { path, read } = first;
  const notes = others.map((other) => `${other.path} is ignored, because ${path} exists`);
  const [files, problems] =
    read.kind === "read"
      ? [[{ path, bytes: read.bytes }], []]
      : [[], [fileProblem(path, read.reason)]];
  return { files, problems, notes, untrusted: [] };
}

async function discoverTrusted(paths: readonly string[], state: string): Promise<SearchResult> {
  const trusted: CandidateFile[] = [];
  const untrusted: string[] = [];
  const notes: string[] = [];
  for (const candidate of await readAll(paths)) {
    const { path, read } = candidate;
    if (read.kind === "read" && (await isTrusted(path, read.bytes, state))) {
      trusted.push(candidate);
      continue;
    }
    const reason = read.kind === "refused" ? `it ${read.reason}` : describeUntrusted(path);
    untrusted.push(path);
    notes.push(`${path} is ignored: ${reason}`);
  }
  const selected = useFirst(trusted);
  return { ...selected, notes: [...notes, ...selected.notes], untrusted };
}

function describeUntrusted(path: string): string {
  const shellWord = /^[\w./@+-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
  return `you have not trusted its current content. To use its servers, run \`toolmux trust ${shellWord}\``;
}

/** Whether `cwd` is the user's own config folder: its files need no trust, even as the working directory. */
function isConfigFolder(cwd: string, folders: readonly string[]): boolean {
  const here = realPathOf(cwd);
  return here !== undefined && folders.some((folder) => realPathOf(folder) === here);
}
