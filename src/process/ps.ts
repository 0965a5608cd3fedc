import { execFile, spawnSync } from "node:child_process";
import {
  type ProcessEntry,
  type ProcessTable,
  splitOwnerTags,
  OWNER_VARIABLE,
} from "./process-table.ts";

const PS_ARGUMENTS = ["-Eww", "-o", "pid=,pgid=,ruid=,rss=,time=,stat=,lstart=,command="];

/** Fixed locale and time zone; limits for the run time, in ms, and the output, in bytes. */
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
    execFile(command, args, EXEC_OPTIONS, (error, stdout) => {
      if (error === null || typeof error.code === "number") resolve(stdout);
      else reject(new Error(`${command} failed`, { cause: error }));
    });
  });
}
