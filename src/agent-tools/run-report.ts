import { Buffer } from "node:buffer";
import type { AgentEvent } from "../agent/events.ts";
import { HubError, type ErrorCode } from "../base/errors.ts";
import type { AgentsOptions } from "./plugin.ts";

/** Maximum number of events in an answer, and their maximum total size, in bytes. */
const MAX_EVENTS = 200;
const MAX_EVENTS_SIZE = 64 * 1024;
/** Maximum length of a text in an event, in UTF-16 code units. */
const MAX_TEXT = 4000;
/** Maximum length of a progress message, in UTF-16 code units. */
const MAX_SHOWN = 200;

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
    | { readonly type: "agent_message" | "thinking"; readonly agent: string; text: string }
    | undefined;
  /** The last line, as far as received, of the text that the model is writing. */
  #line = "";
  #model = "";
  #end: Extract<AgentEvent, { type: "runComplete" | "error" }> | undefined;

  constructor(detail: AgentsOptions["events"]) {
    this.#detail = detail;
  }

  /** Adds an event. @returns the text for a progress notification about it; undefined: none */
  add(event: AgentEvent): string | undefined {
    switch (event.type) {
      case "runStarted":
        this.#model = event.model;
        return `${event.agent} has started`;
      case "textDelta":
        this.#say("agent_message", event.agent, event.text);
        this.#line = `${this.#line}${event.text}`.split("\n").at(-1)?.slice(0, MAX_SHOWN) ?? "";
        return `${event.agent}: ${this.#line}`;
      case "thinkingDelta":
        this.#say("thinking", event.agent, event.text);
        return `${event.agent} is thinking`;
      case "toolCallStart": {
        const { agent, toolName: tool, toolCallId: id, via, arguments: args } = event;
        const isFull = this.#detail === "full";
        this.#add({
          type: "tool_call",
          agent,
          tool,
          id,
          ...(via && { via }),
          ...(isFull && { arguments: args }),
        });
        return `${agent} calls ${tool}`;
      }
      case "toolExecuted": {
        const { agent, toolName: tool, toolCallId: id, success, error, duration, size } = event;
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
        });
        return `${tool} ${success ? "has answered" : `has failed (${error ?? "error"})`}`;
      }
      case "transferred":
        this.#add({ type: "transfer", from: event.from, to: event.to });
        return `${event.to} goes on for ${event.from}`;
      case "usage":
        this.#line = "";
        return undefined;
      case "runComplete":
        this.#end = event;
        return undefined;
      case "error":
        this.#add({ type: "error", code: event.code, message: event.message });
        this.#end = event;
        return undefined;
    }
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

  #say(type: "agent_message" | "thinking", agent: string, text: string): void {
    if (this.#detail !== "full") return;
    if (this.#said?.type !== type || this.#said.agent !== agent) {
      this.#flush();
      this.#said = { type, agent, text: "" };
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
    const { type, agent, text } = said;
    const content = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
    this.#add({ type, agent, content });
  }
}

function runError(end: Extract<AgentEvent, { type: "error" }> | undefined): HubError {
  if (end === undefined) return new HubError("internal", "The run has ended without an answer.");
  const { code, message } = end;
  if (LIMITS.has(code)) return new HubError("limitReached", message, { data: { limit: code } });
  const known: ErrorCode = HubError.isCode(code) ? code : "internal";
  return new HubError(known, message);
}
