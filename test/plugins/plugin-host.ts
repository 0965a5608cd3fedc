import { EventBus, type LogLevel } from "../../src/base/hub-events.ts";
import { OwnAnswer, toObjectJson } from "../../src/plugin/answer.ts";
import type { Answer, Host, Next, Tool, ToolCall, ToolInfo } from "../../src/plugin/plugin.ts";

/** A plugin host without a hub, with an event bus and a recorded log. */
export class BareHost implements Host {
  readonly name = "plugin";
  readonly bus = new EventBus();
  readonly end = new AbortController();
  readonly signal = this.end.signal;
  readonly lines: { level: LogLevel; text: string }[] = [];
  /** Number of subscriptions so far. */
  subscriptions = 0;

  log(level: LogLevel, text: string): void {
    this.lines.push({ level, text });
  }

  subscribe: Host["subscribe"] = (listener, kinds) => {
    this.subscriptions++;
    return this.bus.subscribe(listener, kinds);
  };

  nameOf = (): undefined => undefined;
  resolve = (): never => notAvailable("a folder");
  folder = (): never => notAvailable("a folder");
  list = (): never => notAvailable("a hub");
  call = (): never => notAvailable("a hub");
  pair = (): never => notAvailable("a hub");
}

function notAvailable(what: string): never {
  throw new Error(`there is no ${what}`);
}

export function toolInfo(
  server: string,
  name: string,
  definition: Omit<Tool, "name"> = {},
  isolation: ToolInfo["isolation"] = "shared",
): ToolInfo {
  return {
    server,
    name,
    exposedName: `${server}__${name}`,
    definition: { name, ...definition },
    isolation,
  };
}

let calls = 0;

export function toolCall(
  tool: ToolInfo,
  args: string,
  client = "c1",
  signal?: AbortSignal,
): ToolCall {
  const never = new AbortController();
  const call: ToolCall = {
    tool,
    client: { id: client, name: undefined, version: undefined },
    number: ++calls,
    signal: signal ?? never.signal,
    size: args.length,
    argumentsJson: args,
    get arguments() {
      return JSON.parse(args) as Record<string, unknown>;
    },
    with: ({ arguments: other, signal: further }) =>
      toolCall(tool, other === undefined ? args : toObjectJson(other), client, further ?? signal),
    answer: (result) => new OwnAnswer(result),
    refuse: (text) => new OwnAnswer({ content: [{ type: "text", text }], isError: true }),
    meta: {},
    agent: undefined,
    isTask: false,
    progress: () => {},
    setDeadline: () => {},
    becomeTask: () => {},
    canElicit: false,
    elicit: () => Promise.reject(new Error("there is no client")),
    canSample: false,
    sample: () => Promise.reject(new Error("there is no client")),
  };
  return call;
}

/** A JSON-RPC error answered by a server. */
export function errorAnswer(value: object): Answer {
  const json = JSON.stringify(value);
  return { kind: "error", size: json.length, json, value, isError: true };
}

/** A server that counts its calls and answers them with a given function. */
export function countingNext(
  answer: (call: ToolCall, count: number) => Answer,
): Next & { count: number } {
  const next = Object.assign(
    (call: ToolCall) => Promise.resolve().then(() => answer(call, ++next.count)),
    { count: 0 },
  );
  return next;
}
