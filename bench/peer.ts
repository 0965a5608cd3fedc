import { Buffer } from "node:buffer";
import { type ChildProcess, spawnSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeSocketPair } from "../src/base/runtime.ts";
import { type Era, LATEST_MODERN, MetaKey } from "../src/protocol/modern.ts";

/** A program and how it is started. */
export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  /** All environment variables of the program. */
  readonly env: Readonly<Record<string, string>>;
}

/** The `_meta` of requests of the modern era, which describes the client. */
const ENVELOPE = {
  [MetaKey.version]: LATEST_MODERN,
  [MetaKey.client]: { name: "bench", version: "1.0.0" },
  [MetaKey.capabilities]: {},
};
/** Only this many bytes at the start and at the end of an answer are searched for its id and its kind. */
const END = 300;
const TOOLS_CHANGED = '"notifications/tools/list_changed"';
const LF = 10;
const NOTHING: Buffer = Buffer.alloc(0);
/** Maximum time for a peer to end after its stdin was closed, in ms. */
const END_LIMIT = 5000;
/**
 * `READY_LIMIT`: maximum time for a peer to list all its tools. `READY_PAUSE`: pause between two lists. Both are in
 * ms.
 */
const READY_LIMIT = 15_000;
const READY_PAUSE = 10;

/** The files that are stdin and stdout of a child process. Programs of Node give their children sockets. */
export type Stdio = "pipes" | "sockets";

/**
 * A child process that is called over its stdin and stdout with blocking reads and writes, because an event loop would
 * cost more than the measured work. If the peer stops answering, the calling process is blocked and must be killed from
 * outside.
 */
export class Peer {
  readonly pid: number;
  /** Members that are added to the params of every request. */
  readonly envelope: object;
  /** Start time of the program, in ms of `performance.now()`. */
  readonly started: number;
  readonly #era: Era;
  readonly #child: ChildProcess;
  /** Whether the peer has said that its tools have changed, and nobody has waited for that. */
  #hasChanged = false;
  readonly #toPeer: number;
  readonly #fromPeer: number;
  #held: Buffer = NOTHING;
  #id = 0;

