import type { Era } from "../../src/protocol/modern.ts";

export type Params = Readonly<Record<string, unknown>>;

/** A received request, independent of SDK and era. */
export interface ServerCall {
  readonly method: string;
  readonly params: Params;
  readonly signal: AbortSignal;
  /** Requests input from the client under a key. Throws where the answer arrives with a retried request. */
  requestInput(key: string, method: string, params: object): Promise<Params>;
  notify(method: string, params: object): void;
  /** Sends a log message if the client's level allows it. */
  log(level: string, data: unknown): void;
}

/** A JSON-RPC error response. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

export const WATCHED_URI = "test://watched-resource";
/** A resource whose reading requests an elicitation. */
export const ELICITING_URI = "test://asking";
const NAME_FORM = { type: "object", properties: { name: { type: "string" } } };

const PREFIX = "io.modelcontextprotocol/";
export const TASK_ID = "task-1";
const TASK_RESULT = { content: [{ type: "text", text: "It was a task." }] };

const TOOLS = [
  "test_simple_text",
  "test_tool_with_progress",
  "test_tool_with_logging",
  "test_sampling",
  "test_elicitation",
  "test_url",
  "test_roots",
  "test_meta",
  "test_wait",
  "test_task",
  "test_visit",
  "test_trigger_tool_change",
  "test_trigger_resource_update",
];

/** The behaviour of the raw servers and the v1 SDK's, without a transport. Pages have five items each. */
export class ServerBehaviour {
  readonly era: Era;
  /** One entry for each cancelled call. */
  readonly cancelled: string[] = [];
  /** The `_meta` of each call of `test_meta`. */
  readonly metas: Params[] = [];
  /** Sends notifications of changes. */
  notifyChange: (method: string, params: object) => void = () => {};
  #hasExtraTool = false;
  #urlCallCount = 0;

  constructor(era: Era) {
    this.era = era;
  }

  get capabilities(): object {
    return {
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { subscribe: true, listChanged: true },
      completions: {},
      logging: {},
      ...(this.era === "legacy" && { tasks: { requests: { tools: { call: {} } } } }),
    };
  }

  /** Answers every request but the handshake. @throws {RpcError} */
  async answer(call: ServerCall): Promise<object> {
    const { method, params } = call;
    switch (method) {
      case "ping":
      case "logging/setLevel":
      case "resources/subscribe":
      case "resources/unsubscribe":
        return {};
      case "tools/list": {
        const names = this.#hasExtraTool ? [...TOOLS, "test_now_and_then"] : TOOLS;
        const inputSchema = { type: "object" };
        const tools = names.map((name) => ({
          name,
          description: `It is ${name}.`,
          inputSchema,
          ...(name === "test_task" &&
            this.era === "legacy" && { execution: { taskSupport: "optional" } }),
        }));
        return pageOf("tools", tools, params);
      }
      case "prompts/list": {
        const names = ["test_prompt_with_arguments", "test_fail", "test_asking"];
        const argument = ["arg1", "code"].map((name) => ({ name, required: false }));
        const prompts = names.map((name) => ({ name, arguments: argument }));
        return pageOf("prompts", prompts, params);
      }
      case "resources/list": {
        const uris = [WATCHED_URI, "test://static-text", ELICITING_URI];
        return pageOf(
          "resources",
          uris.map((uri) => ({ uri, name: uri })),
          params,
        );
      }
      case "resources/templates/list": {
        const uriTemplate = "test://template/{id}/data";
        return pageOf("resourceTemplates", [{ uriTemplate, name: "template" }], params);
      }
      case "resources/read": {
        const { uri } = params;
        const text = uri === ELICITING_URI ? await this.#elicitName(call) : "This is the content.";
        return { contents: [{ uri, text }] };
      }
      case "prompts/get": {
        if (params["name"] !== "test_asking") return getPrompt(params);
        const content = { type: "text", text: await this.#elicitName(call) };
        return { messages: [{ role: "user", content }] };
      }
      case "completion/complete": {
        return { completion: { values: ["paris", "park"], total: 2, hasMore: false } };
      }
      case "tasks/get":
        return this.#formatTask("completed");
      case "tasks/result":
        return { ...TASK_RESULT, _meta: { [`${PREFIX}related-task`]: { taskId: TASK_ID } } };
      case "tools/call":
        return this.#call(call);
      default:
        throw new RpcError(-32601, "Method not found");
    }
  }

  /** A task in the form of its era. */
  #formatTask(status: string): object {
    const timestamp = "2026-07-28T10:00:00Z";
    const common = { taskId: TASK_ID, status, createdAt: timestamp, lastUpdatedAt: timestamp };
    if (this.era === "legacy") return { ...common, ttl: null };
    const result = status === "completed" && { result: TASK_RESULT };
    return { ...common, ttlMs: 60_000, pollIntervalMs: 10, ...result };
  }

