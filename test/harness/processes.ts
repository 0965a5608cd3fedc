import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { poll } from "./wait.ts";
import type { ServerEntry } from "./manifest.ts";

/** One process in the process table (Linux /proc). */
interface Entry {
  readonly pid: number;
  readonly ppid: number;
  readonly state: string;
}

/** All running processes, without zombies. */
function table(): Entry[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    const entry = look(Number(name));
    return entry === undefined ? [] : [entry];
  });
}

function look(pid: number): Entry | undefined {
  const stat = read(`/proc/${pid}/stat`);
  // The command name is in parentheses and may contain any character, so fields are counted from the last ")".
  const [state = "", ppid = ""] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return stat === "" || state === "Z" || state === "X"
    ? undefined
    : { pid, ppid: Number(ppid), state };
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

export function isAlive(pid: number): boolean {
  return look(pid) !== undefined;
}

/** The state letter of a process in /proc: S sleeping, R running, T stopped; undefined if it has exited. */
export function stateOf(pid: number): string | undefined {
  return look(pid)?.state;
}

/** The environment of a process, as `KEY=value`; empty if it has exited. */
export function environment(pid: number): string[] {
  return read(`/proc/${pid}/environ`).split("\0").filter(Boolean);
}

/** Processes whose environment contains `text`, including those that left their process group or lost their parent. */
export function carrying(text: string): number[] {
  return table()
    .map(({ pid }) => pid)
    .filter((pid) => pid !== process.pid && read(`/proc/${pid}/environ`).includes(text));
}

/** All descendants of a process. */
export function descendants(pid: number): number[] {
  const all = table();
  const found = [pid];
  for (const parent of found)
    found.push(...all.filter(({ ppid }) => ppid === parent).map((entry) => entry.pid));
  return found.slice(1);
}

export function command(pid: number): string {
  return read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
}

/** Waits until all of the processes have exited. */
export async function waitUntilGone(pids: readonly number[], ms: number): Promise<void> {
  const left = (): number[] => pids.filter(isAlive);
  await poll(
    ms,
    () =>
      `the end of ${left()
        .map((pid) => `${pid} (${command(pid)})`)
        .join(", ")}`,
    () => (left().length === 0 ? true : undefined),
  );
}

/** Cleanup after a failed test: kills all processes whose environment contains `text`, and waits until none is left. */
export async function killCarrying(text: string): Promise<void> {
  const kill = (pid: number): void => {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has exited in the meantime.
    }
  };
  await poll(
    5000,
    () => `the end of ${carrying(text).map(command).join(", ")}`,
    () => {
      const left = carrying(text);
      for (const pid of left) kill(pid);
      return left.length === 0 ? true : undefined;
    },
  );
}

const FAMILY = fileURLToPath(new URL("../fixtures/processes/process-tree.sh", import.meta.url));
/** The command lines of the processes that process-tree.sh starts. */
const MEMBERS = [1001, 1002, 1003, 1004].map((seconds) => `sleep ${seconds}`);

/** The server with one process around it of each kind that a hub could leave behind (process-tree.sh). */
export function withFamily(server: ServerEntry): ServerEntry {
  return { ...server, command: "sh", args: [FAMILY, server.command, ...(server.args ?? [])] };
}

/** Waits until `size` complete process trees with `text` in their environment run; returns all pids with it. */
export async function families(text: string, size: number): Promise<number[]> {
  return poll(
    20_000,
    () => `${size} families; there are ${carrying(text).map(command).join(", ")}`,
    () => {
      const pids = carrying(text);
      const commands = pids.map(command);
      const isWhole = (member: string): boolean =>
        commands.filter((line) => line === member).length === size;
      return MEMBERS.every(isWhole) ? pids : undefined;
    },
  );
}
