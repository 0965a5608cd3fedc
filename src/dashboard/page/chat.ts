import { nounFor } from "../../base/format.ts";
import type { RunEvent } from "./documents.ts";
import { count, formatDuration, formatNumber } from "./format.ts";

/** A part of a conversation, as it is shown. Times are in ms since the epoch, durations in ms, sizes in bytes. */
export type ChatItem =
  /** A message of the person. */
  | { readonly kind: "message"; readonly text: string }
  | { readonly kind: "text" | "thinking"; readonly text: string; readonly agent: string }
  | ChatCall
  /** The outcome of a run, or a notice about the conversation. */
  | { readonly kind: "note"; readonly text: string; readonly isError: boolean };

export interface ChatCall {
  readonly kind: "call";
  readonly id: string;
  readonly name: string;
  readonly agent: string;
  readonly arguments: string;
  readonly startedAt: number;
  /** How the call ended; undefined while it runs. */
  readonly end:
    | {
        readonly isGood: boolean;
        readonly error: string | undefined;
        readonly duration: number;
        readonly size: number;
      }
    | undefined;
}

/** A conversation with an agent. */
export interface Chat {
  readonly id: string;
  readonly items: readonly ChatItem[];
  /** The number of the last event. */
  readonly seq: number;
  /** Messages that were sent from this page, but are not in the hub's conversation yet. */
  readonly sent: readonly string[];
  readonly isRunning: boolean;
  /** Whether the last message still waits, which means that it has neither started a run nor been refused. */
  readonly isWaiting: boolean;
  /** The name of the agent that answers at present; a transfer changes it. */
  readonly agent: string;
  /** The last text for screen readers: each step, and each complete answer. */
  readonly announcement: string;
  /** `gone`: the hub does not have the conversation any more. */
  readonly link: "opening" | "open" | "gone";
}

export function emptyChat(id: string): Chat {
  return {
    id,
    items: [],
    seq: 0,
    sent: [],
    isRunning: false,
    isWaiting: false,
    agent: "",
    announcement: "",
    link: "opening",
  };
}

const ENDINGS: Readonly<Record<string, string>> = {
  length: "The answer is cut: it has reached the limit of the model.",
  refused: "The model has refused to answer.",
  cancelled: "Stopped.",
};

/** Applies events to a conversation. Items that no event changes stay the same objects. */
export function applyRunEvents(chat: Chat, events: readonly RunEvent[]): Chat {
  const items = [...chat.items];
  let { seq, sent, isRunning, isWaiting, agent, announcement } = chat;
  const note = (text: string, isError = false): void =>
    void items.push({ kind: "note", text, isError });
  /** Ends the run, and the calls whose end no event has reported. */
  const endRun = (at: number): void => {
    isRunning = false;
    for (const [index, item] of items.entries())
      if (item.kind === "call" && item.end === undefined) {
        const duration = at - item.startedAt;
        items[index] = { ...item, end: { isGood: false, error: "cancelled", duration, size: 0 } };
      }
  };
  for (const event of events) {
    if ("kind" in event) {
      note("What was said before is not kept any more.");
      continue;
    }
    seq = event.seq;
    switch (event.type) {
      case "message": {
        items.push({ kind: "message", text: event.text });
        const index = sent.indexOf(event.text);
        if (index >= 0) sent = sent.toSpliced(index, 1);
        isWaiting = true;
        break;
      }
      case "runStarted":
        isRunning = true;
        isWaiting = false;
        ({ agent } = event);
        announcement = `${agent} is at work.`;
        break;
      case "textDelta":
      case "thinkingDelta": {
        const kind = event.type === "textDelta" ? "text" : "thinking";
        const last = items.at(-1);
        if (last?.kind === kind && last.agent === event.agent)
          items[items.length - 1] = { ...last, text: last.text + event.text };
        else items.push({ kind, text: event.text, agent: event.agent });
        break;
      }
      case "toolCallStart":
        items.push({
          kind: "call",
          id: event.toolCallId,
          name: event.toolName,
          agent: event.agent,
          arguments: event.arguments,
          startedAt: event.at,
          end: undefined,
        });
        announcement = `${event.agent} calls ${event.toolName}.`;
        break;
      case "toolExecuted": {
        const index = items.findLastIndex(
          (item) =>
            item.kind === "call" && item.id === event.toolCallId && item.agent === event.agent,
        );
        const item = items[index];
        if (item?.kind !== "call") break;
        const { success: isGood, error, duration, size } = event;
        items[index] = { ...item, end: { isGood, error, duration, size } };
        break;
      }
      case "transferred":
        agent = event.to;
        note(`${event.from} has handed the conversation to ${event.to}.`);
        break;
      case "usage":
        break;
      case "runComplete": {
        endRun(event.at);
        const { stopReason, duration, toolCalls, usage, text } = event;
        const ending = ENDINGS[stopReason];
        const used = usage.inputTokens + usage.outputTokens;
        const total = formatNumber(used);
        const tokens = usage.estimated === true ? `about ${total}` : total;
        const facts = `${formatDuration(duration)} · ${count(toolCalls, "call")} · ${tokens} ${nounFor(used, "token")}`;
        note(ending === undefined ? facts : `${ending} ${facts}`);
        announcement = ending ?? `${agent} has answered: ${text}`;
        break;
      }
      case "error":
        // If the error refuses a message that waits, the run in progress goes on.
        if (!isWaiting) endRun(event.at);
        isWaiting = false;
        note(event.message, true);
        announcement = event.message;
        break;
    }
  }
  return { ...chat, items, seq, sent, isRunning, isWaiting, agent, announcement };
}

/** A part of a text: a block of code, or a paragraph. */
export interface TextBlock {
  readonly isCode: boolean;
  readonly text: string;
}

/** Splits a Markdown text into paragraphs and code blocks. All other Markdown is left as it is written. */
export function blocksOf(text: string): readonly TextBlock[] {
  return text
    .split(/^```/m)
    .flatMap((part, at): readonly TextBlock[] =>
      at % 2 === 1
        ? [{ isCode: true, text: part.replace(/^[^\n]*\n?/, "").trimEnd() }]
        : part.split(/\n{2,}/).map((one) => ({ isCode: false, text: one.trim() })),
    )
    .filter(({ isCode, text: one }) => isCode || one !== "");
}

/** Splits a paragraph into parts that are written as `code`, as **bold**, or plain. */
export function wordsOf(
  text: string,
): readonly { readonly kind: "plain" | "code" | "bold"; readonly text: string }[] {
  return text
    .split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)
    .map((part, at) =>
      at % 2 === 0
        ? ({ kind: "plain", text: part } as const)
        : part.startsWith("`")
          ? ({ kind: "code", text: part.slice(1, -1) } as const)
          : ({ kind: "bold", text: part.slice(2, -2) } as const),
    )
    .filter((word) => word.text !== "");
}
