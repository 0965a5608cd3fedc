import { Buffer } from "node:buffer";
import type { FileHandle } from "node:fs/promises";
import process from "node:process";
import { HubError } from "../base/errors.ts";

/** Where a recording goes. */
export interface RecordingSink {
  /** One after the other; rejects if it could not be written. */
  append(bytes: Uint8Array): Promise<void>;
  /** Writes at once, behind what is being written; for the end of a process that waits for nothing. */
  appendNow(bytes: Uint8Array): void;
  close(): Promise<void>;
}

/** As much of a file is read to see whether it is a recording. */
const LOOK = 64;
const BEGINNING = '{"recording":';

/**
 * A new file for a recording, which its owner alone can read. A recording of before makes place for it; whoever still writes
 * that one goes on with it under no name.
 * @throws {HubError} usage if it cannot be made there, or something else would be lost
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

/** What is empty is nothing that could be lost. */
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
  /** The length of what is certainly written, and what follows it. */
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

  /** What is being written is written again, at the same place: nobody can say how far that was. */
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
