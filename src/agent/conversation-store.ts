import { Buffer } from "node:buffer";
import { constants } from "node:fs";
import { lstat, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { obtainHmac } from "../snapshot/hmac.ts";
import {
  ConversationFile,
  type ConversationHeader,
  holdLock,
  parseHeader,
} from "./conversation-file.ts";
import { parseEntry, titleOf } from "./transcript.ts";

/** The folder of conversations in the state folder. */
export const CONVERSATIONS_FOLDER = "conversations";

/**
 * Whose conversations they are, as the name of a folder: `user` for the terminal and the page of this user, or
 * `clientPrincipal`. One never finds the conversations of another.
 */
export type Principal = string;

/** The principal of the terminal, and of the page. */
export const USER: Principal = "user";

/**
 * The principal of a named client over HTTP: an HMAC of its name and of its token, so that neither can be read from the
 * name of the folder, and a new token does not find the conversations of the old one.
 * @throws {Error} if the state folder is not writable
 */
export async function clientPrincipal(
  stateFolder: string,
  name: string,
  token: string,
): Promise<Principal> {
  const hmac = await obtainHmac(stateFolder);
  const ofToken = await hmac(Buffer.from(`token ${token}`));
  return (await hmac(Buffer.from(`principal ${JSON.stringify([name, ofToken])}`))).slice(0, 32);
}

/** How much is kept. */
export interface ConversationLimits {
  /** How long a conversation is kept after its last message, in ms. */
  readonly maxAge: number;
  /** Maximum size of all conversations together, in bytes; the oldest are forgotten. */
  readonly maxSize: number;
}

export const CONVERSATION_LIMITS: ConversationLimits = {
  maxAge: 90 * 24 * 60 * 60_000,
  maxSize: 256 * 1024 * 1024,
};

/** A conversation that is kept, for lists. Times are in ms since the epoch. */
export interface KeptConversation extends ConversationHeader {
  /** The beginning of its first message; "" if there is none. */
  readonly title: string;
  readonly lastUsed: number;
  /** Size of its file, in bytes. */
  readonly size: number;
}

/** What is kept of all principals. `oldest`: in ms since the epoch. */
export interface ConversationUsage {
  readonly count: number;
  readonly ofClients: number;
  readonly size: number;
  readonly oldest: number;
}

export interface ConversationStoreOptions {
  /** The state folder. */
  readonly stateFolder: string;
  readonly limits?: ConversationLimits;
  /** The manifest that has these limits; they hold for the conversations that were begun with it. */
  readonly manifest?: string;
  /** Removes known secrets from a text. */
  readonly mask: (text: string) => string;
  /** Called once for each conversation that cannot be kept. */
  readonly warn: (text: string) => void;
  /** Time in ms since the epoch. */
  readonly now?: () => number;
}

const ID = /^[A-Za-z0-9_-]{1,64}$/;
const SUFFIX = ".jsonl";
/** How much of a file is read for a list, in bytes: its header, and the beginning of its first message. */
const HEAD_SIZE = 16 * 1024;
/** The flags for opening a file to read: see `ConversationFile`. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** The conversations that are kept in the state folder, each in a file. */
export class ConversationStore {
  readonly #options: ConversationStoreOptions;
  readonly #folder: string;

  constructor(options: ConversationStoreOptions) {
    this.#options = options;
    this.#folder = join(options.stateFolder, CONVERSATIONS_FOLDER);
  }

  /** A new conversation. Its file is made by its first entry, or by `create`. Forgets what is above the limits. */
  async begin(
    principal: Principal,
    header: Omit<ConversationHeader, "format" | "manifest" | "maxAge">,
  ): Promise<ConversationFile> {
    await this.prune().catch(() => {});
    const { maxAge } = this.#limits;
    return this.#file(principal, { format: 1, ...header, manifest: this.#manifest, maxAge }, false);
  }

  /** Finds a conversation of the principal. @returns undefined if it has none with this id */
  async find(principal: Principal, id: string): Promise<ConversationFile | undefined> {
    if (!ID.test(id)) return undefined;
    const kept = await readKept(this.#path(principal, id));
    if (kept === undefined || kept.id !== id || this.#isTooOld(kept)) return undefined;
    const { title: _, lastUsed: __, size: ___, ...header } = kept;
    return this.#file(principal, header, true);
  }

  /** The conversations of the principal, the last used first. */
  async list(principal: Principal): Promise<readonly KeptConversation[]> {
    const kept = await listFolder(join(this.#folder, principal));
    return kept.filter((one) => !this.#isTooOld(one)).toSorted((a, b) => b.lastUsed - a.lastUsed);
  }

  /**
   * Removes a conversation, when no process works in it.
   * @returns whether there was one
   * @throws {HubError} storeBusy if a process works in it
   */
  async forget(principal: Principal, id: string, signal: AbortSignal): Promise<boolean> {
    if (!ID.test(id)) return false;
    const path = this.#path(principal, id);
    if ((await readKept(path)) === undefined) return false;
    const release = await holdLock(`${path}.lock`, signal);
    try {
      await rm(path, { force: true });
    } finally {
      await release();
    }
    return true;
  }

  /** How many conversations there are, those of clients included, their size in bytes, and when the oldest was used. */
  async usage(): Promise<ConversationUsage> {
    const all = await this.#all();
    return {
      count: all.length,
      ofClients: all.filter(({ principal }) => principal !== USER).length,
      size: all.reduce((sum, { size }) => sum + size, 0),
      oldest: Math.min(...all.map(({ lastUsed }) => lastUsed)),
    };
  }

  /**
   * Removes what is older than its limit, and the oldest above the limit of size. Skips those in use. Another manifest's
   * conversations have the limits of that one.
   */
  async prune(): Promise<void> {
    const { maxSize } = this.#limits;
    const all = (await this.#all()).toSorted((a, b) => b.lastUsed - a.lastUsed);
    let size = 0;
    for (const one of all) {
      if (one.manifest === this.#manifest) size += one.size;
      const isTooMuch = size > maxSize && one.manifest === this.#manifest;
      if (!this.#isTooOld(one) && !isTooMuch) continue;
      const signal = AbortSignal.timeout(1000);
      await this.forget(one.principal, one.id, signal).catch(() => {});
    }
  }

  get #limits(): ConversationLimits {
    return this.#options.limits ?? CONVERSATION_LIMITS;
  }

  async #all(): Promise<readonly (KeptConversation & { readonly principal: Principal })[]> {
    const principals = await readdir(this.#folder).catch(() => []);
    const found = await Promise.all(
      principals.map(async (principal) => {
        const kept = await listFolder(join(this.#folder, principal));
        return kept.map((one) => ({ ...one, principal }));
      }),
    );
    return found.flat();
  }

  get #manifest(): string {
    return this.#options.manifest ?? "";
  }

  #isTooOld({ lastUsed, manifest, maxAge }: KeptConversation): boolean {
    const limit = manifest === this.#manifest ? this.#limits.maxAge : maxAge;
    return (this.#options.now ?? Date.now)() - lastUsed > limit;
  }

  #path(principal: Principal, id: string): string {
    return join(this.#folder, principal, `${id}${SUFFIX}`);
  }

  #file(principal: Principal, header: ConversationHeader, isThere: boolean): ConversationFile {
    const { mask, warn } = this.#options;
    const path = this.#path(principal, header.id);
    return new ConversationFile({ path, header, isThere, mask, warn });
  }
}

async function listFolder(folder: string): Promise<readonly KeptConversation[]> {
  const names = await readdir(folder).catch(() => []);
  const kept = await Promise.all(
    names.filter((name) => name.endsWith(SUFFIX)).map((name) => readKept(join(folder, name))),
  );
  return kept.filter((one) => one !== undefined);
}

/** Reads the beginning of a conversation's file. @returns undefined if it is none */
async function readKept(path: string): Promise<KeptConversation | undefined> {
  try {
    if (!(await lstat(path)).isFile()) return undefined;
    const handle = await open(path, FLAGS);
    try {
      const { size, mtimeMs } = await handle.stat();
      const bytes = Buffer.alloc(Math.min(size, HEAD_SIZE));
      const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
      const [first = "", ...lines] = bytes.subarray(0, bytesRead).toString().split("\n");
      const header = parseHeader(first);
      return header && { ...header, title: titleIn(lines), lastUsed: Math.round(mtimeMs), size };
    } finally {
      await handle.close();
    }
  } catch {
    return undefined;
  }
}

/** The beginning of the first message in lines of which the last may be cut. */
function titleIn(lines: readonly string[]): string {
  const line = lines.find((one) => one.startsWith('{"role":"user"')) ?? "";
  const entry = parseEntry(line);
  if (entry?.role === "user") return titleOf(entry.text);
  const [, cut = ""] = /"text":"((?:[^"\\]|\\[^u]|\\u[\da-f]{4})*)/i.exec(line) ?? [];
  return titleOf(JSON.parse(`"${cut}"`) as string);
}
