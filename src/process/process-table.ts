import type { Buffer } from "node:buffer";
import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, readlink } from "node:fs/promises";
import process from "node:process";
import { sleepSync, sleep } from "../base/clock.ts";

/** The environment variable with the owner tags of a process; children inherit it. */
export const OWNER_VARIABLE = "TOOLMUX_OWNER";

/** A running process. Zombies are left out: they hold nothing but their pid. */
export interface ProcessEntry {
  readonly pid: number;
  readonly group: number;
  /** The real user id, which decides who may send signals to the process. */
  readonly uid: number;
  /** Start time, in the system's own format. Together with the pid it identifies one process of this boot. */
  readonly started: string;
  /** Resident memory, in bytes. */
  readonly memory: number;
  /** Used processor time, in ms; systems count in steps of 10. */
  readonly cpu: number;
  /**
   * The owner tags in the environment that the process was started with, the nearest hub's first; empty if the
   * environment cannot be read.
   */
  readonly tags: readonly string[];
}

/** Identifies a process: its pid and start time. */
export type ProcessIdentity = Pick<ProcessEntry, "pid" | "started">;

/** Resource use of one process. */
export type ProcessUsage = ProcessIdentity & Pick<ProcessEntry, "memory" | "cpu">;

/**
 * The namespace in which a pid is valid: one boot of the kernel, and one pid namespace in it (a container has its own).
 */
export interface ProcessNamespace {
  readonly boot: string;
  readonly pidNamespace: string;
}

/**
 * Which processes a listing must contain; it may contain others, too. The fewer, the cheaper it is where each process
 * is read from files of its own.
 * - `all`: every process
 * - `tagged`: those with owner tags, and this process
 * - `younger`: this process and those that started after it, which all of its descendants did
 */
export type ListedProcesses = "all" | "tagged" | "younger";

/** The process table of one operating system. */
export interface ProcessTable {
  /**
   * The processes that this user may signal, apart from processes that cannot be read.
   * @throws {Error} if the table itself could not be read, such as for lack of file descriptors
   */
  list(listed: ListedProcesses): Promise<readonly ProcessEntry[]>;
  /** Like `list`, but synchronous; each process is read only when the iterator gets to it. */
  listSync(listed: ListedProcesses): Iterable<ProcessEntry>;
  /**
   * The start time of the process with this pid, which may belong to any user; `started` is undefined for a zombie.
   * @returns undefined if there is no such process, or it is hidden from this user
   * @throws {Error} like `list`
   */
  find(pid: number): Promise<{ readonly started: string | undefined } | undefined>;
  /**
   * Returns a function that checks whether a pid still belongs to the same process. To be called right before each
   * signal, because pids are reused.
   */
  recheck(processes: readonly ProcessIdentity[]): Promise<(process: ProcessIdentity) => boolean>;
  /** Resource use of these processes; exited ones are left out. Cheap enough for frequent sampling. */
  usage(processes: readonly ProcessIdentity[]): Promise<readonly ProcessUsage[]>;
  /** The pid of a process's parent; undefined if the system does not tell. */
  parentOf(pid: number): Promise<number | undefined>;
  /** The namespace of this process. @throws {Error} if the system does not provide it */
  system(): Promise<ProcessNamespace>;
}

/** The owner tags in a value of the environment variable TOOLMUX_OWNER. */
export function splitOwnerTags(value: string): readonly string[] {
  return value.split(",").filter((tag) => tag !== "");
}

export function errnoCodeOf(error: unknown): string {
  return String((error as NodeJS.ErrnoException | undefined)?.code);
}

/** Number of processes that are read in parallel; each read takes a file descriptor. */
const PARALLEL_READS = 64;
/**
 * Maximum number of times that a process's environment is read while the process is in execve(2), one read per ms: the
 * environment in /proc is empty during that time.
 */
const MAX_EXEC_READS = 50;
/** The unit of processor time, in ms: USER_HZ is 100 on Linux. */
const MS_PER_TICK = 10;
/** PF_KTHREAD in the flags of /proc/<pid>/stat: kernel threads have no environment. */
const KERNEL_THREAD = 0x20_00_00;

