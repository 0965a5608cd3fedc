import { type Item, sameItems } from "../catalog/item.ts";
import type { Clock } from "../clock.ts";
import { HubError, toHubError } from "../errors.ts";
import { Refresh } from "./refresh.ts";
import type { Session } from "./session.ts";

export interface ListingParts {
  readonly clock: Clock;
  /** The listing that was kept when the server last ran. Never rejects. */
  recall(): Promise<readonly Item[] | undefined>;
  keep(items: readonly Item[]): void;
  /** The items are others than before. */
  changed(): void;
  warn(text: string): void;
  /** How long listing again may take, in ms. */
  limit(): number;
}

/** How long looking for what was kept may hold up a server's start, in ms: starting processes would hold it up, and lists wait for it. */
const RECALL_LIMIT = 50;

/** What a server lists, as far as is known; it outlives the connection, and the hub. */
export class Listing {
  readonly #parts: ListingParts;
  #items: readonly Item[] | undefined;
  #from: "snapshot" | "server" | undefined;
  /** The items are what this server itself was seen to list, now or earlier, and not what the one before it did. */
  #isOwn = false;
  #recalling = false;
  #session: Session | undefined;
  #refresh: Refresh | undefined;
  #held = false;
  /** Who waits for the end of the hold. */
  readonly #releasing: (() => void)[] = [];
  #tellRecalled = (): void => {};
  /** Settles when what was kept was looked for, or that takes too long to wait for. */
  readonly recalled = new Promise<void>((resolve) => (this.#tellRecalled = resolve));

  /** @param items what is known from a connection before this one. */
  constructor(parts: ListingParts, items: readonly Item[] | undefined) {
    this.#parts = parts;
    this.#items = items;
    if (items !== undefined) this.#from = "snapshot";
  }

  get items(): readonly Item[] | undefined {
    return this.#items;
  }

  /** Where the items are from: the server itself, in this connection's life, or what was kept of it. */
  get from(): "snapshot" | "server" | undefined {
    return this.#from;
  }

  get isOwn(): boolean {
    return this.#isOwn;
  }

  get isRecalling(): boolean {
    return this.#recalling;
  }

  has(name: string): boolean {
    return this.#items?.some((item) => item.name === name) === true;
  }

  /** Looks for what was kept. */
  async recall(): Promise<void> {
    this.#recalling = true;
    const undo = this.#parts.clock.after(RECALL_LIMIT, this.#tellRecalled);
    const items = await this.#parts.recall();
    undo();
    this.#recalling = false;
    this.#tellRecalled();
    // The server may have been faster.
    if (items === undefined || this.#isOwn) return;
    this.#items = items;
    this.#from = "snapshot";
    this.#isOwn = true;
    this.#parts.changed();
  }

  /** The server has listed. @returns whether that is another list than before. */
  adopt(items: readonly Item[]): boolean {
    const isSame = this.#items !== undefined && sameItems(this.#items, items);
    this.#from = "server";
    this.#isOwn = true;
    if (!isSame) this.#items = items;
    this.#parts.keep(items);
    if (!isSame) this.#parts.changed();
    return !isSame;
  }

  /** Lists again over this session whenever a change is announced. */
  follow(session: Session): void {
    this.#session = session;
    this.#refresh = new Refresh({
      clock: this.#parts.clock,
      ready: () => this.#released(),
      list: () => this.#list(session),
    });
  }

  unfollow(): void {
    this.#session = undefined;
    this.#refresh?.end();
    this.#refresh = undefined;
  }

  /** @returns when it was listed again; at once if there is no session to ask. */
  announce(): Promise<void> {
    return this.#refresh?.announce() ?? Promise.resolve();
  }

  /** While it is held nothing that a server answers is read. */
  hold(held: boolean): void {
    this.#held = held;
    if (!held) for (const resolve of this.#releasing.splice(0)) resolve();
  }

  async #list(session: Session): Promise<"changed" | "same" | "again"> {
    const abort = new AbortController();
    const ms = this.#parts.limit();
    const text = `Server "${session.server}" did not list its tools within ${ms} ms (connectTimeout).`;
    const late = new HubError("connectTimeout", text, { server: session.server });
    const undo = this.#parts.clock.after(ms, () => abort.abort(late));
    try {
      const items = await session.list("tools", abort.signal);
      return this.#session === session && this.adopt(items) ? "changed" : "same";
    } catch (error) {
      if (this.#session !== session) return "same";
      if (this.#held) return "again";
      this.#parts.warn(`Listing again failed: ${toHubError(error).message}`);
      return "same";
    } finally {
      undo();
    }
  }

  #released(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#held) this.#releasing.push(resolve);
      else resolve();
    });
  }
}
