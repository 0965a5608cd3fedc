import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { poll } from "./wait.ts";
import type { ServerEntry } from "./manifest.ts";

/** One process in the process table (Linux /proc). */
interface ProcessEntry {
  readonly pid: number;
  readonly ppid: number;
  readonly state: string;
}

/** All running processes, without zombies. */
function listProcesses(): ProcessEntry[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    const entry = readEntry(Number(name));
    return entry === undefined ? [] : [entry];
  });
}

function readEntry(pid: number): ProcessEntry | undefined {
  const stat = readText(`/proc/${pid}/stat`);
  // The command name is in parentheses and may contain any character, so fields are counted from the last ")".
  const [state = "", ppid = ""] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return stat === "" || state === "Z" || state === "X"
    ? undefined
    : { pid, ppid: Number(ppid), state };
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

export function isAlive(pid: number): boolean {
  return readEntry(pid) !== undefined;
}

/** The state letter of a process in /proc: S sleeping, R running, T stopped; undefined if it has exited. */
export function stateOf(pid: number): string | undefined {
  return readEntry(pid)?.state;
}

/** The environment of a process, as `KEY=value`; empty if it has exited. */
export function environmentOf(pid: number): string[] {
  return readText(`/proc/${pid}/environ`).split("\0").filter(Boolean);
}

/** Processes whose environment contains `text`, including those that left their process group or lost their parent. */
export function pidsWithEnv(text: string): number[] {
  return listProcesses()
    .map(({ pid }) => pid)
    .filter((pid) => pid !== process.pid && readText(`/proc/${pid}/environ`).includes(text));
}

/** All descendants of a process. */
export function descendants(pid: number): number[] {
  const all = listProcesses();
  const found = [pid];
  for (const parent of found)
    found.push(...all.filter(({ ppid }) => ppid === parent).map((entry) => entry.pid));
  return found.slice(1);
}

export function commandLineOf(pid: number): string {
  return readText(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
}

/** Waits until all of the processes have exited. */
export async function waitUntilExited(pids: readonly number[], ms: number): Promise<void> {
  const remaining = (): number[] => pids.filter(isAlive);
  await poll(
    ms,
    () =>
      `the end of ${remaining()
        .map((pid) => `${pid} (${commandLineOf(pid)})`)
        .join(", ")}`,
    () => (pids.some(isAlive) ? undefined : true),
  );
}

/** Cleanup after a failed test: kills all processes whose environment contains `text`, and waits until none is left. */
export async function killPidsWithEnv(text: string): Promise<void> {
  const kill = (pid: number): void => {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has exited in the meantime.
    }
  };
  await poll(
    5000,
    () => `the end of ${pidsWithEnv(text).map(commandLineOf).join(", ")}`,
    () => {
      const remaining = pidsWithEnv(text);
      for (const pid of remaining) kill(pid);
      return remaining.length === 0 ? true : undefined;
    },
  );
}

const PROCESS_TREE = fileURLToPath(
  new URL("../fixtures/processes/process-tree.sh", import.meta.url),
);
/** The command lines of the processes that process-tree.sh starts. */
const TREE_COMMANDS = [1001, 1002, 1003, 1004].map((seconds) => `sleep ${seconds}`);

/** The server with one process around it of each kind that a hub could leave behind (process-tree.sh). */
export function withProcessTree(server: ServerEntry): ServerEntry {
  return { ...server, command: "sh", args: [PROCESS_TREE, server.command, ...(server.args ?? [])] };
}

/** Waits until `size` complete process trees with `text` in their environment run; returns all pids with it. */
export async function waitForTrees(text: string, size: number): Promise<number[]> {
  return poll(
    20_000,
    () => `${size} families; there are ${pidsWithEnv(text).map(commandLineOf).join(", ")}`,
    () => {
      const pids = pidsWithEnv(text);
      const commands = pids.map(commandLineOf);
      const isComplete = (treeCommand: string): boolean =>
        commands.filter((line) => line === treeCommand).length === size;
      return TREE_COMMANDS.every(isComplete) ? pids : undefined;
    },
  );
}
