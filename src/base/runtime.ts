import type { Buffer } from "node:buffer";
import type { Stats } from "node:fs";
import process from "node:process";
import {
  type BunFileSink,
  outputOfNodeStream,
  type ByteOutput,
  outputOfBunSink,
} from "./byte-streams.ts";

/** The few APIs that differ between Bun, Deno and Node. All other code uses node: modules and web APIs. */

interface BunRuntime {
  readonly secrets: RuntimeKeychain;
  gc(force: boolean): void;
  readonly unsafe: { setJITPolicy(scale: number): void };
  readonly isStandaloneExecutable?: boolean;
  resolveSync(name: string, folder: string): string;
  readonly stdin: { stream(): ReadableStream<Uint8Array> };
  readonly stdout: BunFile;
  readonly stderr: BunFile;
  serve(options: BunServeOptions): BunHttpServer;
  listen(options: BunListenOptions): BunSocketListener;
  connect(options: BunListenOptions | BunAdoptOptions | BunTcpOptions): Promise<BunSocket>;
  readonly spawn: BunSpawn;
  readonly CryptoHasher: new (
    algorithm: "sha256",
    hmacKey?: Uint8Array,
  ) => {
    update(data: string | Uint8Array): void;
    digest(): Uint8Array;
    digest(encoding: "hex"): string;
  };
}

/** The options of `Bun.listen` on a Unix socket, and of `Bun.connect` to one. */
export interface BunListenOptions extends BunSocketOptions {
  /** The path of the socket. */
  readonly unix: string;
}

/** The options of `Bun.connect` that make a connection of a socket that is connected already. It is opened at once. */
export interface BunAdoptOptions extends BunSocketOptions {
  /** The file descriptor of the socket, which the connection closes. */
  readonly fd: number;
}

/** The options of `Bun.connect` over TCP. */
export interface BunTcpOptions extends BunSocketOptions {
  readonly hostname: string;
  readonly port: number;
}

export interface BunSocketOptions {
  /** Whether a connection stays open for writing when its peer has ended its stream. */
  readonly allowHalfOpen: true;
  readonly socket: {
    open(socket: BunSocket): void;
    /** @param chunk belongs to the receiver */
    data(socket: BunSocket, chunk: Buffer): void;
    /** More can be written after an incomplete write. */
    drain(socket: BunSocket): void;
    /** The peer has ended its stream. */
    end(socket: BunSocket): void;
    close(socket: BunSocket): void;
    error(socket: BunSocket, error: Error): void;
  };
}

/** A connection of `Bun.listen` or `Bun.connect`. */
export interface BunSocket {
  /** A value of the user of the connection. */
  data: unknown;
  /** The file descriptor. */
  readonly fd: number;
  /** @returns the number of bytes that the system has taken; -1 if the connection is closed */
  write(bytes: Uint8Array, offset: number, length: number): number;
  /** Ends the outgoing stream. A connection of `Bun.connect` is closed by it, unlike one of `Bun.listen`. */
  end(): void;
  /** Ends the outgoing stream, also of a connection of `Bun.connect`, which stays open for reading. */
  shutdown(): void;
  /** Closes the connection at once. */
  terminate(): void;
  pause(): void;
  resume(): void;
}

export interface BunSocketListener {
  /** Stops listening. @param closeConnections whether to close the connections, too */
  stop(closeConnections?: boolean): void;
}

/** `Bun.spawn`, as far as it is used. It throws an error with a `code` if the process cannot be started. */
export type BunSpawn = (options: BunSpawnOptions) => BunSubprocess;

export interface BunSpawnOptions {
  readonly cmd: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** A pipe, or the file descriptor that the process gets a copy of. */
  readonly stdin: "pipe" | number;
  readonly stdout: "pipe" | number;
  readonly stderr: "pipe" | "inherit";
  /** Whether the process leads a new process group and session. */
  readonly detached: boolean;
  /** @param code null if a signal ended the process */
  onExit(process: BunSubprocess, code: number | null): void;
}

export interface BunSubprocess {
  readonly pid: number;
  /** The three are only there for pipes. */
  readonly stdin: BunFileSink;
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  readonly signalCode: string | null;
}

