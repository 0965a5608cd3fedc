import type { ToolDiff } from "../catalog/tool-diff.ts";
import { isShowable, KINDS, sameListings, type ServerListing } from "../catalog/listing.ts";
import { compareWithHistory, type ToolMarks } from "./tool-marks.ts";

/** What a listing belongs to: another value of any of these is another snapshot. Values are as resolved, secrets included. */
export interface SnapshotKey {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly url: string | undefined;
  readonly principal: string | undefined;
  /** What the clients speak whom it was listed for, and what they can be asked for. */
  readonly era: EraVerdict["era"];
  readonly capabilities: string;
}

/** What a server was found to speak, and when it was asked, in ms since the epoch. */
export interface EraVerdict {
  readonly era: "legacy" | "modern";
  readonly askedAt: number;
  /** It said nothing when it was asked: it may have been slow. */
  readonly isGuess?: true;
}

/** What a server offered last. */
export interface Snapshot {
  readonly offer: ServerListing;
  /** undefined if it was not asked, or too long ago. */
  readonly verdict?: EraVerdict | undefined;
  /** ms since the epoch. An offer that comes again as it was is saved again only after a day. */
  readonly savedAt: number;
}

/** The last listing of each server, so that the first list that a client gets is complete at once. */
export interface Snapshots {
  /** The listing kept under the subject; undefined if there is none that can be used. Never rejects. */
  load(subject: SnapshotKey): Promise<Snapshot | undefined>;
  /**
   * Keeps a listing, and what the server was found to speak. Never rejects: what cannot be kept is told as a warning, once.
   * @returns the tools that are described otherwise than when they were kept last.
   */
  save(
    subject: SnapshotKey,
    offer: ServerListing,
    verdict?: EraVerdict,
  ): Promise<readonly ToolDiff[]>;
  /** Settles when every save has ended. */
  flush(): Promise<void>;
}

/** A snapshot, and what is known of its tools and of those that were there before them. */
export interface StoredSnapshot extends Snapshot {
  readonly readMarks: () => ToolMarks;
}

/** Where snapshots are kept. All but `read` may reject. */
export interface SnapshotStore {
  /** For people. */
  readonly place: string;
  /** undefined if there is nothing, or nothing whole. */
  read(subject: SnapshotKey): Promise<StoredSnapshot | undefined>;
  /** Replaces what is there. @returns false if it is too long to be kept. */
  write(subject: SnapshotKey, kept: StoredSnapshot): Promise<boolean>;
  remove(subject: SnapshotKey): Promise<void>;
  /** Removes what is not usable any more, and the oldest of what is too much. */
  tidy(now: number): Promise<void>;
}

const DAY = 24 * 60 * 60 * 1000;
const MAX_AGE = 30 * DAY;
/** After that long a server is asked again what it speaks; and after that long if it said nothing. */
const MAX_VERDICT_AGE = 7 * DAY;
const MAX_GUESS_AGE = DAY;
/** The longest snapshot, in bytes. */
export const MAX_SNAPSHOT_BYTES = 8 * 1024 * 1024;
/** How many snapshots are kept. */
export const MAX_SNAPSHOTS = 500;

const CONSEQUENCE =
  "the first list after a start is complete only when every server has connected.";

/** Whether what was saved then may be used; what is of the far future was saved under a wrong clock. Both in ms since the epoch. */
export function isUsable(savedAt: number, now: number): boolean {
  return Math.abs(now - savedAt) <= MAX_AGE;
}

/** All members of a subject in one text, which no other subject has. */
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
  /** Gets every text only once. */
  readonly warn: (text: string) => void;
}

/** Decides what is loaded and when something is written, whatever the store. */
export class SnapshotKeeper implements Snapshots {
  readonly #parts: SnapshotKeeperOptions;
  readonly #told = new Set<string>();
  /** Saves run one after the other, so that each is compared with the one before. */
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
      // What cannot be removed is not used either; the next save tells if nothing can be written.
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
    // Nothing that long is read, compared or hashed: that would hold up everything else.
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

  /** After the last of many saves only: it looks at everything that is kept. */
  async #tidy(): Promise<void> {
    if (this.#isTidy || this.#waiting > 0) return;
    this.#isTidy = true;
    try {
      await this.#parts.store.tidy(this.#parts.now());
    } catch {
      // After the next write it is tried again.
    }
  }

  #warn(text: string): void {
    if (this.#told.has(text)) return;
    this.#told.add(text);
    this.#parts.warn(text);
  }
}

/** Keeps snapshots as long as the process lives. */
export function memorySnapshots({ now = Date.now }: { now?: () => number } = {}): Snapshots {
  return new SnapshotKeeper({ store: new Memory(), now, warn: () => {} });
}

class Memory implements SnapshotStore {
  readonly place = "memory";
  /** By the subject's spelling; the oldest first. */
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

/** Whether nothing is lost if the one is kept instead of the other. */
function isNear(a: EraVerdict | undefined, b: EraVerdict | undefined): boolean {
  const isSame = a?.era === b?.era && a?.isGuess === b?.isGuess;
  return isSame && Math.abs((a?.askedAt ?? 0) - (b?.askedAt ?? 0)) <= DAY;
}

function lengthOf(offer: ServerListing): number {
  const items = KINDS.flatMap((kind) => offer[kind]);
  return items.reduce((sum, { bytes }) => sum + bytes.length, offer.instructions?.length ?? 0);
}
