import { textOf } from "../base/bytes.ts";
import { lastMember, type JsonMember } from "../base/json.ts";
import { OwnAnswer, toObjectJson } from "../plugin/answer.ts";
import type { Answer, ClientInfo, ToolCall, ToolInfo } from "../plugin/plugin.ts";
import { CHAIN_STATE, type CallChainState, type ChainedCall } from "../plugin/call-chain.ts";
import type { Request } from "../jsonrpc/message.ts";

/** What stays the same however often plugins change the call. */
export interface ToolCallContext extends CallChainState {
  readonly tool: ToolInfo;
  readonly client: ClientInfo;
  readonly number: number;
  readonly request: Request;
  /** Of the request's `params`. */
  readonly members: readonly JsonMember[];
  readonly signal: AbortSignal;
}

const NO_SIGNALS: readonly AbortSignal[] = [];

/** A call as plugins see it; the request is parsed only when a plugin reads it. */
export class PluginToolCall implements ChainedCall {
  readonly [CHAIN_STATE]: ToolCallContext;
  readonly changedArguments: string | undefined;
  readonly cancelSignals: readonly AbortSignal[];
  #combinedSignal: AbortSignal | undefined;

  constructor(context: ToolCallContext, changedArguments?: string, cancelSignals = NO_SIGNALS) {
    this[CHAIN_STATE] = context;
    this.changedArguments = changedArguments;
    this.cancelSignals = cancelSignals;
  }

  get tool(): ToolInfo {
    return this[CHAIN_STATE].tool;
  }

  get client(): ClientInfo {
    return this[CHAIN_STATE].client;
  }

  get number(): number {
    return this[CHAIN_STATE].number;
  }

  get signal(): AbortSignal {
    const { signal } = this[CHAIN_STATE];
    if (this.cancelSignals.length === 0) return signal;
    this.#combinedSignal ??= AbortSignal.any([signal, ...this.cancelSignals]);
    return this.#combinedSignal;
  }

  get size(): number {
    const { start, end } = this[CHAIN_STATE].request;
    return end - start;
  }

  get argumentsJson(): string {
    if (this.changedArguments !== undefined) return this.changedArguments;
    const { request, members } = this[CHAIN_STATE];
    const member = lastMember(members, "arguments");
    const text = member && textOf(request.bytes, member.start, member.end);
    return text === undefined || text === "null" ? "{}" : text;
  }

  get arguments(): Readonly<Record<string, unknown>> {
    // Parsed at each read, so that a plugin's changes to the object affect nobody else.
    return JSON.parse(this.argumentsJson) as Record<string, unknown>;
  }

  with({ arguments: newArguments, signal }: Parameters<ToolCall["with"]>[0]): ToolCall {
    const changedArguments =
      newArguments === undefined ? this.changedArguments : toObjectJson(newArguments);
    const cancelSignals =
      signal === undefined ? this.cancelSignals : [...this.cancelSignals, signal];
    return new PluginToolCall(this[CHAIN_STATE], changedArguments, cancelSignals);
  }

  answer(result: object | string): Answer {
    return new OwnAnswer(result);
  }

  refuse(text: string): Answer {
    return new OwnAnswer({ content: [{ type: "text", text }], isError: true });
  }
}
