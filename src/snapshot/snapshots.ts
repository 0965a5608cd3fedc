import type { ToolDiff } from "../catalog/tool-diff.ts";
import { isShowable, KINDS, sameListings, type ServerListing } from "../catalog/listing.ts";
import { compareWithHistory, type ToolMarks } from "./tool-marks.ts";

/**
 * The snapshot folder: the last listing of each server on disk, so that a client's first list is complete at once. Main
 * types: `Snapshots`, below; `SnapshotKeeper`, which implements it over a `SnapshotStore` (in memory, or `disk.ts`).
 * Start here.
 *
 * Identifies a snapshot: a server's launch settings and what it was listed for. Values are resolved, with secrets.
 */
export interface SnapshotKey {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly url: string | undefined;
  readonly principal: string | undefined;
  /** The era of the clients that it was listed for, and their capabilities. */
  readonly era: EraVerdict["era"];
  readonly capabilities: string;
}

/** The era that a server was found to speak, and when, in ms since the epoch. */
export interface EraVerdict {
  readonly era: "legacy" | "modern";
  readonly askedAt: number;
  /** The server did not answer; it may only have been slow. */
  readonly isGuess?: true;
}

/** A stored listing. */
export interface Snapshot {
  readonly offer: ServerListing;
  /** undefined if it is unknown or too old. */
  readonly verdict?: EraVerdict | undefined;
  /** ms since the epoch. An unchanged listing is saved again only after a day. */
  readonly savedAt: number;
}

/** Stores the last listing of each server. */
export interface Snapshots {
  /** The listing stored under the key; undefined if there is none, or it is too old. Never rejects. */
  load(subject: SnapshotKey): Promise<Snapshot | undefined>;
  /**
   * Stores a listing and the era of the server. Never rejects: failures are reported once, as a warning.
   * @returns the tools whose description has changed since the last save
   */
  save(
    subject: SnapshotKey,
    offer: ServerListing,
    verdict?: EraVerdict,
  ): Promise<readonly ToolDiff[]>;
  /** Resolves when all saves have ended. */
  flush(): Promise<void>;
}

/** A snapshot with the marks of its tools and earlier ones. */
export interface StoredSnapshot extends Snapshot {
  readonly readMarks: () => ToolMarks;
}

/** Where snapshots are stored. All methods but `read` may reject. */
export interface SnapshotStore {
  /** For messages. */
  readonly place: string;
  /** undefined if there is none, or it is damaged. */
  read(subject: SnapshotKey): Promise<StoredSnapshot | undefined>;
  /** Replaces a snapshot. @returns false if it is too large */
  write(subject: SnapshotKey, kept: StoredSnapshot): Promise<boolean>;
  remove(subject: SnapshotKey): Promise<void>;
  /** Removes snapshots that are too old, and the oldest ones over the limits. */
  tidy(now: number): Promise<void>;
}

const DAY = 24 * 60 * 60 * 1000;
const MAX_AGE = 30 * DAY;
/** How long the era of a server is not checked again: after an answer, and without one. */
const MAX_VERDICT_AGE = 7 * DAY;
const MAX_GUESS_AGE = DAY;
/** Maximum size of a snapshot, in bytes. */
export const MAX_SNAPSHOT_BYTES = 8 * 1024 * 1024;
/** Maximum number of snapshots. */
export const MAX_SNAPSHOTS = 500;

const CONSEQUENCE =
  "the first list after a start is complete only when every server has connected.";

/**
 * Whether a snapshot is recent enough. One from the far future was saved with a wrong clock. Both in ms since the
 * epoch.
 */
export function isUsable(savedAt: number, now: number): boolean {
  return Math.abs(now - savedAt) <= MAX_AGE;
}

/** Serializes a key unambiguously. */
export function formatSnapshotKey(subject: SnapshotKey): string {
  const { command, args, cwd, env, url, principal, era, capabilities } = subject;
  const variables = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  const optional = [cwd ?? null, url ?? null, principal ?? null];
  return JSON.stringify([command, args, variables, optional, era, capabilities]);
}

export interface SnapshotKeeperOptions {
  readonly store: SnapshotStore;
  /** ms since the epoch. */
  readonly now: () => number;
  /** Called once for each text. */
  readonly warn: (text: string) => void;
}

/** Decides what is loaded and when something is written, for any store. */
export class SnapshotKeeper implements Snapshots {
  readonly #parts: SnapshotKeeperOptions;
  readonly #told = new Set<string>();
  /** Saves run one after the other, so that each is compared with the previous one. */
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #isTidy = true;

  constructor(parts: SnapshotKeeperOptions) {
    this.#parts = parts;
  }

