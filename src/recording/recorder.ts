import { Buffer, isUtf8 } from "node:buffer";
import type { FileHandle } from "node:fs/promises";
import process from "node:process";
import { isDetachable, joinPieces, type Piece, pieceSize, textOf, utf8 } from "../base/bytes.ts";
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

/** Maximum message size, in bytes; a longer message is recorded as a placeholder. */
const MAX_MESSAGE = 32 * 1024 * 1024;
/** Maximum number of queued bytes, and approximate number of bytes per write. */
const MAX_QUEUED = 64 * 1024 * 1024;
const WRITE_SIZE = 1024 * 1024;
/**
 * Messages shorter than this (in bytes) are copied: a slice would keep the whole received chunk in memory until it is
 * written.
 */
const MAX_COPIED = 64 * 1024;
/** Estimated size of a line without its message, and space reserved for the last line, in bytes. */
const LINE_OVERHEAD = 200;
const LAST_LINE_RESERVE = 200;
/** Maximum time that `close` waits for the last lines to be written, in ms. */
const FLUSH_LIMIT = 1000;

export interface RecorderOptions {
  readonly sink: RecordingSink;
  readonly redact: RedactFunction;
  /** Maximum size of the recording, in bytes. */
  readonly limit: number;
  /** The time of a monotonic clock, in ms. */
  now(): number;
  /** Logs that the recording ended early, and why. */
  warn(text: string): void;
}

/** A queued line, without the line break. */
type QueuedLine =
  | { readonly text: string; readonly size: number }
  | { readonly head: string; readonly message: readonly Piece[]; readonly size: number };

/**
 * Records the messages that pass through a hub. Never blocks: if lines cannot be written fast enough, some are
 * dropped, and the recording says how many. A write error ends only the recording, not the hub.
 */
