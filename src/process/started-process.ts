import type { ByteInput, ByteOutput } from "../base/byte-streams.ts";
import { makeSocketPair, spawnOnBun } from "../base/runtime.ts";

/** A program to execute without a shell, with pipes for stdin and stdout. */
export interface ProcessCommand {
  /** Path of the executable. */
  readonly file: string;
  readonly args: readonly string[];
  /** The complete environment; undefined: that of this process. */
  readonly env: Readonly<Record<string, string>> | undefined;
  /** The working directory; undefined: that of this process. */
  readonly cwd: string | undefined;
  /** Whether the process leads a new process group and session. */
  readonly isDetached: boolean;
  /** The target of stderr: a pipe, or the stderr of this process. */
  readonly stderr: "pipe" | "inherit";
}

/** The end of a process: by an exit code or by a signal. */
export type ExitStatus = { readonly code: number } | { readonly signal: string };

/**
 * The stdin of a process. A write to a broken pipe does not fail: `broken` settles, and later writes are discarded.
 */
export interface ProcessInput extends ByteOutput {
  /** Settles when the process has closed its end of the pipe. It is noticed up to 100 ms after a write. */
  readonly broken: Promise<void>;
  /** Closes the pipe; what waits to be written may be lost. */
  destroy(): void;
}

/** The stdout or stderr of a process. It must be read, because the process blocks when the pipe is full. */
export interface ProcessOutput extends ByteInput {
  /** Settles when all has been read, or the reading has failed or was destroyed. */
  readonly ended: Promise<void>;
  /** Closes the pipe. What was not read is lost. */
  destroy(): void;
}

/** A process that was started by `startProcess`. */
export interface StartedProcess {
  readonly pid: number;
  readonly stdin: ProcessInput;
  readonly stdout: ProcessOutput;
  /** Without output if stderr is inherited. */
  readonly stderr: ProcessOutput;
  /** Output that was written before the exit may arrive after it. */
  readonly exited: Promise<ExitStatus>;
  /** Calls a function as soon as the exit is known, before the system may use the process id again. */
  onExit(listener: (status: ExitStatus) => void): void;
}

/**
 * Starts a process. On Bun that is done by `Bun.spawn`: loading `node:child_process` and its streams takes 16 ms there.
 * @throws {Error} of spawn(2), with a `code` such as ENOENT, EACCES, ENOEXEC or E2BIG
 */
export async function startProcess(command: ProcessCommand): Promise<StartedProcess> {
  if (spawnOnBun !== undefined) {
    const { startWithBun } = await import("./bun-process.ts");
    return startWithBun(command, spawnOnBun, makeSocketPair);
  }
  const { startWithNode } = await import("./node-process.ts");
  return startWithNode(command);
}
