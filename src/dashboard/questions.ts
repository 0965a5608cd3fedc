import type { Clock } from "../base/clock.ts";
import type { DashboardHubs, ForwardedRequest } from "./hubs.ts";

/** The approvals that a hub waits for, as its `GET /v1/approvals` has them. */
export interface WaitingQuestions {
  /** The id of the hub. */
  readonly id: string;
  readonly approvals: readonly unknown[];
}

/** How often hubs are looked for that are not watched yet, in ms. */
const LOOK_INTERVAL = 3000;
const EVENTS = "/v1/events?watch=approvals&kinds=approval";

/**
 * The questions of all hubs, while a page is open. A page follows the events of one hub; the others are watched here, on
 * one connection to each: so they know that a person can be asked, and the page can say that one of them waits.
 */
export class HubQuestions {
  readonly #hubs: DashboardHubs;
  readonly #clock: Clock;
  readonly #watched = new Map<string, readonly unknown[]>();
  #pages = 0;
  /** Aborted when the last page is closed. */
  #end = new AbortController();

  constructor(hubs: DashboardHubs, clock: Clock) {
    this.#hubs = hubs;
    this.#clock = clock;
  }

  /** Called when a page is opened. @returns a function to call once, when it is closed */
  open(): () => void {
    this.#pages++;
    if (this.#pages === 1) {
      this.#end = new AbortController();
      void this.#look(this.#end.signal);
    }
    return () => {
      this.#pages--;
      if (this.#pages === 0) this.close();
    };
  }

  list(): readonly WaitingQuestions[] {
    return [...this.#watched].map(([id, approvals]) => ({ id, approvals }));
  }

  close(): void {
    this.#end.abort();
    this.#watched.clear();
  }

  /** Watches hubs that are not watched yet, again and again until the signal. The page itself watches an only hub. */
  async #look(signal: AbortSignal): Promise<void> {
    const hubs = await this.#hubs.list().catch(() => []);
    if (signal.aborted) return;
    for (const { id } of hubs.length > 1 ? hubs : [])
      if (!this.#watched.has(id)) void this.#watch(id, signal);
    const cancel = this.#clock.after(LOOK_INTERVAL, () => {
      signal.removeEventListener("abort", cancel);
      void this.#look(signal);
    });
    signal.addEventListener("abort", cancel, { once: true });
  }

  /** Watches a hub until it ends, or the signal. Never rejects. */
  async #watch(id: string, signal: AbortSignal): Promise<void> {
    this.#watched.set(id, []);
    try {
      const { body } = await this.#get(id, EVENTS, signal);
      await this.#read(id, signal);
      const decoder = new TextDecoder();
      let rest = "";
      for await (const chunk of body ?? []) {
        const text = rest + decoder.decode(chunk, { stream: true });
        // Other lines are comments, which keep the connection open.
        if (/^data:/m.test(text)) await this.#read(id, signal);
        rest = text.slice(text.lastIndexOf("\n") + 1);
      }
    } catch {
      // The hub has ended, or is about to: the next look finds out.
    }
    if (!signal.aborted) this.#watched.delete(id);
  }

  async #read(id: string, signal: AbortSignal): Promise<void> {
    const answer = await this.#get(id, "/v1/approvals", signal);
    const { approvals } = (await answer.json()) as { readonly approvals?: readonly unknown[] };
    if (!signal.aborted) this.#watched.set(id, approvals ?? []);
  }

  /** @throws Error if the hub does not answer, or has no approvals */
  async #get(id: string, path: string, signal: AbortSignal): Promise<Response> {
    const headers = { Accept: path === EVENTS ? "text/event-stream" : "application/json" };
    const request: ForwardedRequest = { method: "GET", path, headers, body: undefined, signal };
    const answer = await this.#hubs.forward(id, request);
    if (answer.ok) return answer;
    await answer.body?.cancel();
    throw new Error(`The hub answered ${answer.status}.`);
  }
}
