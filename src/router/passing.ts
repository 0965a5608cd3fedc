import { textOf } from "../base/bytes.ts";
import { lastMember, type JsonMember } from "../base/json.ts";
import { MadeAnswer, writeObject } from "../plugin/answer.ts";
import type { Answer, ClientInfo, ToolCall, ToolInfo } from "../plugin/plugin.ts";
import { PASSAGE, type Passage, type PassingCall } from "../plugin/call-chain.ts";
import type { Request } from "../jsonrpc/message.ts";

/** What stays the same however often plugins change the call. */
export interface Substance extends Passage {
  readonly tool: ToolInfo;
  readonly client: ClientInfo;
  readonly number: number;
  readonly request: Request;
  /** Of the request's `params`. */
  readonly members: readonly JsonMember[];
  readonly signal: AbortSignal;
}

const NO_LIMITS: readonly AbortSignal[] = [];

/** A call as plugins see it; the request is parsed only when a plugin reads it. */
export class Passing implements PassingCall {
  readonly [PASSAGE]: Substance;
  readonly changed: string | undefined;
  readonly limits: readonly AbortSignal[];
  #signal: AbortSignal | undefined;

  constructor(substance: Substance, changed?: string, limits = NO_LIMITS) {
    this[PASSAGE] = substance;
    this.changed = changed;
    this.limits = limits;
  }

  get tool(): ToolInfo {
    return this[PASSAGE].tool;
  }

  get client(): ClientInfo {
    return this[PASSAGE].client;
  }

  get number(): number {
    return this[PASSAGE].number;
  }

  get signal(): AbortSignal {
    const { signal } = this[PASSAGE];
    if (this.limits.length === 0) return signal;
    this.#signal ??= AbortSignal.any([signal, ...this.limits]);
    return this.#signal;
  }

  get size(): number {
    const { start, end } = this[PASSAGE].request;
    return end - start;
  }

  get argumentsJson(): string {
    if (this.changed !== undefined) return this.changed;
    const { request, members } = this[PASSAGE];
    const member = lastMember(members, "arguments");
    const text = member && textOf(request.bytes, member.start, member.end);
    return text === undefined || text === "null" ? "{}" : text;
  }

  get arguments(): Readonly<Record<string, unknown>> {
    // Parsed at each read, so that a plugin's changes to the object affect nobody else.
    return JSON.parse(this.argumentsJson) as Record<string, unknown>;
  }

  with({ arguments: given, signal }: Parameters<ToolCall["with"]>[0]): ToolCall {
    const changed = given === undefined ? this.changed : writeObject(given);
    const limits = signal === undefined ? this.limits : [...this.limits, signal];
    return new Passing(this[PASSAGE], changed, limits);
  }

  answer(result: object | string): Answer {
    return new MadeAnswer(result);
  }

  refuse(text: string): Answer {
    return new MadeAnswer({ content: [{ type: "text", text }], isError: true });
  }
}
