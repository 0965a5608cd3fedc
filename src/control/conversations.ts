import { count } from "../base/format.ts";
import { Buffer } from "node:buffer";
import { randomUUID } from "node:crypto";
import { setInterval } from "node:timers";
import type { OpenedAgent } from "../agent/agent.ts";
import {
  type ConversationFile,
  type ConversationHeader,
  fileOrigin,
} from "../agent/conversation-file.ts";
import {
  type ConversationStore,
  type KeptConversation,
  USER,
} from "../agent/conversation-store.ts";
import { AgentSession } from "../agent/session.ts";
import { titleOf, type TranscriptEntry } from "../agent/transcript.ts";
import { eventsOf, type ToldEvent, type ToldOptions } from "../agent/transcript-events.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { notFound } from "./requests.ts";
import type { RunDocument } from "./schemas.ts";

/** Maximum number of open conversations. A new one replaces the one that has been idle for the longest time. */
const MAX_CONVERSATIONS = 32;
/** How long a conversation may be idle until it is closed, in ms. */
const IDLE_LIMIT = 60 * 60_000;
/**
 * Maximum number of events that a conversation keeps, and their maximum size in UTF-16 units. The deltas of one text
 * count as one event.
 */
const MAX_EVENTS = 4096;
const MAX_EVENTS_SIZE = 8 * 1024 * 1024;
/** Length of the events, in UTF-16 units, after which those that follow wait until the reader wants more. */
const PIECE = 64 * 1024;
/** Interval of comments that keep a connection without events open, in ms. */
const HEARTBEAT = 15_000;

/** An agent that is connected to the hub for one conversation. */
export interface ConversationAgent extends OpenedAgent {
  /** The id of the hub's client that makes the agent's calls. */
  readonly client: string;
  /** The mode that limits the agent's tools. */
  readonly mode: string | undefined;
  /** The agent as it is opened again, and the manifest or the file that it is of; see `ConversationHeader`. */
  readonly opener: string;
  readonly from: string;
  /** The path or the reference of its file; undefined: it is of the manifest. */
  readonly file: string | undefined;
  /**
   * The text that an agent gets for a message of the person: a message such as `/fix-lint src` may name a prompt of the
   * agent's file.
   */
  expand(message: string, agent: string): string;
  /** The names of the prompts of an agent of its file. */
  promptsOf(agent: string): readonly string[];
  /** Limits the agent's tools to a mode, from its next turn on. @throws {HubError} usage if there is no such mode */
  setMode(mode: string): Promise<void>;
}

/** What conversations need of the hub. */
export interface ConversationsOptions {
  readonly clock: Clock;
  /** The conversations that are kept of this user. */
  openStore(): Promise<ConversationStore>;
  /** The manifest of the hub's agents; see `ConversationHeader`. */
  readFrom(): Promise<string>;
  /** Makes the agent of a conversation ready that is gone on with. @throws {HubError} see `HubAgents.open` */
  openAgent(name: string): Promise<ConversationAgent>;
}

/** The conversations with agents that run in this hub, and those that are kept. */
export class Conversations {
  readonly #options: ConversationsOptions;
  readonly #conversations = new Map<string, Conversation>();
  /** The conversations that are being opened again, by id. */
  readonly #opening = new Map<string, Promise<Conversation | undefined>>();

  constructor(options: ConversationsOptions) {
    this.#options = options;
  }

