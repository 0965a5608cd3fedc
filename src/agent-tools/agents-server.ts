import { randomUUID } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { isJsonObject, propertyOf } from "../base/json.ts";
import { VERSION } from "../base/version.ts";
import type { Answer, Next, SdkTransport, ToolCall } from "../plugin/plugin.ts";
import { Method } from "../protocol/legacy.ts";
import { LegacyTaskMethod, TASKS_CAPABILITY } from "../protocol/tasks.ts";
import type { ToolDefinition } from "./definitions.ts";

/** How long the result of a task is kept, in ms. */
const TTL = 10 * 60_000;
/** Interval at which clients should poll a task, in ms. */
const POLL_INTERVAL = 2000;
/** The only argument of a call that is to become a task: the id of its `RunTask`. */
const RUN_ARGUMENT = "run";

/** A run that a client wants to have as a task (MCP, tasks of 2025-11-25). */
interface RunTask {
  readonly id: string;
  readonly createdAt: string;
  status: "working" | "completed" | "cancelled";
  /** The result, as JSON text. */
  result: string | undefined;
  readonly abort: AbortController;
  /** The transport on which the hub has created the task; undefined before the task is created. */
  transport: SdkTransport | undefined;
  /** Resolves when the hub has been told of the task. */
  readonly announced: PromiseWithResolvers<void>;
  /** The ids of `tasks/result` requests that wait for the result. */
  readonly waiting: unknown[];
}

/** A JSON-RPC request or notification of the hub. */
interface Received {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: unknown;
}

/**
 * The MCP server of the plugin: it lists the tools, and keeps the runs that clients want to have as tasks. The plugin
 * answers the calls themselves, because it knows which client has made them.
 */
export class AgentsServer {
  readonly #tools: () => readonly ToolDefinition[];
  readonly #clock: Clock;
  /** The tasks by id. */
  readonly #tasks = new Map<string, RunTask>();
  /** The open transports to the hub. */
  readonly #transports = new Set<SdkTransport>();

  /** @param tools called for each `tools/list` */
  constructor(tools: () => readonly ToolDefinition[], clock: Clock) {
    this.#tools = tools;
    this.#clock = clock;
  }

  /** Serves the hub on one more transport. */
  connect(transport: SdkTransport): void {
    this.#transports.add(transport);
    /* oxlint-disable unicorn/prefer-add-event-listener -- the interface of the MCP SDK has only this */
    transport.onclose = () => void this.#transports.delete(transport);
    transport.onmessage = (message) => void this.#receive(message, transport);
    /* oxlint-enable unicorn/prefer-add-event-listener */
    void transport.start();
  }

  /** Tells the hub that the list of tools has changed. */
  toolsChanged(): void {
    for (const transport of this.#transports) send(transport, { method: Method.toolsListChanged });
  }

  /**
   * Runs an agent for a call. If the client wants a task, it gets the task at once, while the run goes on.
   * @param run runs the agent until its signal is aborted, and returns the answer to the call
   */
  async runAsTask(
    call: ToolCall,
    next: Next,
    run: (signal: AbortSignal) => Promise<Answer>,
  ): Promise<Answer> {
    if (!call.isTask) return run(call.signal);
    const id = randomUUID();
    const abort = new AbortController();
    const createdAt = new Date().toISOString();
    const task: RunTask = {
      id,
      createdAt,
      status: "working",
      result: undefined,
      abort,
      transport: undefined,
      announced: Promise.withResolvers<void>(),
      waiting: [],
    };
    this.#tasks.set(id, task);
    const result = next(call.with({ arguments: { [RUN_ARGUMENT]: id } }));
    // What the run asks the client belongs to the task, so the client must know the task before.
    const settled = result.then(
      () => {},
      () => {},
    );
    await Promise.race([task.announced.promise, settled]);
    const answer = await run(AbortSignal.any([call.signal, abort.signal]));
    this.#finish(task, answer);
    return result;
  }

  #finish(task: RunTask, { json }: Answer): void {
    this.#clock.after(TTL, () => this.#tasks.delete(task.id));
    if (task.status !== "working") return;
    task.status = "completed";
    task.result = json;
    const { transport, waiting } = task;
    send(transport, { method: LegacyTaskMethod.status, params: toTask(task) });
    for (const id of waiting) send(transport, { id, result: resultOf(task) });
  }

