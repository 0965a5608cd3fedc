import { type Clock, systemClock } from "../base/clock.ts";
import { Burst } from "./burst.ts";
import { listFiles, loadManifest, type LoadOptions, type LoadResult } from "./load.ts";
import { Lookout, type WatchFolder, watchFolder } from "./lookout.ts";
import { traceFile } from "./trail.ts";

/** The polling interval without file system events, in ms. */
const POLL = 2000;
/** The polling interval beside file system events, in ms: network and virtual file systems miss some. */
const ROUND = 30_000;
/** How long an empty file counts as being written, in ms. */
const WRITING = 1000;

export interface WatchParts {
  /** The fingerprint of the loaded manifest, see `LoadedManifest`; that manifest is not reported again. */
  readonly edition: string;
  /** Called with each newly loaded manifest that differs from the previous one. */
  onLoad(result: LoadResult): void;
  /** Called with a warning, a line without a line end. */
  onTrouble(text: string): void;
  readonly clock?: Clock;
  readonly watchFolder?: WatchFolder;
}

export interface Watch {
  /** Reads the files soon, without waiting for an event. */
  look(): void;
  close(): void;
}

/**
 * Watches all files that a manifest is or could be loaded from, its plugins' files and the trust store, and reloads it
 * after changes of these files or of symbolic links to them. Changes between the load of `fingerprint` and this call
 * are noticed, too. Does not keep the process alive.
 */
export function watchManifest(options: LoadOptions, parts: WatchParts): Watch {
  return new ManifestWatch(options, parts);
}

class ManifestWatch implements Watch {
  readonly #options: LoadOptions;
  readonly #parts: WatchParts;
  readonly #clock: Clock;
  readonly #burst: Burst;
  readonly #lookout: Lookout;
  /** The fingerprint of the manifest reported last. */
  #edition: string;
  /** A manifest that is held back because a file may be just being written; `since` in ms of the clock. */
  #doubt: { readonly edition: string; readonly since: number } | undefined;
  /** The plugins' files at the last load. */
  #pluginFiles: readonly string[] = [];
  #interval = ROUND;
  #undoTimer = (): void => {};
  #isClosed = false;

  constructor(options: LoadOptions, parts: WatchParts) {
    this.#options = options;
    this.#parts = parts;
    this.#edition = parts.edition;
    this.#clock = parts.clock ?? systemClock;
    this.#burst = new Burst(this.#clock, () => this.#read());
    this.#lookout = new Lookout({
      watchFolder: parts.watchFolder ?? watchFolder,
      changed: () => this.#burst.touch(),
      deaf: (code) => this.#poll(code),
    });
    this.#burst.touch();
  }

  look(): void {
    this.#burst.touch();
  }

  close(): void {
    this.#isClosed = true;
    this.#undoTimer();
    this.#burst.close();
    this.#lookout.close();
  }

  #poll(code: string): void {
    this.#interval = POLL;
    const seconds = POLL / 1000;
    this.#parts.onTrouble(
      `the files of the manifest cannot be watched (${code}); they are read every ${seconds} s instead`,
    );
    this.#burst.touch();
  }

  /** Starts watching before it reads, so that later changes cause events. */
  async #read(): Promise<void> {
    const result = await this.#load();
    if (this.#isClosed) return;
    const isWriting = this.#suspect(result);
    this.#undoTimer();
    this.#undoTimer = this.#clock.after(isWriting ? WRITING : this.#interval, () =>
      this.#burst.touch(),
    );
    if (isWriting || result.edition === this.#edition) return;
    this.#edition = result.edition;
    this.#parts.onLoad(result);
  }

  /** Loading reveals the plugins' files; if there are new ones, they are watched and the manifest is loaded again. */
  async #load(): Promise<LoadResult> {
    const known = [...listFiles(this.#options), ...this.#pluginFiles];
    const trails = await Promise.all(known.map(traceFile));
    this.#lookout.aim(trails.flat());
    const result = await loadManifest(this.#options);
    this.#pluginFiles = result.pluginFiles;
    const isWhole = result.pluginFiles.every((file) => known.includes(file));
    return isWhole || this.#isClosed ? result : this.#load();
  }

  /** Whether to wait: shells and downloads truncate a file before they write it, and an empty file means no servers. */
  #suspect({ blank, edition }: LoadResult): boolean {
    if (!blank) {
      this.#doubt = undefined;
      return false;
    }
    const now = this.#clock.now();
    if (this.#doubt?.edition !== edition) this.#doubt = { edition, since: now };
    return now - this.#doubt.since < WRITING;
  }
}
