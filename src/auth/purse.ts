import type { SecretStore } from "../secrets/store.ts";
import { type StoredToken, loadToken, saveToken } from "./stored-token.ts";

/** Does something while no other process does anything under that name. @param limit how long others are waited for, in ms */
export type LockFunction = <T>(
  name: string,
  signal: AbortSignal,
  work: () => Promise<T>,
  limit: number,
) => Promise<T>;

export interface TokenCacheOptions {
  /** The name under which it is kept. */
  readonly name: string;
  /** What it is for. */
  readonly url: URL;
  readonly store: SecretStore;
  readonly lock: LockFunction;
}

/** How long other processes may take to exchange a token, in ms. */
const LIMIT = 60_000;

/** What is kept for one server, as this process knows it. */
export class TokenCache {
  readonly #parts: TokenCacheOptions;
  #kept: StoredToken | undefined;
  #isRead = false;
  /** What could not be kept, and the token in the store that it stands for. */
  #unsaved: { readonly kept: StoredToken; readonly instead: string | undefined } | undefined;

  constructor(parts: TokenCacheOptions) {
    this.#parts = parts;
  }

  /** As far as it was read. */
  get kept(): StoredToken | undefined {
    return this.#kept;
  }

  /** Read now if it was not yet. @throws {HubError} what the store throws, as do all below */
  async known(): Promise<StoredToken | undefined> {
    return this.#isRead ? this.#kept : this.read();
  }

  /** Read now: another process may have put something else there. */
  async read(): Promise<StoredToken | undefined> {
    const { store, name, url } = this.#parts;
    const stored = await loadToken(store, name, url);
    // What somebody has put there since is newer.
    if (this.#unsaved?.instead !== stored?.access) this.#unsaved = undefined;
    this.#kept = this.#unsaved?.kept ?? stored;
    this.#isRead = true;
    return this.#kept;
  }

  /**
   * It is on disk before anybody uses it: what it replaces may be worth nothing any more. If that fails this process has it
   * all the same, until something else is there.
   */
  async put(kept: StoredToken): Promise<void> {
    const instead = this.#unsaved === undefined ? this.#kept?.access : this.#unsaved.instead;
    try {
      await saveToken(this.#parts.store, this.#parts.name, kept);
      this.#unsaved = undefined;
    } catch (error) {
      this.#unsaved = { kept, instead };
      throw error;
    } finally {
      this.#kept = kept;
      this.#isRead = true;
    }
  }

  async empty(): Promise<void> {
    this.#unsaved = undefined;
    await this.#parts.store.remove(this.#parts.name);
    this.#kept = undefined;
  }

  /** Nobody else exchanges it meanwhile. What has begun is not given up: its end may be the only chance. */
  exclusively<T>(work: () => Promise<T>): Promise<T> {
    const { lock, name } = this.#parts;
    return lock(`token-${name}`, new AbortController().signal, work, LIMIT);
  }
}
