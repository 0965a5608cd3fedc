import { count } from "../base/format.ts";
import { Buffer } from "node:buffer";
import { randomUUID } from "node:crypto";
import { setInterval } from "node:timers";
import type { OpenedAgent } from "../agent/agent.ts";
import type { AgentEvent } from "../agent/events.ts";
import { AgentSession } from "../agent/session.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { RunDocument } from "./schemas.ts";

/** Maximum number of open conversations. A new one replaces the one that has been idle for the longest time. */
const MAX_CONVERSATIONS = 32;
/** How long a conversation may be idle, in ms. */
const IDLE_LIMIT = 60 * 60_000;
/**
 * Maximum number of events that a conversation keeps, and their maximum size in UTF-16 units. The deltas of one text
 * count as one event.
 */
const MAX_EVENTS = 4096;
const MAX_EVENTS_SIZE = 8 * 1024 * 1024;
/** Length of the events, in UTF-16 units, after which those that follow wait until the reader wants more. */
const PIECE = 64 * 1024;
/** Maximum length of a conversation's title, in UTF-16 units. */
const TITLE_LENGTH = 80;
/** Interval of comments that keep a connection without events open, in ms. */
const HEARTBEAT = 15_000;

/** An agent that is connected to the hub for one conversation. */
export interface ConversationAgent extends OpenedAgent {
  /** The id of the hub's client that makes the agent's calls. */
  readonly client: string;
  /** The mode that limits the agent's tools. */
  readonly mode: string | undefined;
  /** Limits the agent's tools to a mode, from its next turn on. @throws {HubError} usage if there is no such mode */
  setMode(mode: string): Promise<void>;
}

/** The conversations with agents that run in this hub. */
export class Conversations {
  readonly #clock: Clock;
  readonly #conversations = new Map<string, Conversation>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get all(): readonly Conversation[] {
    this.#closeIdle();
    return [...this.#conversations.values()];
  }

  get(id: string): Conversation | undefined {
    this.#closeIdle();
    return this.#conversations.get(id);
  }