/** The process table of Linux, read from /proc (proc(5)). */
export const linuxProcessTable: ProcessTable = {
  async list(listed) {
    try {
      const pids = pidsOf(await readdir("/proc"));
      const found: ProcessEntry[] = [];
      for (let at = 0; at < pids.length; at += PARALLEL_READS) {
        const entries = await Promise.all(
          pids.slice(at, at + PARALLEL_READS).map((pid) => readProcessAsync(pid, listed)),
        );
        for (const entry of entries) if (entry !== undefined) found.push(entry);
      }
      return found;
    } catch {
      // The read may have failed for lack of file descriptors: the synchronous read needs only one at a time.
      return [...this.listSync(listed)];
    }
  },

  *listSync(listed) {
    for (const pid of pidsOf(readdirSync("/proc"))) {
      const entry = readProcessSync(pid, listed);
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

  async parentOf(pid) {
    return parseProcStat(readFileIfAny(`/proc/${pid}/stat`))?.parent;
  },

  async system() {
    const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
    const pidNamespace = (await readlink("/proc/self/ns/pid")).replace(/\D/g, "");
    return { boot: boot.trim(), pidNamespace };
  },
};

/**
 * The pids among the names in /proc, highest first. The highest usually belong to the newest processes, which have to
 * be read first because they are the most likely to exit soon.
 */
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
 * Yields the name of a file in /proc/<pid> and receives its content, or undefined if the file is unreadable. In this
 * way, one implementation serves synchronous and asynchronous callers. Yielding undefined requests a wait of 1 ms.
 */
type ProcFileReader = Generator<
  "status" | "environ" | "stat" | undefined,
  ProcessEntry | undefined,
  Buffer | undefined
>;

/**
 * Reads one process. During an execve(2) it reads again until the new environment is visible.
 * @returns undefined if the process is gone, belongs to another user, or need not be listed
 */
function* readProcess(pid: number, listed: ListedProcesses): ProcFileReader {
  const isSelf = pid === process.pid;
  if (listed === "younger" && !isSelf && !startedAfterSelf(parseProcStat(yield "stat"))) {
    return undefined;
  }
  let emptyReads = 0;
  for (let attempt = 1; ; attempt++) {
    const environ = yield "environ";
    const tags = environ === undefined ? [] : ownerTagsOf(environ);
    const isUntagged = listed === "tagged" && !isSelf && tags.length === 0;
    // Most processes have an environment without tags: nothing else is read of them.
    if (isUntagged && environ?.length !== 0) return undefined;
    const stat = parseProcStat(yield "stat");
    if (stat === undefined) return undefined;
    const isEnvironEmpty = environ?.length === 0 && !stat.isKernelThread;
    // During execve(2) the environment reads as empty, and `env_end` as 0. Only two empty reads in a row with an
    // `env_end` other than 0 prove that it is empty.
    emptyReads = stat.isExecuting ? 0 : emptyReads + 1;
    if (!isEnvironEmpty || emptyReads === 2 || attempt === MAX_EXEC_READS) {
      if (isUntagged) return undefined;
      const { group, started, cpu } = stat;
      // The files in /proc/<pid> belong to root if the process is not dumpable; `Uid:` gives the real user.
      const status = String(yield "status");
      const uid = matchNumber(status, /^Uid:\s*(\d+)/m);
      const user = process.getuid?.();
      if (uid === undefined || (user !== 0 && uid !== user)) return undefined;
      return { pid, group, uid, started, memory: residentMemoryOf(status), cpu, tags };
    }
    yield undefined;
  }
}

/** When this process started, in clock ticks since the boot; read at first use. */
let ownStart: number | undefined;

function startedAfterSelf(stat: ProcStat | undefined): boolean {
  ownStart ??= Number(parseProcStat(readFileSync("/proc/self/stat"))?.started);
  return stat !== undefined && Number(stat.started) >= ownStart;
}

async function readUsage({ pid, started }: ProcessIdentity): Promise<ProcessUsage | undefined> {
  const [line, status] = await Promise.all(
    ["stat", "status"].map((file) => readFile(`/proc/${pid}/${file}`).catch(throwIfExhausted)),
  );
  const stat = parseProcStat(line);
  if (stat?.started !== started) return undefined;
  return { pid, started, cpu: stat.cpu, memory: residentMemoryOf(String(status)) };
}

async function readProcessAsync(
  pid: number,
  listed: ListedProcesses,
): Promise<ProcessEntry | undefined> {
  const reader = readProcess(pid, listed);
  for (let content: Buffer | undefined; ;) {
    const { done, value } = reader.next(content);
    if (done === true) return value;
    if (value === undefined) await sleep(1);
    content = value && (await readProcFile(pid, value));
  }
}

/**
 * Reads a file in /proc/<pid>. Reading `environ` can block for ever, so another thread does it; the other files take a
 * few µs, and no lock of the process's memory.
 */
function readProcFile(pid: number, name: string): Promise<Buffer | undefined> | Buffer | undefined {
  const path = `/proc/${pid}/${name}`;
  return name === "environ" ? readFile(path).catch(throwIfExhausted) : readFileIfAny(path);
}

function readProcessSync(pid: number, listed: ListedProcesses): ProcessEntry | undefined {
  const reader = readProcess(pid, listed);
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

/** Ignores errors that mean that the process is gone or unreadable. @throws errors of exhausted resources */
function throwIfExhausted(error: unknown): undefined {
  if (["EMFILE", "ENFILE", "ENOMEM", "EAGAIN"].includes(errnoCodeOf(error))) throw error;
}

interface ProcStat {
  readonly parent: number;
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
  const [state, parent, group, , , , flags] = fields;
  const [user, system] = fields.slice(11);
  const started = fields[19];
  if (state === "Z" || state === "X" || started === undefined) return undefined;
  return {
    parent: Number(parent),
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

const PS_ARGUMENTS = ["-Eww", "-o", "pid=,pgid=,ruid=,rss=,time=,stat=,lstart=,command="];

/**
 * Options for system tools: a fixed locale and time zone, and limits for the run time, in ms, and the output, in bytes.
 */
const EXEC_OPTIONS = {
  env: { PATH: "/bin:/usr/bin:/sbin:/usr/sbin", LC_ALL: "C", TZ: "UTC0" },
  timeout: 2000,
  maxBuffer: 64 * 1024 * 1024,
  encoding: "utf8",
} as const;

/** The process table of macOS, read with ps(1). */
export const macosProcessTable: ProcessTable = {
  list: () => runPs(["-ax"]),

  listSync() {
    const { spawnSync } = process.getBuiltinModule("node:child_process");
    const { stdout, error } = spawnSync("ps", [...PS_ARGUMENTS, "-ax"], EXEC_OPTIONS);
    if (error !== undefined) throw error;
    return parsePsOutput(stdout);
  },

  /** A zombie gives undefined, like a process that does not exist. */
  async find(pid) {
    return (await runPs(["-p", String(pid)]))[0];
  },

  async recheck(processes) {
    const found = await runPs(["-p", processes.map(({ pid }) => pid).join(",")]);
    const startTimes = new Map(found.map(({ pid, started }) => [pid, started]));
    return ({ pid, started }) => startTimes.get(pid) === started;
  },

  async usage(processes) {
    const found = await runPs(["-p", processes.map(({ pid }) => pid).join(",")]);
    const known = new Set(processes.map(({ pid, started }) => `${pid}/${started}`));
    return found.filter(({ pid, started }) => known.has(`${pid}/${started}`));
  },

  async parentOf(pid) {
    const text = await runTool("ps", ["-o", "ppid=", "-p", String(pid)]).catch(() => "");
    return matchNumber(text, /^\s*(\d+)/);
  },

  async system() {
    const boot = await runTool("sysctl", ["-n", "kern.bootsessionuuid"]);
    return { boot: boot.trim(), pidNamespace: "mac" };
  },
};

async function runPs(selection: readonly string[]): Promise<ProcessEntry[]> {
  return parsePsOutput(await runTool("ps", [...PS_ARGUMENTS, ...selection]));
}

/**
 * Parses the output of `ps` with the columns pid, pgid, ruid, rss, time, stat, lstart and command; with -E the
 * environment follows the command.
 */
export function parsePsOutput(text: string): ProcessEntry[] {
  const rowPattern =
    /^\s*(\d+)\s+(\d+)\s+(-?\d+)\s+(\d+)\s+([\d:.-]+)\s+(\S+)\s+(\w+\s+\w+\s+\w+\s+[\d:]+\s+\d+)\s(.*)$/;
  const variablePattern = new RegExp(`(?:^|\\s)${OWNER_VARIABLE}=(\\S+)`);
  return text.split("\n").flatMap((line) => {
    const [, pid, group, uid, memory, time = "", state, started, command] =
      rowPattern.exec(line) ?? [];
    if (started === undefined || command === undefined || state?.startsWith("Z")) return [];
    return {
      pid: Number(pid),
      group: Number(group),
      uid: Number(uid),
      started: started.replace(/\s+/g, "_"),
      memory: Number(memory) * 1024,
      cpu: parseCpuTime(time),
      tags: splitOwnerTags(variablePattern.exec(command)?.[1] ?? ""),
    };
  });
}

/** Parses `[[dd-]hh:]mm:ss.cc`. @returns ms */
function parseCpuTime(text: string): number {
  const [days, clock = ""] = text.includes("-") ? text.split("-") : ["0", text];
  const seconds = clock.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
  return Math.round((Number(days) * 86_400 + seconds) * 1000);
}

/** Runs a system tool. @returns its stdout, also if it exits with a non-zero code, as `ps` does when nothing matches */
function runTool(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    process
      .getBuiltinModule("node:child_process")
      .execFile(command, args, EXEC_OPTIONS, (error, stdout) => {
        if (error === null || typeof error.code === "number") resolve(stdout);
        else reject(new Error(`${command} failed`, { cause: error }));
      });
  });
}

/** The process table of this system. */
export const processTable: ProcessTable =
  process.platform === "darwin" ? macosProcessTable : linuxProcessTable;

/**
 * Time limit for a listing, in ms. Reading the environment of a process that is stuck in the kernel can block for ever.
 */
const LIST_TIMEOUT = 1500;

let currentListing: Promise<readonly ProcessEntry[]> | undefined;
let nextListing: Promise<readonly ProcessEntry[]> | undefined;

/**
 * The processes that this user may signal and that can be descendants of this process. Calls during a listing wait for
 * the next listing, which they share: stopping many servers at once takes only two listings.
 * @throws {Error} if the table could not be read, or not in time
 */
export function listYoungerProcesses(): Promise<readonly ProcessEntry[]> {
  if (currentListing === undefined) {
    currentListing = listProcesses("younger").finally(() => (currentListing = undefined));
    return currentListing;
  }
  nextListing ??= currentListing.then(listAgain, listAgain);
  return nextListing;
}

function listAgain(): Promise<readonly ProcessEntry[]> {
  nextListing = undefined;
  return listYoungerProcesses();
}

/** The processes that this user may signal. @throws {Error} if the table could not be read, or not in time */
export function listProcesses(listed: ListedProcesses): Promise<readonly ProcessEntry[]> {
  return withTimeout(processTable.list(listed).then(checkComplete));
}

/** The listing must contain this process; otherwise it is incomplete. */
function checkComplete(entries: readonly ProcessEntry[]): readonly ProcessEntry[] {
  if (entries.some(({ pid }) => pid === process.pid)) return entries;
  throw new Error("The system shows no processes.");
}

function withTimeout<T>(promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error("The processes could not be listed in time.")),
      LIST_TIMEOUT,
    );
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

/** Maximum number of ancestors that are looked up. */
const MAX_ANCESTORS = 256;

/** The pids of the processes that this process descends from, the nearest first, as far as the system tells. */
export async function ancestorsOfSelf(): Promise<readonly number[]> {
  const found: number[] = [];
  let pid: number | undefined = process.ppid;
  while (pid !== undefined && pid > 1 && found.length < MAX_ANCESTORS) {
    found.push(pid);
    pid = await processTable.parentOf(pid);
  }
  return found;
}

/** Whether it is certain that a process has exited; false if the system does not tell. */
export async function hasEnded({ pid, started }: ProcessIdentity): Promise<boolean> {
  try {
    const found = await processTable.find(pid);
    if (found !== undefined) return found.started !== started;
    // Other users' processes may be hidden from the table, but not from kill(2).
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return errnoCodeOf(error) === "ESRCH";
  }
}
