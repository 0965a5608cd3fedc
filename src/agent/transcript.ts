import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { RunUsage } from "./events.ts";
import type { History } from "./history.ts";
import type { ModelContent, ModelMessage, ModelToolCall } from "./model.ts";
import { describeBlock } from "./toolbox.ts";

/** What one agent did for another one, as a part of a tool's result. */
export interface NestedRun {
  readonly agent: string;
  /** The first message is the task. */
  readonly messages: readonly TranscriptMessage[];
}

/** A message of a conversation, as people read it. `at`: ms since the epoch. */
export type TranscriptMessage =
  | { readonly role: "user"; readonly at: number; readonly text: string }
  | {
      readonly role: "assistant";
      readonly at: number;
      /** The agent that has answered; handoffs change it. */
      readonly agent: string;
      readonly text: string;
      readonly toolCalls: readonly ModelToolCall[];
    }
  | {
      readonly role: "tool";
      readonly at: number;
      readonly toolCallId: string;
      readonly toolName: string;
      readonly isError: boolean;
      /** Size of the whole result, in bytes. */
      readonly size: number;
      /** Duration of the call, in ms; 0 if it was not made. */
      readonly duration: number;
      /** The result as the model got it: cut at the agent's `resultLimit`, pictures described. */
      readonly text: string;
      /** Set if another agent has made the result. */
      readonly run?: NestedRun | undefined;
    };

/** How a run has ended. */
export interface TranscriptEnd {
  readonly role: "end";
  readonly at: number;
  readonly outcome: "stop" | "length" | "refused" | "cancelled" | "error";
  /** The message of an error. */
  readonly error?: string | undefined;
  /** Duration of the run, in ms. */
  readonly duration: number;
  readonly usage: RunUsage;
  readonly toolCalls: number;
}

/** An entry of a transcript. `agent`: the conversation was given to another agent between two runs. */
export type TranscriptEntry =
  | TranscriptMessage
  | TranscriptEnd
  | { readonly role: "agent"; readonly at: number; readonly agent: string };

/** The text of the results that calls get whose process ended before they did. */
const INTERRUPTED = "[cancelled]";
/** The text of a message whose line in the file cannot be read. */
const UNREADABLE = "[This message cannot be read any more.]";

/**
 * A conversation as people read it: every message, whatever the model still gets. What the model gets is a window on
 * it, the session's `History`: its entries have the numbers that the messages have here.
 */
export class Transcript {
  #entries: TranscriptEntry[] = [];
  #messages: TranscriptMessage[] = [];
  #size = 0;

  /** All entries, the oldest first. */
  get entries(): readonly TranscriptEntry[] {
    return this.#entries;
  }

  /** All messages, the oldest first. A message's number is its index, from 0. */
  get messages(): readonly TranscriptMessage[] {
    return this.#messages;
  }

  /** Estimated size, in bytes. */
  get size(): number {
    return this.#size;
  }

  /** The beginning of the first message in one line, for lists. */
  get title(): string {
    const first = this.#messages.find(({ role }) => role === "user");
    return first === undefined ? "" : titleOf(first.text);
  }

  add(entry: TranscriptEntry): void {
    this.#entries.push(entry);
    this.#size += sizeOf(entry);
    if (isMessage(entry)) this.#messages.push(entry);
  }

  clear(): void {
    this.#entries = [];
    this.#messages = [];
    this.#size = 0;
  }
}

/** Maximum length of a conversation's title, in UTF-16 code units. */
const TITLE_LENGTH = 80;

export function titleOf(text: string): string {
  return text.trim().replaceAll(/\s+/g, " ").slice(0, TITLE_LENGTH).toWellFormed();
}

export function isMessage(entry: TranscriptEntry): entry is TranscriptMessage {
  return entry.role !== "end" && entry.role !== "agent";
}

/** Entries that were read from a file, with what stands for those that are not in it. */
export interface Restored {
  readonly entries: readonly TranscriptEntry[];
  /** What ends a run whose process was killed: the results that calls still need, and the end of the run. */
  readonly ending: readonly TranscriptEntry[];
}

