import { join } from "node:path";
import { lstat, readdir, rm } from "node:fs/promises";
import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { dataFolder, type SystemEnvironment } from "../base/paths.ts";
import {
  ensurePrivateFolder,
  isTempFile,
  readPrivate,
  removeStaleTempFiles,
  replacePrivate,
} from "../base/private-files.ts";
import { decodeUtf8, type FileBytes } from "../base/read-file.ts";
import { isTable } from "../manifest/table.ts";
import { sha256Hex } from "../manifest/trust.ts";
import { withFileLock, writeErrorOf } from "../process/file-lock.ts";
import { MAX_AGENT_FILE } from "./agent-file.ts";
import { DIGEST, formatReference, parseReference, type Reference } from "./reference.ts";
import type { PulledAgent } from "./registry.ts";

const REFS_FILE = "refs.json";
const MAX_REFS_SIZE = 4 * 1024 * 1024;

/** An agent in the store. */
export interface StoredAgent {
  /** The reference, as `formatReference` writes it. */
  readonly reference: string;
  /** The digest of the manifest, which `toolmux trust` trusts. */
  readonly digest: string;
  readonly contentDigest: string;
  /** Time at which the agent was pulled, in ms since the epoch. */
  readonly pulledAt: number;
}

/**
 * Agents that were pulled. `sha256/HEX` are their manifests and layers by digest, `refs.json` says which reference
 * leads to which digests. A file is in `refs.json` only after it is complete on the disk, so a killed process leaves
 * behind only files that nothing refers to, which the next change removes. Changes hold the lock of the folder.
 */
export class AgentStore {
  readonly folder: string;

  constructor({ env, platform }: Pick<SystemEnvironment, "env" | "platform">) {
    this.folder = join(dataFolder(env, platform), "agents");
  }

  /** All stored agents, sorted by reference; none if `refs.json` is missing or damaged. */
  async list(): Promise<readonly StoredAgent[]> {
    const bytes = await readPrivate(this.#refsPath, MAX_REFS_SIZE);
    try {
      const document: unknown = JSON.parse(decodeUtf8(bytes ?? new Uint8Array()) ?? "");
      const refs = isTable(document) && isTable(document["refs"]) ? document["refs"] : {};
      return Object.entries(refs)
        .flatMap(([reference, entry]) => readEntry(reference, entry) ?? [])
        .toSorted((a, b) => (a.reference < b.reference ? -1 : 1));
    } catch {
      return [];
    }
  }

  /**
   * The stored agent that a text names: a whole reference, or its last part (`code-reviewer:latest`) if that is unique.
   * @throws {HubError} agentNotFound if several agents have that last part
   */
  async find(text: string): Promise<StoredAgent | undefined> {
    const wanted = parseReference(text);
    if (wanted === undefined) return undefined;
    const all = await this.list();
    const whole = formatReference(wanted);
    const exact = all.find(({ reference }) => reference === whole);
    if (exact !== undefined) return exact;
    const matches = all.filter(({ reference, digest }) => {
      const stored = parseReference(reference);
      if (stored === undefined) return false;
      const isSame = stored.host === wanted.host && stored.repository === wanted.repository;
      if (wanted.digest !== undefined) return isSame && digest === wanted.digest;
      return stored.tag === wanted.tag && isLastPart(text, stored);
    });
    const [first, ...others] = matches;
    if (others.length === 0) return first;
    const names = matches.map(({ reference }) => reference).join(", ");
    throw new HubError(
      "agentNotFound",
      `Several agents have this name: ${names}. Write the whole name.`,
    );
  }

  /** The YAML of a stored agent. @throws {HubError} storeBroken if it is missing or damaged */
  async read({ reference, digest, contentDigest }: StoredAgent): Promise<FileBytes> {
    const manifest = await this.#readBlob(digest);
    const content = await this.#readBlob(contentDigest);
    if (manifest !== undefined && content !== undefined) return content;
    const text = `The stored agent ${reference} is damaged. Get it again: toolmux agents pull ${reference}`;
    throw new HubError("storeBroken", text);
  }

  /**
   * Adds an agent, or replaces the one with the same reference. @throws {HubError} storeBroken, storeBusy; the
   * signal's reason
   */
  async add(pulled: PulledAgent, signal: AbortSignal, now = Date.now()): Promise<StoredAgent> {
    const { digest, contentDigest, manifest, content } = pulled;
    const reference = formatReference(pulled.reference);
    const entry: StoredAgent = { reference, digest, contentDigest, pulledAt: now };
    await this.#change(signal, async (all) => {
      await ensurePrivateFolder(this.#blobFolder);
      await replacePrivate(this.#blobPath(digest), manifest);
      await replacePrivate(this.#blobPath(contentDigest), content);
      return [...all.filter((one) => one.reference !== reference), entry];
    });
    return entry;
  }

  /** Removes an agent. @returns whether it was there @throws {HubError} as `add` */
  async remove({ reference }: StoredAgent, signal: AbortSignal): Promise<boolean> {
    let wasThere = false;
    await this.#change(signal, (all) => {
      wasThere = all.some((one) => one.reference === reference);
      return Promise.resolve(all.filter((one) => one.reference !== reference));
    });
    return wasThere;
  }

