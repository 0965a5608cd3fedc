import { execFile, spawnSync } from "node:child_process";
import { type ProcessEntry, type ProcessTable, splitTags, TAG_VARIABLE } from "./process-table.ts";

const COLUMNS = ["-Eww", "-o", "pid=,pgid=,ruid=,rss=,time=,stat=,lstart=,command="];

/** Fixed locale and time zone; limits for the run time, in ms, and the output, in bytes. */
const OPTIONS = {
  env: { PATH: "/bin:/usr/bin:/sbin:/usr/sbin", LC_ALL: "C", TZ: "UTC0" },
  timeout: 2000,
  maxBuffer: 64 * 1024 * 1024,
  encoding: "utf8",
} as const;

/** The process table of macOS, read with ps(1). */
export const psTable: ProcessTable = {
  list: () => ask(["-ax"]),

  listNow() {
    const { stdout, error } = spawnSync("ps", [...COLUMNS, "-ax"], OPTIONS);
    if (error !== undefined) throw error;
    return parsePs(stdout);
  },

  /** A zombie gives undefined, like a process that does not exist. */
  async look(pid) {
    return (await ask(["-p", String(pid)]))[0];
  },

  async recheck(names) {
    const found = await ask(["-p", names.map(({ pid }) => pid).join(",")]);
    const starts = new Map(found.map(({ pid, started }) => [pid, started]));
    return ({ pid, started }) => starts.get(pid) === started;
  },

  async usage(names) {
    const found = await ask(["-p", names.map(({ pid }) => pid).join(",")]);
    const known = new Set(names.map(({ pid, started }) => `${pid}/${started}`));
    return found.filter(({ pid, started }) => known.has(`${pid}/${started}`));
  },

  async system() {
    const boot = await run("sysctl", ["-n", "kern.bootsessionuuid"]);
    return { boot: boot.trim(), space: "mac" };
  },
};

async function ask(which: readonly string[]): Promise<ProcessEntry[]> {
  return parsePs(await run("ps", [...COLUMNS, ...which]));
}

/**
 * Parses the output of `ps` with the columns pid, pgid, ruid, rss, time, stat, lstart and command; with -E the
 * environment follows the command.
 */
export function parsePs(text: string): ProcessEntry[] {
  const row =
    /^\s*(\d+)\s+(\d+)\s+(-?\d+)\s+(\d+)\s+([\d:.-]+)\s+(\S+)\s+(\w+\s+\w+\s+\w+\s+[\d:]+\s+\d+)\s(.*)$/;
  const variable = new RegExp(`(?:^|\\s)${TAG_VARIABLE}=(\\S+)`);
  return text.split("\n").flatMap((line) => {
    const [, pid, group, uid, memory, time = "", state, started, command] = row.exec(line) ?? [];
    if (started === undefined || command === undefined || state?.startsWith("Z")) return [];
    return {
      pid: Number(pid),
      group: Number(group),
      uid: Number(uid),
      started: started.replace(/\s+/g, "_"),
      memory: Number(memory) * 1024,
      cpu: parseTime(time),
      tags: splitTags(variable.exec(command)?.[1] ?? ""),
    };
  });
}

/** Parses `[[dd-]hh:]mm:ss.cc`. @returns ms */
function parseTime(text: string): number {
  const [days, clock = ""] = text.includes("-") ? text.split("-") : ["0", text];
  const seconds = clock.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
  return Math.round((Number(days) * 86_400 + seconds) * 1000);
}

/** Runs a system tool. @returns its stdout, also if it exits with a non-zero code, as `ps` does when nothing matches */
function run(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(command, args, OPTIONS, (error, stdout) => {
      if (error === null || typeof error.code === "number") resolve(stdout);
      else reject(new Error(`${command} failed`, { cause: error }));
    });
  });
}
