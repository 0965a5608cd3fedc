import { toHubError } from "../base/errors.ts";
import type { SpanContext } from "./trace-context.ts";
import type { LiveSpan, Tracer } from "./tracer.ts";

/** Numbers of tokens; undefined: not known. */
export interface SpentTokens {
  readonly inputTokens?: number | undefined;
  readonly outputTokens?: number | undefined;
}

/** The run or the call of which a run is a part; its span is undefined if it is not recorded. */
export interface OuterWork {
  readonly span: SpanContext | undefined;
}

/** Begins the span of a run of an agent. @param outer undefined: the run is a part of nothing */
export function startRunSpan(
  tracer: Tracer | undefined,
  agent: string,
  model: string,
  outer: OuterWork | undefined,
): LiveSpan | undefined {
  if (tracer === undefined) return undefined;
  const parent = outer?.span;
  // What is a part of something that is not recorded is not recorded either.
  if (outer !== undefined && parent === undefined) return undefined;
  const attributes = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": agent,
    "gen_ai.request.model": model,
  };
  return tracer.startBelow(`invoke_agent ${agent}`, "internal", attributes, parent);
}

/** Begins the span of a question to a model. */
export function startChatSpan(
  tracer: Tracer | undefined,
  model: string,
  run: LiveSpan | undefined,
): LiveSpan | undefined {
  if (run === undefined) return undefined;
  const attributes = { "gen_ai.operation.name": "chat", "gen_ai.request.model": model };
  return tracer?.start(`chat ${model}`, "client", attributes, run);
}

/** How a run or a question has failed. */
export interface AgentFailure {
  /** What has been thrown. */
  readonly error: unknown;
  /** Removes from a text the secrets that agents know besides those of the hub, such as the keys of models. */
  redact(text: string): string;
}

/** Ends the span of a run or of a question; only the first call counts. */
export function endAgentSpan(
  span: LiveSpan | undefined,
  { inputTokens, outputTokens }: SpentTokens,
  failure?: AgentFailure,
): void {
  if (span === undefined) return;
  span.set("gen_ai.usage.input_tokens", inputTokens);
  span.set("gen_ai.usage.output_tokens", outputTokens);
  if (failure === undefined) {
    span.end();
    return;
  }
  const { code, message } = toHubError(failure.error);
  span.end({ type: code, message: failure.redact(message) });
}
