import type { Buffer } from "node:buffer";
import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, readlink } from "node:fs/promises";
import process from "node:process";
import { pause, sleep } from "../base/grace.ts";
import {
  codeOf,
  type ProcessEntry,
  type ProcessName,
  type ProcessTable,
  splitTags,
  TAG_VARIABLE,
  type Usage,
} from "./process-table.ts";

/** How many processes are read in parallel; each takes a file descriptor. */
const BATCH = 64;
/**
 * The most reads, 1 ms apart, of a process during execve(2), which takes well below 1 ms unless the processors are
 * busy.
 */
const EXEC_LOOKS = 50;
/** The unit of processor time, in ms: USER_HZ is 100 on Linux. */
const TICK = 10;
/** PF_KTHREAD in the flags of /proc/<pid>/stat: kernel threads have no environment. */
const KERNEL_THREAD = 0x20_00_00;

/** The process table of Linux, read from /proc (proc(5)). */
export const procTable: ProcessTable = {
  async list() {
    try {
      const pids = pidsIn(await readdir("/proc"));
      const found: ProcessEntry[] = [];
      for (let at = 0; at < pids.length; at += BATCH) {
        const entries = await Promise.all(pids.slice(at, at + BATCH).map(readSoon));
        for (const entry of entries) if (entry !== undefined) found.push(entry);
      }
      return found;
    } catch {
      // The synchronous read needs only one file descriptor at a time.
      return [...this.listNow()];
    }
  },

  *listNow() {
    for (const pid of pidsIn(readdirSync("/proc"))) {
      const entry = readNow(pid);
      if (entry !== undefined) yield entry;
    }
  },

  async look(pid) {
    const line = await readFile(`/proc/${pid}/stat`).catch(excuse);
    return line && { started: parseStat(line)?.started };
  },

  recheck: () => Promise.resolve(isSame),

  async usage(names) {
    const found = await Promise.all(names.map(readUsage));
    return found.filter((usage) => usage !== undefined);
  },

  async system() {
    const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
    const space = (await readlink("/proc/self/ns/pid")).replace(/\D/g, "");
    return { boot: boot.trim(), space };
  },
};

/** Newest first: these are the most likely to exit soon. */
function pidsIn(names: readonly string[]): readonly number[] {
  return names
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .toReversed();
}

function isSame({ pid, started }: ProcessName): boolean {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`))?.started === started;
  } catch {
    return false;
  }
}

/**
 * Yields the name of a file in /proc/<pid> and receives its content, undefined if that is unreadable; so one
 * implementation serves synchronous and asynchronous callers. Yielding undefined asks to wait 1 ms.
 */
type Reader = Generator<
  "status" | "environ" | "stat" | undefined,
  ProcessEntry | undefined,
  Buffer | undefined
>;

/** Reads one process. During an execve(2) it reads again until the new environment is visible. */
function* read(pid: number): Reader {
  // The files in /proc/<pid> belong to root if the process is not dumpable; `Uid:` has its real user.
  const status = String(yield "status");
  const uid = numberIn(status, /^Uid:\s*(\d+)/m);
  const user = process.getuid?.();
  if (uid === undefined || (user !== 0 && uid !== user)) return undefined;
  const memory = memoryIn(status);
  let blanks = 0;
  for (let look = 1; ; look++) {
    const environ = yield "environ";
    const stat = parseStat(yield "stat");
    if (stat === undefined) return undefined;
    const isBlank = environ?.length === 0 && !stat.isKernel;
    // During execve(2) `env_end` reads as 0; two empty reads with another value mean an empty environment.
    blanks = stat.isExec ? 0 : blanks + 1;
    if (!isBlank || blanks === 2 || look === EXEC_LOOKS) {
      const { group, started, cpu } = stat;
      return { pid, group, uid, started, memory, cpu, tags: environ ? tagsIn(environ) : [] };
    }
    yield undefined;
  }
}

async function readUsage({ pid, started }: ProcessName): Promise<Usage | undefined> {
  const [line, status] = await Promise.all(
    ["stat", "status"].map((file) => readFile(`/proc/${pid}/${file}`).catch(excuse)),
  );
  const stat = parseStat(line);
  if (stat?.started !== started) return undefined;
  return { pid, started, cpu: stat.cpu, memory: memoryIn(String(status)) };
}

async function readSoon(pid: number): Promise<ProcessEntry | undefined> {
  const reader = read(pid);
  for (let content: Buffer | undefined; ;) {
    const { done, value } = reader.next(content);
    if (done === true) return value;
    if (value === undefined) await sleep(1);
    content = value && (await readFile(`/proc/${pid}/${value}`).catch(excuse));
  }
}

function readNow(pid: number): ProcessEntry | undefined {
  const reader = read(pid);
  for (let content: Buffer | undefined; ;) {
    const { done, value } = reader.next(content);
    if (done === true) return value;
    if (value === undefined) pause(1);
    content = value && readFileNow(`/proc/${pid}/${value}`);
  }
}

function readFileNow(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    return excuse(error);
  }
}

/** Ignores an error that says that the process is gone or unreadable. @throws it if it is one of exhausted resources */
function excuse(error: unknown): undefined {
  if (["EMFILE", "ENFILE", "ENOMEM", "EAGAIN"].includes(codeOf(error))) throw error;
}

interface Stat {
  readonly group: number;
  readonly started: string;
  readonly cpu: number;
  readonly isKernel: boolean;
  readonly isExec: boolean;
}

/** Parses /proc/<pid>/stat. @returns undefined for a process that is gone, or a zombie */
function parseStat(content: Buffer | undefined): Stat | undefined {
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
    cpu: (Number(user) + Number(system)) * TICK,
    isKernel: (Number(flags) & KERNEL_THREAD) !== 0,
    isExec: fields[48] === "0",
  };
}

function memoryIn(status: string): number {
  return (numberIn(status, /^VmRSS:\s*(\d+) kB/m) ?? 0) * 1024;
}

function numberIn(text: string, pattern: RegExp): number | undefined {
  const digits = pattern.exec(text)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** @param environ `NAME=value` entries, each terminated by NUL */
function tagsIn(environ: Buffer): readonly string[] {
  const key = `${TAG_VARIABLE}=`;
  let at = environ.indexOf(key);
  while (at > 0 && environ[at - 1] !== 0) at = environ.indexOf(key, at + 1);
  if (at < 0) return [];
  const end = environ.indexOf(0, at);
  return splitTags(environ.toString("utf8", at + key.length, end < 0 ? environ.length : end));
}
