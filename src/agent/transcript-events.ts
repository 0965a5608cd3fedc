import type { AgentEvent } from "./events.ts";
import { showText } from "./run.ts";
import type { NestedRun, TranscriptEntry, TranscriptMessage } from "./transcript.ts";

/** An event that a transcript tells again, or a message to the agent. */
export type ToldEvent = AgentEvent | { readonly type: "message"; readonly text: string };

export interface ToldOptions {
  /** The agent that had the conversation before the entry; undefined: it is not known. */
  readonly before: string | undefined;
  readonly model: string;
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string;
  /** A text that makes ids of runs unique, such as the number of the entry. */
  readonly id: string;
}

/**
 * The events about an entry of a transcript, for readers who come later than the events themselves are kept: texts in one
 * piece, without thinking and without the tokens of each turn.
 */
export function eventsOf(entry: TranscriptEntry, options: ToldOptions): readonly ToldEvent[] {
  const { before, model, id } = options;
  switch (entry.role) {
    case "user":
      return [
        { type: "message", text: entry.text },
        { type: "runStarted", runId: id, agent: before ?? "", model },
      ];
    case "agent":
      return before === undefined || before === entry.agent
        ? []
        : [{ type: "transferred", from: before, to: entry.agent }];
    case "end": {
      const { outcome, error = "", duration, usage, toolCalls } = entry;
      if (outcome === "error")
        return [{ type: "error", message: error, code: "internal", retryable: false }];
      const stopReason = outcome;
      return [{ type: "runComplete", runId: id, text: "", stopReason, usage, duration, toolCalls }];
    }
    case "assistant": {
      const { agent } = entry;
      const isOther = before !== undefined && before !== "" && before !== agent;
      return [
        ...(isOther ? [{ type: "transferred", from: before, to: agent } as const] : []),
        ...answerEvents(entry, options, undefined),
      ];
    }
    case "tool":
      return resultEvents(entry, before ?? "", options, undefined);
  }
}

function answerEvents(
  { agent, text, toolCalls }: Extract<TranscriptMessage, { role: "assistant" }>,
  { redact }: ToldOptions,
  run: string | undefined,
): readonly ToldEvent[] {
  const of = run === undefined ? {} : { run };
  return [
    ...(text === "" ? [] : [{ type: "textDelta", text, agent, ...of } as const]),
    ...toolCalls.map(({ id, name, argumentsJson }) => ({
      type: "toolCallStart" as const,
      toolName: name,
      toolCallId: id,
      server: undefined,
      arguments: showText(argumentsJson, redact),
      agent,
      ...of,
    })),
  ];
}

function resultEvents(
  message: Extract<TranscriptMessage, { role: "tool" }>,
  agent: string,
  options: ToldOptions,
  run: string | undefined,
): readonly ToldEvent[] {
  const { toolCallId, toolName, isError, size, duration, text, run: nested } = message;
  const of = run === undefined ? {} : { run };
  const result = showText(text, options.redact);
  return [
    ...(nested === undefined ? [] : nestedEvents(nested, message, options, run)),
    {
      type: "toolExecuted",
      toolName,
      toolCallId,
      success: !isError,
      ...(isError && { error: "toolError" }),
      duration,
      size,
      ...(result !== "" && { result }),
      agent,
      ...of,
    },
  ];
}

function nestedEvents(
  { agent, messages }: NestedRun,
  { toolCallId, isError, duration }: Extract<TranscriptMessage, { role: "tool" }>,
  options: ToldOptions,
  outer: string | undefined,
): readonly ToldEvent[] {
  const runId = `${outer ?? options.id}/${toolCallId}`;
  const [task, ...rest] = messages;
  const of = outer === undefined ? {} : { run: outer };
  const how = "task";
  const usage = { inputTokens: 0, outputTokens: 0 };
  let [current, toolCalls] = [agent, 0];
  const inside = rest.flatMap((message): readonly ToldEvent[] => {
    if (message.role === "user") return [];
    if (message.role === "assistant") {
      current = message.agent;
      toolCalls += message.toolCalls.length;
      return answerEvents(message, options, runId);
    }
    return resultEvents(message, current, options, runId);
  });
  return [
    {
      type: "agentStarted",
      runId,
      how,
      agent,
      toolCallId,
      task: showText(task?.text ?? "", options.redact),
      ...of,
    },
    ...inside,
    {
      type: "agentEnded",
      runId,
      how,
      agent,
      success: !isError,
      duration,
      usage,
      toolCalls,
      ...of,
    },
  ];
}
