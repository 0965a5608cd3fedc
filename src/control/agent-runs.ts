import { Buffer } from "node:buffer";
import { randomUUID } from "node:crypto";
import { setInterval } from "node:timers";
import type { AgentEvent } from "../agent/events.ts";
import { AgentSession } from "../agent/session.ts";
import type { Clock } from "../base/clock.ts";
import { deferred } from "../base/deferred.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { OpenedAgent } from "./agents-api.ts";
import type { RunDocument } from "./schemas.ts";

/** How many conversations may be open; a new one replaces the one that was idle for the longest time. */
const MAX_RUNS = 32;
/** How long a conversation may be idle, in ms. */
const IDLE_LIMIT = 60 * 60_000;
/** How many events of a conversation are kept. */
const MAX_EVENTS = 4096;
/** Interval of comments on a stream without events, in ms. */
const HEARTBEAT = 15_000;

/** The conversations with agents that run in this hub. */
export class AgentRuns {
  readonly #clock: Clock;
  readonly #runs = new Map<string, OpenRun>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get all(): readonly OpenRun[] {
    this.#closeIdle();
    return [...this.#runs.values()];
  }

  get(id: string): OpenRun | undefined {
    this.#closeIdle();
    return this.#runs.get(id);
  }

  /** Opens a conversation with an agent. @throws {HubError} sessionBusy if all that are open are at work */
  start(opened: OpenedAgent): OpenRun {
    this.#closeIdle();
    if (this.#runs.size >= MAX_RUNS) {
      const idle = [...this.#runs.values()]
        .filter(({ session }) => session.state === "idle")
        .toSorted((a, b) => a.session.lastUsed - b.session.lastUsed);
      const [oldest] = idle;
      if (oldest === undefined) {
        void opened.close();
        const text = `${this.#runs.size} agents are at work already.`;
        throw new HubError("sessionBusy", text);
      }
      this.close(oldest);
    }
    const { agent } = opened;
    const session = new AgentSession(agent, { id: randomUUID(), clock: this.#clock });
    const run = new OpenRun(session, () => void opened.close());
    this.#runs.set(session.id, run);
    return run;
  }

  close(run: OpenRun): void {
    this.#runs.delete(run.session.id);
    run.close();
  }

  #closeIdle(): void {
    const before = this.#clock.now() - IDLE_LIMIT;
    for (const run of this.#runs.values()) {
      if (run.session.state === "idle" && run.session.lastUsed < before) this.close(run);
    }
  }
}

/** One conversation: its session, and its events for those who follow it. */
export class OpenRun {
  readonly session: AgentSession;
  readonly #startedAt = Date.now();
  readonly #events: { readonly seq: number; readonly text: string }[] = [];
  #seq = 0;
  /** Cancels what runs, and what waits. */
  #cancelled = new AbortController();
  #isClosed = false;
  #changed = deferred();

  readonly #onClose: () => void;

  /** @param onClose called when the conversation is closed */
  constructor(session: AgentSession, onClose: () => void) {
    this.session = session;
    this.#onClose = onClose;
  }

  get document(): RunDocument {
    const { id, agent, state, waiting, tokensUsed } = this.session;
    return {
      id,
      agent: agent.spec.name,
      model: agent.model.name,
      state: state === "closed" ? "idle" : state,
      waiting,
      tokensUsed,
      startedAt: this.#startedAt,
      lastEvent: this.#seq,
    };
  }

  /** Sends a message. What comes of it are events; also that it is refused. */
  send(message: string): void {
    void this.#follow(message, this.#cancelled.signal);
  }

  cancel(): void {
    this.#cancelled.abort(new HubError("cancelled", "The person has cancelled the run."));
    this.#cancelled = new AbortController();
  }

  close(): void {
    this.#isClosed = true;
    this.session.close();
    this.#onClose();
    this.#notify();
  }

  /** The events after `after` as an event stream, which ends when the conversation is closed. */
  open(after: number): ReadableStream<Uint8Array> {
    let next = after + 1;
    let stop = (): void => {};
    return new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(Buffer.from(":\n\n"));
        const heartbeat = setInterval(() => {
          if ((controller.desiredSize ?? 0) > 0) controller.enqueue(Buffer.from(":\n\n"));
        }, HEARTBEAT);
        heartbeat.unref();
        stop = () => clearInterval(heartbeat);
      },
      pull: async (controller) => {
        while (this.#seq < next && !this.#isClosed) await this.#changed.promise;
        const first = this.#events[0]?.seq ?? next;
        const gap = first > next ? `event: gap\ndata: {"first":${first}}\n\n` : "";
        const texts = this.#events.filter(({ seq }) => seq >= next).map(({ text }) => text);
        next = this.#seq + 1;
        if (gap !== "" || texts.length > 0) controller.enqueue(Buffer.from(gap + texts.join("")));
        if (!this.#isClosed) return;
        stop();
        controller.close();
      },
      cancel: () => stop(),
    });
  }

  async #follow(message: string, signal: AbortSignal): Promise<void> {
    try {
      for await (const event of this.session.send(message, { signal })) this.#add(event);
    } catch (thrown) {
      const { code, message: text, properties } = toHubError(thrown);
      this.#add({ type: "error", code, message: text, retryable: properties.retryable });
    }
  }

  #add(event: AgentEvent): void {
    const seq = ++this.#seq;
    const data = JSON.stringify({ seq, at: Date.now(), ...event });
    this.#events.push({ seq, text: `id: ${seq}\nevent: ${event.type}\ndata: ${data}\n\n` });
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
    this.#notify();
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = deferred();
  }
}
