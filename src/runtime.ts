import { Buffer } from "node:buffer";
import process from "node:process";
import type { Writable } from "node:stream";

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

/** Something that listens for HTTP requests. */
export interface Listener {
  readonly port: number;
  /** Ends it: connections have `ms` to finish what they were answered. */
  close(ms: number): Promise<void>;
}

export interface ListenOptions {
  /** Without brackets, also if it is an IPv6 address. */
  readonly hostname: string;
  /** 0: any that is free. */
  readonly port: number;
  /** The longest body that is read, in bytes, where the runtime has to know. */
  readonly maxBody: number;
  /** Never rejects. */
  fetch(request: Request): Response | Promise<Response>;
}

interface BunRuntime {
  readonly secrets: NativeSecrets;
  serve(options: object): BunServer;
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

interface BunServer {
  readonly port: number;
  /** After how long without a byte the connection of a request is cut, in s; 0: never. */
  timeout(request: Request, s: number): void;
  stop(closeConnections?: boolean): Promise<void>;
}

interface DenoRuntime {
  serve(
    options: object,
    fetch: (request: Request) => Response | Promise<Response>,
  ): { readonly addr: { readonly port: number }; shutdown(): Promise<void> };
}

interface BunFile {
  writer(options: { highWaterMark: number }): BunSink;
}

interface BunSink {
  write(bytes: Uint8Array): number | Promise<number>;
  flush(): number | Promise<number>;
  end(): number | Promise<number>;
}

const bun = (globalThis as { Bun?: BunRuntime }).Bun;
const deno = (globalThis as { Deno?: DenoRuntime }).Deno;

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

/** Listens with the runtime's own HTTP server; undefined: it has only node:http. May throw, or reject, what the system says. */
export const listenNatively = bun
  ? (options: ListenOptions): Promise<Listener> => listenOnBun(bun, options)
  : deno && ((options: ListenOptions): Promise<Listener> => listenOnDeno(deno, options));

/** Whether a request's signal tells when its client has gone. Deno's tells of every end, and warns on stderr that it does. */
export const signalsLoss = deno === undefined;

/** Connections on which nothing moves for so long are cut, in s, unless an answer is due: no stream is as silent as that. */
const SILENCE = 60;

/** How often it is looked for answers that take long, in ms: each is seen before its connection has been silent for too long. */
const LOOK = 20_000;

async function listenOnBun(runtime: BunRuntime, options: ListenOptions): Promise<Listener> {
  const { hostname, port, maxBody } = options;
  // An answer may take longer than a connection may be silent. To say so for each would cost more than most answers.
  const recent = new Set<Request>();
  const server = runtime.serve({
    hostname,
    port,
    async fetch(request: Request, self: BunServer) {
      recent.add(request);
      const response = await options.fetch(request);
      if (!recent.delete(request)) self.timeout(request, SILENCE);
      return response;
    },
    idleTimeout: SILENCE,
    maxRequestBodySize: maxBody,
  });
  const looking = setInterval(() => {
    for (const request of recent) server.timeout(request, 0);
    recent.clear();
  }, LOOK);
  looking.unref();
  return {
    port: server.port,
    async close(ms) {
      clearInterval(looking);
      const timer = setTimeout(() => void server.stop(true), ms);
      await server.stop();
      clearTimeout(timer);
    },
  };
}

async function listenOnDeno(runtime: DenoRuntime, options: ListenOptions): Promise<Listener> {
  const { hostname, port } = options;
  const abort = new AbortController();
  const quiet = { signal: abort.signal, onListen() {} };
  const server = runtime.serve({ hostname, port, ...quiet }, (request) => options.fetch(request));
  return {
    port: server.addr.port,
    async close(ms) {
      const timer = setTimeout(() => abort.abort(), ms);
      await server.shutdown();
      clearTimeout(timer);
    },
  };
}

/** Bun's own streams: `process.stdin` and `process.stdout` cost about 7 ms at start-up there. */
export function ownStdin(): InputStream {
  return bun ? webInput(bun.stdin.stream()) : nodeInput(process.stdin);
}

export function ownStdout(onBroken: () => void): OutputStream {
  return bun ? bunOutput(writerOf(bun.stdout), onBroken) : nodeOutput(process.stdout, onBroken);
}

/** Own stderr, if that is a pipe: Bun's `console` waits for ever for somebody who reads it. */
export function ownStderr(): OutputStream {
  const onBroken = (): void => {};
  return bun ? bunOutput(writerOf(bun.stderr), onBroken) : nodeOutput(process.stderr, onBroken);
}

/**
 * A way to ask whether a child has closed its stdin, where the stream does not say so by an error: Bun's does not,
 * and swallows what is written. undefined: the stream says it.
 */
export function closureOf(stream: Writable): (() => boolean) | undefined {
  if (bun === undefined) return undefined;
  const keys = Object.getOwnPropertySymbols(stream);
  const sink = keys.map((key): unknown => Reflect.get(stream, key)).find(isSink);
  // A sink that has nothing to flush says 0; one that is closed says nothing.
  return sink?.flush() === 0 ? () => isClosed(sink) : undefined;
}

function isSink(value: unknown): value is BunSink {
  return ["write", "flush", "end"].every(
    (name) => typeof (value as Partial<Record<string, unknown>> | null)?.[name] === "function",
  );
}

function isClosed(sink: BunSink): boolean {
  try {
    const flushed: unknown = sink.flush();
    // The stream waits for the same and is told as well.
    if (flushed instanceof Promise) flushed.catch(() => {});
    return flushed === undefined;
  } catch {
    return true;
  }
}

function writerOf(file: BunFile): BunSink {
  return file.writer({ highWaterMark: 64 * 1024 });
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

function bunOutput(writer: BunSink, onBroken: () => void): OutputStream {
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
