import { Buffer } from "node:buffer";
import { open } from "node:fs/promises";
import { currentEofGrace } from "../base/grace-periods.ts";
import { settlesWithin } from "../base/clock.ts";
import {
  endProcesses,
  KILL,
  liveGroups,
  type ProcessGroup,
  sendSignal,
  TERMINATE,
} from "./process-group.ts";
import { listYoungerProcesses, type ProcessEntry } from "./process-table.ts";
import {
  type ExitStatus,
  type ProcessInput,
  type ProcessOutput,
  type StartedProcess,
  startProcess,
} from "./started-process.ts";

/** Resource use of the processes that a transport has started. */
export interface ProcessStats {
  /** The process that the transport started; all others are its descendants. */
  readonly pid: number;
  readonly processes: number;
  /** Resident memory of all processes together, in bytes. */
  readonly memory: number;
  /** One entry per process. */
  readonly entries: readonly ProcessEntry[];
}

/**
 * The folder process/ has child processes, process groups, the system's process table, and orphans of dead hubs. Main
 * type: `ChildProcess`, below. Read next: `process-group.ts` (SIGTERM, then SIGKILL), `orphans.ts` (owner tags),
 * `process-table.ts`.
 *
 * A command to execute without a shell.
 */
export interface ChildCommand {
  /** Path of the executable. */
  readonly file: string;
  readonly args: readonly string[];
  /** The complete environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
  /** The owner tag, a text that identifies the hub and this child (see `OwnerIdentity`). It is also in `env`. */
  readonly tag: string;
}

/**
 * Starts a command as the leader of a new process group. A script without an interpreter line is run by `/bin/sh`, as
 * execvp(3) does. Node and Deno start programs by execvp; Bun does not, and reports ENOEXEC.
 * @throws {Error} of spawn(2), with a `code` such as ENOENT
 */
export async function spawnChild(command: ChildCommand): Promise<ChildProcess> {
  try {
    return await spawnOnce(command);
  } catch (error) {
    const isUnknownFormat = (error as NodeJS.ErrnoException).code === "ENOEXEC";
    if (!isUnknownFormat || !(await isScript(command.file))) throw error;
    return spawnOnce({ ...command, file: "/bin/sh", args: [command.file, ...command.args] });
  }
}

/** Size of the beginning of a file that shows whether the file is text, in bytes. */
const HEAD_SIZE = 512;

/** Whether a file that the system cannot execute is text, without an interpreter line that a byte order mark hides. */
async function isScript(path: string): Promise<boolean> {
  try {
    const file = await open(path);
    try {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(HEAD_SIZE), 0, HEAD_SIZE, 0);
      const head = buffer.subarray(0, bytesRead);
      const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
      // The end of a full head may be in the middle of a character.
      const text = decoder.decode(head, { stream: bytesRead === HEAD_SIZE });
      return !text.includes("\0") && !text.startsWith("\uFEFF#!");
    } finally {
      await file.close();
    }
  } catch {
    return false;
  }
}

async function spawnOnce({ file, args, env, cwd, tag }: ChildCommand): Promise<ChildProcess> {
  const options = { isDetached: true, stderr: "pipe" } as const;
  return new ChildProcess(await startProcess({ file, args, env, cwd, ...options }), tag);
}

/** A child process, which leads its own process group, and all its descendants. */
export class ChildProcess implements ProcessGroup {
  readonly stdin: ProcessInput;
  readonly stdout: ProcessOutput;
  readonly stderr: ProcessOutput;
  readonly exited: Promise<ExitStatus>;
  readonly #pid: number;
  readonly #tag: string;
  #exit: ExitStatus | undefined;
  #group: number | undefined;
  #stopping: Promise<void> | undefined;
  #terminating: Promise<void> | undefined;

  constructor(process: StartedProcess, tag: string) {
    this.stdin = process.stdin;
    this.stdout = process.stdout;
    this.stderr = process.stderr;
    this.exited = process.exited;
    this.#pid = process.pid;
    this.#tag = tag;
    this.#group = process.pid;
    liveGroups.add(this);
    process.onExit((status) => {
      this.#exit = status;
      this.#checkGroup();
    });
  }