  async #change(
    signal: AbortSignal,
    change: (all: readonly StoredAgent[]) => Promise<readonly StoredAgent[]>,
  ): Promise<void> {
    await withFileLock(join(this.folder, "agents.lock"), signal, async () => {
      try {
        const next = await change(await this.list());
        const refs = Object.fromEntries(
          next.map(({ reference, ...entry }) => [reference, entry] as const),
        );
        await replacePrivate(this.#refsPath, utf8(`${JSON.stringify({ refs }, null, 2)}\n`));
        await this.#removeUnused(next);
      } catch (error) {
        throw writeErrorOf(this.folder, error);
      }
    });
  }

  /** Removes files to which no reference leads, and temporary files of killed processes. */
  async #removeUnused(all: readonly StoredAgent[]): Promise<void> {
    const used = new Set(all.flatMap((one) => [one.digest, one.contentDigest]));
    const names = await readdir(this.#blobFolder).catch(() => []);
    for (const name of names) {
      // While this process holds the lock, no other process writes a file here.
      if (!used.has(`sha256:${name}`)) await rm(join(this.#blobFolder, name), { force: true });
    }
    for (const name of await readdir(this.folder)) {
      if (name.startsWith(REFS_FILE) && isTempFile(name))
        await rm(join(this.folder, name), { force: true });
    }
    await removeStaleTempFiles(this.folder, Date.now());
  }

  async #readBlob(digest: string): Promise<FileBytes | undefined> {
    const path = this.#blobPath(digest);
    const isFile = await lstat(path).then(
      (stats) => stats.isFile(),
      () => false,
    );
    const bytes = isFile ? await readPrivate(path, MAX_AGENT_FILE) : undefined;
    if (bytes === undefined) return undefined;
    return `sha256:${await sha256Hex(bytes)}` === digest ? bytes : undefined;
  }

  get #refsPath(): string {
    return join(this.folder, REFS_FILE);
  }

  get #blobFolder(): string {
    return join(this.folder, "sha256");
  }

  /** @param digest one that matches `DIGEST` */
  #blobPath(digest: string): string {
    return join(this.#blobFolder, digest.slice("sha256:".length));
  }
}

/** Whether a text is the last part of a stored reference's repository, with or without its tag. */
function isLastPart(text: string, { repository }: Reference): boolean {
  const [name = ""] = text.split(":");
  return !name.includes("/") && repository.split("/").at(-1) === name;
}

function readEntry(reference: string, entry: unknown): StoredAgent | undefined {
  if (!isTable(entry) || parseReference(reference) === undefined) return undefined;
  const { digest, contentDigest, pulledAt } = entry;
  if (typeof digest !== "string" || !DIGEST.test(digest)) return undefined;
  if (typeof contentDigest !== "string" || !DIGEST.test(contentDigest)) return undefined;
  return { reference, digest, contentDigest, pulledAt: Number(pulledAt) || 0 };
}
