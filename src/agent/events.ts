/** Numbers of tokens. `estimated`: a model's API has not reported all of them, so that they are an estimate. */
export interface RunUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly estimated?: true;
}

/**
 * A part of events of nested runs: of the agents to which the run has given tasks, and of those that it has called as
 * tools.
 */
interface OfNestedRun {
  /** The `runId` of the nested run that the event is a part of; absent: the outermost run. */
  readonly run?: string;
}

/**
 * How a nested run came about: `task`: the agent has given a task to another one of its team; `call`: it has called an
 * agent as a tool of the hub.
 */
export type NestedRunKind = "task" | "call";

/**
 * An event of an agent's run. `runStarted` is the first event, `runComplete` or `error` the last. Nested runs begin with
 * `agentStarted` and end with `agentEnded`: the `run` of these two is the run that the nested one is a part of.
 */
export type AgentEvent =
  | {
      readonly type: "runStarted";
      readonly runId: string;
      readonly agent: string;
      readonly model: string;
    }
  | ({
      readonly type: "agentStarted";
      readonly runId: string;
      readonly how: NestedRunKind;
      readonly agent: string;
      /** The call of the outer agent that has started the run. */
      readonly toolCallId: string;
      /** What the agent is to do, redacted and shortened. */
      readonly task: string;
    } & OfNestedRun)
  | ({
      readonly type: "agentEnded";
      readonly runId: string;
      readonly how: NestedRunKind;
      readonly agent: string;
      readonly success: boolean;
      /** The code of the error if the run has failed. */
      readonly error?: string;
      /** Duration of the run, in ms. */
      readonly duration: number;
      readonly usage: RunUsage;
      readonly toolCalls: number;
      /** Set if it is nested in a called agent, whose sums contain its own. */
      readonly isReported?: true;
    } & OfNestedRun)
  | ({
      readonly type: "textDelta";
      readonly text: string;
      readonly agent: string;
    } & OfNestedRun)
  | ({
      readonly type: "thinkingDelta";
      readonly text: string;
      readonly agent: string;
    } & OfNestedRun)
  | ({
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
      /** Set if another hub or the agent of another file has made the call, and it is told after its end. */
      readonly isReported?: true;
    } & OfNestedRun)
  | ({
      readonly type: "toolProgress";
      readonly toolName: string;
      readonly toolCallId: string;
      /** What the tool does, in its own words, redacted and shortened. */
      readonly message: string;
      readonly agent: string;
    } & OfNestedRun)
  | ({
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
      /** The beginning of the result as text, redacted. */
      readonly result?: string;
      readonly agent: string;
    } & OfNestedRun)
  | ({
      readonly type: "transferred";
      readonly from: string;
      readonly to: string;
    } & OfNestedRun)
  | ({
      readonly type: "usage";
      readonly inputTokens: number;
      readonly outputTokens: number;
      /** Set if the model's API has not reported one of the numbers, so that it is an estimate. */
      readonly estimated?: true;
      readonly agent: string;
    } & OfNestedRun)
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

/** An event of what an agent does, between the first and the last event of a run. */
export type StepEvent = Exclude<AgentEvent, { type: "runStarted" | "runComplete" | "error" }>;
