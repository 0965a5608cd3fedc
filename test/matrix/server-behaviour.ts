import type { Era } from "../../src/protocol/modern.ts";

export type Params = Readonly<Record<string, unknown>>;

/** A received request, independent of SDK and era. */
export interface Visit {
  readonly method: string;
  readonly params: Params;
  readonly signal: AbortSignal;
  /** Requests input from the client under a key. Throws where the answer arrives with a retried request. */
  ask(key: string, method: string, params: object): Promise<Params>;
  notify(method: string, params: object): void;
  /** Sends a log message if the client's level allows it. */
  log(level: string, data: unknown): void;
}

/** A JSON-RPC error response. */
export class Failure extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

export const WATCHED = "test://watched-resource";
/** A resource whose reading requests an elicitation. */
export const ASKING = "test://asking";
const FORM = { type: "object", properties: { name: { type: "string" } } };

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
export class Kit {
  readonly era: Era;
  /** One entry for each cancelled call. */
  readonly cancelled: string[] = [];
  /** The `_meta` of each call of `test_meta`. */
  readonly metas: Params[] = [];
  /** Sends notifications of changes. */
  announce: (method: string, params: object) => void = () => {};
  #hasMore = false;
  #visits = 0;

  constructor(era: Era) {
    this.era = era;
  }

  readonly capabilities: object = {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    completions: {},
    logging: {},
  };

  /** Answers every request but the handshake. @throws {RpcError} */
  async answer(visit: Visit): Promise<object> {
    const { method, params } = visit;
    switch (method) {
      case "ping":
      case "logging/setLevel":
      case "resources/subscribe":
      case "resources/unsubscribe":
        return {};
      case "tools/list": {
        const names = this.#hasMore ? [...TOOLS, "test_now_and_then"] : TOOLS;
        const inputSchema = { type: "object" };
        const tools = names.map((name) => ({ name, description: `It is ${name}.`, inputSchema }));
        return page("tools", tools, params);
      }
      case "prompts/list": {
        const names = ["test_prompt_with_arguments", "test_fail", "test_asking"];
        const argument = ["arg1", "code"].map((name) => ({ name, required: false }));
        const prompts = names.map((name) => ({ name, arguments: argument }));
        return page("prompts", prompts, params);
      }
      case "resources/list": {
        const uris = [WATCHED, "test://static-text", ASKING];
        return page(
          "resources",
          uris.map((uri) => ({ uri, name: uri })),
          params,
        );
      }
      case "resources/templates/list": {
        const uriTemplate = "test://template/{id}/data";
        return page("resourceTemplates", [{ uriTemplate, name: "template" }], params);
      }
      case "resources/read": {
        const { uri } = params;
        const text = uri === ASKING ? await this.#askFor(visit) : "This is the content.";
        return { contents: [{ uri, text }] };
      }
      case "prompts/get": {
        if (params["name"] !== "test_asking") return getPrompt(params);
        const content = { type: "text", text: await this.#askFor(visit) };
        return { messages: [{ role: "user", content }] };
      }
      case "completion/complete": {
        return { completion: { values: ["paris", "park"], total: 2, hasMore: false } };
      }
      case "tasks/get":
        return this.#describeTask("completed");
      case "tasks/result":
        return { ...TASK_RESULT, _meta: { [`${PREFIX}related-task`]: { taskId: TASK_ID } } };
      case "tools/call":
        return this.#call(visit);
      default:
        throw new Failure(-32601, "Method not found");
    }
  }

  /** A task in the form of its era. */
  #describeTask(status: string): object {
    const at = "2026-07-28T10:00:00Z";
    const common = { taskId: TASK_ID, status, createdAt: at, lastUpdatedAt: at };
    if (this.era === "legacy") return { ...common, ttl: null };
    const result = status === "completed" && { result: TASK_RESULT };
    return { ...common, ttlMs: 60_000, pollIntervalMs: 10, ...result };
  }

