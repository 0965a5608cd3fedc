import { Buffer } from "node:buffer";
import { constants } from "node:fs";
import { type FileHandle, open, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import * as v from "valibot";
import { abortable } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { count } from "../base/format.ts";
import { ensurePrivateFolder } from "../base/private-files.ts";
import { withFileLock } from "../process/file-lock.ts";
import { maskEntry, parseEntry, type TranscriptEntry } from "./transcript.ts";

/** Version of the format of a conversation's file. */
export const CONVERSATION_FORMAT = 1;

/**
 * The first line of a conversation's file. The other lines are the entries of its transcript, the last of them without
 * its end if the process was killed while it wrote.
 */
export interface ConversationHeader {
  readonly format: typeof CONVERSATION_FORMAT;
  readonly id: string;
  /** The agent as it is opened: a name of the manifest, the path of a file, or a reference. */
  readonly agent: string;
  /** The manifest whose agent it is, or what the agent's file is called; conversations of others are not resumed here. */
  readonly from: string;
  /** The manifest whose limits hold for it, and for how long that one kept it when it began, in ms. */
  readonly manifest: string;
  readonly maxAge: number;
  /** The name that a client gave the conversation. */
  readonly name?: string | undefined;
  /** Time at which the conversation began, in ms since the epoch. */
  readonly created: number;
}

/** `ConversationHeader.from` of an agent of a file. @param source the path or the reference of the file */
export function fileOrigin(source: string): string {
  return `file ${source}`;
}

const headerSchema = v.object({
  format: v.literal(CONVERSATION_FORMAT),
  id: v.string(),
  agent: v.string(),
  from: v.string(),
  manifest: v.string(),
  maxAge: v.number(),
  name: v.exactOptional(v.string()),
  created: v.number(),
});

/** @returns undefined if the line is no header of this format */
export function parseHeader(line: string): ConversationHeader | undefined {
  try {
    const read = v.safeParse(headerSchema, JSON.parse(line));
    return read.success ? read.output : undefined;
  } catch {
    return undefined;
  }
}

/** How long a message waits for another process that works in the conversation, in ms. */
const LOCK_WAIT = 5000;
/** How much of the end of what is known is compared with the file, in bytes. The last line has a time, so it is unique. */
const TAIL_SIZE = 512;
/** A file is never followed to another place, and opening it never blocks. */
const FLAGS = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK;

export interface ConversationFileOptions {
  readonly path: string;
  readonly header: ConversationHeader;
  /** Whether the file is there: if it is gone when it is read, the conversation is forgotten. */
  readonly isThere: boolean;
  /** Removes known secrets from a text. */
  readonly mask: (text: string) => string;
  /** Called at most once for each: the conversation goes on, and is not kept; a part of it cannot be read. */
  readonly warn: (text: string) => void;
}

/** What other processes have added to a conversation since this process last read its file. */
export interface ConversationChange {
  /** Whether the entries are all that there are: the conversation was cleared, or is read for the first time. */
  readonly isWhole: boolean;
  readonly entries: readonly TranscriptEntry[];
}

const NO_CHANGE: ConversationChange = { isWhole: false, entries: [] };

/**
 * The file in which a conversation is kept. While a process works in the conversation, between `begin` and `end`, it
 * holds the file's lock, and only it writes. Entries that cannot be written, because the disk is full, are written
 * later; the conversation goes on.
 */
export class ConversationFile {
  readonly #options: ConversationFileOptions;
  /** Size of what this process has read and written, in bytes; undefined: the file does not exist yet. */
  #known: number | undefined;
  /** The last bytes of what is known. Others in the file: another process has cleared the conversation, and added to it. */
  #tail: Buffer = Buffer.alloc(0);
  /** The lines that are not written yet. */
  #pending: string[] = [];
  #writing: Promise<void> = Promise.resolve();
  /** The warnings that were given. */
  readonly #warned = new Set<"unwritable" | "unreadable">();
  /** Set when the person has forgotten the conversation: nothing is written any more. */
  #isForgotten = false;
  #release: (() => Promise<void>) | undefined;

  constructor(options: ConversationFileOptions) {
    this.#options = options;
  }

  get header(): ConversationHeader {
    return this.#options.header;
  }

  get path(): string {
    return this.#options.path;
  }

  /** Creates the file with its first line. A failure is told by a warning. */
  async create(): Promise<void> {
    this.#pending.push(this.#headerLine());
    await this.flush();
  }

  /** Whether another process has changed or removed the file since this one last read it. Never rejects. */
  async isChanged(): Promise<boolean> {
    const size = await stat(this.path).then(
      (file) => file.size,
      () => this.#known,
    );
    return size !== this.#known || (await this.isGone());
  }

  /** Whether the file was there, and was removed: the conversation is forgotten. Never rejects. */
  async isGone(): Promise<boolean> {
    if (this.#isForgotten) return true;
    if (!this.#wasThere) return false;
    return stat(this.path).then(
      () => false,
      (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT",
    );
  }

  get #wasThere(): boolean {
    return this.#options.isThere || this.#known !== undefined;
  }

  /**
   * Takes the lock, and reads what other processes have added. A last line without an end is dropped.
   * @param waitTimeout how long it waits for a process that works in the conversation, in ms
   * @throws {HubError} sessionBusy if another process works in the conversation; sessionNotFound if it is forgotten;
   * the signal's reason
   */
  async begin(signal: AbortSignal, waitTimeout = LOCK_WAIT): Promise<ConversationChange> {
    if (this.#isForgotten) throw forgottenError();
    try {
      this.#release = await holdLock(`${this.path}.lock`, signal, waitTimeout);
      return await this.#read();
    } catch (error) {
      signal.throwIfAborted();
      const { code } = toHubError(error);
      if (code === "sessionNotFound") throw error;
      if (code === "storeBusy") {
        const text = "Another process works in this conversation. Wait until it has an answer.";
        throw new HubError("sessionBusy", text);
      }
      // The disk is full or read-only: the conversation goes on without its file.
      this.#warn(error);
      return NO_CHANGE;
    }
  }

  /** Adds an entry, which is written soon. */
  append(entry: TranscriptEntry): void {
    if (this.#isForgotten) return;
    const isEmpty = this.#known === undefined || this.#known === 0;
    if (isEmpty && this.#pending.length === 0) this.#pending.push(this.#headerLine());
    this.#pending.push(`${JSON.stringify(maskEntry(entry, this.#options.mask))}\n`);
    void this.flush();
  }

  /** Settles when all entries so far are in the file, or cannot be written. Never rejects. */
  flush(): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      if (this.#pending.length === 0 || this.#isForgotten) return;
      try {
        await this.#write();
      } catch (error) {
        this.#warn(error);
      }
    });
    return this.#writing;
  }

  /** Writes the last entries and gives the lock back. Never rejects. */
  async end(): Promise<void> {
    await this.flush();
    const release = this.#release;
    this.#release = undefined;
    await release?.();
  }

  /** Writes nothing any more: the person forgets the conversation. */
  discard(): void {
    this.#isForgotten = true;
    this.#pending = [];
  }

  /** Removes all entries from the file. Called between `begin` and `end`. @throws {HubError} storeBroken */
  async clear(): Promise<void> {
    await this.#writing;
    this.#pending = [];
    if (this.#known === undefined) return;
    const line = Buffer.from(this.#headerLine());
    const handle = await open(this.path, FLAGS);
    try {
      await handle.truncate(0);
      await handle.write(line, 0, line.length, 0);
      this.#setKnown(line, 0);
    } finally {
      await handle.close();
    }
  }

  #headerLine(): string {
    return `${JSON.stringify(maskHeader(this.header, this.#options.mask))}\n`;
  }

  /** Appends the pending lines after what is known, over a part of a line that a failed attempt has left. */
  async #write(): Promise<void> {
    const lines = [...this.#pending];
    const bytes = Buffer.from(lines.join(""));
    const isNew = this.#known === undefined;
    if (isNew) await ensurePrivateFolder(dirname(this.path));
    const handle = isNew
      ? await open(this.path, "wx+", 0o600)
      : await open(this.path, FLAGS).catch((error: unknown) => this.#whenGone(error));
    if (handle === undefined) return;
    try {
      const start = this.#known ?? 0;
      await writeAt(handle, bytes, start);
      this.#setKnown(bytes, start);
      this.#pending = this.#pending.slice(lines.length);
    } catch (error) {
      // A new file without its first line is no conversation.
      if (isNew) await rm(this.path, { force: true }).catch(() => {});
      else await handle.truncate(this.#known ?? 0).catch(() => {});
      throw error;
    } finally {
      await handle.close();
    }
  }

  /** The conversation was forgotten while this process worked in it. */
  #whenGone(error: unknown): undefined {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    this.discard();
    return undefined;
  }

  async #read(): Promise<ConversationChange> {
    const known = this.#known;
    const handle = await open(this.path, FLAGS).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      if (this.#wasThere) throw forgottenError();
      return undefined;
    });
    if (handle === undefined) return NO_CHANGE;
    try {
      const isWhole = known === undefined || !(await this.#hasKnown(handle, known));
      const start = isWhole ? 0 : known;
      const bytes = await readFrom(handle, start);
      if (bytes.length === 0 && !isWhole) return NO_CHANGE;
      const end = bytes.lastIndexOf("\n") + 1;
      if (end < bytes.length) await handle.truncate(start + end);
      this.#setKnown(bytes.subarray(0, end), start);
      const lines = bytes.subarray(0, end).toString().split("\n");
      const written = lines.slice(isWhole ? 1 : 0).filter((line) => line !== "");
      const entries = written.flatMap((line) => parseEntry(line) ?? []);
      const lost = written.length - entries.length;
      if (lost > 0) this.#warnUnreadable(lost);
      return { isWhole, entries };
    } finally {
      await handle.close();
    }
  }

  /** Whether the file still begins with what is known. */
  async #hasKnown(handle: FileHandle, known: number): Promise<boolean> {
    const tail = await readFrom(handle, known - this.#tail.length, this.#tail.length);
    return tail.equals(this.#tail);
  }

  /** Notes that the file has these bytes at `start`, and nothing behind them. */
  #setKnown(bytes: Buffer, start: number): void {
    this.#known = start + bytes.length;
    const before = start === 0 ? [] : [this.#tail];
    this.#tail = Buffer.concat([...before, bytes.subarray(-TAIL_SIZE)]).subarray(-TAIL_SIZE);
  }

  #warnUnreadable(lost: number): void {
    if (this.#warned.has("unreadable")) return;
    this.#warned.add("unreadable");
    const what = count(lost, "message", "messages");
    this.#options.warn(
      `${what} of the conversation "${this.header.id.slice(0, 8)}" cannot be read any more: ${this.path} is damaged. The conversation goes on without.`,
    );
  }

  #warn(error: unknown): void {
    if (this.#warned.has("unwritable")) return;
    this.#warned.add("unwritable");
    const { message } = toHubError(error);
    const [reason = ""] = message.split(",", 1);
    this.#options.warn(
      `The conversation "${this.header.id.slice(0, 8)}" goes on, but cannot be kept (${reason}): the folder ${dirname(this.path)} must be writable, on a disk with free space.`,
    );
  }
}

function forgottenError(): HubError {
  return new HubError("sessionNotFound", "The conversation was forgotten. Begin another one.");
}

function maskHeader(header: ConversationHeader, mask: (text: string) => string): object {
  const { name, ...rest } = header;
  return name === undefined ? rest : { ...rest, name: mask(name) };
}

async function writeAt(handle: FileHandle, bytes: Buffer, start: number): Promise<void> {
  let done = 0;
  while (done < bytes.length) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, start + done);
    done += bytesWritten;
  }
  // What a failed attempt has written beyond the end is not a part of the conversation.
  await handle.truncate(start + bytes.length);
}

/** @param length maximum number of bytes; by default all up to the end of the file */
async function readFrom(handle: FileHandle, start: number, length = Infinity): Promise<Buffer> {
  const { size } = await handle.stat();
  const bytes = Buffer.alloc(Math.max(0, Math.min(size - start, length)));
  let done = 0;
  while (done < bytes.length) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return bytes.subarray(0, done);
}

/**
 * Takes a lock and holds it.
 * @returns a function that gives it back, and settles when that is done
 * @throws {HubError} storeBusy, storeBroken; the signal's reason
 */
export async function holdLock(
  path: string,
  signal: AbortSignal,
  waitTimeout = LOCK_WAIT,
): Promise<() => Promise<void>> {
  const [held, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  // Once it is held, the signal of the wait must not end the hold.
  const waiting = new AbortController();
  const onAbort = (): void => waiting.abort(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  const work = (): Promise<void> => {
    signal.removeEventListener("abort", onAbort);
    held.resolve();
    return released.promise;
  };
  const done = withFileLock(path, waiting.signal, work, { waitTimeout });
  done.catch((error: unknown) => held.reject(error));
  try {
    await abortable(held.promise, signal);
  } catch (error) {
    released.resolve();
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
  return async () => {
    released.resolve();
    await done.catch(() => {});
  };
}
