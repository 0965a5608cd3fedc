import { count, formatSize } from "../base/format.ts";
import { type Clock, abortable } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { Agent, RunOptions } from "./agent.ts";
import type { RunBudget } from "./agent-calls.ts";
import type { AgentChain } from "./run-chain.ts";
import type { ConversationChange, ConversationFile } from "./conversation-file.ts";
import type { AgentEvent } from "./events.ts";
import { History } from "./history.ts";
import type { ModelContent } from "./model.ts";
import type { Toolbox } from "./toolbox.ts";
import {
  completeEntries,
  isMessage,
  textOfContent,
  toModelMessage,
  Transcript,
  type TranscriptEnd,
  type TranscriptEntry,
  type WindowStart,
  windowStart,
} from "./transcript.ts";

/** Maximum number of messages that wait while the agent works on one. */
const MAX_WAITING = 8;
/** Maximum size of what the model gets, in bytes. The oldest messages above it are left out. */
const MAX_HISTORY = 8 * 1024 * 1024;
/** Maximum size of a conversation, in bytes. No message is ever dropped, so a conversation of that size takes no more. */
const MAX_TRANSCRIPT = 32 * 1024 * 1024;

export interface SessionOptions {
  readonly id: string;
  readonly clock: Clock;
  /** Maximum number of tokens of all runs together. */
  readonly maxTokens?: number | undefined;
  /** Maximum number of tool calls of all runs together. */
  readonly maxToolCalls?: number | undefined;
  /** The file in which the conversation is kept; undefined: it ends with the session. */
  readonly file?: ConversationFile | undefined;
  /**
   * Receives each entry of the transcript, after the events about it were read.
   * @param isRestored whether it was read from the conversation's file, so that there are no events about it
   */
  readonly onEntry?: ((entry: TranscriptEntry, isRestored: boolean) => void) | undefined;
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
  /** What this run may use at most, in addition to the limits of the session. */
  readonly budget?: RunBudget | undefined;
}

/** A session with an agent: its conversation, and one run at a time. */
export class AgentSession {
  readonly id: string;
  /** The conversation as people read it: nothing is left out. */
  readonly transcript = new Transcript();
  /** The conversation as the model gets it. */
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

  /** Where the window of the model begins; undefined if it gets the whole conversation. */
  get window(): WindowStart | undefined {
    return windowStart(this.history, this.transcript.messages.length);
  }

  /** Whether the conversation is kept when the session is closed. */
  get isKept(): boolean {
    return this.#options.file !== undefined;
  }

  /**
   * Whether another process has forgotten the conversation, which then is not gone on with; never while an agent is at
   * work.
   */
  async isForgotten(): Promise<boolean> {
    return !this.#isRunning && ((await this.#options.file?.isGone()) ?? false);
  }

  /** Number of messages that wait for the run of an earlier one. */
  get waiting(): number {
    return this.#queue.length;
  }