  async load(subject: SnapshotKey): Promise<Snapshot | undefined> {
    const kept = await this.#read(subject);
    if (kept === undefined) return undefined;
    const { offer, savedAt, verdict } = kept;
    const age = Math.abs(this.#parts.now() - (verdict?.askedAt ?? 0));
    const most = verdict?.isGuess === true ? MAX_GUESS_AGE : MAX_VERDICT_AGE;
    return { offer, savedAt, verdict: age > most ? undefined : verdict };
  }

  save(
    subject: SnapshotKey,
    offer: ServerListing,
    verdict?: EraVerdict,
  ): Promise<readonly ToolDiff[]> {
    this.#waiting++;
    const save = this.#last.then(async () => {
      const differences = await this.#keep(subject, offer, verdict);
      this.#waiting--;
      await this.#tidy();
      return differences;
    });
    this.#last = save;
    return save;
  }

  async flush(): Promise<void> {
    let last: unknown;
    while (last !== this.#last) {
      last = this.#last;
      await last;
    }
  }

  async #read(subject: SnapshotKey): Promise<StoredSnapshot | undefined> {
    const { store, now } = this.#parts;
    try {
      const kept = await store.read(subject);
      if (kept === undefined || isUsable(kept.savedAt, now())) return kept;
      await store.remove(subject);
    } catch {
      // The snapshot is not used anyway; the next save reports a store that is not writable.
    }
    return undefined;
  }

  async #keep(
    subject: SnapshotKey,
    offer: ServerListing,
    verdict: EraVerdict | undefined,
  ): Promise<readonly ToolDiff[]> {
    const { store } = this.#parts;
    const savedAt = this.#parts.now();
    // A listing that large is not read, compared or hashed: that would block the event loop.
    if (lengthOf(offer) > MAX_SNAPSHOT_BYTES) return this.#refuse();
    let differences: readonly ToolDiff[] = [];
    try {
      const kept = await this.#read(subject);
      const isSame =
        kept !== undefined && isNear(kept.verdict, verdict) && sameListings(kept.offer, offer);
      if (isSame && Math.abs(savedAt - kept.savedAt) <= DAY) return differences;
      const seen = kept?.offer.tools.filter(isShowable) ?? [];
      const past = { items: seen, marks: kept?.readMarks() ?? new Map() };
      const found = await compareWithHistory(past, offer.tools.filter(isShowable), savedAt);
      differences = found.differences;
      const next = { offer, verdict, savedAt, readMarks: () => found.marks };
      if (await store.write(subject, next)) this.#isTidy = false;
      else this.#refuse();
    } catch (error) {
      const why = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
      this.#warn(`What servers list cannot be kept in ${store.place} (${why}); ${CONSEQUENCE}`);
    }
    return differences;
  }

  #refuse(): readonly ToolDiff[] {
    this.#warn(
      `What a server lists is not kept if it is longer than ${MAX_SNAPSHOT_BYTES} bytes; ${CONSEQUENCE}`,
    );
    return [];
  }

  /** Only after the last of several saves, because it looks at all snapshots. */
  async #tidy(): Promise<void> {
    if (this.#isTidy || this.#waiting > 0) return;
    this.#isTidy = true;
    try {
      await this.#parts.store.tidy(this.#parts.now());
    } catch {
      // The next write tries again.
    }
  }

  #warn(text: string): void {
    if (this.#told.has(text)) return;
    this.#told.add(text);
    this.#parts.warn(text);
  }
}

/** Snapshots in memory. */
export function memorySnapshots({ now = Date.now }: { now?: () => number } = {}): Snapshots {
  return new SnapshotKeeper({ store: new Memory(), now, warn: () => {} });
}

class Memory implements SnapshotStore {
  readonly place = "memory";
  /** By serialized key; the oldest first. */
  readonly #kept = new Map<string, StoredSnapshot>();

  async read(subject: SnapshotKey): Promise<StoredSnapshot | undefined> {
    return this.#kept.get(formatSnapshotKey(subject));
  }

  async write(subject: SnapshotKey, kept: StoredSnapshot): Promise<boolean> {
    await this.remove(subject);
    this.#kept.set(formatSnapshotKey(subject), kept);
    return true;
  }

  async remove(subject: SnapshotKey): Promise<void> {
    this.#kept.delete(formatSnapshotKey(subject));
  }

  async tidy(now: number): Promise<void> {
    for (const [key, { savedAt }] of this.#kept) {
      if (this.#kept.size > MAX_SNAPSHOTS || !isUsable(savedAt, now)) this.#kept.delete(key);
    }
  }
}

/** Whether storing one instead of the other would lose nothing. */
function isNear(a: EraVerdict | undefined, b: EraVerdict | undefined): boolean {
  const isSame = a?.era === b?.era && a?.isGuess === b?.isGuess;
  return isSame && Math.abs((a?.askedAt ?? 0) - (b?.askedAt ?? 0)) <= DAY;
}

function lengthOf(offer: ServerListing): number {
  const items = KINDS.flatMap((kind) => offer[kind]);
  return items.reduce((sum, { bytes }) => sum + bytes.length, offer.instructions?.length ?? 0);
}
