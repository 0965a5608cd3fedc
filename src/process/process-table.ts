/** The environment variable with the owner tags of a process; children inherit it. */
export const OWNER_VARIABLE = "TOOLMUX_OWNER";

/** A running process. Zombies are left out: they hold nothing but their pid. */
export interface ProcessEntry {
  readonly pid: number;
  readonly group: number;
  /** The real user id, which decides who may signal it. */
  readonly uid: number;
  /** Start time, in the system's own format. With the pid it identifies one process of this boot. */
  readonly started: string;
  /** Resident memory, in bytes. */
  readonly memory: number;
  /** Used processor time, in ms; systems count in steps of 10. */
  readonly cpu: number;
  /**
   * The owner tags in the environment that it was started with, the nearest hub's first; empty if it cannot be read.
   */
  readonly tags: readonly string[];
}

/** Identifies a process: its pid and start time. */
export type ProcessIdentity = Pick<ProcessEntry, "pid" | "started">;

/** Resource use of one process. */
export type ProcessUsage = ProcessIdentity & Pick<ProcessEntry, "memory" | "cpu">;

/** Where a pid is valid: one boot of the kernel, and one pid namespace in it (a container has its own). */
export interface ProcessNamespace {
  readonly boot: string;
  readonly pidNamespace: string;
}

/** The process table of one operating system. */
export interface ProcessTable {
  /**
   * All processes that this user may signal; what cannot be read is left out.
   * @throws {Error} if it could not be read, such as for lack of file descriptors
   */
  list(): Promise<readonly ProcessEntry[]>;
  /** Like `list`, but synchronous; each process is read only when the iterator gets to it. */
  listSync(): Iterable<ProcessEntry>;
  /**
   * Start time of the process with that pid, of whatever user; `started` is undefined for a zombie.
   * @returns undefined if there is none, or it is hidden from this user
   * @throws {Error} like `list`
   */
  find(pid: number): Promise<{ readonly started: string | undefined } | undefined>;
  /**
   * Returns a check whether processes are still the same ones. To be called right before each signal, as pids are
   * reused.
   */
  recheck(processes: readonly ProcessIdentity[]): Promise<(process: ProcessIdentity) => boolean>;
  /** Resource use of these processes; exited ones are left out. Cheap enough for frequent sampling. */
  usage(processes: readonly ProcessIdentity[]): Promise<readonly ProcessUsage[]>;
  /** @throws {Error} if the system does not provide it */
  system(): Promise<ProcessNamespace>;
}

/** The owner tags in a value of the variable. */
export function splitOwnerTags(value: string): readonly string[] {
  return value.split(",").filter((tag) => tag !== "");
}

export function errnoCodeOf(error: unknown): string {
  return String((error as NodeJS.ErrnoException | undefined)?.code);
}