  /** Starts the program. @throws if it cannot be started */
  constructor({ file, args, env }: Command, era: Era = "legacy", kind: Stdio = "pipes") {
    this.envelope = era === "modern" ? { _meta: ENVELOPE } : {};
    this.#era = era;
    const [toPeer, fromPeer] = kind === "pipes" ? openPipes() : [openSockets(), openSockets()];
    const stdio = [toPeer.read, fromPeer.write, "inherit"] as const;
    this.started = performance.now();
    this.#child = spawn(file, args, { stdio: [...stdio], env });
    closeSync(toPeer.read);
    closeSync(fromPeer.write);
    this.#toPeer = toPeer.write;
    this.#fromPeer = fromPeer.read;
    if (this.#child.pid === undefined) throw new Error(`${file} cannot be started`);
    this.pid = this.#child.pid;
  }

  write(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length;) at += writeSync(this.#toPeer, bytes, at);
  }

  /**
   * Reads the available bytes, or waits for some.
   * @returns the number of bytes read, at least one
   * @throws if the peer has ended
   */
  read(bytes: Buffer, offset: number, length: number): number {
    if (this.#held.length > 0) {
      const copied = this.#held.copy(bytes, offset, 0, length);
      this.#held = this.#held.subarray(copied);
      return copied;
    }
    const count = readSync(this.#fromPeer, bytes, offset, length, null);
    if (count === 0) throw new Error("the peer has ended");
    return count;
  }

  /** The next line, without its end. */
  line(): Buffer {
    const pieces: Buffer[] = [];
    for (;;) {
      const end = this.#held.indexOf(LF);
      if (end >= 0) {
        pieces.push(this.#held.subarray(0, end));
        this.#held = this.#held.subarray(end + 1);
        return Buffer.concat(pieces);
      }
      pieces.push(this.#held);
      this.#held = NOTHING;
      const chunk = Buffer.allocUnsafe(1 << 17);
      this.#held = chunk.subarray(0, this.read(chunk, 0, chunk.length));
    }
  }

  /** The handshake of an MCP client, if its era has one. */
  initialize(): void {
    if (this.#era === "modern") return;
    const clientInfo = { name: "bench", version: "1.0.0" };
    this.ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    this.#send({ jsonrpc: "2.0", method: "notifications/initialized" });
  }

  /** Does the handshake and waits until the peer's list of tools is complete. */
  awaitTools(isComplete: (names: string[]) => boolean): void {
    const deadline = performance.now() + READY_LIMIT;
    this.initialize();
    for (;;) {
      const names = this.listTools();
      if (isComplete(names)) return;
      if (performance.now() > deadline) throw new Error(`tools are missing: ${names.join(" ")}`);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, READY_PAUSE);
    }
  }

  /** Waits until the peer's list of tools is complete, and lists them again only when they have changed. */
  awaitChanges(isComplete: (names: string[]) => boolean): void {
    while (!isComplete(this.listTools())) this.awaitChange();
  }

  /** Reads what the peer has sent so far, and forgets that it has said that its tools have changed. */
  forgetChanges(): void {
    this.ask("ping", {});
    this.#hasChanged = false;
  }

  /** Waits until the peer says that its tools have changed. */
  awaitChange(): void {
    while (!this.#hasChanged) this.#note(this.line());
    this.#hasChanged = false;
  }

  /** The names of the tools that the peer lists now. @throws if an answer is an error */
  listTools(): string[] {
    const names: string[] = [];
    for (let cursor: string | undefined, isFirst = true; isFirst || cursor !== undefined;) {
      const page = this.ask("tools/list", isFirst ? {} : { cursor }).toString();
      const { result } = JSON.parse(page) as { result: ToolsPage };
      names.push(...result.tools.map(({ name }) => name));
      cursor = result.nextCursor;
      isFirst = false;
    }
    return names;
  }

  /** Closes the peer's stdin, and kills the process if it does not end in time. */
  async end(): Promise<void> {
    const { exitCode, signalCode } = this.#child;
    const exit = once(this.#child, "exit");
    closeSync(this.#toPeer);
    closeSync(this.#fromPeer);
    if (exitCode !== null || signalCode !== null) return;
    const timer = setTimeout(() => void this.#child.kill("SIGKILL"), END_LIMIT);
    await exit;
    clearTimeout(timer);
  }

  /** Sends a request. @returns the answer, of which only the two ends are examined */
  ask(method: string, params: object): Buffer {
    const id = ++this.#id;
    const isOwn = new RegExp(`"id": ?${id}[,}]`);
    this.#send({ jsonrpc: "2.0", id, method, params: { ...params, ...this.envelope } });
    for (;;) {
      const line = this.line();
      // Every server puts the id near the start or near the end of an answer.
      const ends = [line.subarray(0, END), line.subarray(-END)].map(String);
      if (!ends.some((end) => isOwn.test(end))) {
        this.#note(line);
        continue;
      }
      if (!ends.some((end) => end.includes('"result"'))) {
        throw new Error(`${method}: ${line.toString().slice(0, 300)}`);
      }
      return line;
    }
  }

  /** Reads a line that is not the answer to a request. */
  #note(line: Buffer): void {
    if (line.length < END && line.includes(TOOLS_CHANGED)) this.#hasChanged = true;
  }

  #send(message: object): void {
    this.write(Buffer.from(`${JSON.stringify(message)}\n`));
  }
}

interface ToolsPage {
  readonly tools: readonly { readonly name: string }[];
  readonly nextCursor?: string;
}

interface Pipe {
  readonly read: number;
  readonly write: number;
}

/**
 * Opens two pipes with blocking ends. They are named pipes, because Node has no function for anonymous ones; their
 * names are removed at once.
 */
function openPipes(): [Pipe, Pipe] {
  const folder = mkdtempSync(join(tmpdir(), "bench-"));
  try {
    const paths = [join(folder, "to"), join(folder, "from")] as const;
    const made = spawnSync("mkfifo", paths, { encoding: "utf8" });
    if (made.status !== 0) throw new Error(`mkfifo failed: ${made.stderr}`);
    return [openPipe(paths[0]), openPipe(paths[1])];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** A connection that is used in one direction. @throws elsewhere than on Linux */
function openSockets(): Pipe {
  const pair = makeSocketPair();
  if (pair === undefined) throw new Error("pairs of sockets are made on Linux only");
  const [read, write] = pair;
  return { read, write };
}

function openPipe(path: string): Pipe {
  // Opening one end of a pipe waits until the other end is open. `both` opens both ends, so that the two `openSync`
  // after it do not wait.
  const both = openSync(path, "r+");
  const pipe = { read: openSync(path, "r"), write: openSync(path, "w") };
  closeSync(both);
  return pipe;
}