  /**
   * Opens a conversation with an agent.
   * @throws {HubError} sessionBusy if there are MAX_CONVERSATIONS already and none is idle
   */
  start(opened: ConversationAgent): Conversation {
    this.#closeIdle();
    if (this.#conversations.size >= MAX_CONVERSATIONS) {
      const idle = [...this.#conversations.values()]
        .filter(({ session }) => session.state === "idle")
        .toSorted((a, b) => a.session.lastUsed - b.session.lastUsed);
      const [oldest] = idle;
      if (oldest === undefined) {
        void opened.close();
        const text = `${count(this.#conversations.size, "agent is", "agents are")} at work already.`;
        throw new HubError("sessionBusy", text);
      }
      this.close(oldest);
    }
    const session = new AgentSession(opened.agent, { id: randomUUID(), clock: this.#clock });
    const conversation = new Conversation(session, opened);
    this.#conversations.set(session.id, conversation);
    return conversation;
  }

  close(conversation: Conversation): void {
    this.#conversations.delete(conversation.session.id);
    conversation.close();
  }

  #closeIdle(): void {
    const before = this.#clock.now() - IDLE_LIMIT;
    for (const conversation of this.#conversations.values()) {
      if (conversation.session.state === "idle" && conversation.session.lastUsed < before)
        this.close(conversation);
    }
  }
}

/** An event of a conversation: an event of the agent, or a message that was sent to the agent. */
type ConversationEvent = AgentEvent | { readonly type: "message"; readonly text: string };

/** One event, or consecutive deltas of one text, each of which has its own number. */
interface KeptEvent {
  /** The number of the first delta (`first`) and of the last one (`seq`). */
  readonly first: number;
  seq: number;
  at: number;
  readonly event: ConversationEvent;
  /** The texts of the deltas; undefined for other events. */
  readonly pieces: string[] | undefined;
}

/** One conversation: the agent's session, and the events for readers of the event stream. */
export class Conversation {
  readonly session: AgentSession;
  readonly #startedAt = Date.now();
  readonly #events: KeptEvent[] = [];
  #size = 0;
  #seq = 0;
  #title = "";
  #mode: string | undefined;
  /** Cancels the message that the agent works on, and the messages that wait. */
  #cancelled = new AbortController();
  #isClosed = false;
  #changed = Promise.withResolvers<void>();

  readonly #opened: ConversationAgent;

  /** @param opened is closed with the conversation */
  constructor(session: AgentSession, opened: ConversationAgent) {
    this.session = session;
    this.#opened = opened;
    this.#mode = opened.mode;
  }

  get document(): RunDocument {
    const { id, agent, state, waiting, tokensUsed } = this.session;
    return {
      id,
      client: this.#opened.client,
      agent: agent.spec.name,
      model: agent.model.name,
      ...(this.#mode !== undefined && { mode: this.#mode }),
      title: this.#title,
      state: state === "closed" ? "idle" : state,
      waiting,
      tokensUsed,
      startedAt: this.#startedAt,
      lastEvent: this.#seq,
    };
  }

  /** Sends a message to the agent. Events report its outcome, even if the message is refused. */
  send(message: string): void {
    if (this.#title === "") this.#title = message.trim().slice(0, TITLE_LENGTH);
    void this.#follow(message, this.#cancelled.signal);
  }

  /** @throws {HubError} as `ConversationAgent.setMode` */
  async setMode(mode: string): Promise<void> {
    await this.#opened.setMode(mode);
    this.#mode = mode;
  }

  cancel(): void {
    this.#cancelled.abort(new HubError("cancelled", "The person has cancelled the run."));
    this.#cancelled = new AbortController();
  }

  close(): void {
    this.#isClosed = true;
    this.session.close();
    void this.#opened.close();
    this.#notify();
  }

  /** An event stream of all events after number `after`, which ends when the conversation is closed. */
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
        const first = this.#events[0]?.first ?? next;
        const gap = first > next ? `event: gap\ndata: {"first":${first}}\n\n` : "";
        const from = next;
        const texts: string[] = [];
        let size = 0;
        next = this.#seq + 1;
        for (const kept of this.#events) {
          if (kept.seq < from) continue;
          // The rest waits until it is wanted: nothing is held for a reader that does not read.
          if (size > PIECE) {
            next = kept.first;
            break;
          }
          const text = formatEvent(kept, from);
          texts.push(text);
          size += text.length;
        }
        if (gap !== "" || texts.length > 0) controller.enqueue(Buffer.from(gap + texts.join("")));
        if (!this.#isClosed || next <= this.#seq) return;
        stop();
        controller.close();
      },
      cancel: () => stop(),
    });
  }

  async #follow(message: string, signal: AbortSignal): Promise<void> {
    let isTaken = false;
    const take = (): void => {
      if (!isTaken) this.#add({ type: "message", text: message });
      isTaken = true;
    };
    try {
      for await (const event of this.session.send(message, { signal })) {
        take();
        this.#add(event);
      }
    } catch (thrown) {
      take();
      const { code, message: text, properties } = toHubError(thrown);
      this.#add({ type: "error", code, message: text, retryable: properties.retryable });
    }
  }

  #add(event: ConversationEvent): void {
    const seq = ++this.#seq;
    const at = Date.now();
    const last = this.#events.at(-1);
    const isDelta = event.type === "textDelta" || event.type === "thinkingDelta";
    if (
      isDelta &&
      last?.event.type === event.type &&
      last.event.agent === event.agent &&
      last.pieces !== undefined
    ) {
      last.pieces.push(event.text);
      last.seq = seq;
      last.at = at;
      this.#size += event.text.length;
    } else {
      this.#events.push({ first: seq, seq, at, event, pieces: isDelta ? [event.text] : undefined });
      this.#size += sizeOf(event, isDelta ? [event.text] : undefined);
    }
    while (this.#events.length > MAX_EVENTS || this.#size > MAX_EVENTS_SIZE) {
      const dropped = this.#events.shift();
      if (dropped === undefined) break;
      this.#size -= sizeOf(dropped.event, dropped.pieces);
    }
    this.#notify();
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }
}

/** Approximate size of an event, in UTF-16 units. */
function sizeOf(event: ConversationEvent, pieces?: readonly string[]): number {
  const { length } = pieces?.join("") ?? JSON.stringify(event);
  return length;
}

/** An event as a block of an event stream. @param from the number of the first delta that is sent */
function formatEvent({ first, seq, at, event, pieces }: KeptEvent, from: number): string {
  const rest = pieces && { text: pieces.slice(Math.max(0, from - first)).join("") };
  const data = JSON.stringify({ seq, at, ...event, ...rest });
  return `id: ${seq}\nevent: ${event.type}\ndata: ${data}\n\n`;
}
