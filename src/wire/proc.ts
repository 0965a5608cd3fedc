import type { Buffer } from "node:buffer";
import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, readlink } from "node:fs/promises";
import process from "node:process";
import { pause, sleep } from "./grace.ts";
import {
  codeOf,
  type ProcessEntry,
  type ProcessName,
  type ProcessTable,
  splitTags,
  TAG_VARIABLE,
  type Usage,
} from "./table.ts";

/** So many processes are looked at side by side; each takes a file descriptor. */
const BATCH = 64;
/** An exec takes well below a millisecond, unless other programs have the processors; one look takes at least one. */
const EXEC_LOOKS = 50;
/** What processor time is counted in, in ms: 1/100 s wherever Linux runs. */
const TICK = 10;
/** PF_KTHREAD among the flags of /proc/<pid>/stat: such a process never has an environment. */
const KERNEL_THREAD = 0x20_00_00;

/** The processes of a Linux system, by /proc. */
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
      // One file descriptor may be left.
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

/** The latest come first: they are those that may be gone in a moment. */
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
 * Asks for files of /proc/<pid>, so that one reader serves those who wait and those who cannot. It gets undefined
 * for what cannot be read; when it asks for nothing it wants a millisecond to pass.
 */
type Reader = Generator<
  "status" | "environ" | "stat" | undefined,
  ProcessEntry | undefined,
  Buffer | undefined
>;

/** A process that is just starting a program is looked at again until its new environment shows. */
function* read(pid: number): Reader {
  // The files belong to another than the process if that must not be dumped.
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
    // During an exec the end of the environment reads as 0; twice something else is an environment without entries.
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

/** @throws what a read failed with, if that was for want of what may be there later: it says nothing of the process. */
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

/** Reads the line of /proc/<pid>/stat. @returns undefined for a process that is gone, or a zombie. */
function parseStat(content: Buffer | undefined): Stat | undefined {
  const line = String(content);
  // The second field is the program's name in parentheses, with whatever characters it likes.
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

/** @param environ `NAME=value` entries, each ended by NUL. */
function tagsIn(environ: Buffer): readonly string[] {
  const key = `${TAG_VARIABLE}=`;
  let at = environ.indexOf(key);
  while (at > 0 && environ[at - 1] !== 0) at = environ.indexOf(key, at + 1);
  if (at < 0) return [];
  const end = environ.indexOf(0, at);
  return splitTags(environ.toString("utf8", at + key.length, end < 0 ? environ.length : end));
}
