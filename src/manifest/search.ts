import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { readSmall, type Bytes, type ReadResult } from "./file.ts";
import { configFolders, stateFolder, type Surroundings } from "./folders.ts";
import type { Problem } from "./problem.ts";
import { isTrusted, MAX_MANIFEST } from "./trust.ts";

/** First choice first. */
const NAMES = ["toolmux.toml", "toolmux.json", "toolmux.jsonc"] as const;

export interface Found {
  /** Absolute. */
  readonly path: string;
  readonly bytes: Bytes;
}

export interface Search {
  /** In the order of merging. */
  readonly found: readonly Found[];
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
}

/**
 * Looks where manifests are when none is named. Merged in this order, so that the later wins by server: one
 * `toolmux.*` of the user's config folder, then `.mcp.json` and one `toolmux.*` of the working directory.
 * Those of the working directory count only if they are trusted as they are now.
 */
export async function searchFiles({ env, cwd, platform }: Surroundings): Promise<Search> {
  const folders = configFolders(env, platform);
  const paths = folders.flatMap((folder) => NAMES.map((name) => join(folder, name)));
  const user = pickFirst(await readAll(paths));
  if (await isAmong(cwd, folders)) return user;
  const state = stateFolder(env, platform);
  const local = await Promise.all([
    searchLocal([join(cwd, ".mcp.json")], state),
    searchLocal(
      NAMES.map((name) => join(cwd, name)),
      state,
    ),
  ]);
  return {
    found: [user, ...local].flatMap(({ found }) => found),
    problems: user.problems,
    notes: [user, ...local].flatMap(({ notes }) => notes),
  };
}

/** What to say when there is no manifest at all: where it was looked for, and how to begin. */
export function describeAbsence({ env, cwd, platform }: Surroundings): Problem {
  const folders = configFolders(env, platform);
  const [first = cwd] = folders;
  const message = [
    "there is no manifest yet, and none was found elsewhere; looked for",
    ...folders.map((folder) => `  ${join(folder, "toolmux.{toml,json,jsonc}")}`),
    `  ${join(cwd, "toolmux.{toml,json,jsonc}")} and ${join(cwd, ".mcp.json")}, if trusted`,
    "To begin, write into it for example:",
    "",
    "  [servers.files]",
    `  command = "npx"`,
    `  args = ["-y", "@modelcontextprotocol/server-filesystem", "\${env:HOME}"]`,
    "",
    "or name the file of an MCP client: toolmux --config path/to/mcp.json",
  ].join("\n");
  return { file: join(first, NAMES[0]), path: "", message };
}

interface Candidate {
  readonly path: string;
  readonly read: Exclude<ReadResult, { kind: "absent" }>;
}

async function readAll(paths: readonly string[]): Promise<readonly Candidate[]> {
  const reads = await Promise.all(paths.map((path) => readSmall(path, MAX_MANIFEST)));
  return paths.flatMap((path, i) => {
    const read = reads[i];
    return read === undefined || read.kind === "absent" ? [] : [{ path, read }];
  });
}

/** The first is used; that there are others is only said. */
function pickFirst([first, ...others]: readonly Candidate[]): Search {
  if (first === undefined) return { found: [], problems: [], notes: [] };
  const { path, read } = first;
  const notes = others.map((other) => `${other.path} was passed over: ${path} comes first`);
  return read.kind === "read"
    ? { found: [{ path, bytes: read.bytes }], problems: [], notes }
    : { found: [], problems: [{ file: path, path: "", message: read.reason }], notes };
}

async function searchLocal(paths: readonly string[], state: string): Promise<Search> {
  const trusted: Candidate[] = [];
  const notes: string[] = [];
  for (const candidate of await readAll(paths)) {
    const { path, read } = candidate;
    if (read.kind === "refused") notes.push(`${path} was passed over: it ${read.reason}`);
    else if (await isTrusted(path, read.bytes, state)) trusted.push(candidate);
    else notes.push(`${path} was passed over: ${explainDistrust(path)}`);
  }
  const picked = pickFirst(trusted);
  return { ...picked, notes: [...notes, ...picked.notes] };
}

function explainDistrust(path: string): string {
  const word = /^[\w./@+-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
  return `it is not trusted as it is now; run \`toolmux trust ${word}\` if you want its commands run`;
}

/** Standing in the user's own config folder makes its files no strangers. */
async function isAmong(cwd: string, folders: readonly string[]): Promise<boolean> {
  const [here, ...there] = await Promise.all(
    [cwd, ...folders].map((folder) => realpath(folder).catch(() => undefined)),
  );
  return here !== undefined && there.includes(here);
}
