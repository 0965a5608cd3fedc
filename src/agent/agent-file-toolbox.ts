import { Buffer } from "node:buffer";
import type { AgentDefinition, AgentFile } from "../agent-files/agent-file.ts";
import { type MemoryFile, MEMORY_LIMITS } from "../agent-files/memory-file.ts";
import { decidingRule, NO_PERMISSIONS, type Permissions } from "../agent-files/permissions.ts";
import { OWN_PREFIX, SHELLS } from "../agent-files/toolsets.ts";
import type { AgentCaller } from "../approval/policy.ts";
import { toHubError } from "../base/errors.ts";
import type { AnswerElicitation } from "../frontend/hub-client.ts";
import { isTable, type Table } from "../manifest/table.ts";
import {
  type AgentTool,
  errorResult,
  type Toolbox,
  type ToolCallOptions,
  type ToolResult,
} from "./toolbox.ts";

/** The name, in the filters of an agent file's agents, of a server that the file defines. */
export function ownServerName(name: string): string {
  return OWN_PREFIX + name;
}

/** The name of the server of toolmux's own tools, such as `think`, `todo` and `memory`. */
export const BUILT_IN = `${OWN_PREFIX}built-in`;

/** A tool that is implemented in this module. */
interface BuiltInDefinition {
  readonly kind: "think" | "todo" | "memory" | "user_prompt" | "model_picker";
  readonly name: string;
  readonly description: string;
  readonly properties: Readonly<Record<string, object>>;
  /** The names of properties that may be left out. */
  readonly optional?: readonly string[];
  readonly changes?: boolean;
}

const textProperty = (description: string): object => ({ type: "string", description });
const STATUS = { type: "string", enum: ["pending", "in-progress", "completed"] };
const TODO_ID = textProperty("Its id, as create_todo and list_todos give it.");

const BUILT_IN_TOOLS: readonly BuiltInDefinition[] = [
  {
    kind: "think",
    name: "think",
    description: "Notes a thought. It changes nothing, and nobody else sees it.",
    properties: { thought: textProperty("The thought.") },
  },
  {
    kind: "todo",
    name: "create_todo",
    description: "Adds something to do to the list of this conversation.",
    properties: { description: textProperty("What has to be done.") },
  },
  {
    kind: "todo",
    name: "create_todos",
    description: "Adds several things to do to the list of this conversation.",
    properties: { descriptions: { type: "array", items: textProperty("What has to be done.") } },
  },
  {
    kind: "todo",
    name: "update_todo",
    description: "Sets the state of something to do.",
    properties: { id: TODO_ID, status: STATUS },
  },
  {
    kind: "todo",
    name: "update_todos",
    description: "Sets the states of several things to do.",
    properties: {
      updates: {
        type: "array",
        items: {
          type: "object",
          properties: { id: TODO_ID, status: STATUS },
          required: ["id", "status"],
        },
      },
    },
  },
  {
    kind: "todo",
    name: "list_todos",
    description: "Lists all that is to do in this conversation.",
    properties: {},
  },
  {
    kind: "memory",
    name: "add_memory",
    description: "Remembers something for later conversations.",
    properties: {
      memory: textProperty("What to remember."),
      category: textProperty("Such as preference, fact, project or decision."),
    },
    optional: ["category"],
    changes: true,
  },
  {
    kind: "memory",
    name: "get_memories",
    description: "Returns all that is remembered.",
    properties: {},
  },
  {
    kind: "memory",
    name: "search_memories",
    description: "Returns what is remembered with all of these words, or of a category.",
    properties: {
      query: textProperty("Words, separated by spaces."),
      category: textProperty("The category."),
    },
    optional: ["query", "category"],
  },
  {
    kind: "memory",
    name: "update_memory",
    description: "Replaces something that is remembered.",
    properties: {
      id: textProperty("Its id."),
      memory: textProperty("What to remember instead."),
      category: textProperty("The new category."),
    },
    optional: ["category"],
    changes: true,
  },
  {
    kind: "memory",
    name: "delete_memory",
    description: "Forgets something.",
    properties: { id: textProperty("Its id.") },
    changes: true,
  },
  {
    kind: "user_prompt",
    name: "user_prompt",
    description: "Asks the person something, and returns the answer.",
    properties: {
      message: textProperty("The question."),
      schema: {
        type: "object",
        description:
          "JSON Schema of the answer: a text, number, boolean or enum, or an object of these. By default a text.",
      },
    },
    optional: ["schema"],
  },
  {
    kind: "model_picker",
    name: "change_model",
    description: "Changes the model that answers from the next turn on.",
    properties: { model: textProperty("The name of the model.") },
  },
  {
    kind: "model_picker",
    name: "revert_model",
    description: "Changes back to the agent's own model, from the next turn on.",
    properties: {},
  },
];

