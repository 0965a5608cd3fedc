import { Buffer } from "node:buffer";
import { randomUUID } from "node:crypto";
import { abortable, PausableTimer, pause } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { count, formatDuration, formatSize } from "../base/format.ts";
import type { ModelFallback } from "../manifest/agents.ts";
import { findNearest } from "../manifest/problems.ts";
import { isTable } from "../manifest/table.ts";
import type { Agent, RunOptions } from "./agent.ts";
import type { AgentChain } from "./run-chain.ts";
import {
  calledAgent,
  reportedEvents,
  reportedTranscript,
  type RunBudget,
  type RunCost,
  runsAgent,
} from "./agent-calls.ts";
import type { NestedRunKind, RunUsage, StepEvent } from "./events.ts";
import { History, TOKEN_BYTES } from "./history.ts";
import {
  type Model,
  modelError,
  type ModelContent,
  type ModelPart,
  type ModelRequest,
  type ModelTool,
  type ModelToolCall,
  type TokenUsage,
} from "./model.ts";
import type { CallProgress } from "../frontend/hub-client.ts";
import { formOf, isBuiltIn, isSearchTool, modelToolOf, SEARCH_TOOLS } from "./tool-search.ts";
import { endAgentSpan, startChatSpan, startRunSpan } from "../telemetry/agent-spans.ts";
import type { LiveSpan, Tracer } from "../telemetry/tracer.ts";
import { ThinkTags } from "./think-tags.ts";
import { type NestedRun, textOfContent, type TranscriptMessage } from "./transcript.ts";
import {
  AGENTS_SERVER,
  type AgentTool,
  describeBlock,
  errorResult,
  type Toolbox,
  type ToolCallOptions,
  type ToolResult,
} from "./toolbox.ts";

/** A number of tokens for people. */
export function tokensText(tokens: number, isEstimated: boolean | undefined): string {
  return isEstimated === true
    ? `about ${count(tokens, "token")} (an estimate, as the model's API does not report all of them)`
    : count(tokens, "token");
}

/** The result of a run that has not ended with an error. */
export interface RunResult {
  /** The last answer of the model. */
  readonly text: string;
  readonly stopReason: "stop" | "length" | "refused" | "cancelled";
  readonly usage: RunUsage;
  readonly toolCalls: number;
}

interface RunContext {
  readonly signal: AbortSignal;
  /** The chain of nested runs that ends with this run. */
  readonly chain: AgentChain;
  readonly toolbox: Toolbox;
  readonly isVisible?: RunOptions["isVisible"];
  readonly client?: RunOptions["client"];
  readonly watchPauses?: RunOptions["watchPauses"];
  readonly onResult?: RunOptions["onResult"];
  /** Emits an event. @returns a promise to wait for if the reader of the events is too slow */
  emit(event: StepEvent): Promise<void> | undefined;
  /** Receives each message that the run adds to the conversation, after the events about it. */
  record(message: TranscriptMessage): void;
  readonly onHandoff?: ((agent: Agent) => void) | undefined;
  /**
   * The limits that apply in addition to the agent's own: those of the session or, in a nested run, those of the outer
   * run.
   */
  readonly outer: Pick<RunOptions, "maxTokens" | "maxToolCalls"> | Run;
}

/** Maximum number of attempts to ask a model, by the reason of the failure; 1 for reasons that are not listed. */
const TRIES: Readonly<Record<string, number>> = { rateLimit: 4, overloaded: 4, unreachable: 2 };
/** The wait before the second attempt, in ms; each further wait is twice as long as the one before. */
const FIRST_WAIT = 1000;
/** The longest wait before a new attempt, in ms. If a provider asks for a longer one, the run fails. */
const MAX_WAIT = 60_000;
/** The wait before a tool is called again, in ms. */
const TOOL_RETRY_WAIT = 500;
/** Number of equal calls in a row that ends the run. */
const MAX_EQUAL_CALLS = 5;
/** Number of empty answers in a row that ends the run. */
const MAX_EMPTY_ANSWERS = 2;
/** Maximum length of arguments, results, tasks and progress in events, in UTF-16 code units. */
const MAX_SHOWN = 2000;
/**
 * How much more of a text is redacted than is shown, in UTF-16 code units: a secret at the end of the shown text is
 * redacted whole.
 */
const REDACTED_BEYOND = 8192;
/** The shortest time between two events about the progress of a call, in ms. */
const PROGRESS_INTERVAL = 100;
/** Maximum size of a picture for a model, in characters of base64. */
const MAX_IMAGE = 5 * 1024 * 1024;
/** Maximum length of a model's answer, including its thinking and its tool calls, in UTF-16 code units. */
const MAX_ANSWER = 16 * 1024 * 1024;
/** The text that marks a cancelled run in the conversation. */
const CANCELLED_MARK = "[cancelled]";

const TRANSFER_TASK = "transfer_task";
const HANDOFF = "handoff";

/** A model's answer in one turn. */
interface Answer {
  text: string;
  readonly toolCalls: ModelToolCall[];
  /** Size in UTF-16 code units, thinking included. */
  size: number;
  finish: Extract<ModelPart, { type: "finish" }> | undefined;
  readonly thinkTags: ThinkTags;
}

/** A call as the tool gets it that is called in the end. */
interface ResolvedCall extends ModelToolCall {
  /** The tool by which the model has called it; undefined: by its own name. */
  readonly via?: "call_tool";
  /** The reason for which no tool is called. */
  readonly refusal?: HubError;
}

/** The form in which the model of an agent gets the agent's tools, during a run. */
interface RunExposure {
  readonly isSearch: boolean;
  readonly instruction: string;
}

/** What a call does besides its result. */
interface CallEffects {
  /** Gives the conversation to another agent. */
  readonly handOff: (agent: Agent) => void;
  /** Keeps what another agent does for the call. */
  readonly nest: (run: NestedRun) => void;
  /** Keeps how long the call took, in ms. */
  readonly took: (duration: number) => void;
}

/** The calls of an answer that can be made: those of a truncated answer may be incomplete, and some have no name. */
function callsOf({ toolCalls, finish }: Answer): readonly ModelToolCall[] {
  const isCut = finish?.reason === "length" || finish?.reason === "refused";
  return isCut ? [] : toolCalls.filter(({ name }) => name.trim() !== "");
}

