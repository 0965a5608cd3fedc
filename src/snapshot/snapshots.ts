import { KINDS, sameListings, type ServerListing } from "../catalog/listing.ts";

/**
 * The snapshot folder: the last listing of each server on disk, so that a client's first list is complete at once. Main
 * types: `Snapshots`, below; `SnapshotKeeper`, which implements it over a `SnapshotStore` (in memory, or `disk.ts`).
 * Start here.
 *
 * Identifies a server by its launch settings, in which every `${…}` is resolved. So the values may contain secrets.
 */
export interface ServerIdentity {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly url: string | undefined;
  readonly principal: string | undefined;
}

/** Identifies a snapshot: the server, and the protocol era and capabilities of the clients that it was listed for. */
export interface SnapshotKey extends ServerIdentity {
  /** The protocol era of the clients for which the server was listed; `capabilities`: their capabilities, as text. */
  readonly era: DetectedEra["era"];
  readonly capabilities: string;
}

/**
 * The detected protocol era of a server (`legacy`: up to 2025-11-25; `modern`: 2026-07-28). `detectedAt`: the time of
 * the detection, in ms since the epoch.
 */
export interface DetectedEra {
  readonly era: "legacy" | "modern";
  readonly detectedAt: number;
  /** Set if the era is only assumed: the server did not answer `server/discover`, but it may only have been slow. */
  readonly isGuess?: true;
}

export interface Snapshot {
  readonly listing: ServerListing;
  /** The server's era; undefined if it is unknown, or was detected too long ago. */
  readonly detectedEra?: DetectedEra | undefined;
  /** The time of the save, in ms since the epoch. An unchanged listing is saved again only after a day. */
  readonly savedAt: number;
}

/** Stores the last listing of each server. */
export interface Snapshots {
  /**
   * Loads the listing stored under the key, else the server's newest listing, which may differ a little because it
   * was made for other clients. Never rejects.
   * @returns undefined if there is no listing, or it is too old
   */
  load(key: SnapshotKey): Promise<Snapshot | undefined>;
  /**
   * Stores a listing and the era of the server. Never rejects: failures are reported once, as a warning.
   */
  save(key: SnapshotKey, listing: ServerListing, detectedEra?: DetectedEra): Promise<void>;
  /** Resolves when all saves have ended. */
  flush(): Promise<void>;
}

/** The storage of a `SnapshotKeeper`. All methods except `read` may reject. */
export interface SnapshotStore {
  /** The place where snapshots are stored, for messages. */
  readonly location: string;
  /** The stored snapshot; undefined if there is none, or it is damaged. */
  read(key: SnapshotKey): Promise<Snapshot | undefined>;
  /** The newest undamaged snapshot of a server, whichever clients it was listed for; undefined if there is none. */
  readNewest(server: ServerIdentity): Promise<Snapshot | undefined>;
  /** Replaces a snapshot. @returns false if it is too large */
  write(key: SnapshotKey, snapshot: Snapshot): Promise<boolean>;
  remove(key: SnapshotKey): Promise<void>;
  /** Removes all snapshots that are too old, then the oldest ones until the store is within its limits. */
  prune(now: number): Promise<void>;
}

const DAY = 24 * 60 * 60 * 1000;
const MAX_AGE = 30 * DAY;
/** How long a detected era is valid, in ms. An era that is only assumed is valid for `MAX_GUESS_AGE`. */
const MAX_DETECTED_ERA_AGE = 7 * DAY;
const MAX_GUESS_AGE = DAY;
export const MAX_SNAPSHOT_BYTES = 8 * 1024 * 1024;
export const MAX_SNAPSHOTS = 500;

const CONSEQUENCE_TEXT =
  "the first list after a start is complete only when every server has connected.";

/**
 * Whether a snapshot is recent enough. A snapshot from the far future was saved with a wrong clock and is not usable.
 * Both times are in ms since the epoch.
 */
export function isUsable(savedAt: number, now: number): boolean {
  return Math.abs(now - savedAt) <= MAX_AGE;
}

/** Serializes a server's identity unambiguously. */
export function formatServerIdentity(server: ServerIdentity): string {
  const { command, args, cwd, env, url, principal } = server;
  const variables = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  const optional = [cwd ?? null, url ?? null, principal ?? null];
  return JSON.stringify([command, args, variables, optional]);
}

/** Serializes a key unambiguously. */
export function formatSnapshotKey(key: SnapshotKey): string {
  return JSON.stringify([formatServerIdentity(key), key.era, key.capabilities]);
}

export interface SnapshotKeeperOptions {
  readonly store: SnapshotStore;
  /** The current time, in ms since the epoch. */
  readonly now: () => number;
  /** Receives each distinct warning once. */
  readonly warn: (text: string) => void;
  /** Whether `load` returns the server's newest listing even if there is one under the given key; default false. */
  readonly prefersNewest?: boolean | undefined;
}

/** Implements `Snapshots` for any store. */
export class SnapshotKeeper implements Snapshots {
  readonly #options: SnapshotKeeperOptions;
  readonly #warned = new Set<string>();
  /** The last queued save. Saves run one after another: each compares its listing with the last saved one. */
  #lastSave: Promise<unknown> = Promise.resolve();
  #pendingSaves = 0;
  #isPruned = true;

  constructor(options: SnapshotKeeperOptions) {
    this.#options = options;
  }