/** The options of `Bun.serve` that are used. `routes` match the path as it was sent, without decoding. */
export interface BunServeOptions {
  readonly hostname?: string;
  readonly port?: number;
  /** The path of a Unix socket, instead of a host and port. */
  readonly unix?: string;
  readonly development: false;
  readonly reusePort: false;
  /** Time without traffic after which a connection is closed, in seconds; 0: never. */
  readonly idleTimeout: number;
  readonly maxRequestBodySize: number;
  readonly routes: Readonly<Record<string, BunHttpHandler>>;
  readonly fetch: BunHttpHandler;
  error(error: Error): Response;
}

/** `params` are the parameters of the path, as they were sent, if a route with parameters matched. */
export type BunHttpHandler = (
  request: Request & { readonly params?: Readonly<Record<string, string>> },
  server: BunHttpServer,
) => Response | Promise<Response>;

export interface BunHttpServer {
  /** The TCP port; undefined for a Unix socket. */
  readonly port: number | undefined;
  /** The address of the client of a request; null if it is not known. */
  requestIP(request: Request): { readonly address: string } | null;
  /** Sets the idle timeout of the request's connection, in seconds. */
  timeout(request: Request, seconds: number): void;
  /** Stops listening; settles when all connections are closed. @param closeConnections whether to close them now */
  stop(closeConnections?: boolean): Promise<void>;
}

interface DenoRuntime {
  serve(options: DenoServeOptions, handler: DenoHttpHandler): DenoHttpServer;
}

/** `completed` settles when the response was sent, or cannot be sent. */
export type DenoHttpHandler = (
  request: Request,
  info: {
    readonly completed: Promise<void>;
    /** The client; a Unix socket has no host name. */
    readonly remoteAddr?: { readonly hostname?: string };
  },
) => Promise<Response>;

export interface DenoServeOptions {
  readonly hostname?: string;
  readonly port?: number;
  /** The path of a Unix socket, instead of a host and port. */
  readonly path?: string;
  /** Closes the socket and all connections. */
  readonly signal: AbortSignal;
  onListen(): void;
  onError(error: unknown): Response;
}

export interface DenoHttpServer {
  /** The address; it has no port if it is a Unix socket. */
  readonly addr: { readonly port?: number };
  /** Settles when the server has ended. The file of its Unix socket is not removed before that. */
  readonly finished: Promise<void>;
}

/** The operating system's keychain (`Bun.secrets`). */
export interface RuntimeKeychain {
  get(key: { service: string; name: string }): Promise<string | null>;
  set(entry: { service: string; name: string; value: string }): Promise<void>;
}

interface BunFile {
  writer(options: { highWaterMark: number }): BunFileSink;
}

/** The part of `bun:ffi` that is used. */
interface BunFfi {
  /** @throws if the library cannot be loaded, or lacks one of the functions */
  dlopen(library: string, functions: typeof C_FUNCTIONS): { readonly symbols: CLibrary };
}

const bun = (globalThis as unknown as { Bun?: BunRuntime }).Bun;
const deno = (globalThis as { Deno?: DenoRuntime }).Deno;

/** The JavaScript runtime of this process, for the command `version` and for tests. */
export const runtimeName: "bun" | "deno" | "node" = bun ? "bun" : deno ? "deno" : "node";

/** The command that starts this program again, executable first. */
export function ownCommand(): readonly [string, ...string[]] {
  if (bun?.isStandaloneExecutable === true) return [process.execPath];
  const main = process.argv[1] ?? "src/main.ts";
  return deno ? [process.execPath, "run", "-A", main] : [process.execPath, main];
}

/**
 * The command that starts this program again, to be written into files that stay in use after an upgrade. If `toolmux`
 * in PATH is this program or a link to it, that path is used, because a package manager keeps it up to date; otherwise
 * the result of `ownCommand`.
 */
export function installedCommand(
  env: Readonly<Record<string, string | undefined>>,
): readonly [string, ...string[]] {
  const { realpathSync, statSync } = process.getBuiltinModule("node:fs");
  const own = ownCommand();
  const realPathOf = (path: string): string | undefined => {
    try {
      return statSync(path).isFile() ? realpathSync(path) : undefined;
    } catch {
      return undefined;
    }
  };
  const program = realPathOf(own.at(-1) ?? "");
  const folders = (env["PATH"] ?? "").split(":").filter((folder) => folder.startsWith("/"));
  const first = folders
    .map((folder) => `${folder}/toolmux`)
    .find((path) => realPathOf(path) !== undefined);
  const isOwn = first !== undefined && program !== undefined && realPathOf(first) === program;
  return isOwn ? [first] : own;
}