/** The end of the instruction of an agent whose answers must be JSON: not every model takes a schema. */
function outputInstruction({ structuredOutput }: Agent["spec"]): string {
  if (structuredOutput === undefined) return "";
  const { name, description, schema } = structuredOutput;
  const what = description === undefined ? name : `${name}: ${description}`;
  return `\n\nYour last answer is JSON and nothing else (${what}), of this schema:\n${JSON.stringify(schema)}`;
}

/** How often a model is asked. @param fallback undefined: no other model is asked after it */
function triesFor(reason: string, fallback: ModelFallback | undefined): number {
  const most = TRIES[reason] ?? 1;
  if (fallback === undefined || most === 1) return most;
  return reason === "rateLimit" ? 1 : fallback.retries + 1;
}

/** Whether another model may answer after this error. */
function canBeReplaced({ code }: HubError): boolean {
  return code === "modelFailed" || code === "valueMissing" || code === "agentInvalid";
}

function isEmptyAnswer(answer: Answer): boolean {
  return answer.text.trim() === "" && callsOf(answer).length === 0;
}

/** One run of an agent: asks the model and calls the tools that the model wants, until the model has an answer. */
export class Run {
  #agent: Agent;
  /** The servers whose tools the model has called in the turn before. */
  #calledServers: readonly string[] = [];
  /** The model of the present turn. */
  #model: Model;
  readonly #history: History;
  readonly #context: RunContext;
  #usage: RunUsage = { inputTokens: 0, outputTokens: 0 };
  #turns = 0;
  #toolCalls = 0;
  /**
   * How the models get their tools, by agent. It is decided in an agent's first turn and kept, because a model goes on
   * with what it has seen in the conversation, and a list of another form makes the provider's prompt cache useless.
   */
  readonly #exposures = new Map<Agent["spec"], RunExposure>();
  /** The last tool call (`key`: tool name and arguments), and how often in a row the model wanted it (`count`). */
  #lastCall = { key: "", count: 0 };
  /** The model's text in the present turn; "" when the turn is finished. */
  #unfinished = "";
  /** The span of the run, if it is recorded. */
  readonly #span: LiveSpan | undefined;

  constructor(agent: Agent, history: History, context: RunContext) {
    this.#agent = agent;
    this.#model = agent.model;
    this.#history = history;
    this.#context = context;
    const { outer, toolbox } = context;
    const above = outer instanceof Run ? { span: outer.#span } : toolbox.outer?.();
    this.#span = startRunSpan(this.#tracer, agent.spec.name, agent.model.name, above);
  }

  get #redact(): (text: string) => string {
    return this.#agent.agentSet.options.redact;
  }