  /** The leader's exit status; undefined while it runs. */
  get exit(): ExitStatus | undefined {
    return this.#exit;
  }

  get group(): number | undefined {
    this.#checkGroup();
    return this.#group;
  }

  /** Resource use of the child and its descendants; undefined once the leader has exited, or if it cannot be read. */
  async processStats(): Promise<ProcessStats | undefined> {
    const entries = await this.#listMembers().catch(() => []);
    if (this.#exit !== undefined || entries.length === 0) return undefined;
    const memory = entries.reduce((sum, entry) => sum + entry.memory, 0);
    return { pid: this.#pid, processes: entries.length, memory, entries };
  }

  /**
   * Waits for the leader to exit after the caller has ended its stdin, then terminates the remaining processes of the
   * group. Bounded by the sum of the grace periods; repeated calls join the first.
   */
  stop(): Promise<void> {
    this.#stopping ??= settlesWithin(currentEofGrace(), this.exited).then(() => this.terminate());
    return this.#stopping;
  }

  /**
   * Terminates the group, and also processes outside of it that have the child's owner tag in their environment:
   * SIGTERM, a wait, SIGKILL. Repeated calls join the first.
   */
  terminate(): Promise<void> {
    this.#terminating ??= this.#terminateGroup();
    return this.#terminating;
  }

  async #terminateGroup(): Promise<void> {
    const selection = { find: () => this.#listMembers(), groups: () => this.#groups() };
    await endProcesses(selection, [TERMINATE, KILL]);
    this.#group = undefined;
    liveGroups.delete(this);
  }

  /** Lets the remaining processes run on; they are no longer tracked. */
  detach(): void {
    this.#group = undefined;
    liveGroups.delete(this);
  }

  /** Closes the pipes. */
  closePipes(): void {
    for (const pipe of [this.stdin, this.stdout, this.stderr]) pipe.destroy();
  }

  /** Sends SIGKILL to the group immediately. */
  killNow(): void {
    for (const group of this.#groups()) sendSignal(-group, "SIGKILL");
  }

  /** Forgets the group id if the group is empty and its leader has exited: the system may then reuse the id. */
  #checkGroup(): void {
    if (this.#exit === undefined || this.#group === undefined) return;
    if (!sendSignal(-this.#group, 0)) this.#group = undefined;
  }

  async #listMembers(): Promise<readonly ProcessEntry[]> {
    const all = await listYoungerProcesses();
    const { group } = this;
    return all.filter((entry) => entry.group === group || entry.tags.includes(this.#tag));
  }

  #groups(): readonly number[] {
    const { group } = this;
    return group === undefined ? [] : [group];
  }
}

/** Environment variables by name. */
export type EnvironmentVariables = Readonly<Record<string, string | undefined>>;

/** The hub's variables that every server inherits. All other variables may hold secrets. */
const SAFE_VARIABLES = new Set(
  (
    "PATH HOME USER LOGNAME SHELL TERM LANG TZ TMPDIR " +
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy " +
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
  ).split(" "),
);
const SAFE_VARIABLE_PREFIX = /^(LC|XDG)_/;
/** Variables that change how a Bun executable starts, including what code it runs. */
const BLOCKED_VARIABLES = /^BUN_/;

/**
 * A server's complete environment: the safe variables of the hub, the variables of the manifest, and `extra`. If a name
 * occurs in several of them, the last one counts. `BUN_*` is never passed on.
 */
export function childEnvironment(
  hubEnv: EnvironmentVariables,
  manifestEnv: EnvironmentVariables,
  extra: EnvironmentVariables,
): Record<string, string> {
  const inherited = Object.entries(hubEnv).filter(
    ([name]) => SAFE_VARIABLES.has(name) || SAFE_VARIABLE_PREFIX.test(name),
  );
  const all = [...inherited, ...Object.entries(manifestEnv), ...Object.entries(extra)];
  return Object.fromEntries(
    all.filter(
      (entry): entry is [string, string] =>
        !BLOCKED_VARIABLES.test(entry[0]) && entry[1] !== undefined,
    ),
  );
}