/**
 * Completes entries of which some are missing, because their lines could not be read or were never written: a model
 * refuses a call without a result, a result without a call, and an answer that nobody has asked for.
 * @param before the entries that these follow, complete
 * @param now in ms since the epoch
 */
export function completeEntries(
  before: readonly TranscriptEntry[],
  added: readonly TranscriptEntry[],
  now: number,
): Restored {
  const entries: TranscriptEntry[] = [];
  let agent = agentIn(before.toReversed()) ?? agentIn(added) ?? "";
  // Whether a run is open, and the calls that have no result yet.
  let isAsked = before.findLast(({ role }) => role === "user" || role === "end")?.role === "user";
  let open: readonly ModelToolCall[] = [];
  const ask = (at: number): void => {
    if (!isAsked) entries.push({ role: "user", at, text: UNREADABLE });
    isAsked = true;
  };
  const answer = (at: number): void => {
    entries.push(...open.map((call) => failedResult(call, at, UNREADABLE)));
    open = [];
  };
  for (const [index, entry] of added.entries()) {
    const { role, at } = entry;
    if (role === "tool" && !open.some(({ id }) => id === entry.toolCallId)) {
      answer(at);
      ask(at);
      const rest = added.slice(index);
      const end = rest.findIndex((one) => one.role !== "tool");
      const results = (end < 0 ? rest : rest.slice(0, end)).filter((one) => one.role === "tool");
      open = results.map(({ toolCallId: id, toolName: name }) => ({
        id,
        name,
        argumentsJson: "{}",
      }));
      entries.push({ role: "assistant", at, agent, text: UNREADABLE, toolCalls: open });
    }
    if (role === "user" || role === "assistant") answer(at);
    if (role === "assistant") {
      ask(at);
      open = entry.toolCalls;
    } else if (role === "tool") {
      const found = open.findIndex(({ id }) => id === entry.toolCallId);
      open = open.toSpliced(found, 1);
    } else if (role !== "agent") isAsked = role === "user";
    agent = agentIn([entry]) ?? agent;
    entries.push(entry);
  }
  const results = open.map((call) => failedResult(call, now, INTERRUPTED));
  return { entries, ending: isAsked ? [...results, { ...INTERRUPTED_RUN, at: now }] : results };
}

/** The first agent that is named in entries. */
function agentIn(entries: readonly TranscriptEntry[]): string | undefined {
  const found = entries.find(({ role }) => role === "assistant" || role === "agent");
  return found !== undefined && "agent" in found ? found.agent : undefined;
}

/** The end of a run that no process has ended. */
const INTERRUPTED_RUN: Omit<TranscriptEnd, "at"> = {
  role: "end",
  outcome: "cancelled",
  duration: 0,
  usage: { inputTokens: 0, outputTokens: 0 },
  toolCalls: 0,
};

function failedResult({ id, name }: ModelToolCall, at: number, text: string): TranscriptMessage {
  return {
    role: "tool",
    at,
    toolCallId: id,
    toolName: name,
    isError: true,
    size: 0,
    duration: 0,
    text,
  };
}

/** The message as a model gets it again when the conversation is resumed. */
export function toModelMessage(message: TranscriptMessage): ModelMessage {
  switch (message.role) {
    case "user":
      return { role: "user", content: [{ type: "text", text: message.text }] };
    case "assistant": {
      const { text, toolCalls } = message;
      return { role: "assistant", text, toolCalls };
    }
    case "tool": {
      const { toolCallId, toolName, isError, text } = message;
      return { role: "tool", toolCallId, toolName, isError, content: [{ type: "text", text }] };
    }
  }
}

/** The text of content; pictures are described. */
export function textOfContent(content: readonly ModelContent[]): string {
  return content
    .map((part) => {
      const shown = part.type === "text" ? part : describeBlock("image", part.mimeType, part.data);
      return shown.type === "text" ? shown.text : "";
    })
    .join("\n");
}

