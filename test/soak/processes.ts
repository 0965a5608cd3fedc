import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import { NAME_VARIABLE } from "./roster.ts";

/** A server's process; `started` makes the pid that of one process for ever. */
export interface ServerProcess {
  readonly pid: number;
  readonly server: string;
  readonly started: string;
}

/** The servers of a hub. */
export function childrenOf(hub: number): ServerProcess[] {
  return pids().flatMap((pid) => {
    const { parent, started } = readStat(pid) ?? {};
    if (parent !== hub || started === undefined) return [];
    const variable = new RegExp(`(?:^|\0)${NAME_VARIABLE}=([^\0]*)`);
    const server = variable.exec(environmentOf(pid))?.[1];
    return server === undefined ? [] : [{ pid, server, started }];
  });
}

/** All processes with that text in their environment: also those that left their group and lost their parent. */
export function carriersOf(text: string): number[] {
  return pids().filter((pid) => readStat(pid) !== undefined && environmentOf(pid).includes(text));
}

function pids(): number[] {
  return readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? Number(name) : []));
}

/** undefined for what has ended, or is a zombie. */
function readStat(pid: number): { parent: number; started: string } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the name, in parentheses, and may hold anything.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state, parent] = fields;
    const started = fields[19];
    if (state === "Z" || state === "X" || started === undefined) return undefined;
    return { parent: Number(parent), started };
  } catch {
    return undefined;
  }
}

function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8");
  } catch {
    return "";
  }
}

/** @returns whether it was still that process. */
export function signalTo({ pid, started }: ServerProcess, signal: NodeJS.Signals): boolean {
  if (readStat(pid)?.started !== started) return false;
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
