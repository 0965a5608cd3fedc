/** Numbers of tokens. `estimated`: a model's API has not reported all of them, so that they are an estimate. */
export interface RunUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly estimated?: true;
}

/** An event of an agent's run. `runStarted` is the first event, `runComplete` or `error` the last. */
export type AgentEvent =
  | {
      readonly type: "runStarted";
      readonly runId: string;
      readonly agent: string;
      readonly model: string;
    }
  | { readonly type: "textDelta"; readonly text: string; readonly agent: string }
  | { readonly type: "thinkingDelta"; readonly text: string; readonly agent: string }
  | {
      readonly type: "toolCallStart";
      readonly toolName: string;
      readonly toolCallId: string;
      /** The server of the tool; undefined for the loop's own tools. */
      readonly server: string | undefined;
      /** Set if the model has called the tool by this tool. */
      readonly via?: "call_tool";
      /** JSON text, redacted and shortened. */
      readonly arguments: string;
      readonly agent: string;
    }
  | {
      readonly type: "toolExecuted";
      readonly toolName: string;
      readonly toolCallId: string;
      /** As in `toolCallStart`. */
      readonly via?: "call_tool";
      readonly success: boolean;
      /** The code of an error of the hub, or `toolError` if the tool itself reported one. */
      readonly error?: string | undefined;
      /** Duration of the call, in ms. */
      readonly duration: number;
      /** Size of the result, in bytes. */
      readonly size: number;
      readonly agent: string;
    }
  | { readonly type: "transferred"; readonly from: string; readonly to: string }
  | {
      readonly type: "usage";
      readonly inputTokens: number;
      readonly outputTokens: number;
      /** Set if the model's API has not reported one of the numbers, so that it is an estimate. */
      readonly estimated?: true;
      readonly agent: string;
    }
  | {
      readonly type: "runComplete";
      readonly runId: string;
      readonly text: string;
      readonly stopReason: "stop" | "length" | "refused" | "cancelled";
      /** Total numbers of tokens of the run. */
      readonly usage: RunUsage;
      /** Duration of the run, in ms. */
      readonly duration: number;
      readonly toolCalls: number;
    }
  | {
      readonly type: "error";
      readonly message: string;
      readonly code: string;
      readonly retryable: boolean;
    };
