import { type Edit, utf8 } from "../base/bytes.ts";
import { type TaskMention, membersAt, readRelatedTask, readTask, TaskMethod } from "./tasks.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { editsOf, type Notification, type Request } from "../jsonrpc/message.ts";

/**
 * A task under two ids: the one that its receiver (the server or client that runs it) has assigned, and a random one of
 * the hub's, under which its requestor knows it. So ids of two servers may be equal, and may recur after a restart.
 */
export class TaskAlias {
  readonly id: string;
  readonly remoteId: string;
  /** 1-based sequence number per requestor; the cursor of `tasks/list`. */
  readonly sequence: number;

  constructor(remoteId: string, sequence: number, id: string = crypto.randomUUID()) {
    this.id = id;
    this.remoteId = remoteId;
    this.sequence = sequence;
  }

  /** Edits that replace the receiver's id by the hub's. */
  toOwnId(...mentions: readonly (TaskMention | undefined)[]): Edit[] {
    return replaceTaskId(mentions, this.remoteId, this.id);
  }

  /** Edits that replace the hub's id by the receiver's. */
  toRemoteId(...mentions: readonly (TaskMention | undefined)[]): Edit[] {
    return replaceTaskId(mentions, this.id, this.remoteId);
  }

  /** A message of the receiver about this task, with the id that the requestor knows. */
  withOwnId<M extends Notification | Request>(message: M): M {
    return applyMessageEdits(message, this.toOwnId(...mentionsIn(message)));
  }
}

/** Tasks by the ids that their receivers have assigned. */
export class TaskAliases<T extends TaskAlias> {
  readonly #byRemoteId = new Map<string, T>();

  get isEmpty(): boolean {
    return this.#byRemoteId.size === 0;
  }

  get all(): readonly T[] {
    return [...this.#byRemoteId.values()];
  }

  add(task: T): void {
    this.#byRemoteId.set(task.remoteId, task);
  }

  delete(task: T): void {
    if (this.#byRemoteId.get(task.remoteId) === task) this.#byRemoteId.delete(task.remoteId);
  }

  clear(): void {
    this.#byRemoteId.clear();
  }

  /** The task that a message of the receiver belongs to. */
  taskOfMessage(message: Notification | Request): T | undefined {
    for (const mention of mentionsIn(message)) {
      const task = mention && this.#byRemoteId.get(mention.id);
      if (task !== undefined) return task;
    }
    return undefined;
  }
}

function mentionsIn({
  method,
  bytes,
  params,
}: Notification | Request): (TaskMention | undefined)[] {
  const members = membersAt(bytes, params);
  const own = method === TaskMethod.status ? readTask(bytes, members) : undefined;
  return [own, readRelatedTask(bytes, members)];
}

function replaceTaskId(
  mentions: readonly (TaskMention | undefined)[],
  id: string,
  replacement: string,
): Edit[] {
  const json = utf8(JSON.stringify(replacement));
  return mentions.flatMap((mention) => (mention?.id === id ? editsOf(mention.idRanges, json) : []));
}
