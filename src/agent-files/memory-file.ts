import { join } from "node:path";
import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { dataFolder, type SystemEnvironment } from "../base/paths.ts";
import { ensurePrivateFolder, readPrivate, replacePrivate } from "../base/private-files.ts";
import { decodeUtf8 } from "../base/read-file.ts";
import { isTable } from "../manifest/table.ts";
import { sha256Hex } from "../manifest/trust.ts";
import { withFileLock, writeErrorOf } from "../process/file-lock.ts";

/** Something that an agent wants to know in later conversations. */
export interface Memory {
  readonly id: string;
  readonly at: string;
  readonly memory: string;
  readonly category?: string;
}

/** Limits of the memories of one file: their number, the length of each in UTF-16 units, the size of all in bytes. */
export const MEMORY_LIMITS = { count: 2000, length: 10_000, size: 4 * 1024 * 1024 } as const;

/** The memories of the agents of one file, in a file that only the user can read. */
export class MemoryFile {
  readonly #folder: string;
  readonly #source: string;
  readonly #name: string;

  /**
   * @param source the file or the reference that the agent is from: each has memories of its own
   * @param name what the agent's file calls the memory; agents with the same name share it
   */
  constructor(
    source: string,
    name: string,
    { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  ) {
    this.#folder = join(dataFolder(env, platform), "agent-memory");
    this.#source = source;
    this.#name = name;
  }

  /** The path of the file. */
  async path(): Promise<string> {
    const key = await sha256Hex(Uint8Array.from(utf8(JSON.stringify([this.#source, this.#name]))));
    return join(this.#folder, `${key.slice(0, 32)}.json`);
  }

  /** @throws {HubError} storeBroken if the file is damaged */
  async read(): Promise<readonly Memory[]> {
    const path = await this.path();
    const bytes = await readPrivate(path, MEMORY_LIMITS.size);
    if (bytes === undefined) return [];
    try {
      const document: unknown = JSON.parse(decodeUtf8(bytes) ?? "");
      const list = isTable(document) ? document["memories"] : undefined;
      if (Array.isArray(list)) return list.filter(isMemory);
    } catch {
      // Reported below.
    }
    throw new HubError("storeBroken", `${path} is damaged, so the memory cannot be used.`);
  }

  /**
   * Changes the memories while no other process does.
   * @param change returns the new memories
   * @throws {HubError} storeBroken, storeBusy; invalidParams if the limits are exceeded; the signal's reason
   */
  async change(
    change: (memories: readonly Memory[]) => readonly Memory[],
    signal: AbortSignal,
  ): Promise<void> {
    const path = await this.path();
    try {
      await ensurePrivateFolder(this.#folder);
      await withFileLock(`${path}.lock`, signal, async () => {
        const memories = change(await this.read());
        const document = { source: this.#source, name: this.#name, memories };
        const bytes = utf8(`${JSON.stringify(document, null, 1)}\n`);
        if (memories.length > MEMORY_LIMITS.count || bytes.length > MEMORY_LIMITS.size)
          throw new HubError("invalidParams", "The memory is full: delete what is not needed.");
        await replacePrivate(path, bytes);
      });
    } catch (error) {
      throw writeErrorOf(this.#folder, error);
    }
  }
}

function isMemory(value: unknown): value is Memory {
  if (!isTable(value)) return false;
  const { id, at, memory, category } = value;
  const texts = [id, at, memory, ...(category === undefined ? [] : [category])];
  return texts.every((text) => typeof text === "string");
}
