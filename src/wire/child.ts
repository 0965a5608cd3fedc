import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { EOF_GRACE, within } from "./grace.ts";
import { endProcesses, sendSignal, signalTagged } from "./owner.ts";
import { listProcesses, type ProcessEntry } from "./processes.ts";

/** What is to be run, without a shell. */
export interface Program {
  /** The executable's path. */
  readonly file: string;
  readonly args: readonly string[];
  /** The whole environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
  /** The owner tag that stands in `env`. */
  readonly tag: string;
}

/** How a process ended: by itself, or by a signal. */
export type Exit = { readonly code: number } | { readonly signal: string };

/** All children that may have left something to be ended. */
const live = new Set<Child>();

/** SIGKILL to the groups of all children, at once: for a hub that has no time left. What left its group is found by the next sweep. */
export function killAllNow(): void {
  for (const child of live) child.killNow();
}

/** Starts a program in a process group of its own. @throws what the system says, as an Error with a `code`. */
export function startChild(program: Program): Promise<Child> {
  return new Promise((resolve, reject) => {
    const process = spawn(program.file, program.args, {
      cwd: program.cwd,
      env: program.env,
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
    });
    process.on("error", reject);
    if (process.pid === undefined) return;
    const child = new Child(process, process.pid, program.tag);
    process.once("spawn", () => resolve(child));
  });
}

/** A child process, the leader of its group, and all that descends from it. */
export class Child {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly exited: Promise<Exit>;
  readonly #tag: string;
  #exit: Exit | undefined;
  /** The group's id as long as it cannot be another's: while the leader was not waited for, or members are left. */
  #group: number | undefined;
  #stopping: Promise<void> | undefined;
  #sweeping: Promise<void> | undefined;

  constructor(
    process: ChildProcessByStdio<Writable, Readable, Readable>,
    pid: number,
    tag: string,
  ) {
    this.stdin = process.stdin;
    this.stdout = process.stdout;
    this.stderr = process.stderr;
    this.#tag = tag;
    this.#group = pid;
    live.add(this);
    this.exited = new Promise((resolve) => {
      process.once("exit", (code, signal) => {
        this.#exit = code === null ? { signal: signal ?? "?" } : { code };
        if (!sendSignal(-pid, 0)) this.#group = undefined;
        resolve(this.#exit);
      });
    });
  }

  /** How the leader ended; undefined while it runs. */
  get exit(): Exit | undefined {
    return this.#exit;
  }

  /**
   * Gives the leader, whose stdin the caller has ended, time to end by itself; then ends all that is left.
   * Bounded by the sum of the graces; repeated calls join.
   */
  stop(): Promise<void> {
    this.#stopping ??= within(EOF_GRACE, this.exited).then(() => this.sweep());
    return this.#stopping;
  }

  /** Ends the group, and what carries the child's tag outside of it: SIGTERM, a wait, SIGKILL. Repeated calls join. */
  sweep(): Promise<void> {
    this.#sweeping ??= endProcesses(
      () => this.#remains(),
      (entries, signal) => this.#signal(entries, signal),
    ).then(() => {
      this.#group = undefined;
      live.delete(this);
    });
    return this.#sweeping;
  }

  /** SIGKILL to the group, at once. */
  killNow(): void {
    if (this.#group !== undefined) sendSignal(-this.#group, "SIGKILL");
  }

  async #remains(): Promise<readonly ProcessEntry[]> {
    const all = await listProcesses();
    return all.filter(({ group, tag }) => group === this.#group || tag === this.#tag);
  }

  async #signal(entries: readonly ProcessEntry[], signal: NodeJS.Signals): Promise<void> {
    const group = this.#group;
    if (group !== undefined) sendSignal(-group, signal);
    await signalTagged(
      entries.filter((entry) => entry.group !== group),
      signal,
    );
  }
}
