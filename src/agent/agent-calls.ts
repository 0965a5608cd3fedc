/**
 * Calls of agents as tools of a hub: agents of another file, of the hub's manifest or of another hub. The call carries
 * what the run may use at most, and the result tells what it has used and done.
 */
import { isJsonObject } from "../base/json.ts";
import type { RunUsage, StepEvent } from "./events.ts";
import type { NestedRun, TranscriptMessage } from "./transcript.ts";

/** A key in `_meta` of calls of agents. Its value is a `RunBudget`, which can only lower the limits of the run. */
export const BUDGET_META_KEY = "toolmux/budget";
/** A key in `_meta` of the results of calls of agents, also of those that failed. Its value is a `RunCost`. */
export const USAGE_META_KEY = "toolmux/usage";

/** What a run, with all runs that are nested in it, may use at most; undefined: no limit. */
export interface RunBudget {
  readonly maxTokens?: number | undefined;
  readonly maxToolCalls?: number | undefined;
}

/** What a run has used, with all runs that are nested in it. */
export interface RunCost {
  readonly usage: RunUsage;
  readonly toolCalls: number;
}

/** What the result of a call of an agent tells about the run. */
export interface ReportedRun {
  readonly cost: RunCost;
  /** What happened in the run, as `RunReport` in agent-tools/ writes it; empty if it is not told. */
  readonly events: readonly unknown[];
}

/** Maximum number of events that are read from a result, and maximum length of a text in them, in UTF-16 code units. */
const MAX_EVENTS = 200;
const MAX_TEXT = 4000;

export function readBudget(meta: unknown): RunBudget {
  const value = isJsonObject(meta) ? meta[BUDGET_META_KEY] : undefined;
  if (!isJsonObject(value)) return {};
  return { maxTokens: countIn(value["maxTokens"]), maxToolCalls: countIn(value["maxToolCalls"]) };
}

/** @param value what the result has under `USAGE_META_KEY` */
export function readCost(value: unknown): RunCost | undefined {
  if (!isJsonObject(value)) return undefined;
  return {
    usage: {
      inputTokens: countIn(value["inputTokens"]) ?? 0,
      outputTokens: countIn(value["outputTokens"]) ?? 0,
      ...(value["estimated"] === true && { estimated: true as const }),
    },
    toolCalls: countIn(value["toolCalls"]) ?? 0,
  };
}

export function costMeta({ usage, toolCalls }: RunCost): Readonly<Record<string, unknown>> {
  return { [USAGE_META_KEY]: { ...usage, toolCalls } };
}

function countIn(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
}

/** The agent that a call of a tool of the server `agents` runs, for people. */
export function calledAgent(tool: string, args: Readonly<Record<string, unknown>>): string {
  const { agent } = args;
  if (tool === "invoke_agent" && typeof agent === "string") return agent.slice(0, 200);
  return tool === "send_message" ? "agent session" : tool;
}

/** Whether a tool of the server `agents` runs an agent, and not only tells about agents. */
export function runsAgent(args: Readonly<Record<string, unknown>>): boolean {
  return typeof args["message"] === "string";
}

/** The events of a run that a result tells, as events of this process. @param run the id of the nested run */
export function reportedEvents(
  { events }: Pick<ReportedRun, "events">,
  run: string,
): readonly StepEvent[] {
  return events.slice(0, MAX_EVENTS).flatMap((event): readonly StepEvent[] => {
    if (!isJsonObject(event)) return [];
    const text = (key: string): string => {
      const value = event[key];
      return typeof value === "string" ? value.slice(0, MAX_TEXT) : "";
    };
    const number = (key: string): number => countIn(event[key]) ?? 0;
    const [agent, toolName, toolCallId] = [text("agent"), text("tool"), text("id")];
    const inner = text("run");
    const of = { run: inner === "" ? run : `${run}/${inner}` };
    switch (event["type"]) {
      case "agent_message":
        return [{ type: "textDelta", text: text("content"), agent, ...of }];
      case "thinking":
        return [{ type: "thinkingDelta", text: text("content"), agent, ...of }];
      case "transfer":
        return [{ type: "transferred", from: text("from"), to: text("to"), ...of }];
      case "agent_started": {
        const runId = `${run}/${text("run_id")}`;
        const how = event["how"] === "call" ? "call" : "task";
        return [{ type: "agentStarted", runId, how, agent, toolCallId, task: text("task"), ...of }];
      }
      case "agent_ended": {
        const usage = {
          inputTokens: number("input_tokens"),
          outputTokens: number("output_tokens"),
        };
        const error = text("error");
        return [
          {
            type: "agentEnded",
            runId: `${run}/${text("run_id")}`,
            how: event["how"] === "call" ? "call" : "task",
            agent,
            success: event["success"] === true,
            ...(error !== "" && { error }),
            duration: number("duration_ms"),
            usage,
            toolCalls: number("tool_calls"),
            isReported: true,
            ...of,
          },
        ];
      }
      case "tool_call":
        return [
          {
            type: "toolCallStart",
            toolName,
            toolCallId,
            server: undefined,
            arguments: text("arguments"),
            agent,
            isReported: true,
            ...of,
          },
        ];
      case "tool_response": {
        const [error, result] = [text("error"), text("result")];
        return [
          {
            type: "toolExecuted",
            toolName,
            toolCallId,
            success: event["success"] === true,
            ...(error !== "" && { error }),
            duration: number("duration_ms"),
            size: number("size"),
            ...(result !== "" && { result }),
            agent,
            ...of,
          },
        ];
      }
      default:
        return [];
    }
  });
}

/** The nested run as it is kept, from the events that a result tells. Runs inside it are left out. */
export function reportedTranscript(
  agent: string,
  task: string,
  events: readonly StepEvent[],
  run: string,
  at: number,
): NestedRun {
  const messages: TranscriptMessage[] = [{ role: "user", at, text: task }];
  let said = "";
  let calls: { id: string; name: string; argumentsJson: string }[] = [];
  const flush = (): void => {
    if (said !== "" || calls.length > 0)
      messages.push({ role: "assistant", at, agent, text: said, toolCalls: calls });
    said = "";
    calls = [];
  };
  let results: TranscriptMessage[] = [];
  for (const event of events) {
    if (!("run" in event) || event.run !== run) continue;
    if (event.type === "toolExecuted") {
      results.push({
        role: "tool",
        at,
        toolCallId: event.toolCallId,
        toolName: event.toolName,
        isError: !event.success,
        size: event.size,
        duration: event.duration,
        text: event.result ?? "",
      });
      continue;
    }
    if (results.length > 0) {
      flush();
      messages.push(...results);
      results = [];
    }
    if (event.type === "textDelta") said += event.text;
    if (event.type === "toolCallStart") {
      const { toolCallId: id, toolName: name, arguments: argumentsJson } = event;
      calls.push({ id, name, argumentsJson });
    }
  }
  flush();
  messages.push(...results);
  return { agent, messages };
}