/** The tools that an agent of a file has of toolmux itself. */
export function builtInTools({
  builtIns,
}: Pick<AgentDefinition, "builtIns">): readonly { readonly name: string }[] {
  return BUILT_IN_TOOLS.filter(({ kind }) => builtIns.includes(kind));
}

type BuiltInKind = BuiltInDefinition["kind"];

const BUILT_INS = BUILT_IN_TOOLS.map((definition) => {
  return { kind: definition.kind, tool: makeTool(definition) };
});

/** Maximum number of todos, and maximum length of each, in UTF-16 units. */
const MAX_TODOS = 1000;
const MAX_TODO_LENGTH = 10_000;

/** What a file says about its agents' tools, and what the tools of toolmux itself need. */
export interface AgentFileRules {
  /** The kinds of toolmux's own tools that some agent of the file has; absent: `think` and `todo`. */
  readonly builtIns?: readonly BuiltInKind[];
  readonly permissions?: Permissions | undefined;
  /** See `AgentFile`. */
  readonly allows?: AgentFile["allows"];
  /** See `AgentFile`. */
  readonly toolsetsByServer?: ReadonlyMap<string, readonly string[]> | undefined;
  /** Whether an agent shares its list of things to do with the others that do. */
  sharesTodos?(agent: string): boolean;
  /** The memories of an agent; absent or undefined: it has none. */
  memoryOf?(agent: string): MemoryFile | undefined;
  /** The models to which an agent can change; absent: none. */
  pickableModels?(agent: string): readonly string[];
  /** Opens a model. Rejects if it cannot be used. */
  readonly openModel?: ((name: string, signal: AbortSignal) => Promise<unknown>) | undefined;
  /** Asks the person; absent or undefined: nobody can be asked. */
  readonly ask?: AnswerElicitation | undefined;
  /** Removes secrets from what is remembered. */
  redact?(text: string): Promise<string>;
}

/**
 * The tools of the agents of a file, in one conversation: the hub's, those of the file's own servers, `think`, `todo`
 * and `memory`. A tool of an own server is renamed if another tool has its name. Calls are checked with the permissions
 * of the file.
 */
export class AgentFileToolbox implements Toolbox {
  readonly #hub: Toolbox;
  readonly #own: Toolbox | undefined;
  readonly #rules: AgentFileRules;
  readonly #builtIns: readonly AgentTool[];
  /**
   * The tools of the file's own servers: their names in the hub that runs these servers, by the names that the model
   * sees.
   */
  #ownNames: ReadonlyMap<string, string> = new Map();
  /** The tools that were listed last, by the names that the model sees. */
  #listed: ReadonlyMap<string, AgentTool> = new Map();
  /** The lists of things to do, by agent; `undefined` has the one that agents share. */
  readonly #todos = new Map<string | undefined, Todo[]>();
  /** The models to which agents have changed, by agent. */
  readonly #pickedModels = new Map<string, string>();

  /** @param own the tools of the file's own servers; undefined: the file has no servers */
  constructor(hub: Toolbox, own: Toolbox | undefined, rules: AgentFileRules = {}) {
    this.#hub = hub;
    this.#own = own;
    this.#rules = rules;
    const { builtIns: kinds = ["think", "todo"] } = rules;
    this.#builtIns = BUILT_INS.filter(({ kind }) => kinds.includes(kind)).map(({ tool }) => tool);
  }

  /** The model to which an agent has changed; undefined: it has its own. */
  pickedModel(agent: string): string | undefined {
    return this.#pickedModels.get(agent);
  }

