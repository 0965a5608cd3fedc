import { type Clock, systemClock } from "../clock.ts";
import { Burst } from "./burst.ts";
import { listFiles, loadManifest, type LoadOptions, type LoadResult } from "./load.ts";
import { Lookout, type WatchFolder, watchFolder } from "./lookout.ts";
import { traceFile } from "./trail.ts";

/** How often the files are read if nothing tells that they changed, in ms. */
const POLL = 2000;
/** How often they are read though changes are told: network and virtual file systems keep some to themselves. */
const ROUND = 30_000;
/** How long a file without content is taken for one that is just being written, in ms. */
const WRITING = 1000;

export interface WatchParts {
  /** Of what is known already, see `LoadResult`: it is not told again. */
  readonly edition: string;
  /** Takes what there is to load now, whenever that is something else than before. */
  onLoad(result: LoadResult): void;
  /** Takes a line for people, without an end of line: what will not work as well as it should. */
  onTrouble(text: string): void;
  readonly clock?: Clock;
  readonly watchFolder?: WatchFolder;
}

export interface Watch {
  /** Reads the files soon, although nothing tells that they changed. */
  look(): void;
  close(): void;
}

/**
 * Watches all files that a manifest is, or could come to be, made of, and those of its plugins, and reads them again when one
 * has changed, what it is named by has, or what is trusted. What changed between the load of `edition` and this call is noticed too. Keeps
 * no process alive.
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
  /** Of what was told last. */
  #edition: string;
  /** What was not told yet because a file of it may be just being written, and since when, in ms of the clock. */
  #doubt: { readonly edition: string; readonly since: number } | undefined;
  /** Of the plugins, as they were when it was loaded last. */
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

  /** Watches first and reads then, so that whatever changes after the reading is told. */
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

  /** Which files plugins have is known only then: if there are others now, it is loaded once more. */
  async #load(): Promise<LoadResult> {
    const known = [...listFiles(this.#options), ...this.#pluginFiles];
    const trails = await Promise.all(known.map(traceFile));
    this.#lookout.aim(trails.flat());
    const result = await loadManifest(this.#options);
    this.#pluginFiles = result.pluginFiles;
    const isWhole = result.pluginFiles.every((file) => known.includes(file));
    return isWhole || this.#isClosed ? result : this.#load();
  }

  /** Whether to wait: shells and downloads empty a file first, which says that no server is wanted. */
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
