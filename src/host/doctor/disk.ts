import { count } from "../../base/format.ts";
import { lstat, readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Finding, Fix } from "./findings.ts";
import { plaintextSecretsOf } from "./manifest.ts";
import { isTempFile, MAX_TEMP_FILE_AGE } from "../../base/private-files.ts";
import { configFolders, stateFolder } from "../../base/paths.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { httpTokensOf } from "../../manifest/named-clients.ts";
import { findWritableFiles } from "../../operations/check.ts";
import { parseTemplate } from "../../manifest/interpolate.ts";
import { countOrphans, isOrphanTag, parseOwnerTag } from "../../process/orphans.ts";
import { findDeadHubs } from "../../control/socket-files.ts";
import type { HostContext } from "../context.ts";

/** Permission bits of group and others. */
const GROUP_AND_OTHERS = 0o077;
const GROUP_AND_OTHERS_READ = 0o044;
/** Maximum size of a lock file, in bytes. */
const MAX_LOCK_BYTES = 512;
const MAX_DEPTH = 3;

interface FileEntry {
  readonly path: string;
  readonly isFolder: boolean;
  readonly mode: number;
  readonly size: number;
  /** Modification time, ms since the epoch. */
  readonly changed: number;
}

/** Checks file permissions, and looks for stale files and processes. @param now ms since the epoch */
export async function checkDisk(
  manifest: Manifest | undefined,
  { env, platform }: HostContext,
  now: number,
): Promise<readonly Finding[]> {
  const state = await listAll(stateFolder(env, platform), MAX_DEPTH);
  const configs = configFolders(env, platform);
  const secrets = await Promise.all(
    configs.map((folder) => listAll(join(folder, "secrets"), MAX_DEPTH)),
  );
  const own = [...state, ...secrets.flat()];
  const configEntries = await Promise.all(configs.map((folder) => listAll(folder, 1)));
  return [
    ...(await checkManifestPermissions(manifest)),
    ...(await findWritableManifests(manifest)),
    ...checkOwnPermissions(own),
    ...findTempFiles([...own, ...configEntries.flat()], now),
    ...(await findStaleLocks(own)),
    ...(await findOrphans()),
    ...(await findDeadSockets({ env, platform })),
  ];
}

/** The entry at `path` and all entries below it, down to `depth` levels; symbolic links are skipped. */
async function listAll(path: string, depth: number): Promise<readonly FileEntry[]> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats === undefined || stats.isSymbolicLink()) return [];
  const { mode, size, mtimeMs: changed } = stats;
  const entry = { path, isFolder: stats.isDirectory(), mode, size, changed };
  if (!entry.isFolder || depth === 0) return [entry];
  const names = await readdir(path).catch(() => []);
  const inner = await Promise.all(names.map((name) => listAll(join(path, name), depth - 1)));
  return [entry, ...inner.flat()];
}

/** Other users who can change a manifest can make toolmux start what they like. */
async function findWritableManifests(manifest: Manifest | undefined): Promise<readonly Finding[]> {
  const files = await findWritableFiles(manifest?.sources ?? []);
  return Promise.all(
    files.map(async (path): Promise<Finding> => {
      const { mode } = await lstat(path);
      return {
        code: "TM703",
        subject: path,
        text: "Other users can change this file, and so what toolmux starts.",
        advice: `Take that from them: chmod go-w ${path}`,
        fixes: [{ kind: "permit", path, mode: mode & 0o755 }],
      };
    }),
  );
}

async function checkManifestPermissions(
  manifest: Manifest | undefined,
): Promise<readonly Finding[]> {
  const { sources = [], servers = [] } = manifest ?? {};
  const tokens = httpTokensOf(manifest ?? {});
  const found = await Promise.all(
    sources.map(async (path): Promise<readonly Finding[]> => {
      const stats = await lstat(path).catch(() => undefined);
      if (stats === undefined || (stats.mode & GROUP_AND_OTHERS_READ) === 0) return [];
      const own = servers.filter((spec) => "baseDir" in spec && spec.baseDir === dirname(path));
      const isToken = tokens.some(
        ({ file, text }) =>
          file === path && parseTemplate(text, "toolmux").every(({ kind }) => kind === "text"),
      );
      if (!isToken && own.every((spec) => plaintextSecretsOf(spec).length === 0)) return [];
      const text =
        "It contains what looks like secrets in plain text, and other users can read the file.";
      const advice = `Make it private: chmod 600 ${path}`;
      const mode = stats.mode & 0o700;
      return [
        { code: "TM701", subject: path, text, advice, fixes: [{ kind: "permit", path, mode }] },
      ];
    }),
  );
  return found.flat();
}