  /**
   * Sends a message, and runs the agent when all earlier messages have been answered.
   * @returns the events of the run; see `Agent.run`
   * @throws {HubError} sessionBusy if 8 messages wait already, or if another process works in the conversation;
   * sessionNotFound if another process has forgotten it; limitReached if the conversation is full; cancelled if the session is closed; the reason of the signal if it is
   * aborted while the message waits
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
      await this.#resume(either);
      yield* this.#run(message, { ...run, signal: either });
    } finally {
      end?.();
      await this.#options.file?.end();
      this.#lastUsed = this.#options.clock.now();
      this.#isRunning = false;
      this.#queue.shift()?.();
    }
  }

  /**
   * Gives the conversation to another agent; the history stays.
   * @throws {HubError} sessionBusy while an agent runs, or while another process works in the conversation
   */
  transfer(agent: Agent, signal: AbortSignal): Promise<void> {
    return this.#betweenRuns(async () => {
      await this.#resume(signal);
      if (agent.spec.name === this.#agent.spec.name) return;
      this.#agent = agent;
      if (this.transcript.messages.length > 0)
        this.#add({ role: "agent", at: Date.now(), agent: agent.spec.name });
    });
  }

  /**
   * Reads from the conversation's file what other processes have added to it. Called for each message; the file's lock
   * is held until its run has ended.
   */
  async #resume(signal: AbortSignal): Promise<void> {
    const { file } = this.#options;
    if (file === undefined) return;
    await this.#adopt(await this.#begin(file, signal));
  }

  /** As `ConversationFile.begin`. A conversation that was forgotten is forgotten here, too. */
  async #begin(
    file: ConversationFile,
    signal: AbortSignal,
    waitTimeout?: number,
  ): Promise<ConversationChange> {
    try {
      return await file.begin(signal, waitTimeout);
    } catch (error) {
      if (toHubError(error).code === "sessionNotFound") this.discard();
      throw error;
    }
  }

  /**
   * Reads the whole conversation of a file that this session goes on with.
   * @throws {HubError} sessionBusy, sessionNotFound
   */
  load(signal: AbortSignal): Promise<void> {
    return this.#betweenRuns(() => this.#resume(signal));
  }

  /**
   * Reads what other processes have added to the conversation, for those who only look at it. While an agent is at work,
   * here or in another process, what was read before stays.
   * @throws {HubError} sessionNotFound if another process has forgotten it; the signal's reason
   */
  async refresh(signal: AbortSignal): Promise<void> {
    const { file } = this.#options;
    if (file === undefined || this.#isRunning || !(await file.isChanged())) return;
    try {
      await this.#betweenRuns(async () => this.#adopt(await this.#begin(file, signal, 0)));
    } catch (error) {
      if (toHubError(error).code !== "sessionBusy") throw error;
    }
  }

  /** Removes all messages. @throws {HubError} sessionBusy while an agent runs; sessionNotFound, storeBroken */
  clear(signal: AbortSignal): Promise<void> {
    return this.#betweenRuns(async () => {
      const { file } = this.#options;
      if (file !== undefined) await this.#begin(file, signal);
      await file?.clear();
      this.transcript.clear();
      this.history.clear();
    });
  }

  /** Ends the session, of which nothing is written or known any more. */
  discard(): void {
    this.#options.file?.discard();
    this.close();
    this.transcript.clear();
    this.history.clear();
  }

  /** Ends the session and its run. */
  close(): void {
    this.#ended.abort(new HubError("cancelled", "The session was closed."));
  }

  async *#run(
    message: string | readonly ModelContent[],
    { budget = {}, ...options }: Omit<SendOptions, "begin">,
  ): AsyncGenerator<AgentEvent> {
    const content =
      typeof message === "string" ? [{ type: "text", text: message } as const] : message;
    if (this.transcript.size >= MAX_TRANSCRIPT) {
      const text = `The conversation has ${formatSize(this.transcript.size)}, and takes no more messages. Begin another one.`;
      throw new HubError("limitReached", text);
    }
    this.history.add({ role: "user", content });
    this.#add({ role: "user", at: Date.now(), text: textOfContent(content) });
    this.history.trimToSize(MAX_HISTORY);
    const { maxTokens, maxToolCalls, clock } = this.#options;
    const startedAt = clock.now();
    const spent = { inputTokens: 0, outputTokens: 0, toolCalls: 0 };
    const finish = async (
      outcome: TranscriptEnd["outcome"],
      error: string | undefined,
    ): Promise<void> => {
      const { inputTokens, outputTokens, toolCalls } = spent;
      this.#add({
        role: "end",
        at: Date.now(),
        outcome,
        ...(error !== undefined && { error }),
        duration: Math.round(clock.now() - startedAt),
        usage: {
          inputTokens,
          outputTokens,
          ...(this.#isEstimated && { estimated: true as const }),
        },
        toolCalls,
      });
      // All is written: whoever reads the last event may go on in another process.
      await this.#options.file?.end();
    };
    const events = this.#agent.run(this.history, {
      ...options,
      session: this.id,
      maxTokens: leastOf(budget.maxTokens, maxTokens, this.#tokens),
      maxToolCalls: leastOf(budget.maxToolCalls, maxToolCalls, this.#toolCalls),
      onMessage: (entry) => this.#add(entry),
      onHandoff: (agent) => (this.#agent = agent),
    });
    let isFinished = false;
    try {
      for await (const event of events) {
        if (event.type === "usage") {
          const { inputTokens, outputTokens, estimated } = event;
          this.#tokens += inputTokens + outputTokens;
          spent.inputTokens += inputTokens;
          spent.outputTokens += outputTokens;
          this.#isEstimated ||= estimated === true;
        }
        const calls = toolCallsIn(event);
        this.#toolCalls += calls;
        spent.toolCalls += calls;
        if (event.type === "runComplete" || event.type === "error") {
          isFinished = true;
          await (event.type === "error"
            ? finish("error", event.message)
            : finish(event.stopReason, undefined));
        }
        yield event;
      }
    } finally {
      // The reader has left.
      if (!isFinished) await finish("cancelled", undefined);
    }
    this.history.trimToSize(MAX_HISTORY);
  }

  async #betweenRuns(work: () => Promise<void>): Promise<void> {
    if (this.#isRunning) throw atWorkError();
    this.#isRunning = true;
    try {
      await work();
    } finally {
      await this.#options.file?.end();
      this.#isRunning = false;
      this.#queue.shift()?.();
    }
  }

  #add(entry: TranscriptEntry): void {
    this.transcript.add(entry);
    this.#options.file?.append(entry);
    this.#options.onEntry?.(entry, false);
  }

  /** Takes over what was read from the conversation's file. */
  async #adopt({ isWhole, entries }: ConversationChange): Promise<void> {
    if (isWhole) {
      this.transcript.clear();
      this.history.clear();
      this.#tokens = 0;
      this.#toolCalls = 0;
    }
    if (entries.length === 0) return;
    const complete = completeEntries(this.transcript.entries, entries, Date.now());
    for (const entry of complete.entries) this.#restore(entry);
    for (const entry of complete.ending) {
      this.#restore(entry);
      this.#options.file?.append(entry);
    }
    this.history.trimToSize(MAX_HISTORY);
    await this.#restoreAgent();
  }

  #restore(entry: TranscriptEntry): void {
    this.transcript.add(entry);
    this.#options.onEntry?.(entry, true);
    if (isMessage(entry)) this.history.add(toModelMessage(entry));
    if (entry.role !== "end") return;
    const { inputTokens, outputTokens, estimated } = entry.usage;
    this.#tokens += inputTokens + outputTokens;
    this.#isEstimated ||= estimated === true;
    this.#toolCalls += entry.toolCalls;
  }

  /** Gives the conversation to the agent that had it last, if the team still has that one. */
  async #restoreAgent(): Promise<void> {
    const last = this.transcript.entries.findLast(
      (entry) => entry.role === "assistant" || entry.role === "agent",
    );
    if (last === undefined || !("agent" in last) || last.agent === this.#agent.spec.name) return;
    const { agentSet } = this.#agent;
    if (!agentSet.names.includes(last.agent)) return;
    this.#agent = await agentSet.agent(last.agent, this.#ended.signal);
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

function atWorkError(): HubError {
  return new HubError(
    "sessionBusy",
    "The agent is at work: wait for its answer, or cancel the run.",
  );
}

/** The smaller of a limit for one run and what is left of one for all runs; undefined: neither is set. */
function leastOf(
  ofRun: number | undefined,
  ofAll: number | undefined,
  used: number,
): number | undefined {
  if (ofRun === undefined && ofAll === undefined) return undefined;
  return Math.min(ofRun ?? Infinity, (ofAll ?? Infinity) - used);
}

/** How many calls of tools an event tells. Those of called agents come in one sum. */
export function toolCallsIn(event: AgentEvent): number {
  if (event.type === "toolCallStart") return event.isReported === true ? 0 : 1;
  const isCalled = event.type === "agentEnded" && event.how === "call";
  return isCalled && !(event.isReported === true) ? event.toolCalls : 0;
}
