import { count } from "../base/format.ts";
import { type Clock, abortable } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Agent, RunOptions } from "./agent.ts";
import type { AgentChain } from "./run-chain.ts";
import type { AgentEvent } from "./events.ts";
import { History } from "./history.ts";
import type { ModelContent } from "./model.ts";
import type { Toolbox } from "./toolbox.ts";

/** Maximum number of messages that wait while the agent works on one. */
const MAX_WAITING = 8;
/** Maximum size of the history, in bytes. The oldest messages above it are dropped. */
const MAX_HISTORY = 8 * 1024 * 1024;

export interface SessionOptions {
  readonly id: string;
  readonly clock: Clock;
  /** Maximum number of tokens of all runs together. */
  readonly maxTokens?: number | undefined;
  /** Maximum number of tool calls of all runs together. */
  readonly maxToolCalls?: number | undefined;
}

export interface SendOptions {
  readonly signal: AbortSignal;
  /** The chain of runs in which this run is nested. */
  readonly chain?: AgentChain | undefined;
  /** The tools of the run, if they are not those of the agent's set. */
  readonly toolbox?: Toolbox | undefined;
  /**
   * Called when all earlier messages have been answered. The run begins when the promise resolves.
   * @returns a function that is called when the run has ended
   */
  readonly begin?: ((signal: AbortSignal) => Promise<() => void>) | undefined;
  /** See `RunOptions`. */
  readonly isVisible?: RunOptions["isVisible"];
  readonly client?: RunOptions["client"];
  readonly watchPauses?: RunOptions["watchPauses"];
  readonly onResult?: RunOptions["onResult"];
}

/** A session with an agent: its history, and one run at a time. */
export class AgentSession {
  readonly id: string;
  readonly history = new History();
  #agent: Agent;
  readonly #options: SessionOptions;
  readonly #ended = new AbortController();
  readonly #queue: (() => void)[] = [];
  #isRunning = false;
  #lastUsed: number;
  #tokens = 0;
  #isEstimated = false;
  #toolCalls = 0;

  constructor(agent: Agent, options: SessionOptions) {
    this.id = options.id;
    this.#agent = agent;
    this.#options = options;
    this.#lastUsed = options.clock.now();
  }

  /** The agent that answers at present. */
  get agent(): Agent {
    return this.#agent;
  }

  get state(): "idle" | "running" | "closed" {
    if (this.#ended.signal.aborted) return "closed";
    return this.#isRunning ? "running" : "idle";
  }

  /** Time at which a run last began or ended, in ms of the clock. */
  get lastUsed(): number {
    return this.#lastUsed;
  }

  get tokensUsed(): number {
    return this.#tokens;
  }

  /** Whether `tokensUsed` is an estimate, because a model's API has not reported all numbers. */
  get areTokensEstimated(): boolean {
    return this.#isEstimated;
  }

  /** Number of messages that wait for the run of an earlier one. */
  get waiting(): number {
    return this.#queue.length;
  }

  /**
   * Sends a message, and runs the agent when all earlier messages have been answered.
   * @returns the events of the run; see `Agent.run`
   * @throws {HubError} sessionBusy if 8 messages wait already; cancelled if the session is closed; the reason of the
   * signal if it is aborted while the message waits
   */
  async *send(
    message: string | readonly ModelContent[],
    { signal, begin, ...run }: SendOptions,
  ): AsyncGenerator<AgentEvent> {
    const either = AbortSignal.any([signal, this.#ended.signal]);
    await this.#takeTurn(either);
    let end: (() => void) | undefined;
    try {
      end = await begin?.(either);
      this.#lastUsed = this.#options.clock.now();
      yield* this.#run(message, { ...run, signal: either });
    } finally {
      end?.();
      this.#lastUsed = this.#options.clock.now();
      this.#isRunning = false;
      this.#queue.shift()?.();
    }
  }

  /**
   * Gives the conversation to another agent; the history stays.
   * @throws {HubError} sessionBusy while an agent runs
   */
  transfer(agent: Agent): void {
    if (this.#isRunning) {
      const text = "The agent is at work: wait for its answer, or cancel the run.";
      throw new HubError("sessionBusy", text);
    }
    this.#agent = agent;
  }

  /** Ends the session and its run. */
  close(): void {
    this.#ended.abort(new HubError("cancelled", "The session was closed."));
  }

  async *#run(
    message: string | readonly ModelContent[],
    options: Omit<SendOptions, "begin">,
  ): AsyncGenerator<AgentEvent> {
    const content =
      typeof message === "string" ? [{ type: "text", text: message } as const] : message;
    this.history.add({ role: "user", content });
    this.history.trimToSize(MAX_HISTORY);
    const { maxTokens, maxToolCalls } = this.#options;
    const events = this.#agent.run(this.history, {
      ...options,
      session: this.id,
      maxTokens: maxTokens === undefined ? undefined : maxTokens - this.#tokens,
      maxToolCalls: maxToolCalls === undefined ? undefined : maxToolCalls - this.#toolCalls,
      onHandoff: (agent) => (this.#agent = agent),
    });
    for await (const event of events) {
      if (event.type === "usage") {
        this.#tokens += event.inputTokens + event.outputTokens;
        this.#isEstimated ||= event.estimated === true;
      }
      if (event.type === "toolCallStart") this.#toolCalls++;
      yield event;
    }
    this.history.trimToSize(MAX_HISTORY);
  }

  /** Waits until all earlier messages have been answered. */
  async #takeTurn(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (!this.#isRunning) {
      this.#isRunning = true;
      return;
    }
    if (this.#queue.length >= MAX_WAITING) {
      const text = `The agent is at work, and ${count(this.#queue.length, "message waits", "messages wait")} already.`;
      throw new HubError("sessionBusy", text);
    }
    const turn = Promise.withResolvers<void>();
    const start = (): void => {
      this.#isRunning = true;
      turn.resolve();
    };
    this.#queue.push(start);
    try {
      await abortable(turn.promise, signal);
    } catch (error) {
      const at = this.#queue.indexOf(start);
      if (at >= 0) this.#queue.splice(at, 1);
      else {
        // The turn of this message came when its signal was already aborted, so the turn is passed on to the next
        // message.
        this.#isRunning = false;
        this.#queue.shift()?.();
      }
      throw error;
    }
  }
}
