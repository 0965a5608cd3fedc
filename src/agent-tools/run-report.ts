import { Buffer } from "node:buffer";
import type { RunCost } from "../agent/agent-calls.ts";
import type { AgentEvent, RunUsage } from "../agent/events.ts";
import { toolCallsIn } from "../agent/session.ts";
import { HubError, type ErrorCode } from "../base/errors.ts";
import type { AgentsOptions } from "./plugin.ts";

/** Maximum number of events in an answer, and their maximum total size, in bytes. */
const MAX_EVENTS = 200;
const MAX_EVENTS_SIZE = 64 * 1024;
/** Maximum length of a text in an event, in UTF-16 code units. */
const MAX_TEXT = 4000;
/** Maximum length of a result in an event, in UTF-16 code units: an answer has many of them. */
const MAX_RESULT = 1000;
/** Maximum length of a progress message, in UTF-16 code units. */
const MAX_SHOWN = 200;
/** How many arguments of a call a progress message shows, and how much of each, in UTF-16 code units. */
const SHOWN_ARGUMENTS = { count: 3, length: 40 };

/** The error codes of limits, all of which clients get as `limitReached`. */
const LIMITS: ReadonlySet<string> = new Set([
  "turnLimit",
  "toolCallLimit",
  "repeatedCalls",
  "tokenLimit",
  "runTimeout",
]);

/** One element of `events` in an answer. */
interface ReportedEvent {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** The result of a run, as a client gets it. */
export interface RunAnswer {
  readonly response: string;
  readonly events: readonly ReportedEvent[];
  readonly metadata: {
    readonly duration_ms: number;
    readonly tool_calls: number;
    readonly tokens_used: number;
    readonly tokens_estimated?: true;
    readonly model: string;
    readonly stop_reason: string;
  };
}

/** Collects what happens in a run, for the answer to the client. */
export class RunReport {
  readonly #detail: AgentsOptions["events"];
  readonly #events: ReportedEvent[] = [];
  #size = 0;
  #omitted = 0;
  /** The text or thinking that one agent has streamed since the last event of another kind. */
  #said:
    | {
        readonly type: "agent_message" | "thinking";
        readonly agent: string;
        readonly run: string | undefined;
        text: string;
      }
    | undefined;
  /** The agents of nested runs, outermost first, by the id of the run. */
  readonly #paths = new Map<string, string>();
  /** The runs of called agents. */
  readonly #calls = new Set<string>();
  #usage: RunUsage = { inputTokens: 0, outputTokens: 0 };
  #toolCalls = 0;
  /** The last line, as far as received, of the text that the model is writing. */
  #line = "";
  #model = "";
  #end: Extract<AgentEvent, { type: "runComplete" | "error" }> | undefined;

  constructor(detail: AgentsOptions["events"]) {
    this.#detail = detail;
  }

