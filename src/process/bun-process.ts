import { closeSync } from "node:fs";
import {
  type BunFileSink,
  type CancellableInput,
  inputOfWebStream,
  outputOfBunSink,
} from "../base/byte-streams.ts";
import type { BunSpawn, BunSubprocess, SocketPair } from "../base/runtime.ts";
import { adoptSocket, type SocketConnection } from "../base/unix-socket.ts";
import type {
  ExitStatus,
  ProcessCommand,
  ProcessInput,
  ProcessOutput,
  StartedProcess,
} from "./started-process.ts";

/**
 * Starts a process with `Bun.spawn`.
 * @param makePair makes the sockets that are its stdin and stdout. If it returns undefined, these are Bun's own pipes: a
 * message takes several system calls more there, because they are watched anew for each (`docs/decisions/hot-path.md`)
 * @throws {Error} of posix_spawn(3), with a `code` such as ENOENT
 */
export function startWithBun(
  command: ProcessCommand,
  spawn: BunSpawn,
  makePair: () => SocketPair | undefined,
): StartedProcess {
  const { file, args, env, cwd, isDetached, stderr } = command;
  const exit = Promise.withResolvers<ExitStatus>();
  const listeners: ((status: ExitStatus) => void)[] = [];
  const stdin = openChannel(makePair);
  const stdout = openChannel(makePair);
  let child: BunSubprocess;
  try {
    child = spawn({
      cmd: [file, ...args],
      ...(env !== undefined && { env }),
      ...(cwd !== undefined && { cwd }),
      stdin: stdin?.other ?? "pipe",
      stdout: stdout?.other ?? "pipe",
      stderr,
      detached: isDetached,
      onExit({ signalCode }, code) {
        const status = code === null ? { signal: signalCode ?? "?" } : { code };
        for (const listener of listeners) listener(status);
        exit.resolve(status);
      },
    });
  } catch (error) {
    stdin?.own.destroy();
    stdout?.own.destroy();
    throw error;
  } finally {
    // The process has copies of its own. While this process has one, the end of the other is not seen.
    for (const channel of [stdin, stdout]) if (channel !== undefined) closeSync(channel.other);
  }
  return {
    pid: child.pid,
    stdin: stdin ? inputOfSocket(stdin.own) : inputOf(child.stdin),
    stdout: outputOf(stdout ? readerOf(stdout.own) : inputOfWebStream(child.stdout)),
    stderr: outputOf(stderr === "pipe" ? inputOfWebStream(child.stderr) : undefined),
    exited: exit.promise,
    onExit: (listener) => void listeners.push(listener),
  };
}

/** A pair of sockets between this process and one that it starts. */
interface Channel {
  readonly own: SocketConnection;
  /** The file descriptor for the process. */
  readonly other: number;
}

/** @returns undefined if the system refuses */
function openChannel(makePair: () => SocketPair | undefined): Channel | undefined {
  const pair = makePair();
  if (pair === undefined) return undefined;
  const [ownFd, other] = pair;
  const own = adoptSocket(ownFd);
  if (own !== undefined) return { own, other };
  closeSync(other);
  return undefined;
}

function inputOfSocket(socket: SocketConnection): ProcessInput {
  const broken = Promise.withResolvers<void>();
  let isOpen = true;
  // A process writes nothing to its stdin: only the end of that stream counts, which tells that its end is closed.
  const onEnd = (): void => {
    if (isOpen && socket.isPeerGone()) broken.resolve();
  };
  socket.input.read(() => {}, onEnd);
  return {
    write: (bytes) => socket.output.write(bytes),
    end() {
      isOpen = false;
      socket.output.end();
    },
    retainsNoMemory: true,
    broken: broken.promise,
    destroy() {
      isOpen = false;
      socket.destroy();
    },
  };
}

/** A socket as an input, at which nothing arrives before there is a reader. */
function readerOf(socket: SocketConnection): CancellableInput {
  const { input } = socket;
  input.pause();
  return {
    read(onChunk, onEnd) {
      input.read(onChunk, onEnd);
      input.resume();
    },
    pause: () => input.pause(),
    resume: () => input.resume(),
    cancel: () => socket.destroy(),
  };
}

/** @param input undefined: there is no output */
function outputOf(input: CancellableInput | undefined): ProcessOutput {
  const ended = Promise.withResolvers<void>();
  if (input === undefined) ended.resolve();
  return {
    read(onChunk, onEnd) {
      void ended.promise.then(onEnd);
      input?.read(onChunk, ended.resolve);
    },
    pause: () => input?.pause(),
    resume: () => input?.resume(),
    ended: ended.promise,
    destroy() {
      ended.resolve();
      input?.cancel();
    },
  };
}

/** Delay after a write before checking whether the process has closed its stdin, in ms. */
const CLOSE_CHECK_DELAY = 100;

function inputOf(sink: BunFileSink): ProcessInput {
  const broken = Promise.withResolvers<void>();
  let isOpen = true;
  let settleWrite: (() => void) | undefined;
  const close = (): void => {
    isOpen = false;
    settleWrite?.();
  };
  const fail = (): void => {
    if (isOpen) broken.resolve();
    close();
  };
  let isCheckScheduled = false;
  const scheduleCloseCheck = (): void => {
    if (isCheckScheduled) return;
    isCheckScheduled = true;
    setTimeout(() => {
      isCheckScheduled = false;
      if (isOpen && isClosed(sink)) fail();
    }, CLOSE_CHECK_DELAY).unref();
  };
  const output = outputOfBunSink(sink, fail);
  return {
    write(bytes) {
      if (!isOpen) return undefined;
      scheduleCloseCheck();
      const written = output.write(bytes);
      return (
        written &&
        new Promise((resolve) => {
          // A write to a destroyed sink may never settle.
          settleWrite = resolve;
          void written.then(resolve);
        })
      );
    },
    end: () => output.end(),
    retainsNoMemory: true,
    broken: broken.promise,
    destroy() {
      close();
      output.end();
    },
  };
}

/** Whether the reader has closed its end. `flush` then returns undefined, throws, or rejects what still waits. */
function isClosed(sink: BunFileSink): boolean {
  try {
    const flushed: unknown = sink.flush();
    // The write that waits rejects with the same error, and handles it.
    if (flushed instanceof Promise) flushed.catch(() => {});
    return flushed === undefined;
  } catch {
    return true;
  }
}
