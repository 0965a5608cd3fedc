import { Buffer } from "node:buffer";
import process from "node:process";

/**
 * The few calls that differ between Bun, Deno and Node. Everything else uses node: modules and web APIs.
 */

/** Own stdin as a source of chunks. No chunk's memory is used again after it was handed over. */
export interface InputStream {
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void;
  pause(): void;
  resume(): void;
}

/** Own stdout: `write` gives a promise when the reader is slow; see ByteSink. */
export interface OutputStream {
  write(bytes: Uint8Array): Promise<void> | undefined;
  end(): void;
}

interface BunRuntime {
  readonly isStandaloneExecutable?: boolean;
  readonly stdin: { stream(): ReadableStream<Uint8Array> };
  readonly stdout: BunFile;
  readonly stderr: BunFile;
}

interface BunFile {
  writer(options: { highWaterMark: number }): {
    write(bytes: Uint8Array): number | Promise<number>;
    flush(): number | Promise<number>;
    end(): number | Promise<number>;
  };
}

const bun = (globalThis as { Bun?: BunRuntime }).Bun;
const deno = (globalThis as { Deno?: unknown }).Deno;

/** What runs this program, for `version` and the tests. */
export const runtimeName: "bun" | "deno" | "node" = bun ? "bun" : deno ? "deno" : "node";

/** The command that runs this very program again: executable first. */
export function selfCommand(): readonly [string, ...string[]] {
  if (bun?.isStandaloneExecutable === true) return [process.execPath];
  const main = process.argv[1] ?? "src/main.ts";
  return deno ? [process.execPath, "run", "-A", main] : [process.execPath, main];
}

/** Bun's own streams: `process.stdin` and `process.stdout` cost about 7 ms at start-up there. */
export function ownStdin(): InputStream {
  return bun ? webInput(bun.stdin.stream()) : nodeInput(process.stdin);
}

export function ownStdout(onBroken: () => void): OutputStream {
  return bun ? bunOutput(bun.stdout, onBroken) : nodeOutput(process.stdout, onBroken);
}

/** Own stderr, if that is a pipe: Bun's `console` waits for ever for somebody who reads it. */
export function ownStderr(): OutputStream {
  const onBroken = (): void => {};
  return bun ? bunOutput(bun.stderr, onBroken) : nodeOutput(process.stderr, onBroken);
}

function webInput(stream: ReadableStream<Uint8Array>): InputStream {
  let gate: { opened: Promise<void>; open: () => void } | undefined;
  const pump = async (onChunk: (chunk: Buffer) => void): Promise<void> => {
    const reader = stream.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      if (gate !== undefined) await gate.opened;
      onChunk(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
    }
  };
  return {
    read: (onChunk, onEnd) => void pump(onChunk).then(onEnd, onEnd),
    pause() {
      if (gate !== undefined) return;
      let open = (): void => {};
      const opened = new Promise<void>((resolve) => (open = resolve));
      gate = { opened, open };
    },
    resume() {
      gate?.open();
      gate = undefined;
    },
  };
}

function bunOutput(file: BunFile, onBroken: () => void): OutputStream {
  const writer = file.writer({ highWaterMark: 64 * 1024 });
  let broken = false;
  const fail = (): void => {
    if (!broken) onBroken();
    broken = true;
  };
  return {
    write(bytes) {
      if (broken) return undefined;
      try {
        void writer.write(bytes);
        const flushed = writer.flush();
        return flushed instanceof Promise ? flushed.then(() => undefined, fail) : undefined;
      } catch {
        fail();
        return undefined;
      }
    },
    end() {
      void Promise.resolve(writer.end()).catch(fail);
    },
  };
}

function nodeInput(stream: NodeJS.ReadStream): InputStream {
  return {
    read(onChunk, onEnd) {
      let ended = false;
      const end = (): void => {
        if (!ended) onEnd();
        ended = true;
      };
      stream.on("data", (chunk: Buffer) => onChunk(chunk));
      stream.on("end", end);
      stream.on("close", end);
      stream.on("error", end);
    },
    pause: () => void stream.pause(),
    resume: () => void stream.resume(),
  };
}

function nodeOutput(stream: NodeJS.WriteStream, onBroken: () => void): OutputStream {
  let broken = false;
  let drained: (() => void) | undefined;
  stream.on("drain", () => drained?.());
  stream.on("error", () => {
    if (!broken) onBroken();
    broken = true;
    drained?.();
  });
  return {
    write(bytes) {
      if (broken || stream.write(bytes)) return undefined;
      return new Promise((resolve) => (drained = resolve));
    },
    end: () => void stream.end(),
  };
}
