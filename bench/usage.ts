import { readdirSync, readFileSync } from "node:fs";
import type { Weight } from "./job.ts";

/** What one process has used so far, without its children. */
export interface Usage {
  /** User and system time, in µs; the kernel counts in steps of 10,000. */
  readonly cpu: number;
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
    const ticks = Number(fields[11]) + Number(fields[12]);
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return { cpu: ticks * TICK, rss: sizeOf(status, "VmRSS"), peak: sizeOf(status, "VmHWM") };
  } catch {
    return undefined;
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
