import { type TaskMention, membersAt, readTask } from "../protocol/tasks.ts";
import { readModernTask, ModernTaskMethod, type ModernTaskStatus } from "../protocol/extension.ts";
import { randomToken } from "../jsonrpc/id.ts";
import type { Notification, Response } from "../jsonrpc/message.ts";
import { TaskAlias } from "../protocol/alias.ts";

/** The longest that one is kept, and one that has ended if its server does not say for how long it keeps it, in ms. */
const LONGEST = { any: 24 * 3_600_000, ended: 3_600_000 };
/** Servers count from when they made it, and clients from when they heard of it, in ms. */
const SLACK = 60_000;

/** A task of a server of the modern era, which a client asks for whenever it likes. */
export class ModernServerTask extends TaskAlias implements OpenTask {
  readonly #began: number;
  #ended = 0;
  isOver = false;
  /** From when on nobody need know it any more, in ms of the clock. */
  expiry = 0;

  /** @param now ms of the clock */
  constructor(remoteId: string, number: number, standing: ModernTaskStatus, now: number) {
    // Over HTTP it may be all that says whose the task is.
    super(remoteId, number, randomToken());
    this.#began = now;
    this.note(standing, now);
  }

  /** Its server has said how it stands. */
  note({ isOver, ttl }: ModernTaskStatus, now: number): void {
    if (isOver && !this.isOver) this.#ended = now;
    this.isOver ||= isOver;
    const isKept = ttl !== undefined || !this.isOver;
    const limit = ttl === undefined ? LONGEST.any : Math.min(ttl + SLACK, LONGEST.any);
    const end = this.#began + limit;
    this.expiry = isKept ? end : Math.min(end, this.#ended + LONGEST.ended);
  }

  /** Servers may keep tasks beyond their own end: whoever asks is told. */
  lost(): void {}
}

/** A task that has not ended. */
export interface OpenTask {
  /** The server is gone, and with it maybe the task. */
  lost(): void;
}

/** Somebody who listens for what becomes of a task. */
export interface TaskWatcher {
  /** @param task where the notification has its id */
  onNotification(notification: Notification, task: TaskMention): void;
}

/** A session with the server. */
export interface TaskSession {
  subscribe(id: string, signal: AbortSignal, topic: "task"): Promise<void>;
  unsubscribe(id: string, topic: "task"): void;
}

const NEVER = new AbortController().signal;

/** The tasks of one server of the modern era that somebody waits for; outlives its sessions, as servers may keep tasks. */
export class ModernServerTasks {
  /** What has not ended. */
  readonly #open = new Set<OpenTask>();
  /** By the server's ids. */
  readonly #watchers = new Map<string, Set<TaskWatcher>>();
  #session: TaskSession | undefined;
  /** Those of the connection that has taken the place of this one. */
  #heir: ModernServerTasks | undefined;

  /** Whether the server is needed although nobody asks anything of it. */
  get isUsed(): boolean {
    return this.#open.size > 0 || this.#watchers.size > 0;
  }

  /** There is one more that has not ended. */
  open(task: OpenTask): void {
    if (this.#heir === undefined) this.#open.add(task);
    else this.#heir.open(task);
  }

  /** It has ended, or nobody waits for it. */
  close(task: OpenTask): void {
    this.#heir?.close(task);
    this.#open.delete(task);
  }

  watch(id: string, watcher: TaskWatcher): void {
    if (this.#heir !== undefined) {
      this.#heir.watch(id, watcher);
      return;
    }
    const watchers = this.#watchers.get(id) ?? new Set();
    this.#watchers.set(id, watchers.add(watcher));
  }

  /** Ends that; after the last one the server need not tell any more. */
  unwatch(id: string, watcher: TaskWatcher): void {
    this.#heir?.unwatch(id, watcher);
    const watchers = this.#watchers.get(id);
    if (watchers?.delete(watcher) !== true || watchers.size > 0) return;
    this.#watchers.delete(id);
    this.#session?.unsubscribe(id, "task");
  }

  /** The server tells of one. */
  told(notification: Notification): void {
    const { bytes, params } = notification;
    const task = readTask(bytes, membersAt(bytes, params));
    if (task === undefined) return;
    for (const watcher of this.#watchers.get(task.id) ?? [])
      watcher.onNotification(notification, task);
  }

  /** There is a new session: it is listened to as the last one was. */
  follow(session: TaskSession): void {
    this.#session = session;
    // Whoever listens may ask, too.
    for (const id of this.#watchers.keys()) session.subscribe(id, NEVER, "task").catch(() => {});
  }

  unfollow(): void {
    this.#session = undefined;
    for (const task of this.#open) task.lost();
  }

  /** Another connection takes the place of this one; it has no session yet. */
  bequeath(heir: ModernServerTasks): void {
    for (const task of this.#open) heir.open(task);
    for (const [id, watchers] of this.#watchers) {
      for (const watcher of watchers) heir.watch(id, watcher);
    }
    this.#open.clear();
    this.#watchers.clear();
    this.#heir = heir;
  }
}

/** What can be asked of the hub's own accord. */
interface Answerer {
  ask(method: string, params: object, signal: AbortSignal): Promise<Response>;
}

/** Nobody waits for it any more: the server may end it. */
export function cancelServerTask(session: Answerer, taskId: string): void {
  session.ask(ModernTaskMethod.cancel, { taskId }, NEVER).catch(() => {});
}

/** The task that the answer to a call is. */
export function readCreatedModernTask({ bytes, body }: Response): CreatedModernTask | undefined {
  const members = membersAt(bytes, body);
  const task = readTask(bytes, members);
  return task && { task, standing: readModernTask(bytes, members) };
}

export interface CreatedModernTask {
  readonly task: TaskMention;
  readonly standing: ModernTaskStatus;
}
