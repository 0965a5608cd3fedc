import type { Clock } from "../base/clock.ts";
import { isJsonObject } from "../base/json.ts";
import type { Quota, StoredQuota } from "./quota.ts";

/** Storage that keeps the quotas of all hubs of a user as text. */
export interface QuotaStorage {
  /** Equal for all hubs of one manifest: their quotas have the same keys. */
  readonly manifest: string;
  /** @returns the stored text; undefined if there is none. Never rejects. */
  read(): Promise<string | undefined>;
  /** Replaces the text while other processes are locked out. @throws {HubError} storeBroken or storeBusy */
  update(change: (text: string | undefined) => string): Promise<void>;
}

/** Time between two exchanges with the storage, in ms. */
export const SYNC_INTERVAL = 10_000;
/** How long a window is kept in the storage after its end, in ms: another hub's clock may be behind. */
const KEPT_AFTER_END = 31 * 86_400_000;
/** Maximum number of stored quotas. */
const MAX_STORED_QUOTAS = 10_000;

export interface QuotaBookOptions {
  readonly clock: Clock;
  /** The time, in ms since the epoch. */
  readonly wallNow: () => number;
  /** Opens the storage; undefined: quotas are kept in memory. */
  readonly open: (() => Promise<QuotaStorage>) | undefined;
  /** Called every 10 s, after an exchange with the storage. */
  onSync(): void;
  /** Called with a sentence for people when the storage cannot be used, once until it can be. */
  onFailure(text: string): void;
}

/**
 * The quotas of a hub, and their exchange with a storage that all hubs share. Only differences are added to it, so the
 * calls of several hubs add up.
 */
export class QuotaBook {
  readonly #options: QuotaBookOptions;
  #quotas: readonly Quota[] = [];
  #storage: Promise<QuotaStorage> | undefined;
  #cancelTimer: () => void = () => {};
  #isScheduled = false;
  /** The last exchange; the next one begins when it has ended. */
  #syncing: Promise<void> = Promise.resolve();
  /** How often stored calls are being read that are not known. */
  #loading = 0;
  readonly #loadWaiters: (() => void)[] = [];
  #hasFailed = false;
  #isClosed = false;

  constructor(options: QuotaBookOptions) {
    this.#options = options;
  }

  /** Whether the stored calls of all quotas are known, or cannot be read. */
  get isLoaded(): boolean {
    return this.#loading === 0;
  }

  /** Calls back once `isLoaded` is true. */
  whenLoaded(callback: () => void): void {
    if (this.isLoaded) callback();
    else this.#loadWaiters.push(callback);
  }

  /** The quotas that are kept. Stored calls of new ones are read. */
  setQuotas(quotas: readonly Quota[]): void {
    const isNew = quotas.some((quota) => !this.#quotas.includes(quota));
    this.#quotas = quotas;
    if (quotas.length === 0) this.#stopTimer();
    this.#schedule();
    if (!isNew || this.#options.open === undefined) return;
    void this.#load();
  }

  async #load(): Promise<void> {
    this.#loading++;
    await this.sync();
    this.#loading--;
    if (this.isLoaded) for (const callback of this.#loadWaiters.splice(0)) callback();
  }

  /** Exchanges calls with the storage now. Never rejects. */
  sync(): Promise<void> {
    this.#syncing = this.#syncing.then(() => this.#exchange());
    return this.#syncing;
  }

  /** Forgets the calls of a quota, in the storage, too. Never rejects. */
  reset(quota: Quota): Promise<void> {
    // Not while an exchange goes on, whose result counts afterwards.
    this.#syncing = this.#syncing.then(() => {
      quota.reset();
      return this.#exchange();
    });
    return this.#syncing;
  }