  /** The open conversations. Closes those that another process has forgotten. */
  async all(): Promise<readonly Conversation[]> {
    this.#closeIdle();
    await Promise.all([...this.#conversations.values()].map((one) => this.#closeForgotten(one)));
    return [...this.#conversations.values()];
  }

  /** An open conversation; undefined if there is none, or if another process has forgotten it. */
  async get(id: string): Promise<Conversation | undefined> {
    this.#closeIdle();
    const open = this.#conversations.get(id);
    if (open !== undefined) await this.#closeForgotten(open);
    return this.#conversations.get(id);
  }

  async #closeForgotten(conversation: Conversation): Promise<void> {
    if (!(await conversation.session.isForgotten())) return;
    conversation.session.discard();
    this.close(conversation);
  }

  /**
   * Begins a conversation with an agent.
   * @throws {HubError} sessionBusy if there are MAX_CONVERSATIONS already and none is idle
   */
  async start(opened: ConversationAgent): Promise<Conversation> {
    const id = randomUUID();
    const { spec } = opened.agent;
    const header = { id, agent: opened.opener, from: opened.from, created: Date.now() };
    const isKept = spec.persist !== false;
    const begin = async (): Promise<ConversationFile> =>
      (await this.#options.openStore()).begin(USER, header);
    try {
      return this.#add(id, opened, isKept ? await begin() : undefined, header.created);
    } catch (error) {
      await opened.close();
      throw error;
    }
  }

  /** The conversations with agents of this hub's manifest and of files that are kept, the last used first. */
  async kept(): Promise<readonly KeptConversation[]> {
    const [store, from] = await Promise.all([this.#options.openStore(), this.#options.readFrom()]);
    return (await store.list(USER)).filter((one) => isOf(one, from));
  }

  /**
   * Goes on with a conversation that is kept. The agent is opened as for a new one.
   * @returns undefined if there is none with this id
   * @throws {HubError} see `HubAgents.open`; sessionBusy
   */
  async resume(id: string): Promise<Conversation | undefined> {
    const isOpening = this.#opening.get(id);
    if (isOpening !== undefined) return isOpening;
    const open = await this.get(id);
    if (open !== undefined) {
      await open.session.refresh(new AbortController().signal);
      return open;
    }
    const opening = this.#opening.get(id) ?? this.#reopen(id);
    this.#opening.set(id, opening);
    try {
      return await opening;
    } finally {
      this.#opening.delete(id);
    }
  }

  /** Closes a conversation and removes what is kept of it. @returns whether there was one */
  async forget(id: string, signal: AbortSignal): Promise<boolean> {
    const open = await this.get(id);
    open?.session.discard();
    if (open !== undefined) this.close(open);
    return (await (await this.#options.openStore()).forget(USER, id, signal)) || open !== undefined;
  }

  async #reopen(id: string): Promise<Conversation | undefined> {
    const file = await (await this.#options.openStore()).find(USER, id);
    if (file === undefined || !isOf(file.header, await this.#options.readFrom())) return undefined;
    const { agent, created, from } = file.header;
    const opened = await this.#options.openAgent(agent);
    let conversation: Conversation;
    try {
      // The manifest may have got an agent of that name.
      if (opened.from !== from) throw notFound(`conversation "${id}"`);
      conversation = this.#add(id, opened, file, created);
    } catch (error) {
      await opened.close();
      throw error;
    }
    try {
      await conversation.session.load(new AbortController().signal);
      return conversation;
    } catch (error) {
      this.close(conversation);
      // Another process has forgotten it in the meantime.
      if (toHubError(error).code === "sessionNotFound") return undefined;
      throw error;
    }
  }

  #add(
    id: string,
    opened: ConversationAgent,
    file: ConversationFile | undefined,
    startedAt: number,
  ): Conversation {
    this.#closeIdle();
    if (this.#conversations.size >= MAX_CONVERSATIONS) {
      const idle = [...this.#conversations.values()]
        .filter(({ session }) => session.state === "idle")
        .toSorted((a, b) => a.session.lastUsed - b.session.lastUsed);
      const [oldest] = idle;
      if (oldest === undefined) {
        const text = `${count(this.#conversations.size, "agent is", "agents are")} at work already.`;
        throw new HubError("sessionBusy", text);
      }
      this.close(oldest);
    }
    const { clock } = this.#options;
    const conversation = new Conversation({ id, opened, clock, file, startedAt });
    this.#conversations.set(id, conversation);
    return conversation;
  }

  close(conversation: Conversation): void {
    this.#conversations.delete(conversation.session.id);
    conversation.close();
  }

  #closeIdle(): void {
    const before = this.#options.clock.now() - IDLE_LIMIT;
    for (const conversation of this.#conversations.values()) {
      if (conversation.session.state === "idle" && conversation.session.lastUsed < before)
        this.close(conversation);
    }
  }
}

/** Whether a conversation is with an agent of this manifest, or of a file. */
function isOf(
  { from, agent }: Pick<ConversationHeader, "from" | "agent">,
  manifest: string,
): boolean {
  return from === manifest || from === fileOrigin(agent);
}

/** One event, or consecutive deltas of one text, each of which has its own number. */
interface KeptEvent {
  /** The number of the first delta (`first`) and of the last one (`seq`). */
  readonly first: number;
  seq: number;
  at: number;
  readonly event: ToldEvent;
  /** The texts of the deltas; undefined for other events. */
  readonly pieces: string[] | undefined;
}

interface ConversationOptions {
  readonly id: string;
  /** Is closed with the conversation. */
  readonly opened: ConversationAgent;
  readonly clock: Clock;
  /** The file in which it is kept. */
  readonly file: ConversationFile | undefined;
  /** Time in ms since the epoch. */
  readonly startedAt: number;
}

/**
 * One conversation: the agent's session, and the events for readers of the event stream. Events that are not kept any
 * more are told again from the transcript.
 */
export class Conversation {
  readonly session: AgentSession;
  readonly #startedAt: number;
  readonly #events: KeptEvent[] = [];
  /**
   * The number of the last event about each entry of the transcript; undefined while the entry has come before its
   * event.
   */
  readonly #entryEnds: (number | undefined)[] = [];
  /** The agent that has answered last. */
  #agent: string | undefined;
  /** The number of the last event that is not kept and that no entry tells. */
  #lost = 0;
  #size = 0;
  #seq = 0;
  #title = "";
  #mode: string | undefined;
  /** Cancels the message that the agent works on, and the messages that wait. */
  #cancelled = new AbortController();
  #isClosed = false;
  #changed = Promise.withResolvers<void>();

  readonly #opened: ConversationAgent;

  constructor({ id, opened, clock, file, startedAt }: ConversationOptions) {
    const onEntry = (entry: TranscriptEntry, isRestored: boolean): void =>
      this.#takeEntry(entry, isRestored);
    this.session = new AgentSession(opened.agent, { id, clock, file, onEntry });
    this.#opened = opened;
    this.#mode = opened.mode;
    this.#startedAt = startedAt;
  }

  get document(): RunDocument {
    const { id, agent, state, waiting, tokensUsed, window } = this.session;
    const prompts = this.#opened.promptsOf(agent.spec.name);
    return {
      id,
      client: this.#opened.client,
      agent: agent.spec.name,
      ...(this.#opened.file !== undefined && { file: this.#opened.file }),
      model: agent.model.name,
      ...(this.#mode !== undefined && { mode: this.#mode }),
      title: this.#title === "" ? this.session.transcript.title : this.#title,
      state: state === "closed" ? "idle" : state,
      waiting,
      tokensUsed,
      startedAt: this.#startedAt,
      lastEvent: this.#seq,
      kept: this.session.isKept,
      ...(window !== undefined && { leftOut: window.leftOut }),
      ...(prompts.length > 0 && { prompts: [...prompts] }),
    };
  }

  /** Sends a message to the agent. Events report its outcome, even if the message is refused. */
  send(written: string): void {
    const message = this.#opened.expand(written, this.session.agent.spec.name);
    if (this.#title === "" && this.session.transcript.messages.length === 0)
      this.#title = titleOf(message);
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
        const told = this.#tellAgain(next);
        if (told !== undefined) {
          next = told.next;
          controller.enqueue(Buffer.from(told.text));
          return;
        }
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
        if (texts.length > 0) controller.enqueue(Buffer.from(texts.join("")));
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
      if (isTaken) return;
      this.#add({ type: "message", text: message });
      this.#endEntry();
      isTaken = true;
    };
    try {
      for await (const event of this.session.send(message, { signal })) {
        take();
        this.#add(event);
        if (event.type === "runComplete" || event.type === "error") this.#endEntry();
      }
    } catch (thrown) {
      take();
      const { code, message: text, properties } = toHubError(thrown);
      this.#add({ type: "error", code, message: text, retryable: properties.retryable });
    }
  }

  /** @param at time of the event, in ms since the epoch */
  #add(event: ToldEvent, at = Date.now()): void {
    const seq = ++this.#seq;
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
    while (this.#events.length > MAX_EVENTS || this.#size > MAX_EVENTS_SIZE) this.#drop();
    this.#notify();
  }

  /** Drops the oldest events: all that an entry tells, because what is told again is told whole. */
  #drop(): void {
    const first = this.#events[0]?.seq ?? 0;
    const end = this.#entryEnds.find((seq) => seq !== undefined && seq >= first);
    do {
      const seq = this.#dropFirst();
      if (seq === undefined) return;
      if (end === undefined) this.#lost = seq;
    } while (end !== undefined && (this.#events[0]?.seq ?? Infinity) <= end);
  }

  /** @returns the number of the dropped event; undefined if there is none */
  #dropFirst(): number | undefined {
    const dropped = this.#events.shift();
    if (dropped === undefined) return undefined;
    this.#size -= sizeOf(dropped.event, dropped.pieces);
    return dropped.seq;
  }

  /**
   * An entry was added to the transcript. That of a message, and that of the end of a run, come before their event
   * (`#endEntry`). One that was read from the file has no events yet.
   */
  #takeEntry(entry: TranscriptEntry, isRestored: boolean): void {
    // The transcript is shorter after the conversation was cleared.
    this.#entryEnds.length = Math.min(
      this.#entryEnds.length,
      this.session.transcript.entries.length - 1,
    );
    const { role } = entry;
    this.#entryEnds.push(role === "user" || role === "end" || isRestored ? undefined : this.#seq);
    const end = this.#entryEnds.at(-1);
    // A part of what the entry tells is not kept, so that all of it is told again.
    if (end !== undefined && this.#lost > 0) {
      while ((this.#events[0]?.seq ?? Infinity) <= end) this.#dropFirst();
      this.#lost = 0;
    }
    if (isRestored) {
      const at = this.#entryEnds.length - 1;
      for (const event of eventsOf(entry, this.#toldOptions(this.#agent, at)))
        this.#add(event, entry.at);
      this.#endEntry();
    }
    if (entry.role === "assistant" || entry.role === "agent") this.#agent = entry.agent;
  }

  #toldOptions(before: string | undefined, at: number): ToldOptions {
    const { agent } = this.session;
    const { redact } = agent.agentSet.options;
    const { name: model } = agent.model;
    return { before: before ?? agent.spec.name, model, redact, id: `entry-${at}` };
  }

  #endEntry(): void {
    for (const [at, seq] of this.#entryEnds.entries())
      if (seq === undefined) this.#entryEnds[at] = this.#seq;
  }

  /**
   * The events that are not kept any more, from number `next` on, as the transcript tells them.
   * @returns undefined if all events from that number on are kept
   */
  #tellAgain(next: number): { readonly text: string; readonly next: number } | undefined {
    const first = this.#events[0]?.first ?? this.#seq + 1;
    if (next >= first) return undefined;
    const { entries } = this.session.transcript;
    const texts: string[] = [];
    let size = 0;
    const answered = entries.find((one) => one.role === "assistant");
    let before = answered?.role === "assistant" ? answered.agent : undefined;
    for (const [at, entry] of entries.entries()) {
      const seq = this.#entryEnds[at] ?? Infinity;
      if (seq >= next && seq < first) {
        if (size > PIECE) return { text: texts.join(""), next: seq };
        for (const event of eventsOf(entry, this.#toldOptions(before, at))) {
          const text = formatTold(event, seq, entry.at);
          texts.push(text);
          size += text.length;
        }
      }
      if (entry.role === "assistant" || entry.role === "agent") before = entry.agent;
    }
    const gap = this.#lost >= next ? `event: gap\ndata: {"first":${first}}\n\n` : "";
    return { text: `${gap}${texts.join("")}:\n\n`, next: first };
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }
}

/** Approximate size of an event, in UTF-16 units. */
function sizeOf(event: ToldEvent, pieces?: readonly string[]): number {
  const { length } = pieces?.join("") ?? JSON.stringify(event);
  return length;
}

function formatTold(event: ToldEvent, seq: number, at: number): string {
  return `id: ${seq}\nevent: ${event.type}\ndata: ${JSON.stringify({ seq, at, ...event })}\n\n`;
}

/** An event as a block of an event stream. @param from the number of the first delta that is sent */
function formatEvent({ first, seq, at, event, pieces }: KeptEvent, from: number): string {
  const rest = pieces && { text: pieces.slice(Math.max(0, from - first)).join("") };
  const data = JSON.stringify({ seq, at, ...event, ...rest });
  return `id: ${seq}\nevent: ${event.type}\ndata: ${data}\n\n`;
}