function checkOwnPermissions(entries: readonly FileEntry[]): readonly Finding[] {
  const accessible = entries.filter(({ mode }) => (mode & GROUP_AND_OTHERS) !== 0);
  const [first] = accessible;
  if (first === undefined) return [];
  const fixes = accessible.map(({ path, mode }): Fix => ({
    kind: "permit",
    path,
    mode: mode & 0o700,
  }));
  const more =
    accessible.length > 1
      ? `, and ${count(accessible.length - 1, "other entry", "other entries")}`
      : "";
  const text = `Other users can access this private file of toolmux${more}.`;
  return [
    {
      code: "TM702",
      subject: first.path,
      text,
      advice: "To correct it: toolmux doctor --fix",
      fixes,
    },
  ];
}

function findTempFiles(entries: readonly FileEntry[], now: number): readonly Finding[] {
  const stale = entries.filter(
    ({ path, isFolder, changed }) =>
      !isFolder && isTempFile(path) && now - changed > MAX_TEMP_FILE_AGE,
  );
  const [first] = stale;
  if (first === undefined) return [];
  const fixes = stale.map(({ path }): Fix => ({ kind: "remove", path }));
  const text = `${count(stale.length, "temporary file")} of a program that ended before it finished.`;
  return [
    {
      code: "TM602",
      subject: dirname(first.path),
      text,
      advice: "To correct it: toolmux doctor --fix",
      fixes,
    },
  ];
}

/**
 * Finds locks of dead processes. A lock file contains the owner tag of the process that holds the lock: its process
 * id, its start time and further data that identify the process.
 */
async function findStaleLocks(entries: readonly FileEntry[]): Promise<readonly Finding[]> {
  const small = entries.filter(
    ({ isFolder, size }) => !isFolder && size > 0 && size <= MAX_LOCK_BYTES,
  );
  const found = await Promise.all(
    small.map(async ({ path }): Promise<readonly Finding[]> => {
      const owner = await readFile(path, "utf8").catch(() => "");
      if (isTempFile(path) || parseOwnerTag(owner) === undefined || !(await isOrphanTag(owner)))
        return [];
      const text = "The process that held this lock has ended.";
      const fixes: readonly Fix[] = [{ kind: "remove", path }];
      return [
        {
          code: "TM603",
          subject: path,
          text,
          advice: "To correct it: toolmux doctor --fix",
          fixes,
        },
      ];
    }),
  );
  return found.flat();
}

async function findDeadSockets(
  environment: Pick<HostContext, "env" | "platform">,
): Promise<readonly Finding[]> {
  const dead = await findDeadHubs(environment);
  const [first] = dead;
  if (first === undefined) return [];
  const text = `${count(dead.length, "socket")} of a toolmux that was killed.`;
  const advice = "The next start of toolmux removes them; to do it now: toolmux doctor --fix";
  const fixes = dead.map((path): Fix => ({ kind: "removeSocket", path }));
  return [{ code: "TM604", subject: dirname(first), text, advice, fixes }];
}

async function findOrphans(): Promise<readonly Finding[]> {
  const orphans = await countOrphans().catch(() => 0);
  if (orphans === 0) return [];
  const verb = orphans === 1 ? "runs" : "run";
  const text = `${count(orphans, "process", "processes")} of a killed toolmux still ${verb}.`;
  const advice = "The next start of toolmux ends them; to end them now: toolmux doctor --fix";
  return [{ code: "TM601", subject: "processes", text, advice, fixes: [{ kind: "sweep" }] }];
}
