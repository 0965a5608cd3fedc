import { Buffer } from "node:buffer";
import { type ChildProcess, spawnSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Era, LATEST_MODERN, MetaKey } from "../src/protocol/modern.ts";

/** A program and how it is started. */
export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  /** Its whole environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** What requests of the modern era say of who asks. */
const ENVELOPE = {
  [MetaKey.version]: LATEST_MODERN,
  [MetaKey.client]: { name: "bench", version: "1.0.0" },
  [MetaKey.capabilities]: {},
};
/** Where a list goes on, and the bytes at either end of an answer among which that, its id and its kind are. */
const NEXT = /"nextCursor": ?"([^"]+)"/;
const END = 300;
const LF = 10;
/** ms that a peer has to end after its stdin has. */
const END_LIMIT = 5000;
/** ms that a peer has to offer its tools, and between two looks. */
const READY_LIMIT = 15_000;
const READY_PAUSE = 10;

/**
 * A process that is talked to over two pipes with blocking reads and writes, because an event loop would cost
 * more than what is measured. Whoever uses it must be killed from outside if the peer falls silent.
 */
export class Peer {
  readonly pid: number;
  /** What goes with the params of every request. */
  readonly envelope: object;
  /** When the program was started, in ms. */
  readonly started: number;
  readonly #era: Era;
  readonly #child: ChildProcess;
  readonly #toPeer: number;
  readonly #fromPeer: number;
  #held: Buffer = Buffer.alloc(0);
  #id = 0;

  /** @throws if the program cannot be started. */
  constructor({ file, args, env }: Command, era: Era = "legacy") {
    this.envelope = era === "modern" ? { _meta: ENVELOPE } : {};
    this.#era = era;
    const [toPeer, fromPeer] = openPipes();
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

  /** Reads what is there, or waits for it. @returns how many bytes; at least one. @throws if the peer has ended. */
  read(bytes: Buffer, offset: number, length: number): number {
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
      const chunk = Buffer.allocUnsafe(1 << 17);
      this.#held = chunk.subarray(0, this.read(chunk, 0, chunk.length));
    }
  }

  /** What was read beyond the last line; `line` must not be called again. */
  rest(): Buffer {
    return this.#held;
  }

  /** Sends a request and waits for its answer; other messages are passed over. @throws if the answer is an error. */
  request(method: string, params: object): unknown {
    return (JSON.parse(this.#ask(method, params).toString()) as { result: unknown }).result;
  }

  /** The handshake of an MCP client, if its era has one. */
  initialize(): void {
    if (this.#era === "modern") return;
    const clientInfo = { name: "bench", version: "1.0.0" };
    this.request("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
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

  /** The names of the tools that it lists now. */
  listTools(): string[] {
    return this.listPages().flatMap((page) => {
      const { result } = JSON.parse(page.toString()) as { result: { tools: { name: string }[] } };
      return result.tools.map(({ name }) => name);
    });
  }

  /** The answers that the whole list of tools comes in, unread. @throws if one is an error */
  listPages(): Buffer[] {
    const pages: Buffer[] = [];
    for (let cursor: string | undefined, isMore = true; isMore; isMore = cursor !== undefined) {
      const page = this.#ask("tools/list", cursor === undefined ? {} : { cursor });
      pages.push(page);
      cursor = NEXT.exec(page.toString("latin1", Math.max(0, page.length - END)))?.[1];
    }
    return pages;
  }

  /** Ends its stdin, and the process itself if that does not. */
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

  /** The whole answer, unread but for its ends. */
  #ask(method: string, params: object): Buffer {
    const id = ++this.#id;
    const isOwn = new RegExp(`"id": ?${id}[,}]`);
    this.#send({ jsonrpc: "2.0", id, method, params: { ...params, ...this.envelope } });
    for (;;) {
      const line = this.line();
      // The id stands at one end or the other, whoever answers.
      const ends = [line.subarray(0, END), line.subarray(-END)].map(String);
      if (!ends.some((end) => isOwn.test(end))) continue;
      if (!ends.some((end) => end.includes('"result"'))) {
        throw new Error(`${method}: ${line.toString().slice(0, 300)}`);
      }
      return line;
    }
  }

  #send(message: object): void {
    this.write(Buffer.from(`${JSON.stringify(message)}\n`));
  }
}

interface Pipe {
  readonly read: number;
  readonly write: number;
}

/** Two pipes whose ends block; named ones, as there is no call for others, but their names are gone at once. */
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

function openPipe(path: string): Pipe {
  // An end waits for the other one: this one is both, for as long as it takes.
  const both = openSync(path, "r+");
  const pipe = { read: openSync(path, "r"), write: openSync(path, "w") };
  closeSync(both);
  return pipe;
}
