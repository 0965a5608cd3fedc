/**
 * agent/: agents, which are models that use the hub's tools until they have an answer. `agent.ts` is an agent and its
 * runs, `run.ts` the loop of one run, `session.ts` a session with an agent, `transcript.ts` what people read of it,
 * `conversation-store.ts` the conversations that are kept, `toolbox.ts` the tools, `model.ts` the models. Main type: `Agent`. Start here, then read run.ts.
 */
import { randomUUID } from "node:crypto";
import { abortable, type Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { compileFilter, mayMatchServer } from "../catalog/filter.ts";
import type { AgentSpec, ModelRoute } from "../manifest/agents.ts";
import { HUB_DEFAULTS } from "../manifest/manifest.ts";
import type { Filter } from "../manifest/filter.ts";
import { findNearest } from "../manifest/problems.ts";
import { AgentChain } from "./run-chain.ts";
import { EventQueue } from "./event-queue.ts";
import type { AgentEvent } from "./events.ts";
import { History } from "./history.ts";
import type { Model, ModelMessage, ModelToolCall, SamplingClient } from "./model.ts";
import { Run, type RunResult } from "./run.ts";
import type { TranscriptMessage } from "./transcript.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import {
  AgentToolSearch,
  agentToolSettings,
  type AgentToolSettings,
  exposureOf,
  type ToolForm,
} from "./tool-search.ts";
import { AGENTS_SERVER, type AgentTool, type Toolbox, type ToolResult } from "./toolbox.ts";

/** The options that all agents of one manifest or file share. */
export interface AgentSetOptions {
  /** The agents' specifications, by name. */
  readonly specs: ReadonlyMap<string, AgentSpec>;
  readonly toolbox: Toolbox;
  readonly clock: Clock;
  /**
   * Creates a model. @param name a key of `[models]`, or `provider/model`
   * @throws {HubError} valueMissing if the API key is missing, agentInvalid if there is no such model
   */
  createModel(name: string, signal: AbortSignal): Promise<Model>;
  /** Settings by which agents get their tools; absent: as without settings in the manifest. */
  readonly toolSettings?: AgentToolSettings | undefined;
  /** The approval level of calls for which the manifest sets none. */
  readonly approval?: AgentSpec["approval"];
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string;
  /** Makes the spans of runs; undefined while none are made. */
  readonly tracer?: (() => Tracer | undefined) | undefined;
  /** The `watchPauses` of runs that do not set their own. */
  readonly watchPauses?: RunOptions["watchPauses"];
  /** The model to which an agent has changed by a tool (`model_picker`); undefined: it has its own. */
  pickedModel?(agent: string): string | undefined;
}

const DEFAULT_TOOL_SETTINGS = agentToolSettings({ hub: HUB_DEFAULTS });

/** The agents of one manifest or file, which can call each other by name. */
export class AgentSet {
  readonly options: AgentSetOptions;
  /** A filter that all agents' tools must match in addition to the agents' own filters, such as a mode of the user. */
  toolFilter: Filter | undefined;
  /** The search for tools of all agents. */
  readonly toolSearch: AgentToolSearch;
  readonly #models = new Map<string, Promise<Model>>();
  /** Until when a model is not asked while there are others, by its name; see `ModelFallback.cooldown`. */
  readonly #resting = new Map<string, number>();

  constructor(options: AgentSetOptions) {
    this.options = options;
    this.toolSearch = new AgentToolSearch(options.toolSettings ?? DEFAULT_TOOL_SETTINGS);
  }

  get names(): readonly string[] {
    return [...this.options.specs.keys()];
  }

