import { HubError } from "../base/errors.ts";
import type { StructuredOutput } from "../manifest/agents.ts";
import { isTable } from "../manifest/table.ts";

/**
 * A language model, as the agent loop sees it: a request with messages and tools, answered by a stream of parts.
 * `createModel` (`create-model.ts`) makes models of the manifest's `[models]`, with `providers.ts`, `sampling.ts` and
 * `script.ts`. Every model passes `modelContract` (test/contract/model.ts).
 */

/** A request to a model. */
export interface ModelRequest {
  /** The system prompt. */
  readonly instruction: string;
  readonly messages: readonly ModelMessage[];
  /** Sorted by name, so that the provider's prompt cache stays valid. */
  readonly tools: readonly ModelTool[];
  /** The JSON that the answer must be; undefined: text. */
  readonly output?: StructuredOutput | undefined;
  /** The client for which the agent runs, whose model `sampling` uses; undefined: there is no client. */
  readonly client?: SamplingClient | undefined;
}

/** The client that calls the agent, with the functions that sampling needs; see `ModelRequest.client`. */
export interface SamplingClient {
  /** Whether the client declares `sampling.tools`. If it does not, requests must not contain tools. */
  readonly takesTools: boolean;
  /**
   * Sends `sampling/createMessage` with these params and waits for its result.
   * @throws the signal's reason; any error of the client
   */
  createMessage(params: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<unknown>;
}

export interface ModelTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
}

export type ModelMessage =
  | { readonly role: "user"; readonly content: readonly ModelContent[] }
  | {
      readonly role: "assistant";
      readonly text: string;
      readonly toolCalls: readonly ModelToolCall[];
      /** Data that the provider must get back with this message, such as signed thinking; the loop does not read it. */
      readonly providerState?: unknown;
    }
  | {
      readonly role: "tool";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly content: readonly ModelContent[];
      readonly isError: boolean;
    };

export type ModelContent =
  | { readonly type: "text"; readonly text: string }
  /** `data` is base64. */
  | { readonly type: "image"; readonly mimeType: string; readonly data: string };

export interface ModelToolCall {
  readonly id: string;
  readonly name: string;
  /** The arguments as the model wrote them: usually the JSON text of an object, "" for none. */
  readonly argumentsJson: string;
}

/** A part of a model's answer. `finish` is the last one, and comes exactly once unless the stream throws. */
export type ModelPart =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly text: string }
  | ({ readonly type: "toolCall" } & ModelToolCall)
  | {
      readonly type: "finish";
      /** `length`: the limit of tokens was reached; `refused`: the provider's filter has ended the answer. */
      readonly reason: "stop" | "toolCalls" | "length" | "refused";
      readonly usage: TokenUsage;
      readonly providerState?: unknown;
    };

/** Numbers of tokens; undefined if the provider does not report them. */
export interface TokenUsage {
  readonly inputTokens?: number | undefined;
  readonly outputTokens?: number | undefined;
}

/** Why a request to a model failed: the `data` of the error modelFailed. */
export interface ModelFailure {
  /**
   * `rateLimit` and `overloaded` are temporary; `badRequest`: the provider refused the request, for example because
   * it does not have the model; `badAnswer`: the answer was not understood, or ended in the middle; `unreachable`:
   * there was no answer, or the connection was lost.
   */
  readonly reason:
    | "rateLimit"
    | "overloaded"
    | "unauthorized"
    | "contextTooLong"
    | "badRequest"
    | "badAnswer"
    | "unreachable"
    | "timeout";
  /** The HTTP status. */
  readonly status?: number | undefined;
  /** The wait that the provider asks for before the next request, in ms. */
  readonly retryAfter?: number | undefined;
}

/** Makes the error modelFailed. @param message a full sentence without secrets */
export function modelError(
  message: string,
  { reason, status, retryAfter }: ModelFailure,
  hint?: string,
): HubError {
  return new HubError("modelFailed", message, {
    hint,
    data: {
      reason,
      ...(status !== undefined && { status }),
      ...(retryAfter !== undefined && { retryAfter }),
    },
  });
}

export interface Model {
  /** The key in `[models]`, or `provider/model`. */
  readonly name: string;
  readonly contextTokens: number;
  /** Whether the model accepts pictures in messages and in the results of tools. */
  readonly takesImages: boolean;
  /** Maximum number of requests in one run; undefined: only the agent's own limit applies. */
  readonly maxTurns?: number;
  /**
   * Asks the model once; the loop, not the model, repeats failed requests. Aborting the signal closes the connection,
   * as does leaving the iteration early.
   * @throws {HubError} modelFailed, with a `ModelFailure` as its data; the signal's reason
   */
  stream(request: ModelRequest, signal: AbortSignal): AsyncIterable<ModelPart>;
}

/**
 * The arguments of a call as an object, for APIs that require one. A text that is not a JSON object is kept under the
 * key `invalidArguments`, so that the model sees what it wrote.
 */
export function parseArguments(json: string): Readonly<Record<string, unknown>> {
  if (json.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(json);
    if (isTable(value)) return value;
  } catch {
    // A text that is not JSON is kept, too.
  }
  return { invalidArguments: json };
}