/**
 * Returns the file that an import of a package from a file in `folder` would load; throws if the package is not found.
 * Undefined if the runtime has no such API.
 */
export const resolvePackage =
  bun && ((name: string, folder: string) => bun.resolveSync(name, folder));

export const serveOnBun = bun && ((options: BunServeOptions): BunHttpServer => bun.serve(options));

export const listenOnBun =
  bun && ((options: BunListenOptions): BunSocketListener => bun.listen(options));

export const connectOnBun =
  bun &&
  ((options: BunListenOptions | BunAdoptOptions | BunTcpOptions): Promise<BunSocket> =>
    bun.connect(options));

export const serveOnDeno =
  deno &&
  ((options: DenoServeOptions, handler: DenoHttpHandler): DenoHttpServer =>
    deno.serve(options, handler));

export const spawnOnBun: BunSpawn | undefined = bun && ((options) => bun.spawn(options));

/**
 * Computes an HMAC-SHA-256 as hex digits at once. Web Crypto computes it in another thread, which is started for that.
 */
export const hmacOnBun =
  bun &&
  ((key: Uint8Array, bytes: Uint8Array): string => {
    const hasher = new bun.CryptoHasher("sha256", key);
    hasher.update(bytes);
    return hasher.digest("hex");
  });

/** The SHA-256 hash of bytes, or of a text in UTF-8. */
export const sha256OnBun =
  bun &&
  ((data: string | Uint8Array): Uint8Array => {
    const hasher = new bun.CryptoHasher("sha256");
    hasher.update(data);
    return hasher.digest();
  });

/** The operating system's keychain; undefined if the runtime has no access to it. */
export const systemKeychain = bun && ((): RuntimeKeychain => bun.secrets);

/** Bun's stream of stdin. `process.stdin` and `process.stdout` would take 7 ms at the start. */
export const stdinOnBun = bun && ((): ReadableStream<Uint8Array> => bun.stdin.stream());

export const stdoutOnBun = bun && ((): BunFileSink => bunSinkOf(bun.stdout));

/** The functions of the C library that are used. Each returns -1 if it fails. */
interface CLibrary {
  /** `fcntl(2)`; only on Linux, where a function with a variable number of arguments is called like others. */
  fcntl(fd: number, command: number, argument: number): number;
  /** `poll(2)`; `entries` are of `struct pollfd`: an int `fd`, and the shorts `events` and `revents`. */
  poll(entries: Int16Array, count: number, timeout: number): number;
  socketpair(domain: number, type: number, protocol: number, pair: Int32Array): number;
  setsockopt(fd: number, level: number, name: number, value: Int32Array, length: number): number;
}

const C_FUNCTIONS = {
  fcntl: { args: ["i32", "i32", "i32"], returns: "i32" },
  poll: { args: ["ptr", "u64", "i32"], returns: "i32" },
  socketpair: { args: ["i32", "i32", "i32", "ptr"], returns: "i32" },
  setsockopt: { args: ["i32", "i32", "i32", "ptr", "u32"], returns: "i32" },
};

/** The result of `cLibrary`; null: there is no such library; undefined: it was not looked for. */
let loadedLibrary: CLibrary | null | undefined;

/** The C library; undefined elsewhere than on Bun, Linux with glibc, and macOS. Loading it takes 0.7 ms. */
function cLibrary(): CLibrary | undefined {
  if (bun === undefined || process.platform === "win32") return undefined;
  if (loadedLibrary === undefined) {
    try {
      const ffi = process.getBuiltinModule("bun:ffi") as unknown as BunFfi;
      const name = process.platform === "darwin" ? "libSystem.dylib" : "libc.so.6";
      loadedLibrary = ffi.dlopen(name, C_FUNCTIONS).symbols;
    } catch {
      loadedLibrary = null;
    }
  }
  return loadedLibrary ?? undefined;
}

/** The C library on Linux. */
function linuxLibrary(): CLibrary | undefined {
  return process.platform === "linux" ? cLibrary() : undefined;
}

/** The size of an enlarged buffer, in bytes; for a pipe the most that an unprivileged user may have (pipe-max-size). */
const BUFFER_SIZE = 1024 * 1024;
const F_SETPIPE_SZ = 1031;
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;

