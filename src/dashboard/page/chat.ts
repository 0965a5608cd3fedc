import { nounFor } from "../../base/format.ts";
import type { RunEvent } from "./documents.ts";
import { count, formatDuration, formatNumber } from "./format.ts";

/** The nested run of which an item is a part; absent: the outermost run. */
interface InRun {
  readonly run?: string | undefined;
}

/** A part of a conversation, as it is shown. Times are in ms since the epoch, durations in ms, sizes in bytes. */
export type ChatItem = InRun &
  (
    | /** A message of the person. */ { readonly kind: "message"; readonly text: string }
    | { readonly kind: "text" | "thinking"; readonly text: string; readonly agent: string }
    | ChatCall
    | ChatRun
    /** The outcome of a run, or a notice about the conversation. */
    | { readonly kind: "note"; readonly text: string; readonly isError: boolean }
  );

/** What another agent does for the one that has called it. */
export interface ChatRun extends InRun {
  readonly kind: "agent";
  /** The id of the nested run, which its items have in `run`. */
  readonly id: string;
  readonly agent: string;
  readonly task: string;
  readonly startedAt: number;
  /** How it has ended, in words; undefined while it runs. */
  readonly end: { readonly isGood: boolean; readonly text: string } | undefined;
}

export interface ChatCall extends InRun {
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
        /** The beginning of the result. */
        readonly result: string | undefined;
      }
    | undefined;
  /** What the tool has told about its progress. */
  readonly progress?: string;
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
  /** Why the conversation could not be opened. */
  readonly reason?: string | undefined;
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
        const result = undefined;
        const end = { isGood: false, error: "cancelled", duration, size: 0, result };
        items[index] = { ...item, end };
      } else if (item.kind === "agent" && item.end === undefined)
        items[index] = { ...item, end: { isGood: false, text: "cancelled" } };
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
        const same = sent.indexOf(event.text);
        // The agent gets the text of a prompt that is sent by its name.
        const index = same >= 0 ? same : sent.findIndex((one) => one.startsWith("/"));
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
        const { text, run } = event;
        // Runs that are nested side by side write in turns.
        const index = items.findLastIndex((item) => item.run === run);
        const last = items[index];
        if (last?.kind === kind && last.agent === event.agent)
          items[index] = { ...last, text: last.text + text };
        else items.push({ kind, text, agent: event.agent, run });
        break;
      }
      case "agentStarted": {
        const { runId: id, agent: name, task, run, at: startedAt } = event;
        items.push({ kind: "agent", id, agent: name, task, run, startedAt, end: undefined });
        announcement = `${name} is at work.`;
        break;
      }
      case "agentEnded": {
        const index = items.findLastIndex(
          (item) => item.kind === "agent" && item.id === event.runId,
        );
        const ended = items[index];
        if (ended?.kind !== "agent") break;
        const { success: isGood, error = "failed", duration, usage } = event;
        const used = usage.inputTokens + usage.outputTokens;
        const facts = factsOf(duration, event.toolCalls, used, usage.estimated);
        items[index] = { ...ended, end: { isGood, text: isGood ? facts : `${error} · ${facts}` } };
        break;
      }
      case "toolProgress": {
        const index = callIn(items, event);
        const item = items[index];
        if (item?.kind === "call") items[index] = { ...item, progress: event.message };
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
          run: event.run,
        });
        announcement = `${event.agent} calls ${event.toolName}.`;
        break;
      case "toolExecuted": {
        const index = callIn(items, event);
        const item = items[index];
        if (item?.kind !== "call") break;
        const { success: isGood, error, duration, size, result } = event;
        items[index] = { ...item, end: { isGood, error, duration, size, result } };
        break;
      }
      case "transferred":
        if (event.run === undefined) agent = event.to;
        note(`${event.from} has handed the conversation to ${event.to}.`);
        break;
      case "usage":
        break;
      case "runComplete": {
        endRun(event.at);
        const { stopReason, duration, toolCalls, usage, text } = event;
        const ending = ENDINGS[stopReason];
        const used = usage.inputTokens + usage.outputTokens;
        const facts = factsOf(duration, toolCalls, used, usage.estimated);
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

function factsOf(
  duration: number,
  toolCalls: number,
  tokens: number,
  isEstimated: boolean | undefined,
): string {
  const total = formatNumber(tokens);
  const about = isEstimated === true ? `about ${total}` : total;
  return `${formatDuration(duration)} · ${count(toolCalls, "call")} · ${about} ${nounFor(tokens, "token")}`;
}

/** The index of the call that an event is about; -1 if there is none. */
function callIn(
  items: readonly ChatItem[],
  { toolCallId, agent, run }: Extract<RunEvent, { type: "toolExecuted" | "toolProgress" }>,
): number {
  // The progress of a called agent comes from inside of its run.
  return items.findLastIndex(
    (item) =>
      item.kind === "call" &&
      item.id === toolCallId &&
      item.agent === agent &&
      (item.run === run || item.end === undefined),
  );
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
