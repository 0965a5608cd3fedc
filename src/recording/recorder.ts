import { Buffer, isUtf8 } from "node:buffer";
import type { FileHandle } from "node:fs/promises";
import process from "node:process";
import { isDetachable, joinPieces, type Piece, sizeOf, textOf, utf8 } from "../base/bytes.ts";
import { settlesWithin } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { skipValue, skipWhitespace } from "../base/json.ts";
import { VERSION } from "../base/version.ts";
import { bytesOf, type EncodedMessage, type Message, piecesOfMessage } from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import type {
  Direction,
  Placeholder,
  RecordedPeer,
  RecorderEventLine,
  RecordingHeader,
  TransportEventLine,
} from "./format.ts";
import { maskJson, type RedactFunction } from "./mask.ts";

/** Longer messages are recorded by a placeholder only; in bytes. */
const MOST_MESSAGE = 32 * 1024 * 1024;
/** Maximum number of bytes queued, and bytes per write. */
const MOST_WAITING = 64 * 1024 * 1024;
const AT_A_TIME = 1024 * 1024;
/** Shorter messages are copied, in bytes: a slice would keep the whole received chunk in memory. */
const COPIED = 64 * 1024;
/** Estimated size of a line without its message, and space reserved for the last line, in bytes. */
const LINE = 200;
const LAST_LINE = 200;
/** Longest wait for a slow disk at the end, in ms. */
const FLUSH_LIMIT = 1000;

export interface RecorderOptions {
  readonly outlet: RecordingSink;
  readonly redact: RedactFunction;
  /** Maximum size of the recording, in bytes. */
  readonly limit: number;
  /** ms, monotonic. */
  now(): number;
  /** Logs that the recording ended early, and why. */
  warn(text: string): void;
}

/** A queued line, without the line break. */
type Waiting =
  | { readonly text: string; readonly size: number }
  | { readonly head: string; readonly message: readonly Piece[]; readonly size: number };

/**
 * Records the messages that cross a hub. It never blocks: what cannot be written fast enough is dropped,
 * which the recording notes, and an error ends only the recording.
 */
export class Recorder {
  readonly #parts: RecorderOptions;
  readonly #began: number;
  readonly #runs = new Map<string, number>();
  #clients = 0;
  #waiting: Waiting[] = [];
  /** Bytes queued or being written. */
  #size = 0;
  #missing = { messages: 0, bytes: 0 };
  #written = 0;
  #isOver = false;
  #draining: Promise<void> | undefined;

  constructor(parts: RecorderOptions) {
    this.#parts = parts;
    this.#began = parts.now();
    const started = new Date().toISOString();
    const program = `toolmux ${VERSION}`;
    const head: RecordingHeader = { recording: 1, program, started, limit: parts.limit };
    this.#add({ text: JSON.stringify(head), size: LINE });
  }

