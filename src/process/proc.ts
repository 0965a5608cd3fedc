import type { Buffer } from "node:buffer";
import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, readlink } from "node:fs/promises";
import process from "node:process";
import { sleepSync, sleep } from "../base/grace.ts";
import {
  errnoCodeOf,
  type ProcessEntry,
  type ProcessIdentity,
  type ProcessTable,
  splitOwnerTags,
  OWNER_VARIABLE,
  type ProcessUsage,
} from "./process-table.ts";

/** How many processes are read in parallel; each takes a file descriptor. */
const PARALLEL_READS = 64;
/**
 * The most reads, 1 ms apart, of a process during execve(2), which takes well below 1 ms unless the processors are
 * busy.
 */
const MAX_EXEC_READS = 50;
/** The unit of processor time, in ms: USER_HZ is 100 on Linux. */
const MS_PER_TICK = 10;
/** PF_KTHREAD in the flags of /proc/<pid>/stat: kernel threads have no environment. */
const KERNEL_THREAD = 0x20_00_00;

/** The process table of Linux, read from /proc (proc(5)). */
export const linuxProcessTable: ProcessTable = {
  async list() {
    try {
      const pids = pidsOf(await readdir("/proc"));
      const found: ProcessEntry[] = [];
      for (let at = 0; at < pids.length; at += PARALLEL_READS) {
        const entries = await Promise.all(
          pids.slice(at, at + PARALLEL_READS).map(readProcessAsync),
        );
        for (const entry of entries) if (entry !== undefined) found.push(entry);
      }
      return found;
    } catch {
      // The synchronous read needs only one file descriptor at a time.
      return [...this.listSync()];
    }
  },

  *listSync() {
    for (const pid of pidsOf(readdirSync("/proc"))) {
      const entry = readProcessSync(pid);
      if (entry !== undefined) yield entry;
    }
  },

  async find(pid) {
    const line = await readFile(`/proc/${pid}/stat`).catch(throwIfExhausted);
    return line && { started: parseProcStat(line)?.started };
  },

  recheck: () => Promise.resolve(isSameProcess),

  async usage(processes) {
    const found = await Promise.all(processes.map(readUsage));
    return found.filter((usage) => usage !== undefined);
  },

  async system() {
    const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
    const pidNamespace = (await readlink("/proc/self/ns/pid")).replace(/\D/g, "");
    return { boot: boot.trim(), pidNamespace };
  },
};

/** Newest first: these are the most likely to exit soon. */
function pidsOf(names: readonly string[]): readonly number[] {
  return names
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .toReversed();
}

function isSameProcess({ pid, started }: ProcessIdentity): boolean {
  try {
    return parseProcStat(readFileSync(`/proc/${pid}/stat`))?.started === started;
  } catch {
    return false;
  }
}

/**
 * Yields the name of a file in /proc/<pid> and receives its content, undefined if that is unreadable; so one
 * implementation serves synchronous and asynchronous callers. Yielding undefined asks to wait 1 ms.
 */
type ProcFileReader = Generator<
  "status" | "environ" | "stat" | undefined,
  ProcessEntry | undefined,
  Buffer | undefined
>;

/** Reads one process. During an execve(2) it reads again until the new environment is visible. */
function* readProcess(pid: number): ProcFileReader {
  // The files in /proc/<pid> belong to root if the process is not dumpable; `Uid:` has its real user.
  const status = String(yield "status");
  const uid = matchNumber(status, /^Uid:\s*(\d+)/m);
  const user = process.getuid?.();
  if (uid === undefined || (user !== 0 && uid !== user)) return undefined;
  const memory = residentMemoryOf(status);
  let emptyReads = 0;
  for (let attempt = 1; ; attempt++) {
    const environ = yield "environ";
    const stat = parseProcStat(yield "stat");
    if (stat === undefined) return undefined;
    const isEnvironEmpty = environ?.length === 0 && !stat.isKernelThread;
    // During execve(2) `env_end` reads as 0; two empty reads with another value mean an empty environment.
    emptyReads = stat.isExecuting ? 0 : emptyReads + 1;
    if (!isEnvironEmpty || emptyReads === 2 || attempt === MAX_EXEC_READS) {
      const { group, started, cpu } = stat;
      return { pid, group, uid, started, memory, cpu, tags: environ ? ownerTagsOf(environ) : [] };
    }
    yield undefined;
  }
}

async function readUsage({ pid, started }: ProcessIdentity): Promise<ProcessUsage | undefined> {
  const [line, status] = await Promise.all(
    ["stat", "status"].map((file) => readFile(`/proc/${pid}/${file}`).catch(throwIfExhausted)),
  );
  const stat = parseProcStat(line);
  if (stat?.started !== started) return undefined;
  return { pid, started, cpu: stat.cpu, memory: residentMemoryOf(String(status)) };
}

async function readProcessAsync(pid: number): Promise<ProcessEntry | undefined> {
  const reader = readProcess(pid);
  for (let content: Buffer | undefined; ;) {
    const { done, value } = reader.next(content);
    if (done === true) return value;
    if (value === undefined) await sleep(1);
    content = value && (await readFile(`/proc/${pid}/${value}`).catch(throwIfExhausted));
  }
}

function readProcessSync(pid: number): ProcessEntry | undefined {
  const reader = readProcess(pid);
  for (let content: Buffer | undefined; ;) {
    const { done, value } = reader.next(content);
    if (done === true) return value;
    if (value === undefined) sleepSync(1);
    content = value && readFileIfAny(`/proc/${pid}/${value}`);
  }
}

function readFileIfAny(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    return throwIfExhausted(error);
  }
}

/** Ignores an error that says that the process is gone or unreadable. @throws it if it is one of exhausted resources */
function throwIfExhausted(error: unknown): undefined {
  if (["EMFILE", "ENFILE", "ENOMEM", "EAGAIN"].includes(errnoCodeOf(error))) throw error;
}

interface ProcStat {
  readonly group: number;
  readonly started: string;
  readonly cpu: number;
  readonly isKernelThread: boolean;
  readonly isExecuting: boolean;
}

/** Parses /proc/<pid>/stat. @returns undefined for a process that is gone, or a zombie */
function parseProcStat(content: Buffer | undefined): ProcStat | undefined {
  const line = String(content);
  // The second field is the program name in parentheses; it may contain any characters.
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
  const [state, , group, , , , flags] = fields;
  const [user, system] = fields.slice(11);
  const started = fields[19];
  if (state === "Z" || state === "X" || started === undefined) return undefined;
  return {
    group: Number(group),
    started,
    cpu: (Number(user) + Number(system)) * MS_PER_TICK,
    isKernelThread: (Number(flags) & KERNEL_THREAD) !== 0,
    isExecuting: fields[48] === "0",
  };
}

function residentMemoryOf(status: string): number {
  return (matchNumber(status, /^VmRSS:\s*(\d+) kB/m) ?? 0) * 1024;
}

function matchNumber(text: string, pattern: RegExp): number | undefined {
  const digits = pattern.exec(text)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** @param environ `NAME=value` entries, each terminated by NUL */
function ownerTagsOf(environ: Buffer): readonly string[] {
  const key = `${OWNER_VARIABLE}=`;
  let at = environ.indexOf(key);
  while (at > 0 && environ[at - 1] !== 0) at = environ.indexOf(key, at + 1);
  if (at < 0) return [];
  const end = environ.indexOf(0, at);
  return splitOwnerTags(environ.toString("utf8", at + key.length, end < 0 ? environ.length : end));
}
