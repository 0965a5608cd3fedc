import type { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import process from "node:process";
import type { ByteInput, ByteOutput } from "./byte-streams.ts";
import {
  type BunSocket,
  type BunSocketOptions,
  connectOnBun,
  isBrokenPipe,
  listenOnBun,
} from "./runtime.ts";

/** A connection of a Unix socket. */
export interface SocketConnection {
  readonly input: ByteInput;
  readonly output: ByteOutput;
  /** Whether the peer has closed both directions: nobody reads what is written. Only known on Linux and macOS. */
  isPeerGone(): boolean;
  /** Closes both directions at once. What the system has not taken yet is lost. */
  destroy(): void;
}

/** A connection of a socket that was connected before this process took it over. */
export interface AdoptedSocket extends SocketConnection {
  /** True once the end of the connection was noticed: nothing can be written any more. */
  readonly isClosed: boolean;
}

/** A Unix socket that accepts connections. */
export interface SocketListener {
  /** Accepts no more connections. Those that are open stay so. */
  close(): void;
}

/**
 * Listens on a new Unix socket, which only this user can connect to (mode 0600).
 * @param path at which there is no file
 * @param onConnection called for each connection; it must call `input.read` before it returns
 * @throws the error of the system
 */
export async function listenOnUnixSocket(
  path: string,
  onConnection: (connection: SocketConnection) => void,
): Promise<SocketListener> {
  const listener = await withPrivateFiles(() =>
    listenOnBun === undefined
      ? listenOnNode(path, onConnection)
      : Promise.resolve(listenOnBunSocket(listenOnBun, path, onConnection)),
  );
  const { chmod } = process.getBuiltinModule("node:fs/promises");
  await chmod(path, 0o600);
  return listener;
}

/**
 * Calls `start` with a umask that keeps others out of new files. Servers must not inherit it, so it is in force only
 * until `start` returns: the socket is made synchronously.
 */
function withPrivateFiles<T>(start: () => T): T {
  const before = process.umask(0o177);
  try {
    return start();
  } finally {
    process.umask(before);
  }
}

/** One connection of the runtime's own sockets, which take less memory and time than the streams of `node:net`. */
class BunConnection implements AdoptedSocket, ByteInput, ByteOutput {
  readonly #socket: BunSocket;
  #onChunk: (chunk: Buffer) => void = () => {};
  #onEnd: (() => void) | undefined;
  /** What the system has not taken yet. */
  #unwritten: Uint8Array | undefined;
  #onDrain: (() => void) | undefined;
  #isEnding = false;
  #isClosed = false;
  /** A write is complete only when the system has taken all its bytes, so nothing refers to them afterwards. */
  readonly retainsNoMemory = true;

  readonly #isOpener: boolean;

  /** @param isOpener whether this side has opened the connection */
  constructor(socket: BunSocket, isOpener: boolean) {
    this.#socket = socket;
    this.#isOpener = isOpener;
  }

  get input(): ByteInput {
    return this;
  }

  get output(): ByteOutput {
    return this;
  }

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#onChunk = onChunk;
    this.#onEnd = onEnd;
  }

  pause(): void {
    if (!this.#isClosed) this.#socket.pause();
  }

  resume(): void {
    if (!this.#isClosed) this.#socket.resume();
  }

  write(bytes: Uint8Array): Promise<void> | undefined {
    if (this.#isClosed || this.#isEnding) return undefined;
    const written = this.#socket.write(bytes, 0, bytes.length);
    if (written === bytes.length) return undefined;
    if (written < 0) {
      this.closed();
      return undefined;
    }
    this.#unwritten = bytes.subarray(written);
    return new Promise((resolve) => (this.#onDrain = resolve));
  }

  end(): void {
    if (this.#isClosed || this.#isEnding) return;
    this.#isEnding = true;
    if (this.#isOpener) this.#socket.shutdown();
    else this.#socket.end();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  isPeerGone(): boolean {
    if (this.#isClosed) return true;
    const { writeSync } = process.getBuiltinModule("node:fs");
    try {
      writeSync(this.#socket.fd, new Uint8Array(0));
      return false;
    } catch (error) {
      return isBrokenPipe(error);
    }
  }

  destroy(): void {
    if (this.#isClosed) return;
    this.closed();
    this.#socket.terminate();
  }

  received(chunk: Buffer): void {
    this.#onChunk(chunk);
  }

  drained(): void {
    const rest = this.#unwritten;
    if (rest === undefined) return;
    const written = this.#socket.write(rest, 0, rest.length);
    if (written >= 0 && written < rest.length) {
      this.#unwritten = rest.subarray(written);
      return;
    }
    if (written < 0) this.closed();
    this.#written();
  }

  ended(): void {
    const onEnd = this.#onEnd;
    this.#onEnd = undefined;
    onEnd?.();
  }

  /** The connection is closed: nothing can be read or written any more. */
  closed(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#written();
    this.ended();
  }

  #written(): void {
    this.#unwritten = undefined;
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }
}

function listenOnBunSocket(
  listen: NonNullable<typeof listenOnBun>,
  path: string,
  onConnection: (connection: SocketConnection) => void,
): SocketListener {
  const listener = listen({ unix: path, ...socketOptions(false, onConnection) });
  return { close: () => listener.stop() };
}

function socketOptions(
  isOpener: boolean,
  onConnection: (connection: BunConnection) => void,
): BunSocketOptions {
  const connectionOf = ({ data }: BunSocket): BunConnection => data as BunConnection;
  return {
    allowHalfOpen: true,
    socket: {
      open(socket) {
        const connection = new BunConnection(socket, isOpener);
        socket.data = connection;
        onConnection(connection);
      },
      data: (socket, chunk) => connectionOf(socket).received(chunk),
      drain: (socket) => connectionOf(socket).drained(),
      end: (socket) => connectionOf(socket).ended(),
      close: (socket) => connectionOf(socket).closed(),
      // Without a connection there is none to tell: the promise of `Bun.connect` is rejected.
      error: (socket) => (socket.data as BunConnection | undefined)?.closed(),
    },
  };
}

/**
 * Connects to a Unix socket.
 * @param onConnection called with the connection before the promise resolves; it must call `input.read` before it returns
 * @throws the error of the system
 */
export async function connectToUnixSocket(
  path: string,
  onConnection: (connection: SocketConnection) => void,
): Promise<void> {
  if (connectOnBun !== undefined) {
    await connectOnBun({ unix: path, ...socketOptions(true, onConnection) });
    return;
  }
  const { connect } = process.getBuiltinModule("node:net");
  const connected = Promise.withResolvers<void>();
  const socket = connect({ path, allowHalfOpen: true });
  socket.once("error", (error) => connected.reject(error));
  socket.once("connect", () => {
    onConnection(connectionOfNode(socket));
    connected.resolve();
  });
  await connected.promise;
}

/**
 * Makes a connection of a socket that is connected already, such as one of a pair. Only on Bun.
 * @param fd its file descriptor, which the connection closes
 * @returns the connection, whose reader must call `input.read` in this turn; undefined if the system refuses
 */
export function adoptSocket(fd: number): AdoptedSocket | undefined {
  let connection: AdoptedSocket | undefined;
  const options = { fd, ...socketOptions(true, (opened) => (connection = opened)) };
  connectOnBun?.(options).catch(() => {});
  return connection;
}

async function listenOnNode(
  path: string,
  onConnection: (connection: SocketConnection) => void,
): Promise<SocketListener> {
  const { createServer } = process.getBuiltinModule("node:net");
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    onConnection(connectionOfNode(socket));
  });
  const listening = Promise.withResolvers<void>();
  server.once("error", (error) => listening.reject(error));
  server.listen(path, () => listening.resolve());
  await listening.promise;
  server.on("error", () => {});
  return { close: () => void server.close() };
}

function connectionOfNode(socket: Socket): SocketConnection {
  let onDrain: (() => void) | undefined;
  let isBroken = false;
  socket.on("drain", () => onDrain?.());
  const broken = (): void => {
    isBroken = true;
    onDrain?.();
  };
  socket.on("error", broken);
  socket.on("close", broken);
  return {
    input: {
      read(onChunk, onEnd) {
        let hasEnded = false;
        const end = (): void => {
          if (!hasEnded) onEnd();
          hasEnded = true;
        };
        socket.on("data", onChunk);
        socket.on("end", end);
        socket.on("close", end);
      },
      pause: () => void socket.pause(),
      resume: () => void socket.resume(),
    },
    output: {
      write(bytes) {
        if (isBroken || socket.write(bytes)) return undefined;
        return new Promise((resolve) => (onDrain = resolve));
      },
      end: () => void socket.end(),
    },
    isPeerGone: () => isBroken,
    destroy: () => void socket.destroy(),
  };
}
