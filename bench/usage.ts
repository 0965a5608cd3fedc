import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import type { Weight } from "./job.ts";

/** What one process has used so far, without its children. */
export interface Usage {
  /** Processor time, in µs; where the kernel does not say it exactly, in steps of 10,000. */
  readonly cpu: number;
  /** The same with what threads have run that ended, in steps of 10,000 µs: for long spans. */
  readonly whole: number;
  /** Resident memory now, in bytes. */
  readonly rss: number;
  /** The most that was ever resident, in bytes. */
  readonly peak: number;
}

/** The kernel's unit in /proc, which is 1/100 s wherever Linux runs, in µs. */
const TICK = 10_000;

/** @returns undefined where there is no /proc, or no such process. */
export function readUsage(pid: number): Usage | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the name, in parentheses, and may hold anything.
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
 * What all threads of a process have run, in µs; undefined where the kernel does not say. A thread that ended is not
 * counted any more: a difference of two such numbers may be too small, so take the median of several.
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

/** From now on `peak` is the most that is resident after this; where the system does not allow it, nothing changes. */
export function forgetPeak(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, "5");
  } catch {
    // Then it is the most that was resident since the process began.
  }
}

/** What a process holds. @returns undefined where there is no /proc, or no such process. */
export function weigh(pid: number): Weight | undefined {
  const rss = readUsage(pid)?.rss;
  const descriptors = countDescriptors(pid);
  return rss === undefined || descriptors === undefined ? undefined : { rss, descriptors };
}

/** How many file descriptors a process has open. @returns undefined where there is no /proc, or no such process. */
export function countDescriptors(pid: number): number | undefined {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return undefined;
  }
}

function sizeOf(status: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s*(\\d+) kB`, "m").exec(status)?.[1]) * 1024;
}

/** Where the memory of a process comes from, in bytes. */
export interface Holding {
  /** All that is resident, pages of files included that other processes share. */
  readonly rss: number;
  /** What no file is behind: heaps, stacks and buffers. */
  readonly anonymous: number;
  /** What would be free if it ended. */
  readonly own: number;
}

/** @returns undefined where there is no /proc, or no such process. */
export function holdingOf(pid: number): Holding | undefined {
  try {
    const sizes = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
    const own = sizeOf(sizes, "Private_Clean") + sizeOf(sizes, "Private_Dirty");
    return { rss: sizeOf(sizes, "Rss"), anonymous: sizeOf(sizes, "Anonymous"), own };
  } catch {
    return undefined;
  }
}
