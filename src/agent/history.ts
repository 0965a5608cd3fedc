import { Buffer } from "node:buffer";
import { formatSize } from "../base/format.ts";
import type { ModelContent, ModelMessage, TokenUsage } from "./model.ts";

/** A message that the model gets. */
export interface HistoryEntry {
  /** The number of the message in the conversation, from 0. Messages that were dropped keep their numbers. */
  readonly number: number;
  readonly message: ModelMessage;
  /** Time at which the message was added, in ms since the epoch. */
  readonly at: number;
  /** Estimated size, in bytes. */
  readonly bytes: number;
  /** Set if the model gets a note instead of the result. */
  readonly isOmitted?: true;
}

/** The fraction of the model's context above which a conversation is shortened. */
const FULL = 0.8;
/**
 * If the provider refuses a conversation as too long, it is shortened to this fraction of its size or of the context,
 * whichever is smaller.
 */
const SHORTENED = 0.5;
/** Average size of a token, in bytes. */
export const TOKEN_BYTES = 4;
/** The estimated size of a picture, in bytes. */
const IMAGE_BYTES = 6000;

/**
 * The messages of a conversation that its model gets: a window on the conversation, of which a `Transcript` keeps all
 * messages. When it is shortened, a tool's result is never separated from its call,
 * and the last message of the user always stays.
 */
export class History {
  #entries: HistoryEntry[] = [];
  /** How many messages were added so far. */
  #total = 0;
  /** Tokens of instruction, tools and the first `#countedEntries` messages, as the provider has counted them. */
  #counted: number | undefined;
  #countedEntries = 0;
  readonly #now: () => number;

  constructor(messages: readonly ModelMessage[] = [], now: () => number = Date.now) {
    this.#now = now;
    for (const message of messages) this.add(message);
  }

  get entries(): readonly HistoryEntry[] {
    return this.#entries;
  }

  get messages(): readonly ModelMessage[] {
    return this.#entries.map(({ message }) => message);
  }

  /** Estimated size of all messages, in bytes. */
  get size(): number {
    return this.#entries.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** The numbers of the messages that the model gets as they are. */
  get givenNumbers(): ReadonlySet<number> {
    return new Set(this.#entries.filter((entry) => !entry.isOmitted).map(({ number }) => number));
  }

  add(message: ModelMessage): void {
    const number = this.#total++;
    this.#entries.push({ number, message, at: this.#now(), bytes: sizeOf(message) });
  }

  clear(): void {
    this.#entries = [];
    this.#total = 0;
    this.#counted = undefined;
    this.#countedEntries = 0;
  }

  /** Records the tokens that the provider has counted for all messages and for the answer, which is added next. */
  count({ inputTokens, outputTokens }: TokenUsage): void {
    if (inputTokens === undefined) return;
    this.#counted = inputTokens + (outputTokens ?? 0);
    this.#countedEntries = this.#entries.length + 1;
  }

  /**
   * Estimated number of tokens of the conversation.
   * @param overhead size of instruction and tools, in bytes; used until the provider has counted their tokens
   */
  tokens(overhead: number): number {
    const from = this.#counted === undefined ? 0 : this.#countedEntries;
    const bytes = this.#entries.slice(from).reduce((sum, entry) => sum + entry.bytes, 0);
    return (this.#counted ?? overhead / TOKEN_BYTES) + bytes / TOKEN_BYTES;
  }

  /** Shortens the conversation if it takes more than 80 % of the context. @param overhead see `tokens` */
  trim(contextTokens: number, overhead: number): void {
    this.#shortenTo(contextTokens * FULL, overhead);
  }

  /** Shortens the conversation to half of its size or of the context, whichever is smaller. */
  shorten(contextTokens: number, overhead: number): void {
    this.#shortenTo(Math.min(contextTokens, this.tokens(overhead)) * SHORTENED, overhead);
  }

  /** Drops the oldest messages until the size is at most `limit` bytes. */
  trimToSize(limit: number): void {
    while (this.size > limit && this.#dropOldest());
  }

  #shortenTo(limit: number, overhead: number): void {
    const isLong = (): boolean => this.tokens(overhead) > limit;
    if (!isLong()) return;
    const lastAnswer = this.#entries.findLastIndex(({ message }) => message.role === "assistant");
    // Results that the model has not seen yet are omitted only as a last resort.
    for (let at = 0; at < lastAnswer && isLong(); at++) this.#omitResult(at);
    while (isLong() && this.#dropOldest());
    for (let at = 0; at < this.#entries.length && isLong(); at++) this.#omitResult(at);
  }

  #omitResult(at: number): void {
    const entry = this.#entries[at];
    if (entry?.message.role !== "tool") return;
    const { message } = entry;
    const text = `[result of ${message.toolName}, ${formatSize(entry.bytes)}, left out]`;
    const short: ModelMessage = { ...message, content: [{ type: "text", text }] };
    const bytes = sizeOf(short);
    if (bytes >= entry.bytes) return;
    this.#entries[at] = { ...entry, message: short, bytes, isOmitted: true };
    this.#uncount(at, entry.bytes - bytes, 0);
  }

  /** Drops the oldest messages, as few as possible (see `mayStart`). @returns false if none may be dropped */
  #dropOldest(): boolean {
    const lastUser = this.#entries.findLastIndex(({ message }) => message.role === "user");
    const start = lastUser === 0 ? 1 : 0;
    let end = start + 1;
    // The remaining messages must start with a message of the user. If the first message is the user's last one, it
    // stays, and the messages that remain after it must start with an answer.
    const mayStart = ({ message: { role } }: HistoryEntry): boolean =>
      start === 0 ? role === "user" : role === "assistant";
    while (end < this.#entries.length) {
      const next = this.#entries[end];
      if (next !== undefined && mayStart(next)) break;
      end++;
    }
    const lastAnswer = this.#entries.findLastIndex(({ message }) => message.role === "assistant");
    if (start >= this.#entries.length || (start === 1 && start >= lastAnswer)) return false;
    for (let count = start; count < end; count++) {
      const [dropped] = this.#entries.splice(start, 1);
      if (dropped !== undefined) this.#uncount(start, dropped.bytes, 1);
    }
    return true;
  }

  #uncount(at: number, bytes: number, entries: number): void {
    if (this.#counted === undefined || at >= this.#countedEntries) return;
    this.#counted = Math.max(0, this.#counted - bytes / TOKEN_BYTES);
    this.#countedEntries -= entries;
  }
}

function sizeOf(message: ModelMessage): number {
  switch (message.role) {
    case "assistant":
      return message.toolCalls.reduce(
        (sum, { name, argumentsJson }) => sum + name.length + Buffer.byteLength(argumentsJson),
        Buffer.byteLength(message.text),
      );
    case "tool":
    case "user":
      return message.content.reduce((sum, content) => sum + contentSize(content), 0);
  }
}

function contentSize(content: ModelContent): number {
  return content.type === "text" ? Buffer.byteLength(content.text) : IMAGE_BYTES;
}