  /** Whether a model is not to be asked now, because it has refused a request by its rate limit. */
  isResting(model: string): boolean {
    return (this.#resting.get(model) ?? 0) > this.options.clock.now();
  }

  /** @param time in ms */
  rest(model: string, time: number): void {
    this.#resting.set(model, this.options.clock.now() + time);
  }

  /**
   * @param model the model to use instead of the agent's own
   * @throws {HubError} agentNotFound with the nearest name; the errors of `createModel`
   */
  async agent(name: string, signal: AbortSignal, model?: string): Promise<Agent> {
    const spec = this.options.specs.get(name);
    if (spec === undefined) throw agentNotFound(name, this.names);
    if (model !== undefined) return new Agent(spec, await this.model(model, signal), this, false);
    return new Agent(spec, await this.#firstModel(spec, signal), this);
  }

  /** The agent's model, or the first of its fallback models if that has no key. @throws the error of the agent's own */
  async #firstModel({ model, fallback }: AgentSpec, signal: AbortSignal): Promise<Model> {
    try {
      return await this.model(model, signal);
    } catch (error) {
      for (const name of fallback?.models ?? []) {
        const other = await this.model(name, signal).catch(() => undefined);
        if (other !== undefined) return other;
      }
      throw error;
    }
  }

  /** Opens a model, or returns the one that is open. @throws {HubError} the errors of `createModel` */
  model(name: string, signal: AbortSignal): Promise<Model> {
    const known = this.#models.get(name);
    if (known !== undefined) return known;
    const opening = this.options.createModel(name, signal);
    this.#models.set(name, opening);
    // A failure is not cached: the next run tries again, perhaps with a key.
    opening.catch(() => this.#models.delete(name));
    return opening;
  }
}

export function agentNotFound(name: string, names: readonly string[]): HubError {
  const nearest = findNearest(name, names);
  if (names.length === 0) {
    const hint = "Describe one in the manifest, under [agents.NAME].";
    return new HubError("agentNotFound", "There are no agents.", { hint });
  }
  const more =
    nearest === undefined ? `The agents are: ${names.join(", ")}.` : `Did you mean "${nearest}"?`;
  return new HubError("agentNotFound", `There is no agent "${name}". ${more}`);
}

export interface RunOptions {
  /** Aborting it ends the run within a second; the text that the model has written until then is kept. */
  readonly signal: AbortSignal;
  /** The chain of runs in which this run is nested. */
  readonly chain?: AgentChain | undefined;
  /** The id of the session that the run belongs to. */
  readonly session?: string | undefined;
  /** The tools of this run, if they are not those of the agent set. */
  readonly toolbox?: Toolbox | undefined;
  /**
   * Whether the modes of the caller show a tool. Agents with `respectMode` have only such tools; undefined: all are
   * shown.
   */
  readonly isVisible?: ((tool: AgentTool) => boolean) | undefined;
  /** The client for which the agent runs, whose model `sampling` uses; undefined: there is no client. */
  readonly client?: SamplingClient | undefined;
  /**
   * Calls the listener when the run's time limit is paused, because a person or the client is asked something, and when
   * it resumes. If the time limit is paused already, calls the listener at once. Undefined: the time limit is never
   * paused.
   * @returns a function that unsubscribes
   */
  readonly watchPauses?: ((listener: (isPaused: boolean) => void) => () => void) | undefined;
  /** Called with the whole result of each tool call, those of nested runs too, before its `toolExecuted`. */
  readonly onResult?: ((call: ModelToolCall, result: ToolResult) => void) | undefined;
  /**
   * Receives each message that the run adds to the conversation, after the events about it were read. Messages of nested
   * runs are parts of the results of calls.
   */
  readonly onMessage?: ((message: TranscriptMessage) => void) | undefined;
  /** Called when another agent has taken over the conversation. */
  readonly onHandoff?: ((agent: Agent) => void) | undefined;
  /** Maximum number of tool calls of the run. The agent's own limit applies, too. */
  readonly maxToolCalls?: number | undefined;
  /** Maximum number of tokens that the run may use. */
  readonly maxTokens?: number | undefined;
}

/** Selects an agent's tools from all tools. @param toolFilter a second filter that the tools must match */
export function chooseTools(
  { tools, allowAgents }: Pick<AgentSpec, "tools" | "allowAgents">,
  all: readonly AgentTool[],
  toolFilter?: Filter,
): readonly AgentTool[] {
  if (tools === undefined) return [];
  const matches = compileFilter(toolFilter === undefined ? tools : { and: [tools, toolFilter] });
  return all.filter((tool) => (allowAgents || tool.server !== AGENTS_SERVER) && matches(tool));
}

/** An instruction, a model, and the tools that the model may call. */
export class Agent {
  readonly spec: AgentSpec;
  readonly model: Model;
  readonly agentSet: AgentSet;
  /** Whether `model` is the one in the specification, and not one that a person has named instead. */
  readonly #hasOwnModel: boolean;

  constructor(spec: AgentSpec, model: Model, agentSet: AgentSet, hasOwnModel = true) {
    this.spec = spec;
    this.model = model;
    this.agentSet = agentSet;
    this.#hasOwnModel = hasOwnModel;
  }

  /**
   * The names of the models that are asked in a turn: the first that answers counts. Alternate models begin a turn one
   * after the other. A model that a person has named is the only one.
   * @param turn from 0
   * @param message the last message of the user
   * @param servers the servers whose tools the model has just called
   */
  modelsFor(turn: number, message: string, servers: readonly string[]): readonly string[] {
    const { model, alternateModels = [], fallback, routes = [], toolModels } = this.spec;
    if (!this.#hasOwnModel) return [this.model.name];
    const all = [routeOf(message, routes) ?? model, ...alternateModels];
    const ofTool = servers.flatMap((server) => toolModels?.get(server) ?? [])[0];
    const picked = this.agentSet.options.pickedModel?.(this.spec.name);
    const first = picked ?? ofTool ?? all[turn % all.length] ?? model;
    return [...new Set([first, ...(fallback?.models ?? [])])];
  }

  /** The tools of the hub that the agent has now, sorted by name. @throws {HubError} if the hub cannot be reached */
  async tools(
    signal: AbortSignal,
    toolbox = this.agentSet.options.toolbox,
    isVisible?: RunOptions["isVisible"],
  ): Promise<readonly AgentTool[]> {
    if (this.spec.tools === undefined) return [];
    const all = await abortable(toolbox.tools(signal), signal);
    const own = chooseTools(this.spec, all, this.agentSet.toolFilter);
    return this.spec.respectMode && isVisible !== undefined ? own.filter(isVisible) : own;
  }

  /** Returns the form in which the model gets these tools, and the size of their definitions in tokens (bytes / 4). */
  exposureOf(tools: readonly AgentTool[]): { readonly form: ToolForm; readonly tokens: number } {
    const { budget } = this.agentSet.toolSearch.settings;
    return exposureOf(this.spec, tools, budget);
  }

  /** Whether the agent, or one to which it can give work or the conversation, may have tools of the hub. */
  get usesTools(): boolean {
    return this.#team().some(({ tools }) => tools !== undefined);
  }

  /**
   * Whether the agent, or one to which it can give work or the conversation, may have tools of a server. The server's
   * tools need not be known.
   */
  mayUse(server: string): boolean {
    const { toolFilter = "all" } = this.agentSet;
    return this.#team().some(
      ({ tools, allowAgents }) =>
        tools !== undefined &&
        (allowAgents || server !== AGENTS_SERVER) &&
        mayMatchServer({ and: [tools, toolFilter] }, server),
    );
  }

  /** The agent, and all agents that it can reach. */
  #team(): readonly AgentSpec[] {
    const { specs } = this.agentSet.options;
    const found = new Set([this.spec]);
    for (const { subAgents, handoffs } of found) {
      for (const name of [...subAgents, ...handoffs]) {
        const spec = specs.get(name);
        if (spec !== undefined) found.add(spec);
      }
    }
    return [...found];
  }

  /**
   * Works until the model has an answer. The events end with exactly one of `runComplete` and `error`; nothing is
   * thrown. A reader that stops reading cancels the run.
   * @param messages the conversation. If it is a `History`, the run adds its own messages to it
   */
  async *run(
    messages: readonly ModelMessage[] | History,
    options: RunOptions,
  ): AsyncGenerator<AgentEvent> {
    const history = messages instanceof History ? messages : new History(messages);
    const { clock, redact } = this.agentSet.options;
    const runId = randomUUID();
    const startedAt = clock.now();
    const left = new AbortController();
    const cancelled = AbortSignal.any([options.signal, left.signal]);
    const events = new EventQueue<AgentEvent | TranscriptMessage>();
    const { spec, model } = this;
    const work = async (): Promise<void> => {
      try {
        const chain = (options.chain ?? AgentChain.none).with(spec.name, options.session);
        const run = new Run(this, history, {
          signal: cancelled,
          chain,
          emit: (event) => events.push(event),
          record: (message) => void events.push(message),
          toolbox: options.toolbox ?? this.agentSet.options.toolbox,
          isVisible: options.isVisible,
          client: options.client,
          watchPauses: options.watchPauses ?? this.agentSet.options.watchPauses,
          onResult: options.onResult,
          onHandoff: options.onHandoff,
          outer: options,
        });
        const result: RunResult = await run.execute();
        const duration = Math.round(clock.now() - startedAt);
        void events.push({ type: "runComplete", runId, duration, ...result });
      } catch (thrown) {
        const error = toHubError(thrown);
        const { code, hint } = error;
        const text = hint === undefined ? error.message : `${error.message} ${hint}`;
        const retryable = error.properties.retryable || isRetryable(error);
        void events.push({ type: "error", message: redact(text), code, retryable });
      } finally {
        events.end();
      }
    };
    void events.push({ type: "runStarted", runId, agent: spec.name, model: model.name });
    const done = work();
    const { onMessage } = options;
    try {
      for await (const event of events.read()) {
        if ("role" in event) onMessage?.(event);
        else yield event;
      }
    } finally {
      left.abort(new HubError("cancelled", "Nobody reads the run's events any more."));
      await done;
      // Messages that nobody has waited for belong to the conversation, too.
      for await (const event of events.read()) if ("role" in event) onMessage?.(event);
    }
  }
}

/**
 * The model whose examples are most like a message: they share the most words with it, in proportion to their length.
 * Undefined if none shares a word.
 */
function routeOf(message: string, routes: readonly ModelRoute[]): string | undefined {
  const wordsOf = (text: string): ReadonlySet<string> =>
    new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu));
  const words = routes.length === 0 ? new Set<string>() : wordsOf(message);
  let best: { readonly model: string; readonly likeness: number } | undefined;
  for (const { model, examples } of routes) {
    for (const example of examples) {
      const own = wordsOf(example);
      const shared = [...own].filter((word) => words.has(word)).length;
      const likeness = shared / Math.sqrt(Math.max(1, own.size) * Math.max(1, words.size));
      if (shared > 0 && likeness > (best?.likeness ?? 0)) best = { model, likeness };
    }
  }
  return best?.model;
}

/** Reasons of `modelFailed` for which the same request may succeed later. */
const TEMPORARY_REASONS: readonly unknown[] = ["rateLimit", "overloaded", "unreachable", "timeout"];

function isRetryable({ code, data }: HubError): boolean {
  return code === "modelFailed" && TEMPORARY_REASONS.includes(data?.["reason"]);
}

/** An agent that is ready for a conversation. */
export interface OpenedAgent {
  readonly agent: Agent;
  /** Sentences about the parts of the agent's file that have no effect. */
  readonly notes: readonly string[];
  /** Ends everything that was opened for the agent. Never rejects. */
  close(): Promise<void>;
}
