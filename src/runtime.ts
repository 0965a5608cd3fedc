import process from "node:process";
import type { Writable } from "node:stream";
import {
  type FileSink,
  type InputStream,
  nodeInput,
  nodeOutput,
  type OutputStream,
  sinkOutput,
  webInput,
} from "./streams.ts";

/**
 * The few calls that differ between Bun, Deno and Node. Everything else uses node: modules and web APIs.
 */

interface BunRuntime {
  readonly secrets: NativeSecrets;
  gc(force: boolean): void;
  readonly isStandaloneExecutable?: boolean;
  resolveSync(name: string, folder: string): string;
  readonly stdin: { stream(): ReadableStream<Uint8Array> };
  readonly stdout: BunFile;
  readonly stderr: BunFile;
}

/** The system's own store of secrets. */
export interface NativeSecrets {
  get(which: { service: string; name: string }): Promise<string | null>;
  set(what: { service: string; name: string; value: string }): Promise<void>;
  delete(which: { service: string; name: string }): Promise<boolean>;
}

interface BunFile {
  writer(options: { highWaterMark: number }): FileSink;
}

/** The part of `bun:ffi` that is used. */
interface ForeignCalls {
  dlopen(
    library: string,
    symbols: { fcntl: object },
  ): { symbols: { fcntl(fd: number, command: number, value: number): number } };
}

const bun = (globalThis as { Bun?: BunRuntime }).Bun;
const deno = (globalThis as { Deno?: object }).Deno;

/** What runs this program, for `version` and the tests. */
export const runtimeName: "bun" | "deno" | "node" = bun ? "bun" : deno ? "deno" : "node";

/** The command that runs this very program again: executable first. */
export function selfCommand(): readonly [string, ...string[]] {
  if (bun?.isStandaloneExecutable === true) return [process.execPath];
  const main = process.argv[1] ?? "src/main.ts";
  return deno ? [process.execPath, "run", "-A", main] : [process.execPath, main];
}

/** What finds the file that importing a package from a folder loads, and throws if it is not there; undefined where the runtime does not say. */
export const resolvePackage =
  bun && ((name: string, folder: string) => bun.resolveSync(name, folder));

/** What the runtime reaches the system's store of secrets with; undefined: it cannot. */
export const nativeSecrets = bun && ((): NativeSecrets => bun.secrets);

/** Bun's own streams: `process.stdin` and `process.stdout` cost about 7 ms at start-up there. */
export function ownStdin(): InputStream {
  return bun ? webInput(bun.stdin.stream()) : nodeInput(process.stdin);
}

export function ownStdout(onBroken: () => void): OutputStream {
  if (bun === undefined) return nodeOutput(process.stdout, onBroken);
  const output = sinkOutput(writerOf(bun.stdout), onBroken);
  let isWide = false;
  return {
    write(bytes) {
      if (!isWide && bytes.length >= WIDE) {
        isWide = true;
        void widenPipe(1);
      }
      return output.write(bytes);
    },
    end: () => output.end(),
    keepsNothing: output.keepsNothing,
  };
}

/** Writes of this size are a reason to have a wider pipe, in bytes. */
const WIDE = 32 * 1024;
/** What any user of Linux may make of a pipe, in bytes. */
const WIDEST = 1024 * 1024;
const SET_PIPE_SIZE = 1031;

/**
 * Lets a pipe hold more than 64 KiB, where the system can: a result of a megabyte then goes out at once instead of in
 * sixteen turns with its reader, in two thirds of the time. What is no pipe stays as it is.
 */
async function widenPipe(fd: number): Promise<void> {
  if (process.platform !== "linux") return;
  try {
    const name = "bun:ffi";
    const foreign = (await import(name)) as ForeignCalls;
    const fcntl = { fcntl: { args: ["i32", "i32", "i32"], returns: "i32" } };
    foreign.dlopen("libc.so.6", fcntl).symbols.fcntl(fd, SET_PIPE_SIZE, WIDEST);
  } catch {
    // Without that library it is as narrow as ever.
  }
}

/** Asks for a collection of garbage, which goes on beside what runs; undefined where nobody can ask. */
export const collectGarbage = bun && ((): void => bun.gc(false));

/** Own stderr, if that is a pipe: Bun's `console` waits for ever for somebody who reads it. */
export function ownStderr(): OutputStream {
  const onBroken = (): void => {};
  return bun ? sinkOutput(writerOf(bun.stderr), onBroken) : nodeOutput(process.stderr, onBroken);
}

/** A child's stdin as it is beneath the stream. */
export interface ChildSink extends FileSink {
  /** Whether the child has closed it: the stream does not say so by an error, and swallows what is written. */
  isClosed(): boolean;
}

/** What is beneath a child's stdin, past all that the stream does for each write; undefined where nothing can be got at. */
export function childSinkOf(stream: Writable): ChildSink | undefined {
  if (bun === undefined) return undefined;
  const keys = Object.getOwnPropertySymbols(stream);
  const sink = keys.map((key): unknown => Reflect.get(stream, key)).find(isSink);
  // A sink that has nothing to flush says 0; one that is closed says nothing.
  if (sink?.flush() !== 0) return undefined;
  return {
    write: (bytes) => sink.write(bytes),
    flush: () => sink.flush(),
    end: () => sink.end(),
    isClosed: () => isClosed(sink),
  };
}

function isSink(value: unknown): value is FileSink {
  return ["write", "flush", "end"].every(
    (name) => typeof (value as Partial<Record<string, unknown>> | null)?.[name] === "function",
  );
}

function isClosed(sink: FileSink): boolean {
  try {
    const flushed: unknown = sink.flush();
    // The stream waits for the same and is told as well.
    if (flushed instanceof Promise) flushed.catch(() => {});
    return flushed === undefined;
  } catch {
    return true;
  }
}

function writerOf(file: BunFile): FileSink {
  return file.writer({ highWaterMark: 64 * 1024 });
}
