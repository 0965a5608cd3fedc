import { type Edit, utf8 } from "../base/bytes.ts";
import { type Mention, membersAt, readRelated, readTask, TaskMethod } from "./tasks.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { editsOf, type Notification, type Request } from "../jsonrpc/message.ts";

/**
 * A task under two ids: the one that its receiver (the server or client that runs it) has assigned, and a random one of
 * the hub's, under which its requestor knows it. So ids of two servers may be equal, and may recur after a restart.
 */
export class Alias {
  readonly id: string;
  readonly remoteId: string;
  /** 1-based sequence number per requestor; the cursor of `tasks/list`. */
  readonly number: number;

  constructor(remoteId: string, number: number, id: string = crypto.randomUUID()) {
    this.id = id;
    this.remoteId = remoteId;
    this.number = number;
  }

  /** Edits that replace the receiver's id by the hub's. */
  expose(...mentions: readonly (Mention | undefined)[]): Edit[] {
    return replace(mentions, this.remoteId, this.id);
  }

  /** Edits that replace the hub's id by the receiver's. */
  restore(...mentions: readonly (Mention | undefined)[]): Edit[] {
    return replace(mentions, this.id, this.remoteId);
  }

  /** A message of the receiver about this task, with the id that the requestor knows. */
  translate<F extends Notification | Request>(frame: F): F {
    return applyMessageEdits(frame, this.expose(...mentionsIn(frame)));
  }
}

/** Tasks by the ids that their receivers have assigned. */
export class Aliases<Entry extends Alias> {
  readonly #entries = new Map<string, Entry>();

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  get all(): readonly Entry[] {
    return [...this.#entries.values()];
  }

  add(entry: Entry): void {
    this.#entries.set(entry.remoteId, entry);
  }

  delete(entry: Entry): void {
    if (this.#entries.get(entry.remoteId) === entry) this.#entries.delete(entry.remoteId);
  }

  clear(): void {
    this.#entries.clear();
  }

  /** The task that a message of the receiver belongs to. */
  of(frame: Notification | Request): Entry | undefined {
    for (const mention of mentionsIn(frame)) {
      const entry = mention && this.#entries.get(mention.id);
      if (entry !== undefined) return entry;
    }
    return undefined;
  }
}

function mentionsIn({ method, bytes, params }: Notification | Request): (Mention | undefined)[] {
  const members = membersAt(bytes, params);
  const own = method === TaskMethod.status ? readTask(bytes, members) : undefined;
  return [own, readRelated(bytes, members)];
}

function replace(mentions: readonly (Mention | undefined)[], id: string, by: string): Edit[] {
  const json = utf8(JSON.stringify(by));
  return mentions.flatMap((it) => (it?.id === id ? editsOf(it.ids, json) : []));
}
