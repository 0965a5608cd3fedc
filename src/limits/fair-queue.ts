import type { LimitScope } from "./limit-scope.ts";

/** Numbers of calls that may wait, where the manifest sets none. */
export const DEFAULT_QUEUED = { client: 32, server: 100 };

const NOTHING = (): void => {};

/**
 * The places that a call, or a part of it, takes: one of the client, if it takes one, and one of each shared scope (the
 * hub, the server, the tool). It takes all of them at once, so that a call that waits for one holds none.
 */
export class Places {
  /** The client whose turn it takes while it waits. */
  readonly turn: LimitScope;
  readonly client: LimitScope | undefined;
  readonly shared: readonly LimitScope[];
  /** Called when a call that waits has got its places. */
  onTaken: () => void = NOTHING;
  state: "new" | "waiting" | "taken" | "over" = "new";

  constructor(turn: LimitScope, client: LimitScope | undefined, shared: readonly LimitScope[]) {
    this.turn = turn;
    this.client = client;
    this.shared = shared;
  }

  get areFree(): boolean {
    const { client, shared } = this;
    if (client?.isFull === true) return false;
    for (let at = 0; at < shared.length; at++) if (shared[at]?.isFull === true) return false;
    return true;
  }

  /** The scopes that have no free place. */
  get full(): readonly LimitScope[] {
    const { client, shared } = this;
    return [...(client === undefined ? [] : [client]), ...shared].filter(({ isFull }) => isFull);
  }

  /** Adds to the numbers of running calls of its scopes. */
  countRunning(change: 1 | -1): void {
    const { client, shared } = this;
    if (client !== undefined) client.running += change;
    for (let at = 0; at < shared.length; at++) {
      const scope = shared[at];
      if (scope !== undefined) scope.running += change;
    }
  }

  /** The same for calls that wait. */
  countQueued(change: 1 | -1): void {
    if (this.client !== undefined) this.client.queued += change;
    for (const scope of this.shared) scope.queued += change;
  }
}

/**
 * The calls that wait for places. Clients take turns; the calls of one client come in their order, except that a call
 * does not hold up a later one that needs none of the places that it waits for.
 */
export class FairQueue {
  /** The clients with calls that wait; the one whose turn is next comes first. */
  readonly #turns: { readonly client: LimitScope; readonly calls: Places[] }[] = [];
  #isAdmitting = false;

  /** Number of calls that wait. */
  get length(): number {
    return this.#turns.reduce((sum, { calls }) => sum + calls.length, 0);
  }

  /** Takes the places of a call if they are free. @returns whether they were */
  take(places: Places): boolean {
    if (!places.areFree) return false;
    places.state = "taken";
    places.countRunning(1);
    return true;
  }

  /**
   * Lets a call wait for its places.
   * @returns the scope for which too many calls wait already; undefined: the call waits
   */
  wait(places: Places): LimitScope | undefined {
    const { turn, shared } = places;
    const calls = this.#turns.find(({ client }) => client === turn)?.calls;
    if ((calls?.length ?? 0) >= (turn.settings.maxQueued ?? DEFAULT_QUEUED.client)) return turn;
    const full = shared.find(
      ({ kind, queued, settings: { maxQueued = DEFAULT_QUEUED.server } }) =>
        kind === "server" && queued >= maxQueued,
    );
    if (full !== undefined) return full;
    if (calls === undefined) this.#turns.push({ client: turn, calls: [places] });
    else calls.push(places);
    places.state = "waiting";
    places.countQueued(1);
    return undefined;
  }

  /** Gives up the places of a call, or its waiting for them. */
  leave(places: Places): void {
    const { state } = places;
    places.state = "over";
    if (state === "taken") {
      places.countRunning(-1);
      this.admit();
    } else if (state === "waiting") {
      const at = this.#turns.findIndex(({ calls }) => calls.includes(places));
      this.#remove(places, at);
    }
  }

  /** Gives free places to the calls that wait. */
  admit(): void {
    // A call that gets its places may end at once, and another one then gets them.
    if (this.#turns.length === 0 || this.#isAdmitting) return;
    this.#isAdmitting = true;
    try {
      for (;;) {
        const at = this.#turns.findIndex(({ calls }) => calls.some(({ areFree }) => areFree));
        const turn = this.#turns[at];
        const places = turn?.calls.find(({ areFree }) => areFree);
        if (turn === undefined || places === undefined) return;
        this.#remove(places, at);
        if (turn.calls.length > 0) {
          this.#turns.splice(at, 1);
          this.#turns.push(turn);
        }
        this.take(places);
        places.onTaken();
      }
    } finally {
      this.#isAdmitting = false;
    }
  }

  /**
   * The place of a call that waits, from 1, among all calls that wait for one of the places that it waits for; and their
   * number.
   */
  placeOf(places: Places): { readonly place: number; readonly of: number } {
    const { full } = places;
    const isRival = ({ client, shared }: Places): boolean =>
      full.some((scope) => scope === client || shared.includes(scope));
    const lines = this.#turns.map(({ client, calls }) => ({
      client,
      calls: calls.filter((other) => other === places || isRival(other)),
    }));
    const own = lines.findIndex(({ client }) => client === places.turn);
    const index = lines[own]?.calls.indexOf(places) ?? 0;
    // Before it comes one call of each client in each turn, and in its own turn those of the clients before its own.
    const before = lines.map(({ calls }, at) =>
      at === own ? index : Math.min(calls.length, at < own ? index + 1 : index),
    );
    const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);
    return { place: sum(before) + 1, of: sum(lines.map(({ calls }) => calls.length)) };
  }

  /** @param at the index of the turn of its client */
  #remove(places: Places, at: number): void {
    const calls = this.#turns[at]?.calls;
    if (calls === undefined) return;
    places.countQueued(-1);
    calls.splice(calls.indexOf(places), 1);
    if (calls.length === 0) this.#turns.splice(at, 1);
  }
}