  async #receive(message: object, transport: SdkTransport): Promise<void> {
    const { id, method, params }: Received = message;
    if (id === undefined || typeof method !== "string") return;
    const answer = this.#answer(id, method, isJsonObject(params) ? params : {}, transport);
    if (answer !== undefined) await transport.send({ jsonrpc: "2.0", id, ...answer });
    if (method === Method.toolsCall) this.#createdTask(params)?.announced.resolve();
  }

  /** The task that a `tools/call` of the hub has created. */
  #createdTask(params: unknown): RunTask | undefined {
    const args = propertyOf(params, "arguments");
    return isJsonObject(args) ? this.#tasks.get(String(args[RUN_ARGUMENT])) : undefined;
  }

  /** @returns undefined if the request is answered later */
  #answer(
    id: unknown,
    method: string,
    params: Readonly<Record<string, unknown>>,
    transport: SdkTransport,
  ): { readonly result: unknown } | { readonly error: object } | undefined {
    const task = this.#tasks.get(String(params["taskId"]));
    switch (method) {
      case Method.initialize:
        return { result: initializeResult(params["protocolVersion"]) };
      case Method.ping:
        return { result: {} };
      case Method.toolsList:
        return { result: { tools: this.#tools() } };
      case Method.toolsCall: {
        const created = this.#createdTask(params);
        if (created === undefined) break;
        created.transport = transport;
        return { result: { task: toTask(created) } };
      }
      case LegacyTaskMethod.get:
        if (task !== undefined) return { result: toTask(task) };
        break;
      case LegacyTaskMethod.result:
        if (task?.status === "completed") return { result: resultOf(task) };
        if (task?.status === "working") {
          task.waiting.push(id);
          return undefined;
        }
        break;
      case LegacyTaskMethod.cancel:
        if (task?.status !== "working") break;
        task.status = "cancelled";
        task.abort.abort(new HubError("cancelled", "The task was cancelled."));
        for (const waiting of task.waiting) send(transport, { id: waiting, ...UNKNOWN_TASK });
        return { result: toTask(task) };
      default:
        return { error: { code: -32601, message: `Method not found: ${method}` } };
    }
    return UNKNOWN_TASK;
  }
}

/** Sends a message to the hub, if it is still there. */
function send(transport: SdkTransport | undefined, message: object): void {
  void transport?.send({ jsonrpc: "2.0", ...message }).catch(() => {});
}

const UNKNOWN_TASK = { error: { code: -32602, message: "There is no such task." } };

function initializeResult(version: unknown): object {
  return {
    protocolVersion: version,
    capabilities: {
      tools: { listChanged: true },
      tasks: { cancel: {}, requests: { tools: { call: {} } } },
      // The hub itself turns calls into tasks of 2026-07-28, see `ToolCall.becomeTask`.
      ...TASKS_CAPABILITY,
    },
    serverInfo: { name: "toolmux agents", version: VERSION },
  };
}

function toTask({ id, status, createdAt }: RunTask): object {
  const lastUpdatedAt = new Date().toISOString();
  return { taskId: id, status, createdAt, lastUpdatedAt, ttl: TTL, pollInterval: POLL_INTERVAL };
}

function resultOf({ id, result }: RunTask): unknown {
  const value = JSON.parse(result ?? "{}") as Readonly<Record<string, unknown>>;
  const meta = isJsonObject(value["_meta"]) ? value["_meta"] : {};
  const related = { "io.modelcontextprotocol/related-task": { taskId: id } };
  return { ...value, _meta: { ...meta, ...related } };
}