  async tools(signal: AbortSignal): Promise<readonly AgentTool[]> {
    const [hubTools, ownTools = []] = await Promise.all([
      this.#hub.tools(signal),
      this.#own?.tools(signal),
    ]);
    const taken = new Set([...hubTools, ...this.#builtIns].map(({ name }) => name));
    const names = new Map<string, string>();
    const own = ownTools.map((tool) => {
      let name = tool.name;
      for (let number = 2; taken.has(name); number++)
        name = `${tool.name.slice(0, MAX_NAME - 4)}_${number}`;
      taken.add(name);
      names.set(name, tool.name);
      return renamed(tool, name);
    });
    this.#ownNames = names;
    // Built-in tools hide tools of the hub with the same names.
    const others = hubTools.filter(
      ({ name }) => !this.#builtIns.some((tool) => tool.name === name),
    );
    const all = [...others, ...own, ...this.#builtIns].toSorted((a, b) =>
      a.name < b.name ? -1 : 1,
    );
    this.#listed = new Map(all.map((tool) => [tool.name, tool]));
    return all;
  }

  async call(name: string, args: string, options: ToolCallOptions): Promise<ToolResult> {
    const checked = await this.#check(name, args, options);
    if ("refusal" in checked) return checked.refusal;
    const { agent } = checked;
    if (this.#builtIns.some((tool) => tool.name === name))
      return this.#callBuiltIn(name, args, options);
    const own = this.#ownNames.get(name);
    const allowed = agent === options.agent ? options : { ...options, agent };
    return own === undefined || this.#own === undefined
      ? this.#hub.call(name, args, allowed)
      : this.#own.call(own, args, allowed);
  }

  /** Applies the permissions of the file. @returns the caller with the approval that the call needs, or a refusal */
  async #check(
    name: string,
    json: string,
    { agent, signal }: ToolCallOptions,
  ): Promise<{ readonly agent: AgentCaller } | { readonly refusal: ToolResult }> {
    const { permissions = NO_PERMISSIONS, toolsetsByServer, allows } = this.#rules;
    if (permissions === NO_PERMISSIONS && toolsetsByServer === undefined) return { agent };
    if (!this.#listed.has(name)) await this.tools(signal);
    const tool = this.#listed.get(name);
    const { server = "", remoteName = name } = tool ?? {};
    const plain = server.startsWith(OWN_PREFIX) ? server.slice(OWN_PREFIX.length) : server;
    const toolsets = toolsetsByServer?.get(server) ?? [];
    const decided = decidingRule(permissions, {
      names: [...new Set([remoteName, name, `mcp:${plain}:${remoteName}`])],
      toolsets,
      args: argumentsOf(json),
    });
    if (decided?.kind === "deny") {
      const text = `The file of agent "${agent.name}" forbids this call of ${name} (permissions.deny ${JSON.stringify(decided.rule.text)}). It was not called.`;
      return { refusal: errorResult(text, "notApproved") };
    }
    if (toolsets.some((type) => SHELLS.includes(type)) || decided?.kind === "ask")
      return { agent: { ...agent, approval: "always", everyCall: true } };
    if (decided?.kind !== "allow" || allows === undefined) return { agent };
    if (allows === "all") return { agent: { ...agent, approval: "never" } };
    return tool?.isReadOnly === true ? { agent: { ...agent, approval: "auto" } } : { agent };
  }

  async #callBuiltIn(
    name: string,
    json: string,
    { agent, signal }: ToolCallOptions,
  ): Promise<ToolResult> {
    const args = argumentsOf(json);
    const todos = this.#todosOf(agent.name);
    switch (name) {
      case "think":
        return result("Noted.");
      case "create_todo":
        return addTodos(todos, [args["description"]]);
      case "create_todos": {
        const { descriptions } = args;
        return addTodos(todos, Array.isArray(descriptions) ? descriptions : [undefined]);
      }
      case "update_todo":
        return updateTodos(todos, [args]);
      case "update_todos": {
        const { updates } = args;
        return updateTodos(todos, Array.isArray(updates) ? updates : [undefined]);
      }
      case "list_todos":
        return result(describeTodos(todos));
      case "user_prompt":
        return this.#askPerson(args, agent.name, signal);
      case "change_model":
        return this.#changeModel(args["model"], agent.name, signal);
      case "revert_model":
        this.#pickedModels.delete(agent.name);
        return result("The agent's own model answers from the next turn on.");
      default:
        return this.#callMemory(name, args, agent.name, signal);
    }
  }

  async #changeModel(name: unknown, agent: string, signal: AbortSignal): Promise<ToolResult> {
    const models = this.#rules.pickableModels?.(agent) ?? [];
    // Instructions often name a model without its provider.
    const model =
      models.find((one) => one === name) ??
      models.find((one) => one.slice(one.indexOf("/") + 1) === name);
    if (model === undefined)
      return errorResult(`model must be one of: ${models.join(", ")}.`, "invalidParams");
    try {
      await this.#rules.openModel?.(model, signal);
    } catch (error) {
      signal.throwIfAborted();
      const { message, code } = toHubError(error);
      return errorResult(`The model "${model}" cannot be used: ${message}`, code);
    }
    this.#pickedModels.set(agent, model);
    return result(`${model} answers from the next turn on.`);
  }

  async #askPerson(
    { message, schema }: Table,
    agent: string,
    signal: AbortSignal,
  ): Promise<ToolResult> {
    const { ask } = this.#rules;
    if (typeof message !== "string" || message.trim() === "")
      return errorResult("message must be a text.", "invalidParams");
    if (message.length > MAX_QUESTION)
      return errorResult("The question is too long.", "invalidParams");
    if (ask === undefined) return errorResult("Nobody can be asked.", "notAsked");
    const form = questionSchema(isTable(schema) ? schema : {});
    if (form === undefined) {
      const text = `schema must be that of a plain value, or of an object with at most ${MAX_FIELDS} of them.`;
      return errorResult(text, "invalidParams");
    }
    try {
      // The person must see who asks: the text is the model's.
      const question = `Agent ${JSON.stringify(agent)} asks: ${message}`;
      const answer = await ask({ message: question, schema: form }, signal);
      return result(JSON.stringify(answer));
    } catch (error) {
      signal.throwIfAborted();
      const { message: reason, code } = toHubError(error);
      return errorResult(reason, code);
    }
  }