  #beginTask({ params }: Visit): object {
    if (this.era === "legacy") {
      return params["task"] === undefined ? TASK_RESULT : { task: this.#describeTask("working") };
    }
    const meta = params["_meta"] as Params;
    const { extensions = {} } = meta[`${PREFIX}clientCapabilities`] as { extensions?: object };
    if (!(`${PREFIX}tasks` in extensions)) {
      const requiredCapabilities = { extensions: { [`${PREFIX}tasks`]: {} } };
      throw new Failure(-32021, "Only with tasks.", { requiredCapabilities });
    }
    return { resultType: "task", ...this.#describeTask("working") };
  }

  async #askFor(visit: Visit): Promise<string> {
    const asked = { message: "Who are you?", requestedSchema: FORM };
    return JSON.stringify(await visit.ask("answer", "elicitation/create", asked));
  }

  async #call(visit: Visit): Promise<object> {
    const { params, signal } = visit;
    const meta = (params["_meta"] ?? {}) as Params;
    switch (params["name"]) {
      case "test_task":
        return this.#beginTask(visit);
      case "test_simple_text":
        return say("This is a simple text.");
      case "test_tool_with_progress":
        for (const progress of [0, 50, 100]) {
          const progressToken = meta["progressToken"];
          if (progressToken === undefined) break;
          visit.notify("notifications/progress", { progressToken, progress, total: 100 });
        }
        return say("There were three steps.");
      case "test_tool_with_logging":
        for (const what of ["started", "processing", "completed"]) visit.log("info", what);
        return say("Three messages were logged.");
      case "test_sampling": {
        const content = { type: "text", text: "Hi" };
        const asked = { messages: [{ role: "user", content }], maxTokens: 10 };
        return say(JSON.stringify(await visit.ask("answer", "sampling/createMessage", asked)));
      }
      case "test_elicitation": {
        return say(await this.#askFor(visit));
      }
      case "test_url": {
        const where = { mode: "url", message: "Go there", url: PAGE_URL };
        // Only the legacy era has elicitation ids.
        const asked = this.era === "legacy" ? { ...where, elicitationId: "visit" } : where;
        return say(JSON.stringify(await visit.ask("answer", "elicitation/create", asked)));
      }
      case "test_visit": {
        const elicitationId = `visit-${++this.#visits}`;
        if (this.#visits % 2 === 0) return say("It was visited.");
        const first = { mode: "url", message: "Go there first", url: PAGE_URL, elicitationId };
        throw new Failure(NEEDS_VISIT, "Go there first", { elicitations: [first] });
      }
      case "test_roots":
        return say(JSON.stringify(await visit.ask("answer", "roots/list", {})));
      case "test_meta":
        this.metas.push(meta);
        return { ...say("seen"), _meta: { "example.org/own": 1.5 } };
      case "test_wait":
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        this.cancelled.push("test_wait");
        return say("It was cancelled.");
      case "test_trigger_tool_change":
        this.#hasMore = !this.#hasMore;
        this.announce("notifications/tools/list_changed", {});
        return say("The tools have changed.");
      case "test_trigger_resource_update":
        this.announce("notifications/resources/updated", { uri: WATCHED });
        return say("The resource has changed.");
      default:
        throw new Failure(-32602, "There is no such tool");
    }
  }
}

/** The legacy error code UrlElicitationRequired. */
const NEEDS_VISIT = -32042;
const PAGE_URL = "http://127.0.0.1/there";

function getPrompt({ name, arguments: given }: Params): object {
  const { arg1, code } = (given ?? {}) as Params;
  if (name === "test_fail") throw new Failure(Number(code), "It failed.", { detail: 1.5 });
  const content = { type: "text", text: `arg1='${String(arg1)}'` };
  return { messages: [{ role: "user", content }] };
}

/** A tool result with one text block. */
export function say(text: string): object {
  return { content: [{ type: "text", text }] };
}

const PAGE = 5;

function page(key: string, items: readonly object[], { cursor }: Params): object {
  const from = cursor === undefined ? 0 : Number(cursor);
  const next = from + PAGE;
  const rest = next < items.length ? { nextCursor: String(next) } : {};
  return { [key]: items.slice(from, next), ...rest };
}