  get #tracer(): Tracer | undefined {
    return this.#agent.agentSet.options.tracer?.();
  }

  /** @throws {HubError} if the run exceeds a limit or fails */
  async execute(): Promise<RunResult> {
    const { clock } = this.#agent.agentSet.options;
    const { timeout } = this.#agent.spec;
    const late = new AbortController();
    const timer = new PausableTimer(clock, timeout, () => {
      const text = `The run has taken longer than ${formatDuration(timeout)}.`;
      late.abort(this.#limitError("runTimeout", text, "timeout"));
    });
    const unwatch = this.#context.watchPauses?.((isPaused) => timer.setPaused(isPaused));
    const signal = AbortSignal.any([this.#context.signal, late.signal]);
    try {
      return await this.#turnsUntilAnswer(signal);
    } catch (error) {
      endAgentSpan(this.#span, this.#usage, {
        error: late.signal.aborted ? late.signal.reason : error,
        redact: this.#redact,
      });
      this.#keepUnfinished();
      if (late.signal.aborted) throw late.signal.reason;
      if (!this.#context.signal.aborted) throw error;
      return this.#result(this.#unfinished, "cancelled");
    } finally {
      endAgentSpan(this.#span, this.#usage);
      unwatch?.();
      timer.cancel();
    }
  }

  async #turnsUntilAnswer(signal: AbortSignal): Promise<RunResult> {
    for (;;) {
      signal.throwIfAborted();
      this.#countTurn();
      const tools = await this.#tools(signal);
      const answer = await this.#askForAnswer(tools, signal);
      const { text, finish } = answer;
      const reason = finish?.reason ?? "stop";
      const calls = callsOf(answer);
      this.#addAnswer(isEmptyAnswer(answer) ? "[refused]" : text, calls, finish?.providerState);
      this.#unfinished = "";
      if (calls.length === 0) {
        return this.#result(text, reason === "toolCalls" ? "stop" : reason);
      }
      this.#checkTokens();
      this.#calledServers = calls.flatMap(({ name }) => tools.get(name)?.server ?? []);
      const next = await this.#callAll(calls, tools, signal);
      if (next !== undefined) this.#handOff(next);
    }
  }

  #result(text: string, stopReason: RunResult["stopReason"]): RunResult {
    return { text, stopReason, usage: { ...this.#usage }, toolCalls: this.#toolCalls };
  }

  /** Adds the text of the unfinished turn to the history. */
  #keepUnfinished(): void {
    if (this.#unfinished === "") return;
    this.#addAnswer(`${this.#unfinished}\n${CANCELLED_MARK}`, []);
  }

  #addAnswer(text: string, toolCalls: readonly ModelToolCall[], providerState?: unknown): void {
    this.#history.add({
      role: "assistant",
      text,
      toolCalls,
      ...(providerState !== undefined && { providerState }),
    });
    const agent = this.#agent.spec.name;
    this.#context.record({ role: "assistant", at: Date.now(), agent, text, toolCalls });
  }

  #limitError(
    code: "turnLimit" | "toolCallLimit" | "repeatedCalls" | "tokenLimit" | "runTimeout",
    text: string,
    setting: string | undefined,
  ): HubError {
    const { name } = this.#agent.spec;
    const hint =
      setting === undefined ? undefined : `To allow more: ${setting} in [agents.${name}].`;
    const error = new HubError(code, `Agent "${name}": ${text}`, { hint });
    limitedRuns.set(error, this);
    return error;
  }

  /** @throws {HubError} turnLimit */
  #countTurn(): void {
    const { spec, model } = this.#agent;
    const isOver = this.#turns >= spec.maxTurns;
    if (isOver || this.#turns >= (model.maxTurns ?? Infinity)) {
      const text =
        this.#turns === 0
          ? "The model may not be asked: its limit of turns is 0."
          : `The model was asked ${count(this.#turns, "time")}, still wants to call tools, and may not be asked again.`;
      throw this.#limitError("turnLimit", text, isOver ? "maxTurns" : undefined);
    }
    this.#turns++;
  }

  /** @param tool the name of the tool that the model wants to call @throws {HubError} toolCallLimit */
  #countToolCall(tool: string): void {
    const { outer } = this.#context;
    const { maxToolCalls } = this.#agent.spec;
    const isOver = this.#toolCalls >= maxToolCalls;
    const isOverOuter =
      !(outer instanceof Run) && this.#toolCalls >= (outer.maxToolCalls ?? Infinity);
    if (isOver || isOverOuter) {
      const text =
        this.#toolCalls === 0
          ? `The model wants to call ${tool}, but this agent may not call tools: its limit is 0.`
          : `The model wants to call ${tool} after ${count(this.#toolCalls, "call")} of tools, and more are not allowed.`;
      throw this.#limitError("toolCallLimit", text, isOver ? "maxToolCalls" : undefined);
    }
    this.#toolCalls++;
    if (outer instanceof Run) outer.#countToolCall(tool);
  }

  #countTokens(usage: RunUsage): void {
    const { inputTokens, outputTokens, estimated = this.#usage.estimated } = usage;
    this.#usage = {
      inputTokens: this.#usage.inputTokens + inputTokens,
      outputTokens: this.#usage.outputTokens + outputTokens,
      ...(estimated && { estimated }),
    };
    const { outer } = this.#context;
    if (outer instanceof Run) outer.#countTokens(usage);
  }

  /**
   * Counts the tokens of an answer. A number that the model's API has not reported is estimated: without a number, a
   * limit of tokens would never be reached.
   * @param reported undefined if the answer was not finished
   */
  #countAnswer(
    reported: TokenUsage | undefined,
    { size }: Answer,
    overhead: number,
  ): Promise<void> | undefined {
    // No request takes 0 tokens: some APIs report 0 for what they have not counted.
    const { inputTokens = 0, outputTokens = 0 } = reported ?? {};
    const hasInput = inputTokens > 0;
    const hasOutput = outputTokens > 0 || (hasInput && size === 0);
    const usage: RunUsage = {
      inputTokens: hasInput ? inputTokens : Math.ceil(this.#history.tokens(overhead)),
      outputTokens: hasOutput ? outputTokens : Math.ceil(size / TOKEN_BYTES),
      ...(!(hasInput && hasOutput) && { estimated: true as const }),
    };
    if (reported !== undefined && hasInput) this.#history.count(reported);
    this.#countTokens(usage);
    return this.#emit({ type: "usage", ...usage, agent: this.#agent.spec.name });
  }

  /** @throws {HubError} tokenLimit */
  #checkTokens(): void {
    const { outer } = this.#context;
    if (outer instanceof Run) {
      outer.#checkTokens();
      return;
    }
    const used = this.#usage.inputTokens + this.#usage.outputTokens;
    if (used < (outer.maxTokens ?? Infinity)) return;
    throw this.#limitError(
      "tokenLimit",
      `It has used ${tokensText(used, this.#usage.estimated)}, and may use ${outer.maxTokens}.`,
      undefined,
    );
  }

  #emit(event: StepEvent): Promise<void> | undefined {
    return this.#context.emit(event);
  }

  /** The tools that the agent has in this turn. */
  async #tools(signal: AbortSignal): Promise<ReadonlyMap<string, AgentTool>> {
    const { toolbox, isVisible } = this.#context;
    const tools = await this.#agent.tools(signal, toolbox, isVisible);
    return new Map(tools.map((tool) => [tool.name, tool]));
  }

  #exposure(tools: ReadonlyMap<string, AgentTool>): RunExposure {
    const { spec, agentSet } = this.#agent;
    let exposure = this.#exposures.get(spec);
    if (exposure === undefined) {
      const all = [...tools.values()];
      const { budget } = agentSet.toolSearch.settings;
      const isSearch = spec.tools !== undefined && formOf(spec, all, budget) === "search";
      const more = isSearch ? `\n\n${agentSet.toolSearch.instruction(all)}` : "";
      exposure = { isSearch, instruction: spec.instruction + more + outputInstruction(spec) };
      this.#exposures.set(spec, exposure);
    }
    return exposure;
  }

  /**
   * The tools as the model gets them: those of the hub, sorted by name, then the loop's own. If the model searches for
   * tools, the tools for that come first, and only tools of the hub that are always listed follow.
   */
  #modelTools(tools: ReadonlyMap<string, AgentTool>): readonly ModelTool[] {
    const own = agentSetTools(this.#agent);
    const { isSearch } = this.#exposure(tools);
    const { toolSearch } = this.#agent.agentSet;
    const search = isSearch ? SEARCH_TOOLS : [];
    const names = new Set([...search, ...own].map(({ name }) => name));
    const others = [...tools.values()].filter(
      (tool) => !names.has(tool.name) && (!isSearch || toolSearch.isListed(tool)),
    );
    return [...search, ...others.map(modelToolOf), ...own];
  }

  /** Whether a call of that name is one of the tools for searching and calling tools. */
  #isSearchTool(name: string, tools: ReadonlyMap<string, AgentTool>): boolean {
    if (!isSearchTool(name)) return false;
    if (this.#exposure(tools).isSearch) return true;
    // The model may know the tools from an earlier run of the conversation, in which they were listed.
    const { expose, tools: filter } = this.#agent.spec;
    return expose === "auto" && filter !== undefined && !tools.has(name);
  }

  /** A call of `call_tool` as the call of the tool that it names; other calls as they are. */
  #resolve(call: ModelToolCall, tools: ReadonlyMap<string, AgentTool>): ResolvedCall {
    const { id, name, argumentsJson } = call;
    if (name !== "call_tool" || !this.#isSearchTool(name, tools)) return call;
    if (readArguments(argumentsJson) === undefined) return call;
    const args = argumentsJson.trim() === "" ? "{}" : argumentsJson.trim();
    const ownNames = new Set([
      ...agentSetTools(this.#agent).map((tool) => tool.name),
      ...[...tools.values()].filter(isBuiltIn).map((tool) => tool.name),
    ]);
    const called = this.#agent.agentSet.toolSearch.resolve(args, [...tools.values()], ownNames);
    if (called.kind === "call")
      return { id, name: called.name, argumentsJson: called.argumentsJson, via: name };
    const { name: real, error: refusal } = called;
    return real === undefined ? { ...call, refusal } : { ...call, name: real, via: name, refusal };
  }

  /**
   * Asks the model until its answer has a text or a call: at most twice, because a model that is asked the same again
   * may well answer. A refusal is an answer, too.
   * @throws {HubError} modelFailed if both answers are empty
   */
  async #askForAnswer(tools: ReadonlyMap<string, AgentTool>, signal: AbortSignal): Promise<Answer> {
    for (let tries = 1; ; tries++) {
      const answer = await this.#ask(tools, signal);
      if (!isEmptyAnswer(answer) || answer.finish?.reason === "refused") return answer;
      if (tries === MAX_EMPTY_ANSWERS) throw this.#emptyAnswerError(answer);
      this.#unfinished = "";
      this.#checkTokens();
    }
  }

  #emptyAnswerError({ toolCalls, finish }: Answer): HubError {
    const { name, model } = { name: this.#agent.spec.name, model: this.#model };
    const isCut = finish?.reason === "length";
    const why = isCut
      ? ", cut at its limit of tokens before any text"
      : toolCalls.length > 0
        ? ", with a call of a tool without a name"
        : "";
    const hint = isCut ? `To allow more: maxTokens in [models.${model.name}].` : undefined;
    const text = `Agent "${name}": the model gave an empty answer (${model.name}${why}).`;
    return modelError(text, { reason: "badAnswer" }, hint);
  }

  /** The text of the last message of the user. */
  #message(): string {
    const last = this.#history.messages.findLast(({ role }) => role === "user");
    if (last?.role !== "user") return "";
    return last.content.map((one) => (one.type === "text" ? one.text : "")).join(" ");
  }

  /** Asks the models of the turn, one after the other, until one has answered. */
  async #ask(tools: ReadonlyMap<string, AgentTool>, signal: AbortSignal): Promise<Answer> {
    const { agentSet, spec } = this.#agent;
    const names = this.#agent.modelsFor(this.#turns - 1, this.#message(), this.#calledServers);
    const awake = names.filter((name) => !agentSet.isResting(name));
    const candidates = awake.length > 0 ? awake : names.slice(-1);
    let failure: HubError | undefined;
    for (const [at, name] of candidates.entries()) {
      const isLast = at === candidates.length - 1;
      try {
        this.#model =
          name === this.#agent.model.name
            ? this.#agent.model
            : await abortable(agentSet.model(name, signal), signal);
        return await this.#askModel(this.#model, tools, isLast, signal);
      } catch (thrown) {
        signal.throwIfAborted();
        const error = toHubError(thrown);
        // A model that cannot be opened, such as one without a key, says less than the failure of the one before.
        if (error.code === "modelFailed") failure = error;
        if (error.data?.["reason"] === "rateLimit" && spec.fallback !== undefined)
          agentSet.rest(name, spec.fallback.cooldown);
        if (isLast || this.#unfinished !== "" || !canBeReplaced(error)) throw failure ?? error;
      }
    }
    throw new HubError("internal", "The turn has no model.");
  }

  /** Asks one model, with retries for temporary failures. @param isLast whether no other model is asked after it */
  async #askModel(
    model: Model,
    tools: ReadonlyMap<string, AgentTool>,
    isLast: boolean,
    signal: AbortSignal,
  ): Promise<Answer> {
    const { spec, agentSet } = this.#agent;
    const { clock } = agentSet.options;
    const modelTools = this.#modelTools(tools);
    const { instruction } = this.#exposure(tools);
    const overhead = Buffer.byteLength(instruction) + JSON.stringify(modelTools).length;
    this.#history.trim(model.contextTokens, overhead);
    let isShortened = false;
    for (let tries = 1; ; tries++) {
      try {
        return await this.#stream(model, instruction, modelTools, overhead, signal);
      } catch (thrown) {
        signal.throwIfAborted();
        const error = toHubError(thrown);
        // Text that was passed on to the reader cannot be taken back: a retry would repeat it.
        if (this.#unfinished !== "" || error.code !== "modelFailed") throw error;
        const { reason, retryAfter } = error.data ?? {};
        if (reason === "contextTooLong" && !isShortened) {
          isShortened = true;
          this.#history.shorten(model.contextTokens, overhead);
          continue;
        }
        if (tries >= triesFor(String(reason), isLast ? undefined : spec.fallback)) throw error;
        const asked = typeof retryAfter === "number" ? retryAfter : FIRST_WAIT * 2 ** (tries - 1);
        if (asked > MAX_WAIT) throw error;
        await pause(clock, asked, signal);
      }
    }
  }

  async #stream(
    model: Model,
    instruction: string,
    tools: readonly ModelTool[],
    overhead: number,
    signal: AbortSignal,
  ): Promise<Answer> {
    const { messages } = this.#history;
    const { client } = this.#context;
    const output = this.#agent.spec.structuredOutput;
    const request: ModelRequest = {
      instruction,
      messages,
      tools,
      ...(output && { output }),
      ...(client && { client }),
    };
    const thinkTags = new ThinkTags();
    const answer: Answer = { text: "", toolCalls: [], size: 0, finish: undefined, thinkTags };
    const span = startChatSpan(this.#tracer, model.name, this.#span);
    const stopped = new AbortController();
    const parts = model.stream(request, AbortSignal.any([signal, stopped.signal]));
    const iterator = parts[Symbol.asyncIterator]();
    try {
      while (answer.finish === undefined) {
        const next = await abortable(iterator.next(), signal);
        if (next.done === true) break;
        const waiting = this.#takePart(next.value, answer, overhead);
        if (waiting !== undefined) await abortable(waiting, signal);
      }
    } catch (error) {
      endAgentSpan(span, {}, { error, redact: this.#redact });
      // The provider counts what it has sent, even if the rest is not wanted.
      if (answer.finish === undefined && answer.size > 0)
        void this.#countAnswer(undefined, answer, overhead);
      throw error;
    } finally {
      endAgentSpan(span, answer.finish?.usage ?? {});
      // Closes the stream, even if it has not ended, without waiting for it.
      stopped.abort(new HubError("cancelled", "The answer is not needed any more."));
      void iterator.return?.()?.catch(() => {});
    }
    if (answer.finish !== undefined) return answer;
    if (answer.size > 0) void this.#countAnswer(undefined, answer, overhead);
    const text = `Model "${model.name}" stopped in the middle of its answer.`;
    throw modelError(text, { reason: "badAnswer" });
  }

  #takePart(part: ModelPart, answer: Answer, overhead: number): Promise<void> | undefined {
    const agent = this.#agent.spec.name;
    answer.size += part.type === "toolCall" ? part.argumentsJson.length : 0;
    answer.size += part.type === "text" || part.type === "thinking" ? part.text.length : 0;
    if (answer.size > MAX_ANSWER) {
      const text = `Model "${this.#model.name}" does not end its answer.`;
      throw modelError(text, { reason: "badAnswer" });
    }
    switch (part.type) {
      case "text":
        return this.#takeText(answer.thinkTags.push(part.text), answer, agent);
      case "thinking":
        return this.#emit({ type: "thinkingDelta", text: part.text, agent });
      case "toolCall": {
        const { id, name, argumentsJson } = part;
        answer.toolCalls.push({ id, name, argumentsJson });
        return undefined;
      }
      case "finish": {
        void this.#takeText(answer.thinkTags.end(), answer, agent);
        answer.finish = part;
        return this.#countAnswer(part.usage, answer, overhead);
      }
    }
  }

  #takeText(
    parts: ReturnType<ThinkTags["end"]>,
    answer: Answer,
    agent: string,
  ): Promise<void> | undefined {
    let waiting: Promise<void> | undefined;
    for (const { type, text } of parts) {
      if (type === "thinking") waiting = this.#emit({ type: "thinkingDelta", text, agent });
      else {
        answer.text += text;
        this.#unfinished = answer.text;
        waiting = this.#emit({ type: "textDelta", text, agent });
      }
    }
    return waiting;
  }

  /**
   * Calls the tools of one turn, several at a time; the results are in the order of the calls.
   * @returns the agent that takes over the conversation, if the model wants that
   */
  async #callAll(
    calls: readonly ModelToolCall[],
    tools: ReadonlyMap<string, AgentTool>,
    signal: AbortSignal,
  ): Promise<Agent | undefined> {
    const results: (ToolResult | undefined)[] = calls.map(() => undefined);
    const nested: (NestedRun | undefined)[] = calls.map(() => undefined);
    const durations = calls.map(() => 0);
    let failure: { readonly error: unknown } | undefined;
    let next = 0;
    let target: Agent | undefined;
    const failed = new AbortController();
    const any = AbortSignal.any([signal, failed.signal]);
    const work = async (): Promise<void> => {
      for (let at = next++; at < calls.length && failure === undefined; at = next++) {
        const asked = calls[at];
        if (asked === undefined) return;
        try {
          const call = this.#resolve(asked, tools);
          this.#checkRepetition(call);
          this.#countToolCall(call.name);
          results[at] = await this.#callOne(call, tools, any, {
            handOff: (agent) => (target ??= agent),
            nest: (run) => (nested[at] = run),
            took: (duration) => (durations[at] = duration),
          });
        } catch (error) {
          failure ??= { error };
          failed.abort(error);
        }
      }
    };
    const { parallelToolCalls } = this.#agent.spec;
    await Promise.all(Array.from({ length: parallelToolCalls }, work));
    // Every call gets a result, even if the run ends here: the conversation may go on later.
    for (const [at, call] of calls.entries()) {
      const result = results[at] ?? errorResult(CANCELLED_MARK, "cancelled");
      const { isError, size } = result;
      const content = this.#contentFor(result);
      const [toolCallId, toolName, run] = [call.id, call.name, nested[at]];
      this.#history.add({ role: "tool", toolCallId, toolName, content, isError });
      this.#context.record({
        role: "tool",
        at: Date.now(),
        toolCallId,
        toolName,
        isError,
        size,
        duration: durations[at] ?? 0,
        text: textOfContent(content),
        ...(run !== undefined && { run }),
      });
    }
    if (failure !== undefined) throw failure.error;
    return target;
  }

  /** @throws {HubError} repeatedCalls */
  #checkRepetition({ name, argumentsJson }: ModelToolCall): void {
    const key = `${name} ${argumentsJson.trim()}`;
    const times = this.#lastCall.key === key ? this.#lastCall.count + 1 : 1;
    this.#lastCall = { key, count: times };
    if (times < MAX_EQUAL_CALLS) return;
    const text = `The model wants to call ${name} with the same arguments for the ${times}th time in a row.`;
    throw this.#limitError("repeatedCalls", text, undefined);
  }

  /** Calls one tool, and emits the events of the call. @throws the signal's reason */
  async #callOne(
    call: ResolvedCall,
    tools: ReadonlyMap<string, AgentTool>,
    signal: AbortSignal,
    effects: CallEffects,
  ): Promise<ToolResult> {
    const { id: toolCallId, name: toolName, argumentsJson, via } = call;
    const { spec, agentSet } = this.#agent;
    const { clock, redact } = agentSet.options;
    const agent = spec.name;
    const startedAt = clock.now();
    const shown = showText(argumentsJson, redact);
    const isSearch = via === undefined && this.#isSearchTool(toolName, tools);
    const tool = isSearch ? undefined : tools.get(toolName);
    const server = tool?.server;
    void this.#emit({
      type: "toolCallStart",
      toolName,
      toolCallId,
      server,
      ...(via && { via }),
      arguments: shown,
      agent,
    });
    const finish = (result: Omit<ToolResult, "report">): void => {
      const { isError, code, size, content } = result;
      const text = showText(textOfContent(content), redact);
      const error = isError ? (code ?? "toolError") : undefined;
      const duration = Math.round(clock.now() - startedAt);
      effects.took(duration);
      void this.#emit({
        type: "toolExecuted",
        toolName,
        toolCallId,
        ...(via && { via }),
        success: !isError,
        ...(error !== undefined && { error }),
        duration,
        size,
        ...(text !== "" && { result: text }),
        agent,
      });
    };
    try {
      const result = await this.#resultOf(call, tool, tools, signal, effects);
      this.#context.onResult?.(call, result);
      finish(result);
      return result;
    } catch (error) {
      const { code } = toHubError(error);
      const ended = signal.aborted ? "cancelled" : code;
      finish({ isError: true, code: ended, size: 0, content: [] });
      throw error;
    }
  }

  /** @param tool the tool of the hub that is called; undefined: it is none */
  async #resultOf(
    call: ResolvedCall,
    tool: AgentTool | undefined,
    tools: ReadonlyMap<string, AgentTool>,
    signal: AbortSignal,
    effects: CallEffects,
  ): Promise<ToolResult> {
    const { name, argumentsJson, via, refusal } = call;
    if (refusal !== undefined) return errorResult(refusal.message, refusal.code);
    const args = readArguments(argumentsJson);
    if (args === undefined) {
      const text = `The arguments of ${name} are not a JSON object. The tool was not called; write the arguments again.`;
      return errorResult(text, "invalidParams");
    }
    if (via === undefined) {
      const own = await this.#callOwnTool(call, args, signal, effects);
      if (own !== undefined) return own;
    }
    if (tool?.server === AGENTS_SERVER && runsAgent(args))
      return this.#callAgent(tool, call, args, signal, effects);
    if (tool !== undefined) return this.#callTool(tool, call, signal);
    if ((name === "search_tools" || name === "describe_tools") && this.#isSearchTool(name, tools)) {
      const { toolSearch } = this.#agent.agentSet;
      return toolSearch.answer(name, JSON.stringify(args), [...tools.values()], signal);
    }
    return this.#unknownTool(name, tools);
  }

  #unknownTool(name: string, tools: ReadonlyMap<string, AgentTool>): ToolResult {
    const known = [...this.#modelTools(tools).map((tool) => tool.name), ...tools.keys()];
    const nearest = findNearestTool(name, known);
    const more = nearest === undefined ? "" : ` Did you mean "${nearest}"?`;
    return errorResult(`There is no tool "${name}".${more}`, "unknownTool");
  }

  /** Calls a tool of the hub, with retries if these are safe. */
  async #callTool(
    tool: AgentTool,
    { id: toolCallId, argumentsJson }: ResolvedCall,
    signal: AbortSignal,
    more: { readonly budget?: RunBudget; readonly run?: string } = {},
  ): Promise<ToolResult> {
    const { spec, agentSet } = this.#agent;
    const { clock } = agentSet.options;
    const args = argumentsJson.trim() === "" ? "{}" : argumentsJson;
    const { chain, toolbox } = this.#context;
    const { name, approval } = spec;
    const agent = { name, approval, fallback: agentSet.options.approval };
    // The structured content of an agent's answer repeats it, and has all that the agent did.
    const textOnly = tool.server === AGENTS_SERVER;
    const { run, ...budget } = more;
    const onProgress = this.#progressOf(tool, toolCallId, run);
    const { traceparent } = this.#span ?? {};
    const given = { signal, chain, agent, textOnly, onProgress, traceparent, ...budget };
    for (let tries = 0; ; tries++) {
      const result = await abortable(toolbox.call(tool.name, args, given), signal);
      if (tries >= spec.retries || !mayRepeat(result, tool)) return result;
      await pause(clock, TOOL_RETRY_WAIT, signal);
    }
  }

  /** Emits what a tool tells about its progress, at most every `PROGRESS_INTERVAL` ms. */
  #progressOf(
    { name: toolName }: AgentTool,
    toolCallId: string,
    run: string | undefined,
  ): ToolCallOptions["onProgress"] {
    const { spec, agentSet } = this.#agent;
    const { clock, redact } = agentSet.options;
    let [shownAt, shown] = [-Infinity, ""];
    return (progress) => {
      const message = describeProgress(progress, redact);
      const now = clock.now();
      if (message === "" || message === shown || now - shownAt < PROGRESS_INTERVAL) return;
      [shownAt, shown] = [now, message];
      const of = run === undefined ? {} : { run };
      void this.#emit({
        type: "toolProgress",
        toolName,
        toolCallId,
        message,
        agent: spec.name,
        ...of,
      });
    };
  }

  /** Calls a tool that runs an agent: of the hub's manifest, of another file, or of another hub. */
  async #callAgent(
    tool: AgentTool,
    call: ResolvedCall,
    args: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
    { nest }: CallEffects,
  ): Promise<ToolResult> {
    const name = calledAgent(tool.remoteName, args);
    const task = String(args["message"]);
    const nested = this.#startNested("call", name, call.id, task);
    const { runId: run } = nested;
    let cost: RunCost | undefined;
    let code: string | undefined = "cancelled";
    try {
      const result = await this.#callTool(tool, call, signal, { budget: this.#budget(), run });
      const { report, isError } = result;
      code = isError ? (result.code ?? "toolError") : undefined;
      cost = report?.cost;
      const events = reportedEvents(report ?? { events: [] }, run);
      for (const event of events) void this.#emit(event);
      nest(reportedTranscript(name, task, events, run, Date.now()));
      if (cost !== undefined) this.#countNested(cost, name, run);
      this.#checkBudget(result, tool.name);
      return result;
    } finally {
      nested.end(cost, code);
    }
  }

  /** What a run may use that is called now: what is left of the limits of this run and of all around it. */
  #budget(): RunBudget {
    const maxTokens = this.#tokensLeft();
    const maxToolCalls = this.#toolCallsLeft();
    return {
      ...(Number.isFinite(maxTokens) && { maxTokens: Math.max(0, maxTokens) }),
      ...(Number.isFinite(maxToolCalls) && { maxToolCalls: Math.max(0, maxToolCalls) }),
    };
  }

  #tokensLeft(): number {
    const { outer } = this.#context;
    if (outer instanceof Run) return outer.#tokensLeft();
    return (outer.maxTokens ?? Infinity) - this.#usage.inputTokens - this.#usage.outputTokens;
  }

  #toolCallsLeft(): number {
    const { outer } = this.#context;
    const around =
      outer instanceof Run
        ? outer.#toolCallsLeft()
        : (outer.maxToolCalls ?? Infinity) - this.#toolCalls;
    return Math.min(this.#agent.spec.maxToolCalls - this.#toolCalls, around);
  }

  /** Counts what a called agent has used. */
  #countNested({ usage, toolCalls }: RunCost, agent: string, run: string): void {
    this.#countTokens(usage);
    this.#addToolCalls(toolCalls);
    void this.#emit({ type: "usage", ...usage, agent, run });
  }

  #addToolCalls(toolCalls: number): void {
    this.#toolCalls += toolCalls;
    const { outer } = this.#context;
    if (outer instanceof Run) outer.#addToolCalls(toolCalls);
  }

  /** A limit of this run that has ended a called agent ends this run, too. @throws {HubError} tokenLimit, toolCallLimit */
  #checkBudget({ code }: ToolResult, tool: string): void {
    this.#checkTokens();
    if (code !== "limitReached" || this.#toolCallsLeft() > 0) return;
    const text = `${tool} has called tools until no more are allowed (${this.#toolCalls} in all).`;
    throw this.#limitError("toolCallLimit", text, "maxToolCalls");
  }

  /** Begins a run that is nested in this one: emits its first event. @returns its id, and what emits its last event */
  #startNested(
    how: NestedRunKind,
    agent: string,
    toolCallId: string,
    task: string,
  ): {
    readonly runId: string;
    readonly end: (cost: RunCost | undefined, error: string | undefined) => void;
  } {
    const { clock, redact } = this.#agent.agentSet.options;
    const runId = randomUUID();
    const startedAt = clock.now();
    const shown = showText(task, redact);
    void this.#emit({ type: "agentStarted", runId, how, agent, toolCallId, task: shown });
    return {
      runId,
      end: (cost, error) => {
        const { usage = { inputTokens: 0, outputTokens: 0 }, toolCalls = 0 } = cost ?? {};
        const duration = Math.round(clock.now() - startedAt);
        void this.#emit({
          type: "agentEnded",
          runId,
          how,
          agent,
          success: error === undefined,
          ...(error !== undefined && { error }),
          duration,
          usage,
          toolCalls,
        });
      },
    };
  }

  /** Calls a tool of the loop itself. @returns undefined if the loop has no such tool */
  async #callOwnTool(
    { id, name }: ResolvedCall,
    args: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
    { handOff, nest }: CallEffects,
  ): Promise<ToolResult | undefined> {
    const { spec, agentSet } = this.#agent;
    const isTransfer = name === TRANSFER_TASK && spec.subAgents.length > 0;
    const isHandoff = name === HANDOFF && spec.handoffs.length > 0;
    if (!isTransfer && !isHandoff) return undefined;
    const names = isTransfer ? spec.subAgents : spec.handoffs;
    const { agent: target, task, expected_output: expected } = args;
    if (typeof target !== "string" || !names.includes(target)) {
      const text = `agent must be one of ${names.join(", ")}.`;
      return errorResult(text, "invalidParams");
    }
    try {
      const agent = await abortable(agentSet.agent(target, signal), signal);
      if (isHandoff) {
        handOff(agent);
        return okResult(`Agent "${target}" goes on with the conversation.`);
      }
      if (typeof task !== "string" || task === "")
        return errorResult("task must be a text.", "invalidParams");
      return await this.#transfer(agent, withExpected(task, expected), id, signal, nest);
    } catch (error) {
      signal.throwIfAborted();
      const hubError = toHubError(error);
      // A limit of this run, or of a run in which it is nested, ends this run, too.
      const limited = limitedRuns.get(hubError);
      if (limited !== undefined && this.#isInside(limited)) throw error;
      const { code, message } = hubError;
      return errorResult(`Agent "${target}" has no answer: ${message}`, code);
    }
  }

  /** Whether this run is the other one, or is nested in it. */
  #isInside(other: Run): boolean {
    const { outer } = this.#context;
    return this === other || (outer instanceof Run && outer.#isInside(other));
  }

  /** Gives a task to another agent, which has a conversation of its own. */
  async #transfer(
    agent: Agent,
    task: string,
    toolCallId: string,
    signal: AbortSignal,
    nest: CallEffects["nest"],
  ): Promise<ToolResult> {
    const { name } = agent.spec;
    const history = new History([{ role: "user", content: [{ type: "text", text: task }] }]);
    const messages: TranscriptMessage[] = [{ role: "user", at: Date.now(), text: task }];
    const chain = this.#context.chain.with(name);
    const nested = this.#startNested("task", name, toolCallId, task);
    nest({ agent: name, messages });
    const { runId } = nested;
    // Events of runs that are nested more deeply have their own `run`.
    const emit = (event: StepEvent): Promise<void> | undefined =>
      this.#emit({ run: runId, ...event });
    const { toolbox, isVisible, client, watchPauses, onResult } = this.#context;
    const inner = new Run(agent, history, {
      signal,
      chain,
      toolbox,
      isVisible,
      client,
      watchPauses,
      onResult,
      emit,
      record: (message) => messages.push(message),
      outer: this,
    });
    let error: string | undefined = "cancelled";
    try {
      const { text: answer, stopReason } = await inner.execute();
      signal.throwIfAborted();
      error = stopReason === "refused" ? "modelFailed" : undefined;
      if (stopReason === "refused")
        return errorResult("The model refused to answer.", "modelFailed");
      return okResult(stopReason === "length" ? `${answer}\n[the answer was cut]` : answer);
    } catch (thrown) {
      if (!signal.aborted) error = toHubError(thrown).code;
      throw thrown;
    } finally {
      nested.end({ usage: inner.#usage, toolCalls: inner.#toolCalls }, error);
    }
  }

  #handOff(agent: Agent): void {
    const from = this.#agent.spec.name;
    this.#agent = agent;
    this.#model = agent.model;
    void this.#emit({ type: "transferred", from, to: agent.spec.name });
    this.#context.onHandoff?.(agent);
  }

  /** A result as the model gets it: texts within the limit, pictures only if the model takes them. */
  #contentFor({ content, size, isError }: ToolResult): readonly ModelContent[] {
    const { spec } = this.#agent;
    const model = this.#model;
    const shown: ModelContent[] = [];
    let room = spec.resultLimit;
    for (const block of content) {
      const fits = block.type === "text" || (model.takesImages && block.data.length <= MAX_IMAGE);
      const given = fits ? block : describeBlock("image", block.mimeType, block.data);
      if (given.type === "image") {
        shown.push(given);
        continue;
      }
      const text = cut(given.text, room);
      if (text !== "" || given.text === "") shown.push({ type: "text", text });
      room -= Buffer.byteLength(text);
      if (text.length < given.text.length) {
        const note = `[cut: the result has ${formatSize(size)}, of which ${formatSize(spec.resultLimit - room)} are shown]`;
        shown.push({ type: "text", text: note });
        break;
      }
    }
    if (shown.length > 0) return shown;
    return [{ type: "text", text: isError ? "[error without text]" : "[empty result]" }];
  }
}

