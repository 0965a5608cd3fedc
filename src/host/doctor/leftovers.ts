import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { count } from "../../base/format.ts";
import { isTempFile, MAX_TEMP_FILE_AGE } from "../../base/private-files.ts";
import { findDeadHubs } from "../../control/socket-files.ts";
import { countOrphans, isOrphanTag, parseOwnerTag } from "../../process/orphans.ts";
import type { HostContext } from "../context.ts";
import type { Finding, Fix } from "./findings.ts";
import type { FileEntry, OwnFiles } from "./own-files.ts";

/** Maximum size of a lock file, in bytes. */
const MAX_LOCK_BYTES = 512;

/**
 * Finds what processes have left that were killed: temporary files, locks, processes of servers, sockets.
 * @param now ms since the epoch
 */
export async function findLeftovers(
  { privateEntries, configEntries }: OwnFiles,
  environment: Pick<HostContext, "env" | "platform">,
  now: number,
): Promise<readonly Finding[]> {
  return [
    ...findTempFiles([...privateEntries, ...configEntries], now),
    ...(await findStaleLocks(privateEntries)),
    ...(await findOrphans()),
    ...(await findDeadSockets(environment)),
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