  /** The peer for the next run of a server. */
  server(name: string): RecordedPeer {
    const run = (this.#runs.get(name) ?? 0) + 1;
    this.#runs.set(name, run);
    return { server: name, run };
  }

  /** The peer for the next client. */
  client(): RecordedPeer {
    return { client: ++this.#clients };
  }

  /** Records the manifest that is in force from now on. */
  manifest(document: object): void {
    this.#addEvent({}, { manifest: document });
  }

  event(peer: RecordedPeer, event: TransportEventLine): void {
    this.#addEvent(peer, event);
  }

  /**
   * Records a message.
   * @param message as sent or received; its bytes must not change later
   * @param on the id of the request on whose response stream it came, if the transport can tell
   */
  message(peer: RecordedPeer, way: Direction, message: EncodedMessage, on?: string | number): void {
    if (this.#isOver) return;
    const pieces = piecesOfMessage(message);
    const size = pieces.reduce<number>((sum, piece) => sum + sizeOf(piece), LINE);
    const head = `${JSON.stringify({ t: this.#time(), ...peer, way, on }).slice(0, -1)},`;
    if (size > MOST_MESSAGE) {
      this.#add({
        text: `${head}"cut":${JSON.stringify(stubOf(joinPieces(pieces)))}}`,
        size: LINE,
      });
      return;
    }
    const kept = size <= COPIED || pieces.some(isDetachable) ? [joinPieces(pieces)] : pieces;
    this.#add({ head, message: kept, size });
  }

  /** Records a received message; each message of a batch on its own. */
  frame(peer: RecordedPeer, frame: Message, on?: string | number): void {
    if (frame.kind === "batch") for (const item of frame.items) this.frame(peer, item, on);
    else this.message(peer, "received", bytesOf(frame), on);
  }

  /** Ends the recording. @returns when everything is written, or the time limit has passed. Never rejects. */
  async close(): Promise<void> {
    if (!this.#isOver) {
      if (this.#missing.messages > 0) this.#tellMissing();
      this.#push({ text: JSON.stringify({ t: this.#time(), event: "end" }), size: LINE });
    }
    const written = this.#draining ?? Promise.resolve();
    await settlesWithin(
      FLUSH_LIMIT,
      written.then(() => this.#parts.outlet.close()).catch(() => {}),
    );
    this.#stop();
  }

  /** Writes all queued lines synchronously: for the exit of the process. */
  flushNow(): void {
    if (this.#isOver) return;
    const rest = this.#take(Number.POSITIVE_INFINITY);
    this.#isOver = true;
    try {
      this.#parts.outlet.appendNow(rest);
    } catch {
      // There is no way to report it any more.
    }
  }

  /** ms since the start, with µs resolution. */
  #time(): number {
    return Math.round((this.#parts.now() - this.#began) * 1000) / 1000;
  }

  #addEvent(
    peer: RecordedPeer | object,
    what: TransportEventLine | RecorderEventLine | { readonly manifest: object },
  ): void {
    if (this.#isOver) return;
    const text = JSON.stringify({ t: this.#time(), ...peer, ...what });
    this.#add({ text, size: text.length });
  }

  #add(line: Waiting): void {
    if (this.#isOver) return;
    if (this.#size + line.size > MOST_WAITING) {
      this.#missing.messages++;
      this.#missing.bytes += line.size;
      return;
    }
    if (this.#missing.messages > 0) this.#tellMissing();
    this.#push(line);
  }

  /** Queues a line regardless of the limit. */
  #push(line: Waiting): void {
    this.#waiting.push(line);
    this.#size += line.size;
    this.#draining ??= this.#drain();
  }

  async #drain(): Promise<void> {
    try {
      // Everything of one turn of the event loop is written together.
      await new Promise((resolve) => setImmediate(resolve));
      while (this.#waiting.length > 0) {
        await this.#parts.outlet.append(this.#take(AT_A_TIME));
        if (this.#waiting.length === 0 && this.#missing.messages > 0) this.#tellMissing();
      }
    } catch (error) {
      this.#stop();
      const why = error instanceof Error ? error.message : String(error);
      this.#parts.warn(`the recording ends here: it cannot be written (${why})`);
    } finally {
      this.#draining = undefined;
    }
  }

  /** Takes the next lines from the queue, about `most` bytes. */
  #take(most: number): Buffer {
    const lines: Uint8Array[] = [];
    let size = 0;
    let count = 0;
    for (const line of this.#waiting) {
      if (size >= most) break;
      count++;
      const bytes = this.#write(line);
      if (this.#written + bytes.length > this.#parts.limit - LAST_LINE) {
        const full: RecorderEventLine = { event: "full", limit: this.#parts.limit };
        lines.push(utf8(`${JSON.stringify({ t: this.#time(), ...full })}\n`));
        this.#stop();
        this.#parts.warn("the recording ends here: it is as large as it may be");
        return Buffer.concat(lines);
      }
      lines.push(bytes);
      this.#written += bytes.length;
      size += bytes.length;
      this.#size -= line.size;
    }
    this.#waiting = this.#waiting.slice(count);
    return Buffer.concat(lines);
  }

  #tellMissing(): void {
    const { messages, bytes } = this.#missing;
    this.#missing = { messages: 0, bytes: 0 };
    const text = JSON.stringify({ t: this.#time(), event: "missing", messages, bytes });
    this.#push({ text, size: LINE });
  }

  #stop(): void {
    this.#isOver = true;
    this.#waiting = [];
    this.#size = 0;
  }

  #write(line: Waiting): Uint8Array {
    const { redact } = this.#parts;
    if ("text" in line) return utf8(`${maskJson(line.text, redact) ?? WITHHELD}\n`);
    const { head, message } = line;
    const bytes = joinPieces(message);
    const text = textOf(bytes);
    // Servers' results are forwarded unparsed, and clients may send anything, so it may not be JSON.
    if (skipWhitespace(bytes, skipValue(bytes, skipWhitespace(bytes, 0))) !== bytes.length) {
      return utf8(`${maskJson(`${head}"text":${JSON.stringify(text)}}`, redact) ?? WITHHELD}\n`);
    }
    const shown = maskJson(text, redact);
    if (shown === undefined) {
      const whole = `${head}"cut":${JSON.stringify(stubOf(bytes))}}`;
      return utf8(`${maskJson(whole, redact) ?? WITHHELD}\n`);
    }
    const begin = `${maskJson(head, redact) ?? ""}"message":`;
    return Buffer.concat([utf8(begin), shown === text && isUtf8(bytes) ? bytes : utf8(shown), END]);
  }
}

const END = utf8("}\n");
/** In place of a line that cannot be masked. */
const WITHHELD = JSON.stringify({ event: "withheld" });

function stubOf(bytes: Buffer): Placeholder {
  const frame = parseMessage(bytes);
  const { kind } = frame;
  const size = bytes.length;
  if (kind === "request") return { size, kind, id: idText(frame.id.key), method: frame.method };
  if (kind === "notification") return { size, kind, method: frame.method };
  return { size, kind, ...(kind === "response" && { id: frame.id }) };
}

/** An id as its JSON value. */
export function idText(key: string | number): string | number {
  return typeof key === "string" && key.startsWith('"') ? key.slice(1) : key;
}

/** Destination of a recording. */
export interface RecordingSink {
  /** Appends in order of the calls; rejects if writing fails. */
  append(bytes: Uint8Array): Promise<void>;
  /** Synchronous: writes after a pending `append`, for the exit of the process. */
  appendNow(bytes: Uint8Array): void;
  close(): Promise<void>;
}

/** Bytes read to detect whether a file is a recording. */
const LOOK = 64;
const BEGINNING = '{"recording":';

/**
 * Creates a recording file with mode 0600. An existing recording is replaced; a process still writing to it
 * keeps its unlinked file.
 * @throws {HubError} usage if it cannot be created, or another kind of file would be overwritten
 */
export async function openRecordingFile(path: string): Promise<RecordingSink> {
  const { lstat, open, rename, rm } = await import("node:fs/promises");
  const draft = `${path}.${crypto.randomUUID()}.draft`;
  try {
    const before = await lstat(path).catch(() => undefined);
    if (before !== undefined && !(before.isFile() && (await isRecording(path)))) {
      throw new HubError("usage", `${path} is there, and is no recording: it is left as it is.`);
    }
    const handle = await open(draft, "wx", 0o600);
    try {
      await rename(draft, path);
    } catch (error) {
      await handle.close();
      await rm(draft, { force: true });
      throw error;
    }
    return new RecordingFile(handle);
  } catch (error) {
    if (error instanceof HubError) throw error;
    const why = error instanceof Error ? error.message.replaceAll(draft, path) : String(error);
    throw new HubError("usage", `The recording cannot be written: ${why}`);
  }
}

/** An empty file may be replaced too. */
async function isRecording(path: string): Promise<boolean> {
  const { open } = await import("node:fs/promises");
  const handle = await open(path, "r");
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(LOOK), 0, LOOK, 0);
    return bytesRead === 0 || buffer.toString("utf8", 0, bytesRead).startsWith(BEGINNING);
  } finally {
    await handle.close();
  }
}

class RecordingFile implements RecordingSink {
  readonly #handle: FileHandle;
  /** Number of bytes known to be written, and the chunk being written after them. */
  #at = 0;
  #writing: Uint8Array | undefined;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  async append(bytes: Uint8Array): Promise<void> {
    this.#writing = bytes;
    for (let done = 0; done < bytes.length;) {
      const rest = bytes.length - done;
      const { bytesWritten } = await this.#handle.write(bytes, done, rest, this.#at + done);
      done += bytesWritten;
    }
    this.#at += bytes.length;
    this.#writing = undefined;
  }

  /** Writes the pending chunk again at the same position, because it is unknown how much of it was written. */
  appendNow(bytes: Uint8Array): void {
    const { writeSync } = process.getBuiltinModule("node:fs");
    for (const part of [this.#writing, bytes]) {
      if (part === undefined) continue;
      for (let done = 0; done < part.length;) {
        done += writeSync(this.#handle.fd, part, done, part.length - done, this.#at + done);
      }
      this.#at += part.length;
    }
    this.#writing = undefined;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}