/** The run whose limit was exceeded, by the error that reports it. */
const limitedRuns = new WeakMap<HubError, Run>();

/** The tools with which an agent uses the other agents of its set. */
function agentSetTools({ spec, agentSet }: Agent): readonly ModelTool[] {
  const describe = (names: readonly string[]): string =>
    names
      .map((name) => {
        const description = agentSet.options.specs.get(name)?.description;
        return description === undefined ? `- ${name}` : `- ${name}: ${description}`;
      })
      .join("\n");
  const tools: ModelTool[] = [];
  if (spec.handoffs.length > 0) {
    tools.push({
      name: HANDOFF,
      description: `Lets another agent go on with this conversation. Agents:\n${describe(spec.handoffs)}`,
      inputSchema: {
        type: "object",
        properties: { agent: { type: "string", enum: spec.handoffs } },
        required: ["agent"],
      },
    });
  }
  if (spec.subAgents.length > 0) {
    tools.push({
      name: TRANSFER_TASK,
      description: `Gives a task to another agent and returns its answer. The agent does not know this conversation: say all that it needs. Agents:\n${describe(spec.subAgents)}`,
      inputSchema: {
        type: "object",
        properties: {
          agent: { type: "string", enum: spec.subAgents },
          task: { type: "string", description: "What the agent has to do." },
          expected_output: { type: "string", description: "What its answer should be like." },
        },
        required: ["agent", "task"],
      },
    });
  }
  return tools;
}

