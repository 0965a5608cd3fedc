import type { Item } from "../catalog/item.ts";

/** What a listing belongs to: another value of any of these is another snapshot. */
export interface Subject {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly url: string | undefined;
  readonly principal: string | undefined;
  readonly capabilities: string;
  readonly era: "legacy";
}

export interface Snapshot {
  readonly items: readonly Item[];
  /** ms since the epoch */
  readonly savedAt: number;
}

export interface Snapshots {
  load(subject: Subject): Promise<Snapshot | undefined>;
  save(
    subject: Subject,
    items: readonly Item[],
  ): Promise<readonly { readonly name: string; readonly text: string }[]>;
  flush(): Promise<void>;
}

/** Keeps nothing. */
export function memorySnapshots(): Snapshots {
  return {
    load: () => Promise.resolve(undefined),
    save: () => Promise.resolve([]),
    flush: () => Promise.resolve(),
  };
}