/**
 * Enlarges what the system keeps of the written and not read bytes of a pipe (64 KiB) or a socket (208 KiB) to 1 MiB, on
 * Linux. A socket gets less where `net.core.wmem_max` is smaller. A result of 1 MB then takes fewer writes and waits.
 * Does nothing if `fd` is neither.
 */
export function enlargeBuffer(fd: number): void {
  const library = linuxLibrary();
  if (library === undefined || library.fcntl(fd, F_SETPIPE_SZ, BUFFER_SIZE) >= 0) return;
  const size = new Int32Array([BUFFER_SIZE]);
  library.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, size, size.byteLength);
}

/** The file, pipe, socket or device behind a file descriptor; undefined if the descriptor is closed. */
export function statsOfDescriptor(fd: number): Stats | undefined {
  try {
    return process.getBuiltinModule("node:fs").fstatSync(fd);
  } catch {
    return undefined;
  }
}

const F_DUPFD_CLOEXEC = 1030;

/**
 * Another descriptor of the same file, which programs do not inherit.
 * @returns undefined if the system refuses, and elsewhere than on Bun and Linux
 */
export function duplicateDescriptor(fd: number): number | undefined {
  // Not 0, 1 or 2: those are the standard streams of a program.
  const duplicate = linuxLibrary()?.fcntl(fd, F_DUPFD_CLOEXEC, 3) ?? -1;
  return duplicate < 0 ? undefined : duplicate;
}

/** The file descriptors of two Unix sockets that are connected to each other. */
export type SocketPair = readonly [own: number, other: number];

const AF_UNIX = 1;
const SOCK_STREAM = 1;
const SOCK_CLOEXEC = 0o2000000;

/**
 * Makes a pair of sockets with enlarged buffers. A program inherits one only if its descriptor is passed on.
 * @returns undefined if the system refuses, as at the limit of open files, and elsewhere than on Bun and Linux
 */
export function makeSocketPair(): SocketPair | undefined {
  const pair = new Int32Array(2);
  const result = linuxLibrary()?.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
  if (result !== 0) return undefined;
  const [own = -1, other = -1] = pair;
  for (const fd of pair) enlargeBuffer(fd);
  return [own, other];
}

/** Whether a write has failed because the reader has closed its end. */
export function isBrokenPipe(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return ["EPIPE", "ECONNRESET", "ERR_STREAM_DESTROYED", "EOF"].includes(code);
}

/** `poll(2)`: the events of an error and of a hang-up, which are reported without being asked for. */
const POLLERR = 0x8;
const POLLHUP = 0x10;

/**
 * Whether the reader of stdout has closed its end, as far as that can be known without writing: for a pipe only on Bun,
 * for a socket on all runtimes.
 */
export function isStdoutClosed(): boolean {
  const { writeSync } = process.getBuiltinModule("node:fs");
  try {
    writeSync(1, new Uint8Array(0));
    const entry = new Int16Array(4);
    entry[0] = 1;
    cLibrary()?.poll(entry, 1, 0);
    return ((entry[3] ?? 0) & (POLLERR | POLLHUP)) !== 0;
  } catch (error) {
    return isBrokenPipe(error);
  }
}

/**
 * Writes a text to stdout before it returns, also if the reader is slow.
 * @throws the error of the system
 */
export function writeStdout(text: string): void {
  const { writeSync } = process.getBuiltinModule("node:fs");
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(1, bytes, at, bytes.length - at);
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) throw error;
      // The pipe is full and does not block: wait for its reader.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, WRITE_RETRY);
    }
  }
}

/** Time between attempts to write to a full pipe, in ms. */
const WRITE_RETRY = 5;

/** Requests a garbage collection that does not block; undefined if the runtime has no such API. */
export const collectGarbage = bun && ((): void => bun.gc(false));

/** Ends the restraint of the JIT compiler with which the executable starts (`scripts/target.ts`). */
export const compileAsUsual = bun && ((): void => bun.unsafe.setJITPolicy(1));

/** The hub's own stderr. Bun's `console` would block forever on a pipe that is not read. */
export function ownStderr(): ByteOutput {
  const onBroken = (): void => {};
  return bun
    ? outputOfBunSink(bunSinkOf(bun.stderr), onBroken)
    : outputOfNodeStream(process.stderr, onBroken);
}

function bunSinkOf(file: BunFile): BunFileSink {
  return file.writer({ highWaterMark: 64 * 1024 });
}