/**
 * The tool that a model probably meant. Besides typing errors, models leak parts of their own format into names:
 * `functions.NAME`, `NAME<|channel|>commentary`, `default_api:NAME`.
 */
function findNearestTool(name: string, known: readonly string[]): string | undefined {
  const [head = ""] = name.split(/[<(]/u, 1);
  const plain = trimQuotes(head);
  const contained = known
    .filter(
      (tool) =>
        plain === tool || (/[.:/]$/.test(plain.slice(0, -tool.length)) && plain.endsWith(tool)),
    )
    .toSorted((a, b) => b.length - a.length);
  const last = plain.split(/[.:/]/).at(-1) ?? plain;
  return contained[0] ?? findNearest(plain, known) ?? findNearest(last, known);
}

/** The text without white space and quotes at its ends, in linear time. */
function trimQuotes(text: string): string {
  const isTrimmed = (at: number): boolean => /[\s"'`]/u.test(text.charAt(at));
  let [start, end] = [0, text.length];
  while (start < end && isTrimmed(start)) start++;
  while (end > start && isTrimmed(end - 1)) end--;
  return text.slice(start, end);
}

function okResult(text: string): ToolResult {
  const size = Buffer.byteLength(text);
  return { content: [{ type: "text", text }], isError: false, code: undefined, size };
}

/** Whether a failed call may be repeated: it was certainly not delivered, or the tool is harmless to repeat. */
function mayRepeat({ code }: ToolResult, tool: AgentTool): boolean {
  // A limit refuses the repetition, too, until its time has passed: the model gets that time.
  if (code === undefined || !HubError.isCode(code) || code === "overLimit") return false;
  if (new HubError(code, "").properties.kind !== "transient") return false;
  return code === "notDelivered" || tool.isReadOnly || tool.isIdempotent;
}

/** Parses the arguments that a model wrote; "" means an empty object. Undefined if they are not a JSON object. */
function readArguments(json: string): Readonly<Record<string, unknown>> | undefined {
  if (json.trim() === "") return {};
  try {
    const value = JSON.parse(json) as unknown;
    return isTable(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function withExpected(task: string, expected: unknown): string {
  return typeof expected === "string" && expected !== ""
    ? `${task}\n\nExpected: ${expected}`
    : task;
}

/** The beginning of a text as events have it: at most 2,000 characters, without secrets, also where one is cut. */
export function showText(text: string, redact: (text: string) => string): string {
  const isLong = text.length > MAX_SHOWN + REDACTED_BEYOND;
  const redacted = redact(isLong ? text.slice(0, MAX_SHOWN + REDACTED_BEYOND) : text);
  // The end of the part that was redacted may be a part of a secret.
  const safe = isLong
    ? redacted.slice(0, Math.max(0, redacted.length - REDACTED_BEYOND))
    : redacted;
  if (!isLong && safe.length <= MAX_SHOWN) return safe;
  return `${safe.slice(0, MAX_SHOWN).toWellFormed()}…`;
}

/** What a tool tells about its progress, in words: its message, and how far it is if it says that. */
function describeProgress(
  { progress, total, message }: CallProgress,
  redact: (text: string) => string,
): string {
  const isCounted = typeof progress === "number" && typeof total === "number";
  const far = isCounted ? `${progress} of ${total}` : "";
  return [far, typeof message === "string" ? showText(message, redact) : ""]
    .filter((part) => part !== "")
    .join(": ");
}

/** The beginning of a text: at most `limit` bytes of UTF-8, without a partial character at the end. */
function cut(text: string, limit: number): string {
  if (text.length <= limit / 3 || Buffer.byteLength(text) <= limit) return text;
  // Each UTF-16 code unit takes at least one byte, so the first `limit` code units are enough.
  const bytes = Buffer.from(text.slice(0, Math.max(0, limit)));
  let end = Math.max(0, limit);
  while (end > 0 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  const kept = bytes.subarray(0, end).toString();
  return kept.replace(/[\uD800-\uDBFF\uFFFD]$/, "");
}
