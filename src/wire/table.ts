/** The environment variable by which a process says whose child it is; children inherit it. */
export const TAG_VARIABLE = "TOOLMUX_OWNER";

/** A process that runs. Zombies count as gone: they hold nothing but their number. */
export interface ProcessEntry {
  readonly pid: number;
  readonly group: number;
  /** Its real user, who may signal it. */
  readonly uid: number;
  /** When it started, in the system's own words: with the pid it names one process of this boot for ever. */
  readonly started: string;
  /** What is resident of it, in bytes. */
  readonly memory: number;
  /** The processor time that it has used, in ms; systems count in steps of 10. */
  readonly cpu: number;
  /** The owner tags in the environment that it was started with, the nearest hub's first; none if it cannot be read. */
  readonly tags: readonly string[];
}

/** A pid, and the start of the process that is meant by it. */
export type ProcessName = Pick<ProcessEntry, "pid" | "started">;

/** What a process has used. */
export type Usage = ProcessName & Pick<ProcessEntry, "memory" | "cpu">;

/** The system that pids belong to: one boot of the kernel, and within it one space of pids (a container has its own). */
export interface System {
  readonly boot: string;
  readonly space: string;
}

/** What one kind of system tells of its processes. */
export interface ProcessTable {
  /**
   * All processes that this user may signal; what cannot be read of them is left out.
   * @throws {Error} if nothing could be learned, for want of file descriptors or the like
   */
  list(): Promise<readonly ProcessEntry[]>;
  /** As `list`, for whoever cannot wait; each process is read only when it is asked for. */
  listNow(): Iterable<ProcessEntry>;
  /**
   * When the process of that pid started, whoever's it is; `started` is undefined if it is a zombie.
   * @returns undefined if there is none, or it is hidden from this user
   * @throws {Error} as `list`
   */
  look(pid: number): Promise<{ readonly started: string | undefined } | undefined>;
  /**
   * Tells whether processes still are those that they were. To be asked right before each signal, as a pid may have
   * become another's.
   */
  recheck(names: readonly ProcessName[]): Promise<(name: ProcessName) => boolean>;
  /** What these have used; those that are gone are left out. Cheap enough to be asked for a few of them all the time. */
  usage(names: readonly ProcessName[]): Promise<readonly Usage[]>;
  /** @throws {Error} where the system does not say */
  system(): Promise<System>;
}

/** The tags in a value of the variable. */
export function splitTags(value: string): readonly string[] {
  return value.split(",").filter((tag) => tag !== "");
}

export function codeOf(error: unknown): string {
  return String((error as NodeJS.ErrnoException | undefined)?.code);
}
