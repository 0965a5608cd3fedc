import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type {
  ExitStatus,
  ProcessCommand,
  ProcessInput,
  ProcessOutput,
  StartedProcess,
} from "./started-process.ts";

/** Starts a process with `node:child_process`. @throws {Error} of spawn(2), with a `code` such as ENOENT */
export function startWithNode(command: ProcessCommand): Promise<StartedProcess> {
  const { file, args, env, cwd, isDetached, stderr } = command;
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, {
      cwd,
      env,
      stdio: ["pipe", "pipe", stderr],
      detached: isDetached,
    });
    child.on("error", reject);
    const { pid, stdin, stdout } = child;
    if (pid === undefined || stdin === null || stdout === null) return;
    const exit = Promise.withResolvers<ExitStatus>();
    const listeners: ((status: ExitStatus) => void)[] = [];
    child.once("exit", (code, signal) => {
      const status = code === null ? { signal: signal ?? "?" } : { code };
      for (const listener of listeners) listener(status);
      exit.resolve(status);
    });
    const started: StartedProcess = {
      pid,
      stdin: inputOf(stdin),
      stdout: outputOf(stdout),
      stderr: outputOf(child.stderr ?? undefined),
      exited: exit.promise,
      onExit: (listener) => void listeners.push(listener),
    };
    child.once("spawn", () => resolve(started));
  });
}

/** The end is reported once, whether by `end`, `close` or `error`. */
function outputOf(stream: Readable | undefined): ProcessOutput {
  const ended = Promise.withResolvers<void>();
  if (stream === undefined) ended.resolve();
  for (const event of ["end", "close", "error"]) stream?.on(event, ended.resolve);
  return {
    read(onChunk, onEnd) {
      void ended.promise.then(onEnd);
      stream?.on("data", onChunk);
    },
    pause: () => void stream?.pause(),
    resume: () => void stream?.resume(),
    ended: ended.promise,
    destroy: () => void stream?.destroy(),
  };
}

function inputOf(stream: Writable): ProcessInput {
  const broken = Promise.withResolvers<void>();
  let isOpen = true;
  let settleWrite: (() => void) | undefined;
  const close = (): void => {
    isOpen = false;
    settleWrite?.();
  };
  stream.on("drain", () => settleWrite?.());
  stream.on("error", () => {
    if (isOpen) broken.resolve();
    close();
  });
  stream.on("close", close);
  return {
    write(bytes) {
      if (!isOpen || stream.write(bytes)) return undefined;
      return new Promise((resolve) => {
        settleWrite = resolve;
      });
    },
    end: () => void stream.end(),
    broken: broken.promise,
    destroy: () => void stream.destroy(),
  };
}