export class Recorder {
  readonly #options: RecorderOptions;
  readonly #startTime: number;
  readonly #runs = new Map<string, number>();
  #clients = 0;
  #queue: QueuedLine[] = [];
  /** Bytes queued or being written. */
  #queuedBytes = 0;
  #missing = { messages: 0, bytes: 0 };
  #written = 0;
  #isOver = false;
  #draining: Promise<void> | undefined;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#startTime = options.now();
    const started = new Date().toISOString();
    const program = `toolmux ${VERSION}`;
    const header: RecordingHeader = { recording: 1, program, started, limit: options.limit };
    this.#add({ text: JSON.stringify(header), size: LINE_OVERHEAD });
  }

  /** The peer for the next run of a server. */
  nextServerRun(name: string): RecordedPeer {
    const run = (this.#runs.get(name) ?? 0) + 1;
    this.#runs.set(name, run);
    return { server: name, run };
  }

  /** The peer for the next client. */
  nextClient(): RecordedPeer {
    return { client: ++this.#clients };
  }

  /** Records the manifest that applies to the messages recorded after it. */
  manifest(document: object): void {
    this.#addEvent({}, { manifest: document });
  }

  event(peer: RecordedPeer, event: TransportEventLine): void {
    this.#addEvent(peer, event);
  }

  /**
   * Records a message.
   * @param message as sent or received; its bytes must not change later
   * @param streamRequestId the id of the request on whose response stream it came, if the transport can tell
   */
  message(
    peer: RecordedPeer,
    direction: Direction,
    message: EncodedMessage,
    streamRequestId?: string | number,
  ): void {
    if (this.#isOver) return;
    const pieces = piecesOfMessage(message);
    const size = pieces.reduce<number>((sum, piece) => sum + pieceSize(piece), LINE_OVERHEAD);
    const head = `${JSON.stringify({ t: this.#time(), ...peer, way: direction, on: streamRequestId }).slice(0, -1)},`;
    if (size > MAX_MESSAGE) {
      this.#add({
        text: `${head}"cut":${JSON.stringify(placeholderOf(joinPieces(pieces)))}}`,
        size: LINE_OVERHEAD,
      });
      return;
    }
    const content = size <= MAX_COPIED || pieces.some(isDetachable) ? [joinPieces(pieces)] : pieces;
    this.#add({ head, message: content, size });
  }

  /** Records a received message; each message of a batch on its own. */
  received(peer: RecordedPeer, message: Message, streamRequestId?: string | number): void {
    if (message.kind === "batch")
      for (const item of message.items) this.received(peer, item, streamRequestId);
    else this.message(peer, "received", bytesOf(message), streamRequestId);
  }

  /** Ends the recording. @returns when everything is written, or the time limit has passed. Never rejects. */
  async close(): Promise<void> {
    if (!this.#isOver) {
      if (this.#missing.messages > 0) this.#noteMissing();
      this.#enqueue({
        text: JSON.stringify({ t: this.#time(), event: "end" }),
        size: LINE_OVERHEAD,
      });
    }
    const written = this.#draining ?? Promise.resolve();
    await settlesWithin(
      FLUSH_LIMIT,
      written.then(() => this.#options.sink.close()).catch(() => {}),
    );
    this.#stop();
  }

  /** Writes all queued lines synchronously: for the exit of the process. */
  flushNow(): void {
    if (this.#isOver) return;
    const rest = this.#takeQueued(Number.POSITIVE_INFINITY);
    this.#isOver = true;
    try {
      this.#options.sink.appendNow(rest);
    } catch {
      // The failure cannot be reported any more.
    }
  }

  /** ms since the start, with µs resolution. */
  #time(): number {
    return Math.round((this.#options.now() - this.#startTime) * 1000) / 1000;
  }

  #addEvent(
    peer: RecordedPeer | object,
    what: TransportEventLine | RecorderEventLine | { readonly manifest: object },
  ): void {
    if (this.#isOver) return;
    const text = JSON.stringify({ t: this.#time(), ...peer, ...what });
    this.#add({ text, size: text.length });
  }

  #add(line: QueuedLine): void {
    if (this.#isOver) return;
    if (this.#queuedBytes + line.size > MAX_QUEUED) {
      this.#missing.messages++;
      this.#missing.bytes += line.size;
      return;
    }
    if (this.#missing.messages > 0) this.#noteMissing();
    this.#enqueue(line);
  }

  /** Queues a line without checking any limit. */
  #enqueue(line: QueuedLine): void {
    this.#queue.push(line);
    this.#queuedBytes += line.size;
    this.#draining ??= this.#drain();
  }

  async #drain(): Promise<void> {
    try {
      // Waits for the end of this turn of the event loop, so that all its lines are written together.
      await new Promise((resolve) => setImmediate(resolve));
      while (this.#queue.length > 0) {
        await this.#options.sink.append(this.#takeQueued(WRITE_SIZE));
        if (this.#queue.length === 0 && this.#missing.messages > 0) this.#noteMissing();
      }
    } catch (error) {
      this.#stop();
      const reason = error instanceof Error ? error.message : String(error);
      this.#options.warn(`the recording ends here: it cannot be written (${reason})`);
    } finally {
      this.#draining = undefined;
    }
  }

  /** Removes the next lines from the queue, about `maxBytes` bytes. */
  #takeQueued(maxBytes: number): Buffer {
    const lines: Uint8Array[] = [];
    let size = 0;
    let count = 0;
    for (const line of this.#queue) {
      if (size >= maxBytes) break;
      count++;
      const bytes = this.#encodeLine(line);
      if (this.#written + bytes.length > this.#options.limit - LAST_LINE_RESERVE) {
        const full: RecorderEventLine = { event: "full", limit: this.#options.limit };
        lines.push(utf8(`${JSON.stringify({ t: this.#time(), ...full })}\n`));
        this.#stop();
        this.#options.warn("the recording ends here: it has reached its size limit");
        return Buffer.concat(lines);
      }
      lines.push(bytes);
      this.#written += bytes.length;
      size += bytes.length;
      this.#queuedBytes -= line.size;
    }
    this.#queue = this.#queue.slice(count);
    return Buffer.concat(lines);
  }

  #noteMissing(): void {
    const { messages, bytes } = this.#missing;
    this.#missing = { messages: 0, bytes: 0 };
    const text = JSON.stringify({ t: this.#time(), event: "missing", messages, bytes });
    this.#enqueue({ text, size: LINE_OVERHEAD });
  }

  #stop(): void {
    this.#isOver = true;
    this.#queue = [];
    this.#queuedBytes = 0;
  }

  #encodeLine(line: QueuedLine): Uint8Array {
    const { redact } = this.#options;
    if ("text" in line) return utf8(`${maskJson(line.text, redact) ?? WITHHELD_LINE}\n`);
    const { head, message } = line;
    const bytes = joinPieces(message);
    const text = textOf(bytes);
    // A message is forwarded unparsed, so it may not be valid JSON: then it is recorded as a string.
    if (skipWhitespace(bytes, skipValue(bytes, skipWhitespace(bytes, 0))) !== bytes.length) {
      return utf8(
        `${maskJson(`${head}"text":${JSON.stringify(text)}}`, redact) ?? WITHHELD_LINE}\n`,
      );
    }
    const shown = maskJson(text, redact);
    if (shown === undefined) {
      const placeholderLine = `${head}"cut":${JSON.stringify(placeholderOf(bytes))}}`;
      return utf8(`${maskJson(placeholderLine, redact) ?? WITHHELD_LINE}\n`);
    }
    const start = `${maskJson(head, redact) ?? ""}"message":`;
    return Buffer.concat([
      utf8(start),
      shown === text && isUtf8(bytes) ? bytes : utf8(shown),
      LINE_END,
    ]);
  }
}

const LINE_END = utf8("}\n");
/** Replaces a line that cannot be masked. */
const WITHHELD_LINE = JSON.stringify({ event: "withheld" });

function placeholderOf(bytes: Buffer): Placeholder {
  const message = parseMessage(bytes);
  const { kind } = message;
  const size = bytes.length;
  if (kind === "request") return { size, kind, id: idText(message.id.key), method: message.method };
  if (kind === "notification") return { size, kind, method: message.method };
  return { size, kind, ...(kind === "response" && { id: message.id }) };
}

/** The id that an `IdKey` stands for, as its JSON value. */
export function idText(key: string | number): string | number {
  return typeof key === "string" && key.startsWith('"') ? key.slice(1) : key;
}

/** Destination of a recording. */
export interface RecordingSink {
  /** Appends in order of the calls; rejects if writing fails. */
  append(bytes: Uint8Array): Promise<void>;
  /** Appends synchronously, after the bytes of a pending `append`; for the exit of the process. */
  appendNow(bytes: Uint8Array): void;
  close(): Promise<void>;
}

/** Bytes read to detect whether a file is a recording. */
const PROBE_SIZE = 64;
const HEADER_START = '{"recording":';

/**
 * Creates a recording file with mode 0600. An existing recording is replaced; a process still writing to it
 * keeps its unlinked file.
 * @throws {HubError} usage if it cannot be created, or another kind of file would be overwritten
 */
export async function openRecordingFile(path: string): Promise<RecordingSink> {
  const { lstat, open, rename, rm } = await import("node:fs/promises");
  const tempFile = `${path}.${crypto.randomUUID()}.draft`;
  try {
    const existing = await lstat(path).catch(() => undefined);
    if (existing !== undefined && !(existing.isFile() && (await isRecording(path)))) {
      throw new HubError(
        "usage",
        `${path} exists and is not a recording, so it is not overwritten. Name another file.`,
      );
    }
    const handle = await open(tempFile, "wx", 0o600);
    try {
      await rename(tempFile, path);
    } catch (error) {
      await handle.close();
      await rm(tempFile, { force: true });
      throw error;
    }
    return new RecordingFile(handle);
  } catch (error) {
    if (error instanceof HubError) throw error;
    const reason =
      error instanceof Error ? error.message.replaceAll(tempFile, path) : String(error);
    throw new HubError("usage", `The recording cannot be written: ${reason}`);
  }
}

/** Whether a file is a recording, or empty, and may therefore be replaced. */
async function isRecording(path: string): Promise<boolean> {
  const { open } = await import("node:fs/promises");
  const handle = await open(path, "r");
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(PROBE_SIZE), 0, PROBE_SIZE, 0);
    return bytesRead === 0 || buffer.toString("utf8", 0, bytesRead).startsWith(HEADER_START);
  } finally {
    await handle.close();
  }
}

class RecordingFile implements RecordingSink {
  readonly #handle: FileHandle;
  /** Number of bytes that are certainly written. `#pending`: the chunk that is being written after these bytes. */
  #writtenSize = 0;
  #pending: Uint8Array | undefined;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  async append(bytes: Uint8Array): Promise<void> {
    this.#pending = bytes;
    for (let done = 0; done < bytes.length;) {
      const rest = bytes.length - done;
      const { bytesWritten } = await this.#handle.write(
        bytes,
        done,
        rest,
        this.#writtenSize + done,
      );
      done += bytesWritten;
    }
    this.#writtenSize += bytes.length;
    this.#pending = undefined;
  }

  /** Writes the pending chunk again at the same position, because it is unknown how much of it was written. */
  appendNow(bytes: Uint8Array): void {
    const { writeSync } = process.getBuiltinModule("node:fs");
    for (const part of [this.#pending, bytes]) {
      if (part === undefined) continue;
      for (let done = 0; done < part.length;) {
        done += writeSync(
          this.#handle.fd,
          part,
          done,
          part.length - done,
          this.#writtenSize + done,
        );
      }
      this.#writtenSize += part.length;
    }
    this.#pending = undefined;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}
