import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { ASK, endProcesses, KILL } from "./ending.ts";
import { EOF_GRACE, within } from "./grace.ts";
import { type Group, groups, sendSignal } from "./group.ts";
import type { Vitals } from "./link.ts";
import { listProcesses } from "./processes.ts";
import type { ProcessEntry } from "./table.ts";

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
export class Child implements Group {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly exited: Promise<Exit>;
  readonly #pid: number;
  readonly #tag: string;
  #exit: Exit | undefined;
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
    this.#pid = pid;
    this.#tag = tag;
    this.#group = pid;
    groups.add(this);
    this.exited = new Promise((resolve) => {
      process.once("exit", (code, signal) => {
        this.#exit = code === null ? { signal: signal ?? "?" } : { code };
        this.#loseGroup();
        resolve(this.#exit);
      });
    });
  }

  /** How the leader ended; undefined while it runs. */
  get exit(): Exit | undefined {
    return this.#exit;
  }

  get group(): number | undefined {
    this.#loseGroup();
    return this.#group;
  }

  /** What it costs with all that descends from it; undefined once the leader has ended, or if it cannot be seen. */
  async vitals(): Promise<Vitals | undefined> {
    const entries = await this.#find().catch(() => []);
    if (this.#exit !== undefined || entries.length === 0) return undefined;
    const memory = entries.reduce((sum, entry) => sum + entry.memory, 0);
    return { pid: this.#pid, processes: entries.length, memory, each: entries };
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
    this.#sweeping ??= this.#sweep();
    return this.#sweeping;
  }

  async #sweep(): Promise<void> {
    const prey = { find: () => this.#find(), groups: () => this.#groups() };
    await endProcesses(prey, [ASK, KILL]);
    this.#group = undefined;
    groups.delete(this);
  }

  /** What it has left behind may go on, and is nobody's here any more. */
  release(): void {
    this.#group = undefined;
    groups.delete(this);
  }

  /** SIGKILL to the group, at once. */
  killNow(): void {
    for (const group of this.#groups()) sendSignal(-group, "SIGKILL");
  }

  /** Once the leader was waited for, the number is the group's own only as long as members are left. */
  #loseGroup(): void {
    if (this.#exit === undefined || this.#group === undefined) return;
    if (!sendSignal(-this.#group, 0)) this.#group = undefined;
  }

  async #find(): Promise<readonly ProcessEntry[]> {
    const all = await listProcesses();
    const { group } = this;
    return all.filter((entry) => entry.group === group || entry.tags.includes(this.#tag));
  }

  #groups(): readonly number[] {
    const { group } = this;
    return group === undefined ? [] : [group];
  }
}
