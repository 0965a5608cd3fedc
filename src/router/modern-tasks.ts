import type { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { lastMember, type JsonMember } from "../base/json.ts";
import { sessionOf } from "../upstream/account.ts";
import {
  cancelServerTask,
  readCreatedModernTask,
  ModernServerTask,
  type ModernServerTasks,
} from "../upstream/ticket.ts";
import type { ClientView } from "../upstream/view.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { ModernTaskStatus } from "../protocol/extension.ts";
import type { TaskLocation } from "./call.ts";

/** Maximum number of remembered tasks per client; ended ones are dropped first. */
const MAX_TASKS = 1024;
/** How often expired tasks are dropped, in ms. */
const EXPIRY_CHECK_INTERVAL = 60_000;

/** A task and the connection that has it. */
export interface ModernTaskEntry extends Pick<TaskLocation, "connection" | "route"> {
  readonly task: ModernServerTask;
  /** The open tasks of the server's session; undefined if it has none. */
  readonly openTasks: ModernServerTasks | undefined;
  /** The client that began the task. */
  readonly owner: object;
}

/** The result embedded in a task's status, as a response of its own. */
export function resultOfTask(bytes: Buffer, members: readonly JsonMember[]): Response | undefined {
  const body = lastMember(members, "result");
  if (body === undefined) return undefined;
  const { start, end } = body;
  const shape = { kind: "scanned", ids: [] } as const;
  return { kind: "response", bytes, start, end, id: undefined, outcome: "result", body, shape };
}

/** The tasks at modern servers that one client has begun. Only that client can use their ids. */
export class ModernClientTasks {
  readonly #clock: Clock;
  /** By the hub's task ids, oldest first. */
  readonly #entries = new Map<string, ModernTaskEntry>();
  #taskCount = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Registers the task that a result announces.
   * @returns the result with the hub's task id
   * @throws {HubError} invalidRequest if there are too many open tasks
   */
  add(answer: Response, { session, connection, route }: TaskLocation, owner: object): Response {
    const { server } = route;
    const created = readCreatedModernTask(answer);
    if (created === undefined) {
      const text = `Server "${server}" has made a task of the call, but does not say which.`;
      throw new HubError("internal", text, { server });
    }
    const { task: mention, standing: status } = created;
    if (!this.#makeRoom()) {
      cancelServerTask(session, mention.id);
      throw new HubError("invalidRequest", `${MAX_TASKS} tasks of this client have not ended.`);
    }
    const task = new ModernServerTask(mention.id, ++this.#taskCount, status, this.#clock.now());
    const openTasks = session.subscriptions?.tickets;
    if (!task.isOver) openTasks?.open(task);
    this.#entries.set(task.id, { task, connection, route, openTasks, owner });
    this.#scheduleExpiry();
    return applyMessageEdits(answer, task.toOwnId(mention));
  }

  /** @throws {HubError} invalidParams if the client has no task of that id, or the server is not visible to it */
  find(id: string | undefined, view: ClientView): ModernTaskEntry {
    const entry = id === undefined ? undefined : this.#entries.get(id);
    const current = entry && view.connection(entry.route.server);
    if (entry === undefined || current === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    // If its connection was stopped, the task may live on at the server's current connection.
    return entry.connection.canStart ? entry : { ...entry, connection: current };
  }

  /** Stores the status that the server has reported. */
  recordStatus({ task, openTasks }: ModernTaskEntry, status: ModernTaskStatus): void {
    task.note(status, this.#clock.now());
    if (task.isOver) openTasks?.close(task);
  }

  /** Whether that owner has a task that has not ended. */
  hasOpenTasks(owner: object): boolean {
    for (const entry of this.#entries.values()) {
      if (entry.owner === owner && !entry.task.isOver) return true;
    }
    return false;
  }

  /** The client is gone: cancels its open tasks. */
  close(): void {
    this.#cancelTimer?.();
    for (const entry of this.#entries.values()) {
      const session = sessionOf(entry.connection.state);
      if (!entry.task.isOver && session !== undefined)
        cancelServerTask(session, entry.task.remoteId);
      this.#remove(entry);
    }
  }

  #makeRoom(): boolean {
    if (this.#entries.size < MAX_TASKS) return true;
    const ended = [...this.#entries.values()].find(({ task: ticket }) => ticket.isOver);
    if (ended !== undefined) this.#remove(ended);
    return ended !== undefined;
  }

  #remove({ task, openTasks }: ModernTaskEntry): void {
    this.#entries.delete(task.id);
    openTasks?.close(task);
  }

  #scheduleExpiry(): void {
    this.#cancelTimer ??= this.#clock.after(EXPIRY_CHECK_INTERVAL, () => {
      this.#cancelTimer = undefined;
      const now = this.#clock.now();
      for (const entry of this.#entries.values()) if (entry.task.expiry <= now) this.#remove(entry);
      if (this.#entries.size > 0) this.#scheduleExpiry();
    });
  }
}
