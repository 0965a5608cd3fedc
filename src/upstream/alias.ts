import { type Edit, utf8 } from "../bytes.ts";
import { type Mention, membersAt, readRelated, readTask, TaskMethod } from "../protocol/tasks.ts";
import { revise } from "../wire/frame.ts";
import { editsOf, type Notification, type Request } from "../wire/jsonrpc.ts";

/**
 * A task under two ids: the one that whoever has it gave it, and one of the hub's that nobody can guess, under which those
 * who began it know it. Ids of two servers may so be the same, and may come again after a restart.
 */
export class Alias {
  readonly id: string;
  readonly remoteId: string;
  /** The how manyth it is of those who began it. */
  readonly number: number;

  constructor(remoteId: string, number: number, id: string = crypto.randomUUID()) {
    this.id = id;
    this.remoteId = remoteId;
    this.number = number;
  }

  /** Puts the hub's id where the other one stands. */
  expose(...mentions: readonly (Mention | undefined)[]): Edit[] {
    return replace(mentions, this.remoteId, this.id);
  }

  /** Puts the other id where the hub's stands. */
  restore(...mentions: readonly (Mention | undefined)[]): Edit[] {
    return replace(mentions, this.id, this.remoteId);
  }

  /** A message that belongs to it, as those know it who began it. */
  translate<F extends Notification | Request>(frame: F): F {
    return revise(frame, this.expose(...mentionsIn(frame)));
  }
}

/** Tasks by the ids of those who have them. */
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

  /** The one that a message of whoever has it belongs to. */
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