/** The place in a conversation from which on its model gets all messages. */
export interface WindowStart {
  /** The number of the message, from 0. */
  readonly number: number;
  /** How many messages before it the model does not get. */
  readonly leftOut: number;
}

/** Where the window of the model begins; undefined if it gets the whole conversation. */
export function windowStart(history: History, total: number): WindowStart | undefined {
  const { entries } = history;
  const leftOut = total - entries.length;
  if (leftOut <= 0 || entries.length === 0) return undefined;
  // The last message of the user stays in the window when later ones are dropped.
  const at = entries.findLastIndex(({ number }, index) => {
    const before = entries[index - 1];
    return before === undefined || before.number !== number - 1;
  });
  const { number = 0 } = entries[at] ?? {};
  return { number, leftOut };
}

/** What people are told where the window begins. */
export function describeWindow({ leftOut }: WindowStart): string {
  const what = leftOut === 1 ? "1 earlier message is" : `${leftOut} earlier messages are`;
  return `The model gets the conversation from here on: ${what} left out of its window.`;
}

function sizeOf(entry: TranscriptEntry): number {
  switch (entry.role) {
    case "end":
    case "agent":
      return 100;
    case "user":
      return Buffer.byteLength(entry.text);
    case "assistant":
      return entry.toolCalls.reduce(
        (sum, { name, argumentsJson }) => sum + name.length + Buffer.byteLength(argumentsJson),
        Buffer.byteLength(entry.text),
      );
    case "tool":
      return (
        Buffer.byteLength(entry.text) +
        (entry.run?.messages.reduce((sum, message) => sum + sizeOf(message), 0) ?? 0)
      );
  }
}

const count = v.pipe(v.number(), v.minValue(0));
const toolCallsSchema = v.array(
  v.object({ id: v.string(), name: v.string(), argumentsJson: v.string() }),
);
const usageSchema = v.object({
  inputTokens: count,
  outputTokens: count,
  estimated: v.exactOptional(v.literal(true)),
});
const messageSchema: v.GenericSchema<unknown, TranscriptMessage> = v.variant("role", [
  v.object({ role: v.literal("user"), at: count, text: v.string() }),
  v.object({
    role: v.literal("assistant"),
    at: count,
    agent: v.string(),
    text: v.string(),
    toolCalls: toolCallsSchema,
  }),
  v.object({
    role: v.literal("tool"),
    at: count,
    toolCallId: v.string(),
    toolName: v.string(),
    isError: v.boolean(),
    size: count,
    duration: count,
    text: v.string(),
    run: v.exactOptional(
      v.lazy(() => v.object({ agent: v.string(), messages: v.array(messageSchema) })),
    ),
  }),
]);
const entrySchema: v.GenericSchema<unknown, TranscriptEntry> = v.union([
  messageSchema,
  v.object({
    role: v.literal("end"),
    at: count,
    outcome: v.picklist(["stop", "length", "refused", "cancelled", "error"]),
    error: v.exactOptional(v.string()),
    duration: count,
    usage: usageSchema,
    toolCalls: count,
  }),
  v.object({ role: v.literal("agent"), at: count, agent: v.string() }),
]);

/** Reads an entry from its JSON text. @returns undefined if it is none */
export function parseEntry(json: string): TranscriptEntry | undefined {
  try {
    const read = v.safeParse(entrySchema, JSON.parse(json));
    return read.success ? read.output : undefined;
  } catch {
    return undefined;
  }
}

/** A copy of the entry in which every text was passed through `mask`; roles, ids and numbers stay. */
export function maskEntry<E extends TranscriptEntry>(entry: E, mask: (text: string) => string): E {
  return maskValue(entry, mask) as E;
}

const UNMASKED: ReadonlySet<string> = new Set(["role", "outcome"]);

function maskValue(value: unknown, mask: (text: string) => string): unknown {
  if (typeof value === "string") return mask(value);
  if (Array.isArray(value)) return value.map((item) => maskValue(item, mask));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, it]) => [key, UNMASKED.has(key) ? it : maskValue(it, mask)]),
  );
}