  #todosOf(agent: string): Todo[] {
    const key = this.#rules.sharesTodos?.(agent) === true ? undefined : agent;
    const todos = this.#todos.get(key) ?? [];
    this.#todos.set(key, todos);
    return todos;
  }

  async #callMemory(
    name: string,
    args: Table,
    agent: string,
    signal: AbortSignal,
  ): Promise<ToolResult> {
    const file = this.#rules.memoryOf?.(agent);
    if (file === undefined) return errorResult("This agent has no memory.", "unknownTool");
    const redact = async (one: string): Promise<string> => (await this.#rules.redact?.(one)) ?? one;
    const { id, memory, category, query } = args;
    const isUpdate = name === "update_memory";
    try {
      switch (name) {
        case "get_memories":
        case "search_memories": {
          const words = typeof query === "string" ? query.toLowerCase().split(/\s+/) : [];
          const found = (await file.read()).filter(
            (one) =>
              words.every((word) => one.memory.toLowerCase().includes(word)) &&
              (typeof category !== "string" || category === "" || one.category === category),
          );
          return result(JSON.stringify(found));
        }
        case "add_memory":
        case "update_memory": {
          if (typeof memory !== "string" || memory.trim() === "")
            return errorResult("memory must be a text.", "invalidParams");
          if (memory.length > MEMORY_LIMITS.length)
            return errorResult("The text is too long to be remembered.", "invalidParams");
          const kept = {
            id: isUpdate ? String(id) : crypto.randomUUID().slice(0, 8),
            at: new Date().toISOString(),
            memory: await redact(memory),
            ...(typeof category === "string" &&
              category !== "" && { category: await redact(category) }),
          };
          let isFound = !isUpdate;
          await file.change((all) => {
            if (!isUpdate) return [...all, kept];
            isFound = all.some((one) => one.id === kept.id);
            return all.map((one) => (one.id === kept.id ? { ...one, ...kept } : one));
          }, signal);
          return isFound ? result(`Remembered as ${kept.id}.`) : noSuchId();
        }
        default: {
          let isFound = false;
          await file.change((all) => {
            isFound = all.some((one) => one.id === id);
            return all.filter((one) => one.id !== id);
          }, signal);
          return isFound ? result("Forgotten.") : noSuchId();
        }
      }
    } catch (error) {
      signal.throwIfAborted();
      const { message, code } = toHubError(error);
      return errorResult(message, code);
    }
  }
}

