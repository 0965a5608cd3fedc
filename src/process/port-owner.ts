import process from "node:process";
import { readdir, readFile, readlink } from "node:fs/promises";

/** The process that listens on a TCP port. */
export interface PortOwner {
  readonly pid: number;
  /** The command line of the process; only its name if the system shows no more. */
  readonly command: readonly string[];
}

/** Time limit of `lsof`, in ms. */
const LSOF_TIMEOUT = 2000;
/** The state "listening" in /proc/net/tcp. */
const LISTENING = "0A";

/**
 * The process that listens on a TCP port of this machine; undefined if it is not found, for example because it belongs
 * to another user. Never rejects.
 */
export async function findPortOwner(
  port: number,
  platform: string,
): Promise<PortOwner | undefined> {
  try {
    return await (platform === "linux" ? findInProc(port) : findWithLsof(port));
  } catch {
    return undefined;
  }
}

async function findInProc(port: number): Promise<PortOwner | undefined> {
  const tables = await Promise.all(
    ["/proc/net/tcp", "/proc/net/tcp6"].map((file) => readFile(file, "utf8").catch(() => "")),
  );
  const sockets = new Set(
    tables.flatMap((table) => listeningInodes(table, port)).map((inode) => `socket:[${inode}]`),
  );
  if (sockets.size === 0) return undefined;
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  for (const pid of pids) {
    if (!(await hasAnyOpen(pid, sockets))) continue;
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8");
    return { pid: Number(pid), command: line.split("\0").filter((word) => word !== "") };
  }
  return undefined;
}

/** The inodes of the sockets that listen on a port, from the text of /proc/net/tcp (proc_net(5)). */
function listeningInodes(table: string, port: number): readonly string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return table.split("\n").flatMap((line) => {
    const [, local = "", , state, , , , , , inode] = line.trim().split(/\s+/);
    return inode !== undefined && state === LISTENING && local.endsWith(suffix) ? [inode] : [];
  });
}

async function hasAnyOpen(pid: string, sockets: ReadonlySet<string>): Promise<boolean> {
  const folder = `/proc/${pid}/fd`;
  for (const fd of await readdir(folder).catch(() => [])) {
    if (sockets.has(await readlink(`${folder}/${fd}`).catch(() => ""))) return true;
  }
  return false;
}

/** Finds the process with `lsof -F`, which prints one field per line: `p` and the pid, `c` and the command's name. */
async function findWithLsof(port: number): Promise<PortOwner | undefined> {
  const args = ["-nP", `-iTCP:${port}`, "-sTCP:LISTEN", "-Fpc"];
  const output = await new Promise<string>((resolve) => {
    process
      .getBuiltinModule("node:child_process")
      .execFile("lsof", args, { timeout: LSOF_TIMEOUT }, (_, stdout) => resolve(stdout));
  });
  const pid = /^p(\d+)$/m.exec(output)?.[1];
  const name = /^c(.+)$/m.exec(output)?.[1];
  return pid === undefined ? undefined : { pid: Number(pid), command: [name ?? "unknown"] };
}