  /** Stores what is not stored. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopTimer();
    if (this.#quotas.some(({ isUnsaved }) => isUnsaved)) await this.sync();
    else await this.#syncing;
  }

  async #exchange(): Promise<void> {
    if (this.#options.open !== undefined) await this.#exchangeWith(this.#options.open);
    this.#schedule();
    this.#options.onSync();
  }

  async #exchangeWith(open: () => Promise<QuotaStorage>): Promise<void> {
    const quotas = this.#quotas;
    if (quotas.length === 0) return;
    try {
      this.#storage ??= open();
      const storage = await this.#storage.catch((error: unknown) => {
        this.#storage = undefined;
        throw error;
      });
      if (quotas.some(({ isUnsaved }) => isUnsaved)) await this.#store(storage, quotas);
      else this.#read(storage, quotas, await storage.read());
      this.#hasFailed = false;
    } catch (error) {
      // What could not be stored is stored the next time.
      if (!this.#hasFailed) {
        const reason = error instanceof Error ? error.message : String(error);
        this.#options.onFailure(`The calls that count for quotas cannot be stored: ${reason}`);
      }
      this.#hasFailed = true;
    }
  }

  async #store(storage: QuotaStorage, quotas: readonly Quota[]): Promise<void> {
    const { wallNow } = this.#options;
    let added: readonly (readonly [Quota, StoredQuota | undefined, number])[] = [];
    await storage.update((text) => {
      const now = wallNow();
      const stored = parseQuotas(text);
      added = quotas.map((quota) => [
        quota,
        quota.addTo(stored.get(keyIn(storage, quota)), now),
        quota.unsaved,
      ]);
      for (const [quota, sum] of added) {
        const key = keyIn(storage, quota);
        stored.delete(key);
        if (sum !== undefined) stored.set(key, sum);
      }
      return formatQuotas(stored, now);
    });
    for (const [quota, sum, unsaved] of added) quota.adopt(sum, unsaved);
  }

  #read(storage: QuotaStorage, quotas: readonly Quota[], text: string | undefined): void {
    const now = this.#options.wallNow();
    const stored = parseQuotas(text);
    for (const quota of quotas) {
      // A call that was counted while the text was read is stored the next time.
      const { unsaved } = quota;
      const sum = quota.addTo(stored.get(keyIn(storage, quota)), now);
      if (unsaved === 0) quota.adopt(sum, 0);
    }
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isClosed || this.#quotas.length === 0) return;
    this.#isScheduled = true;
    this.#cancelTimer = this.#options.clock.after(SYNC_INTERVAL, () => {
      this.#isScheduled = false;
      void this.sync();
    });
  }

  #stopTimer(): void {
    this.#cancelTimer();
    this.#isScheduled = false;
  }
}

/** The name of a quota in the storage. */
function keyIn({ manifest }: QuotaStorage, { key }: Quota): string {
  return `${manifest} ${key}`;
}

/** Reads the stored text. What cannot be read counts as not there. */
function parseQuotas(text: string | undefined): Map<string, StoredQuota> {
  const read = new Map<string, StoredQuota>();
  let value: unknown;
  try {
    value = text === undefined ? undefined : JSON.parse(text);
  } catch {
    return read;
  }
  const quotas = isJsonObject(value) && value["version"] === 1 ? value["quotas"] : undefined;
  if (!isJsonObject(quotas)) return read;
  for (const [key, quota] of Object.entries(quotas)) {
    const { start, per, used } = isJsonObject(quota) ? quota : {};
    if (isNumber(start) && isNumber(per) && isNumber(used) && per > 0 && used >= 0)
      read.set(key, { start, per, used });
  }
  return read;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function formatQuotas(quotas: ReadonlyMap<string, StoredQuota>, now: number): string {
  const kept = [...quotas].filter(([, { start, per }]) => now - (start + per) < KEPT_AFTER_END);
  const last = Object.fromEntries(kept.slice(-MAX_STORED_QUOTAS));
  return `${JSON.stringify({ version: 1, quotas: last }, null, 2)}\n`;
}
