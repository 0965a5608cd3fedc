import { readdirSync, readFileSync, writeFileSync } from "node:fs";

/** The resources that one process has used so far, without its children. */
export interface Usage {
  /** CPU time, in µs; in steps of 10,000 µs if the kernel does not report it exactly. */
  readonly cpu: number;
  /** CPU time including that of ended threads, in µs, in steps of 10,000. Use it for long measurements. */
  readonly whole: number;
  /** Resident memory now, in bytes. */
  readonly rss: number;
  /** Maximum resident memory, in bytes: since the start of the process, or since `forgetPeak`. */
  readonly peak: number;
}

/** The kernel's unit of CPU time in /proc, in µs. It is 1/100 s on every Linux. */
const TICK = 10_000;

/** Reads the resources that a process has used; undefined if there is no /proc, or no such process. */
export function readUsage(pid: number): Usage | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the name, in parentheses, which may contain any characters.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = (Number(fields[11]) + Number(fields[12])) * TICK;
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const cpu = readRunTime(pid) ?? ticks;
    return { cpu, whole: ticks, rss: sizeOf(status, "VmRSS"), peak: sizeOf(status, "VmHWM") };
  } catch {
    return undefined;
  }
}

/**
 * CPU time of all running threads of a process, in µs; undefined if the kernel does not report it. Ended threads are
 * not counted, so the difference of two readings may be too small: take the median of several.
 */
function readRunTime(pid: number): number | undefined {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`);
    const times = tasks.map((task) =>
      Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[0]),
    );
    return times.reduce((sum, time) => sum + time, 0) / 1000;
  } catch {
    return undefined;
  }
}

/** Resets the `peak` of a process to its current memory, if the system allows it. */
export function forgetPeak(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, "5");
  } catch {
    // If the system does not allow it, `peak` remains the maximum since the start of the process.
  }
}

/** The resources that a process holds: resident memory in bytes, and number of open file descriptors. */
export interface Weight {
  readonly rss: number;
  readonly descriptors: number;
}

/** The resources that a process holds; undefined if there is no /proc, or no such process. */
export function weigh(pid: number): Weight | undefined {
  try {
    const rss = readUsage(pid)?.rss;
    return rss === undefined
      ? undefined
      : { rss, descriptors: readdirSync(`/proc/${pid}/fd`).length };
  } catch {
    return undefined;
  }
}

/**
 * The memory that would become free if a process ended, in bytes; undefined if unknown. Pages of its executable are
 * part of it as long as no other process runs the same file.
 */
export function ownMemoryOf(pid: number): number | undefined {
  const sizes = readSizes(pid);
  if (sizes === undefined) return undefined;
  return sizeOf(sizes, "Private_Clean") + sizeOf(sizes, "Private_Dirty");
}

/** The memory of a process that is no part of a file, in bytes: heaps, stacks and generated code. */
export function anonymousMemoryOf(pid: number): number | undefined {
  const sizes = readSizes(pid);
  return sizes === undefined ? undefined : sizeOf(sizes, "Anonymous");
}

function readSizes(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  } catch {
    return undefined;
  }
}

function sizeOf(status: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s*(\\d+) kB`, "m").exec(status)?.[1]) * 1024;
}
