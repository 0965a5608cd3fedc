import type { Buffer } from "node:buffer";
import { execFile } from "node:child_process";
import { readdir, readFile, readlink, stat } from "node:fs/promises";
import process from "node:process";
import { sleep } from "./grace.ts";

/** The environment variable by which a process says whose child it is; children inherit it. */
export const TAG_VARIABLE = "TOOLMUX_OWNER";

/** A process that runs. Zombies count as gone: they hold nothing but their number. */
export interface ProcessEntry {
  readonly pid: number;
  readonly group: number;
  readonly uid: number;
  /** When it started, in the system's own words: with the pid it names one process of this boot for ever. */
  readonly started: string;
  /** The owner tag in the environment that it was started with, if that can be read. */
  readonly tag: string | undefined;
}

/** The system that pids belong to: one boot of the kernel, and within it one space of pids (a container has its own). */
export interface System {
  readonly boot: string;
  readonly space: string;
}

const onMac = process.platform === "darwin";
/** So many processes are looked at side by side; each takes a file descriptor. */
const BATCH = 32;
/** An exec takes well below a millisecond, unless other programs have the processors; one look takes at least one. */
const EXEC_LOOKS = 50;
/** PF_KTHREAD among the flags of /proc/<pid>/stat: such a process never has an environment. */
const KERNEL_THREAD = 0x20_00_00;

let running: Promise<readonly ProcessEntry[]> | undefined;
let next: Promise<readonly ProcessEntry[]> | undefined;

/**
 * All processes that this user may signal. Never fails: what cannot be read is left out.
 * Whoever asks while a listing runs shares the next one, so that many servers that stop at once cost two.
 */
export function listProcesses(): Promise<readonly ProcessEntry[]> {
  if (running === undefined) {
    running = (onMac ? askPs(["-ax"]) : readProc()).finally(() => (running = undefined));
    return running;
  }
  next ??= running.then(() => {
    next = undefined;
    return listProcesses();
  });
  return next;
}

/** One process as it is now; undefined if it is gone, a zombie, or hidden from this user. */
export async function findProcess(pid: number): Promise<ProcessEntry | undefined> {
  return onMac ? (await askPs(["-p", String(pid)]))[0] : readEntry(pid);
}

/** @returns undefined where the system does not say. */
export async function readSystem(): Promise<System | undefined> {
  try {
    if (onMac) {
      const boot = await run("sysctl", ["-n", "kern.bootsessionuuid"]);
      return boot === "" ? undefined : { boot: boot.trim(), space: "mac" };
    }
    const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
    const space = (await readlink("/proc/self/ns/pid")).replace(/\D/g, "");
    return { boot: boot.trim(), space };
  } catch {
    return undefined;
  }
}

async function readProc(): Promise<readonly ProcessEntry[]> {
  const user = process.getuid?.();
  const names = await readdir("/proc").catch((): string[] => []);
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  const found: ProcessEntry[] = [];
  for (let at = 0; at < pids.length; at += BATCH) {
    const entries = await Promise.all(pids.slice(at, at + BATCH).map(readEntry));
    for (const entry of entries) {
      if (entry !== undefined && (user === 0 || entry.uid === user)) found.push(entry);
    }
  }
  return found;
}

/** Reads /proc/<pid>. A process that is just starting a program is looked at again until its new environment shows. */
async function readEntry(pid: number): Promise<ProcessEntry | undefined> {
  try {
    const { uid } = await stat(`/proc/${pid}`);
    let blanks = 0;
    for (let look = 1; ; look++) {
      const environ = await readFile(`/proc/${pid}/environ`).catch(() => undefined);
      const line = await readFile(`/proc/${pid}/stat`, "utf8");
      // The second field is the program's name in parentheses, with whatever characters it likes.
      const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
      const [state, , group, , , , flags] = fields;
      const started = fields[19];
      if (state === "Z" || state === "X" || started === undefined) return undefined;
      const entry = { pid, group: Number(group), uid, started };
      const isBlank = environ?.length === 0 && (Number(flags) & KERNEL_THREAD) === 0;
      // During an exec the end of the environment reads as 0; twice something else is an environment without entries.
      blanks = fields[48] === "0" ? 0 : blanks + 1;
      if (!isBlank || blanks === 2 || look === EXEC_LOOKS) {
        return { ...entry, tag: environ && tagIn(environ) };
      }
      await sleep(1);
    }
  } catch {
    return undefined;
  }
}

/** @param environ `NAME=value` entries, each ended by NUL. */
function tagIn(environ: Buffer): string | undefined {
  const key = `${TAG_VARIABLE}=`;
  let at = environ.indexOf(key);
  while (at > 0 && environ[at - 1] !== 0) at = environ.indexOf(key, at + 1);
  if (at < 0) return undefined;
  const end = environ.indexOf(0, at);
  return environ.toString("utf8", at + key.length, end < 0 ? environ.length : end);
}

async function askPs(which: readonly string[]): Promise<readonly ProcessEntry[]> {
  const columns = "pid=,pgid=,uid=,stat=,lstart=,command=";
  return parsePs(await run("ps", [...which, "-Eww", "-o", columns]));
}

/** Reads lines of `ps` with the columns pid, pgid, uid, stat, lstart and command, the environment behind the command. */
export function parsePs(text: string): ProcessEntry[] {
  const row = /^\s*(\d+)\s+(\d+)\s+(-?\d+)\s+(\S+)\s+(\w+\s+\w+\s+\w+\s+[\d:]+\s+\d+)\s(.*)$/;
  const variable = new RegExp(`(?:^|\\s)${TAG_VARIABLE}=(\\S+)`);
  return text.split("\n").flatMap((line) => {
    const [, pid, group, uid, state, started, command] = row.exec(line) ?? [];
    if (started === undefined || command === undefined || state?.startsWith("Z")) return [];
    return {
      pid: Number(pid),
      group: Number(group),
      uid: Number(uid),
      started: started.replace(/\s+/g, "_"),
      tag: variable.exec(command)?.[1],
    };
  });
}

/** A system tool's output, in one language and time zone whoever asks; empty if it fails. */
function run(command: string, args: readonly string[]): Promise<string> {
  const env = { PATH: "/bin:/usr/bin:/sbin:/usr/sbin", LC_ALL: "C", TZ: "UTC0" };
  const options = { env, timeout: 2000, maxBuffer: 64 * 1024 * 1024 };
  return new Promise((resolve) => {
    execFile(command, args, options, (error, stdout) => resolve(error === null ? stdout : ""));
  });
}
