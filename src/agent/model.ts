/**
 * A language model, as the agent loop sees it: a request with messages and tools, answered by a stream of parts.
 * `providers.ts` makes models of the manifest's `[models]`; `script.ts` is the model that reads its turns from a file.
 */

/** What a model is asked. */
export interface ModelRequest {
  /** The system prompt. */
  readonly instruction: string;
  readonly messages: readonly ModelMessage[];
  /** Sorted by name, so that the provider's caches of prompts stay valid. */
  readonly tools: readonly ModelTool[];
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
      /** What the provider needs to get back with this message, such as signed thinking; unknown to the loop. */
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

/** Numbers of tokens; undefined if the provider does not say. */
export interface TokenUsage {
  readonly inputTokens?: number | undefined;
  readonly outputTokens?: number | undefined;
}

export interface Model {
  /** As the manifest calls it. */
  readonly name: string;
  readonly contextTokens: number;
  /** Whether it takes pictures in the results of tools and in messages. */
  readonly takesImages: boolean;
  /**
   * Asks the model once; the loop, not the model, repeats failed requests. Aborting the signal closes the connection.
   * @throws {HubError} modelFailed, with `data.status` (HTTP), `data.retryAfter` (ms) and `data.reason`: `rateLimit`,
   * `overloaded`, `unauthorized`, `contextTooLong`, `badAnswer`, `unreachable` or `timeout`; the signal's reason
   */
  stream(request: ModelRequest, signal: AbortSignal): AsyncIterable<ModelPart>;
}
