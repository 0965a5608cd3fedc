import { type BunFileSink, inputOfWebStream, outputOfBunSink } from "../base/byte-streams.ts";
import type { BunSpawn } from "../base/runtime.ts";
import type {
  ExitStatus,
  ProcessCommand,
  ProcessInput,
  ProcessOutput,
  StartedProcess,
} from "./started-process.ts";

/** Starts a process with `Bun.spawn`. @throws {Error} of posix_spawn(3), with a `code` such as ENOENT */
export function startWithBun(command: ProcessCommand, spawn: BunSpawn): StartedProcess {
  const { file, args, env, cwd, isDetached, stderr } = command;
  const exit = Promise.withResolvers<ExitStatus>();
  const listeners: ((status: ExitStatus) => void)[] = [];
  const child = spawn({
    cmd: [file, ...args],
    ...(env !== undefined && { env }),
    ...(cwd !== undefined && { cwd }),
    stdin: "pipe",
    stdout: "pipe",
    stderr,
    detached: isDetached,
    onExit({ signalCode }, code) {
      const status = code === null ? { signal: signalCode ?? "?" } : { code };
      for (const listener of listeners) listener(status);
      exit.resolve(status);
    },
  });
  return {
    pid: child.pid,
    stdin: inputOf(child.stdin),
    stdout: outputOf(child.stdout),
    stderr: outputOf(stderr === "pipe" ? child.stderr : undefined),
    exited: exit.promise,
    onExit: (listener) => void listeners.push(listener),
  };
}

function outputOf(stream: ReadableStream<Uint8Array> | undefined): ProcessOutput {
  const ended = Promise.withResolvers<void>();
  const input = stream && inputOfWebStream(stream);
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