  /** What the run has used so far. */
  get cost(): RunCost {
    return { usage: this.#usage, toolCalls: this.#toolCalls };
  }

  /** Adds an event. @returns the text for a progress notification about it; undefined: none */
  add(event: AgentEvent): string | undefined {
    const text = this.#take(event);
    return text === undefined ? undefined : shorten(text, MAX_SHOWN);
  }

  #take(event: AgentEvent): string | undefined {
    this.#toolCalls += toolCallsIn(event);
    const isFull = this.#detail === "full";
    const run = "run" in event ? event.run : undefined;
    const of = run === undefined ? {} : { run };
    switch (event.type) {
      case "runStarted":
        this.#model = event.model;
        return `${event.agent} has started`;
      case "agentStarted": {
        const { runId, how, agent, toolCallId, task } = event;
        const outer = this.#pathOf(run);
        if (how === "call") this.#calls.add(runId);
        this.#paths.set(runId, outer === undefined ? agent : `${outer} → ${agent}`);
        this.#add({
          type: "agent_started",
          agent,
          run_id: runId,
          how,
          id: toolCallId,
          ...(isFull && { task: shorten(task, MAX_RESULT) }),
          ...of,
        });
        return `${this.#pathOf(runId) ?? agent} begins: ${lineOf(task)}`;
      }
      case "agentEnded": {
        const { runId, how, agent, success, error, duration, usage, toolCalls } = event;
        const path = this.#pathOf(runId) ?? agent;
        this.#add({
          type: "agent_ended",
          agent,
          run_id: runId,
          how,
          success,
          ...(error !== undefined && { error }),
          duration_ms: duration,
          input_tokens: usage.inputTokens,
          output_tokens: usage.outputTokens,
          tool_calls: toolCalls,
          ...of,
        });
        return success ? `${path} has answered` : `${path} has failed (${error ?? "error"})`;
      }
      case "textDelta":
        this.#say("agent_message", event.agent, run, event.text);
        this.#line = `${this.#line}${event.text}`.split("\n").at(-1)?.slice(0, MAX_SHOWN) ?? "";
        return `${this.#nameOf(event.agent, run)}: ${this.#line}`;
      case "thinkingDelta":
        this.#say("thinking", event.agent, run, event.text);
        return `${this.#nameOf(event.agent, run)} is thinking`;
      case "toolCallStart": {
        const { agent, toolName: tool, toolCallId: id, via, arguments: args } = event;
        this.#add({
          type: "tool_call",
          agent,
          tool,
          id,
          ...(via && { via }),
          ...(isFull && { arguments: args }),
          ...of,
        });
        const given = describeArguments(args);
        return `${this.#nameOf(agent, run)} calls ${tool}${given === "" ? "" : ` (${given})`}`;
      }
      case "toolProgress": {
        const { agent, toolName: tool, message } = event;
        // The message of a called agent says itself which agent does what.
        return run !== undefined && this.#calls.has(run)
          ? `${agent} → ${message}`
          : `${this.#nameOf(agent, run)}: ${tool}: ${message}`;
      }
      case "toolExecuted": {
        const { agent, toolName: tool, toolCallId: id, success, error, duration, size } = event;
        const { result } = event;
        const failed = error === undefined ? {} : { error };
        this.#add({
          type: "tool_response",
          agent,
          tool,
          id,
          success,
          ...failed,
          duration_ms: duration,
          size,
          ...(isFull && result !== undefined && { result: shorten(result, MAX_RESULT) }),
          ...of,
        });
        return `${tool} ${success ? "has answered" : `has failed (${error ?? "error"})`}`;
      }
      case "transferred":
        this.#add({ type: "transfer", from: event.from, to: event.to, ...of });
        return `${event.to} goes on for ${event.from}`;
      case "usage": {
        this.#line = "";
        const { inputTokens, outputTokens, estimated = this.#usage.estimated } = event;
        this.#usage = {
          inputTokens: this.#usage.inputTokens + inputTokens,
          outputTokens: this.#usage.outputTokens + outputTokens,
          ...(estimated && { estimated }),
        };
        return undefined;
      }
      case "runComplete":
        this.#end = event;
        return undefined;
      case "error":
        this.#add({ type: "error", code: event.code, message: event.message });
        this.#end = event;
        return undefined;
    }
  }

  /** The agents of a nested run, outermost first; undefined: the outermost run. */
  #pathOf(run: string | undefined): string | undefined {
    return run === undefined ? undefined : this.#paths.get(run);
  }

  /** An agent with those that it works for in this run. */
  #nameOf(agent: string, run: string | undefined): string {
    const path = this.#pathOf(run);
    return path === undefined || path.endsWith(agent) ? (path ?? agent) : `${path} → ${agent}`;
  }

  /** The answer, once the run has ended. @throws {HubError} if the run failed or was cancelled */
  get answer(): RunAnswer {
    const end = this.#end;
    if (end === undefined || end.type === "error") throw runError(end);
    const { text, stopReason, duration, toolCalls, usage } = end;
    if (stopReason === "cancelled") throw new HubError("cancelled", "The run was cancelled.");
    this.#flush();
    const omitted = this.#omitted > 0 ? [{ type: "omitted", count: this.#omitted }] : [];
    return {
      response: text,
      events: [...this.#events, ...omitted],
      metadata: {
        duration_ms: duration,
        tool_calls: toolCalls,
        tokens_used: usage.inputTokens + usage.outputTokens,
        ...(usage.estimated && { tokens_estimated: true as const }),
        model: this.#model,
        stop_reason: stopReason,
      },
    };
  }

  #say(
    type: "agent_message" | "thinking",
    agent: string,
    run: string | undefined,
    text: string,
  ): void {
    if (this.#detail !== "full") return;
    if (this.#said?.type !== type || this.#said.agent !== agent || this.#said.run !== run) {
      this.#flush();
      this.#said = { type, agent, run, text: "" };
    }
    if (this.#said.text.length <= MAX_TEXT) this.#said.text += text;
  }

  #add(event: ReportedEvent): void {
    this.#flush();
    if (this.#detail === "none") return;
    const size = Buffer.byteLength(JSON.stringify(event)) + 1;
    // After the first event that is left out, all later events are left out, too.
    const fits = this.#events.length < MAX_EVENTS && this.#size + size <= MAX_EVENTS_SIZE;
    if (this.#omitted > 0 || !fits) {
      this.#omitted++;
      return;
    }
    this.#events.push(event);
    this.#size += size;
  }

  #flush(): void {
    const said = this.#said;
    this.#said = undefined;
    if (said === undefined) return;
    const { type, agent, run, text } = said;
    this.#add({ type, agent, content: shorten(text, MAX_TEXT), ...(run !== undefined && { run }) });
  }
}

function shorten(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length).toWellFormed()}…` : text;
}

function lineOf(text: string): string {
  return text.trim().replaceAll(/\s+/g, " ");
}

/** The first arguments of a call in words: names and plain values. @param json may be cut */
function describeArguments(json: string): string {
  const pairs = [
    ...json.matchAll(/"([^"\\]{1,40})":\s*("(?:[^"\\]|\\.)*"?|-?\d[\d.eE+-]*|true|false)/g),
  ];
  return pairs
    .slice(0, SHOWN_ARGUMENTS.count)
    .map(([, name = "", value = ""]) => {
      const plain = value.replaceAll(/^"|"$/g, "").replaceAll(/\\[nrt]/g, " ");
      return `${name}: ${shorten(lineOf(plain), SHOWN_ARGUMENTS.length)}`;
    })
    .join(", ");
}

function runError(end: Extract<AgentEvent, { type: "error" }> | undefined): HubError {
  if (end === undefined) return new HubError("internal", "The run has ended without an answer.");
  const { code, message } = end;
  if (LIMITS.has(code)) return new HubError("limitReached", message, { data: { limit: code } });
  const known: ErrorCode = HubError.isCode(code) ? code : "internal";
  return new HubError(known, message);
}