  async load(key: SnapshotKey): Promise<Snapshot | undefined> {
    const { store, now, prefersNewest = false } = this.#options;
    const exact = await this.#read(key);
    let stored = exact;
    if (exact === undefined || prefersNewest) {
      const newest = await store.readNewest(key).catch(() => undefined);
      if (newest !== undefined && isUsable(newest.savedAt, now())) stored = newest;
    }
    if (stored === undefined) return undefined;
    const { savedAt } = stored;
    // A listing made for other clients may have other instructions, and a client cannot be told later that they have
    // changed.
    const listing =
      stored === exact ? stored.listing : { ...stored.listing, instructions: undefined };
    // The era of another snapshot is not used: the server may speak another protocol version with other clients.
    const detectedEra = exact?.detectedEra;
    const age = Math.abs(this.#options.now() - (detectedEra?.detectedAt ?? 0));
    const maxAge = detectedEra?.isGuess === true ? MAX_GUESS_AGE : MAX_DETECTED_ERA_AGE;
    return { listing, savedAt, detectedEra: age > maxAge ? undefined : detectedEra };
  }

  save(key: SnapshotKey, listing: ServerListing, detectedEra?: DetectedEra): Promise<void> {
    this.#pendingSaves++;
    const save = this.#lastSave.then(async () => {
      await this.#write(key, listing, detectedEra);
      this.#pendingSaves--;
      await this.#prune();
    });
    this.#lastSave = save;
    return save;
  }

  async flush(): Promise<void> {
    let last: unknown;
    while (last !== this.#lastSave) {
      last = this.#lastSave;
      await last;
    }
  }

  async #read(key: SnapshotKey): Promise<Snapshot | undefined> {
    const { store, now } = this.#options;
    try {
      const stored = await store.read(key);
      if (stored === undefined || isUsable(stored.savedAt, now())) return stored;
      await store.remove(key);
    } catch {
      // The snapshot is not used, so an error does not matter here; the next save reports a store that is not writable.
    }
    return undefined;
  }

  async #write(
    key: SnapshotKey,
    listing: ServerListing,
    detectedEra: DetectedEra | undefined,
  ): Promise<void> {
    const { store } = this.#options;
    const savedAt = this.#options.now();
    // A listing above this size is not read or compared: that would block the event loop.
    if (sizeOfListing(listing) > MAX_SNAPSHOT_BYTES) {
      this.#warnTooLarge();
      return;
    }
    try {
      const stored = await this.#read(key);
      const isSame =
        stored !== undefined &&
        isSameDetectedEra(stored.detectedEra, detectedEra) &&
        sameListings(stored.listing, listing);
      if (isSame && Math.abs(savedAt - stored.savedAt) <= DAY) return;
      if (await store.write(key, { listing, detectedEra, savedAt })) this.#isPruned = false;
      else this.#warnTooLarge();
    } catch (error) {
      const reason =
        error instanceof Error && "code" in error ? String(error.code) : "unknown error";
      this.#warn(
        `What servers list cannot be saved in ${store.location} (${reason}); ${CONSEQUENCE_TEXT}`,
      );
    }
  }

  #warnTooLarge(): void {
    this.#warn(
      `What a server lists is not saved if it is larger than ${MAX_SNAPSHOT_BYTES} bytes; ${CONSEQUENCE_TEXT}`,
    );
  }

  /**
   * Prunes the store after the last of several saves, not after each, because pruning reads the metadata of all
   * snapshots.
   */
  async #prune(): Promise<void> {
    if (this.#isPruned || this.#pendingSaves > 0) return;
    this.#isPruned = true;
    try {
      await this.#options.store.prune(this.#options.now());
    } catch {
      // A failure does not matter: the next save tries again.
    }
  }

  #warn(text: string): void {
    if (this.#warned.has(text)) return;
    this.#warned.add(text);
    this.#options.warn(text);
  }
}

export function memorySnapshots({ now = Date.now }: { now?: () => number } = {}): Snapshots {
  return new SnapshotKeeper({ store: new MemoryStore(), now, warn: () => {} });
}

class MemoryStore implements SnapshotStore {
  readonly location = "memory";
  /** Snapshots by serialized key, oldest first. */
  readonly #snapshots = new Map<string, Snapshot>();

  async read(key: SnapshotKey): Promise<Snapshot | undefined> {
    return this.#snapshots.get(formatSnapshotKey(key));
  }

  async readNewest(server: ServerIdentity): Promise<Snapshot | undefined> {
    const identity = formatServerIdentity(server);
    let newest: Snapshot | undefined;
    for (const [key, snapshot] of this.#snapshots) {
      const [stored] = JSON.parse(key) as [string];
      if (stored === identity && !(newest !== undefined && newest.savedAt > snapshot.savedAt))
        newest = snapshot;
    }
    return newest;
  }

  async write(key: SnapshotKey, snapshot: Snapshot): Promise<boolean> {
    await this.remove(key);
    this.#snapshots.set(formatSnapshotKey(key), snapshot);
    return true;
  }

  async remove(key: SnapshotKey): Promise<void> {
    this.#snapshots.delete(formatSnapshotKey(key));
  }

  async prune(now: number): Promise<void> {
    for (const [key, { savedAt }] of this.#snapshots) {
      if (this.#snapshots.size > MAX_SNAPSHOTS || !isUsable(savedAt, now))
        this.#snapshots.delete(key);
    }
  }
}

/** Whether two detections have found the same era, at most a day apart. */
function isSameDetectedEra(a: DetectedEra | undefined, b: DetectedEra | undefined): boolean {
  const isSame = a?.era === b?.era && a?.isGuess === b?.isGuess;
  return isSame && Math.abs((a?.detectedAt ?? 0) - (b?.detectedAt ?? 0)) <= DAY;
}

function sizeOfListing(listing: ServerListing): number {
  const items = KINDS.flatMap((kind) => listing[kind]);
  return items.reduce((sum, { bytes }) => sum + bytes.length, listing.instructions?.length ?? 0);
}
