import type { HubEvent } from "./documents.ts";
import { applyEvents, type Stale } from "./apply-events.ts";
import { type DashboardState, INITIAL_STATE } from "./state.ts";

/** Minimum time between two drawings, in ms. It is short enough for a change to be visible within 200 ms. */
const DRAW_INTERVAL = 80;
/** Maximum time for which events are applied without a break, in ms. */
const WORK_LIMIT = 20;
const BATCH = 200;

/** The state of the page. Changes and events are drawn together, at most once in 80 ms. */
export class Store {
  #state: DashboardState = INITIAL_STATE;
  #events: HubEvent[] = [];
  readonly #listeners = new Set<(state: DashboardState) => void>();
  readonly #onStale: (stale: ReadonlySet<Stale>) => void;
  #isScheduled = false;
  #lastDrawn = 0;

  /** @param onStale called with the data that must be read again after events */
  constructor(onStale: (stale: ReadonlySet<Stale>) => void) {
    this.#onStale = onStale;
  }

  get state(): DashboardState {
    return this.#state;
  }

  /** Number of events that are not applied yet. */
  get backlog(): number {
    return this.#events.length;
  }

  subscribe(listener: (state: DashboardState) => void): void {
    this.#listeners.add(listener);
  }

  change(change: Partial<DashboardState>): void {
    this.#state = { ...this.#state, ...change };
    this.#schedule();
  }

  addEvent(event: HubEvent): void {
    this.#events.push(event);
    this.#schedule();
  }

  dropEvents(): void {
    this.#events = [];
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const wait = Math.max(0, this.#lastDrawn + DRAW_INTERVAL - performance.now());
    setTimeout(() => this.#draw(), wait);
  }

  #draw(): void {
    const started = performance.now();
    while (this.#events.length > 0 && performance.now() - started < WORK_LIMIT) {
      const { state, stale } = applyEvents(this.#state, this.#events.splice(0, BATCH));
      this.#state = state;
      if (stale.size > 0) this.#onStale(stale);
    }
    this.#isScheduled = false;
    for (const listener of this.#listeners) listener(this.#state);
    this.#lastDrawn = performance.now();
    if (this.#events.length > 0) this.#schedule();
  }
}