  #createTask({ params }: ServerCall): object {
    if (this.era === "legacy") {
      return params["task"] === undefined ? TASK_RESULT : { task: this.#formatTask("working") };
    }
    const meta = params["_meta"] as Params;
    const { extensions = {} } = meta[`${PREFIX}clientCapabilities`] as { extensions?: object };
    if (!(`${PREFIX}tasks` in extensions)) {
      const requiredCapabilities = { extensions: { [`${PREFIX}tasks`]: {} } };
      throw new RpcError(-32021, "Only with tasks.", { requiredCapabilities });
    }
    return { resultType: "task", ...this.#formatTask("working") };
  }

  async #elicitName(call: ServerCall): Promise<string> {
    const inputParams = { message: "Who are you?", requestedSchema: NAME_FORM };
    return JSON.stringify(await call.requestInput("answer", "elicitation/create", inputParams));
  }

  async #call(call: ServerCall): Promise<object> {
    const { params, signal } = call;
    const meta = (params["_meta"] ?? {}) as Params;
    switch (params["name"]) {
      case "test_task":
        return this.#createTask(call);
      case "test_simple_text":
        return textResult("This is a simple text.");
      case "test_tool_with_progress":
        for (const progress of [0, 50, 100]) {
          const progressToken = meta["progressToken"];
          if (progressToken === undefined) break;
          call.notify("notifications/progress", { progressToken, progress, total: 100 });
        }
        return textResult("There were three steps.");
      case "test_tool_with_logging":
        for (const step of ["started", "processing", "completed"]) call.log("info", step);
        return textResult("Three messages were logged.");
      case "test_sampling": {
        const content = { type: "text", text: "Hi" };
        const inputParams = { messages: [{ role: "user", content }], maxTokens: 10 };
        return textResult(
          JSON.stringify(await call.requestInput("answer", "sampling/createMessage", inputParams)),
        );
      }
      case "test_elicitation": {
        return textResult(await this.#elicitName(call));
      }
      case "test_url": {
        const urlParams = { mode: "url", message: "Go there", url: PAGE_URL };
        // Only the legacy era has elicitation ids.
        const inputParams =
          this.era === "legacy" ? { ...urlParams, elicitationId: "visit" } : urlParams;
        return textResult(
          JSON.stringify(await call.requestInput("answer", "elicitation/create", inputParams)),
        );
      }
      case "test_visit": {
        const elicitationId = `visit-${++this.#urlCallCount}`;
        if (this.#urlCallCount % 2 === 0) return textResult("It was visited.");
        const elicitation = {
          mode: "url",
          message: "Go there first",
          url: PAGE_URL,
          elicitationId,
        };
        throw new RpcError(URL_ELICITATION_REQUIRED, "Go there first", {
          elicitations: [elicitation],
        });
      }
      case "test_roots":
        return textResult(JSON.stringify(await call.requestInput("answer", "roots/list", {})));
      case "test_meta":
        this.metas.push(meta);
        return { ...textResult("seen"), _meta: { "example.org/own": 1.5 } };
      case "test_wait":
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        this.cancelled.push("test_wait");
        return textResult("It was cancelled.");
      case "test_trigger_tool_change":
        this.#hasExtraTool = !this.#hasExtraTool;
        this.notifyChange("notifications/tools/list_changed", {});
        return textResult("The tools have changed.");
      case "test_trigger_resource_update":
        this.notifyChange("notifications/resources/updated", { uri: WATCHED_URI });
        return textResult("The resource has changed.");
      default:
        throw new RpcError(-32602, "There is no such tool");
    }
  }
}

/** The legacy error code UrlElicitationRequired. */
const URL_ELICITATION_REQUIRED = -32042;
const PAGE_URL = "http://127.0.0.1/there";

function getPrompt({ name, arguments: promptArguments }: Params): object {
  const { arg1, code } = (promptArguments ?? {}) as Params;
  if (name === "test_fail") throw new RpcError(Number(code), "It failed.", { detail: 1.5 });
  const content = { type: "text", text: `arg1='${String(arg1)}'` };
  return { messages: [{ role: "user", content }] };
}

/** A tool result with one text block. */
export function textResult(text: string): object {
  return { content: [{ type: "text", text }] };
}

const PAGE_SIZE = 5;

function pageOf(key: string, items: readonly object[], { cursor }: Params): object {
  const from = cursor === undefined ? 0 : Number(cursor);
  const next = from + PAGE_SIZE;
  const rest = next < items.length ? { nextCursor: String(next) } : {};
  return { [key]: items.slice(from, next), ...rest };
}