/** Maximum length of a question, in UTF-16 units, and maximum number of its fields. */
const MAX_QUESTION = 4000;
const MAX_FIELDS = 20;

/** The schema of a form for a question of a model; undefined if a form cannot ask for that. */
function questionSchema(schema: Table): Table | undefined {
  const { type = "string", properties, required } = schema;
  const fields =
    type === "object" ? (isTable(properties) ? properties : {}) : { answer: { type, ...schema } };
  const plain: readonly unknown[] = ["string", "number", "integer", "boolean"];
  const isPlain = (field: unknown): boolean =>
    isTable(field) && plain.includes(field["type"] ?? "string");
  const all = Object.values(fields);
  if (all.length > MAX_FIELDS || !all.every(isPlain)) return undefined;
  return {
    type: "object",
    properties: fields,
    required: type === "object" ? (required ?? []) : ["answer"],
  };
}

interface Todo {
  readonly description: string;
  status: string;
}

function noSuchId(): ToolResult {
  return errorResult("There is no such id.", "invalidParams");
}

function addTodos(todos: Todo[], descriptions: readonly unknown[]): ToolResult {
  if (!descriptions.every((one) => typeof one === "string" && one !== ""))
    return errorResult("Each description must be a text.", "invalidParams");
  if (todos.length + descriptions.length > MAX_TODOS)
    return errorResult("The list is full.", "invalidParams");
  const first = todos.length + 1;
  for (const description of descriptions)
    todos.push({ description: String(description).slice(0, MAX_TODO_LENGTH), status: "pending" });
  const isOne = descriptions.length === 1;
  return result(isOne ? `Added as ${first}.` : `Added.\n${describeTodos(todos)}`);
}

function updateTodos(todos: readonly Todo[], updates: readonly unknown[]): ToolResult {
  const found = updates.flatMap((update) => {
    const { id, status } = isTable(update) ? update : {};
    const todo = todos[Number(id) - 1];
    return todo === undefined ? [] : [{ todo, status }];
  });
  if (found.length < updates.length) return noSuchId();
  for (const { todo, status } of found) todo.status = String(status).slice(0, 20);
  return result(describeTodos(todos));
}

function describeTodos(todos: readonly Todo[]): string {
  const lines = todos.map(({ description, status }, at) => `${at + 1} [${status}] ${description}`);
  return lines.length === 0 ? "There is nothing to do." : lines.join("\n");
}

/** The arguments of a call; an empty table if they are none. */
function argumentsOf(json: string): Table {
  try {
    const value: unknown = JSON.parse(json.trim() === "" ? "{}" : json);
    return isTable(value) ? value : {};
  } catch {
    return {};
  }
}

/** Maximum length of a tool's name for models. */
const MAX_NAME = 64;

/** A tool of an own server under another name. */
function renamed(tool: AgentTool, name: string): AgentTool {
  const known = renamedTools.get(tool);
  if (known?.name === name) return known;
  const made = { ...tool, name, server: ownServerName(tool.server) };
  renamedTools.set(tool, made);
  return made;
}

/** Equal listings have the same objects, so that what was computed for them is found again. */
const renamedTools = new WeakMap<AgentTool, AgentTool>();

function makeTool(definition: BuiltInDefinition): AgentTool {
  const { name, description, properties, optional = [], changes = false } = definition;
  const required = Object.keys(properties).filter((key) => !optional.includes(key));
  return {
    name,
    server: BUILT_IN,
    remoteName: name,
    description,
    inputSchema: { type: "object", properties, required },
    isReadOnly: !changes,
    isIdempotent: false,
  };
}

function result(answer: string): ToolResult {
  const content = [{ type: "text", text: answer }] as const;
  return { content, isError: false, code: undefined, size: Buffer.byteLength(answer) };
}
