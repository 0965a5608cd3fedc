import { Buffer } from "node:buffer";
import {
  type AgentTool,
  errorResult,
  type Toolbox,
  type ToolCallOptions,
  type ToolResult,
} from "./toolbox.ts";

/** The prefix of the names of servers that an agent file defines; no server of a manifest has such a name. */
const OWN = "own/";
/** The name, in the filters of an agent file's agents, of a server that the file defines. */
export function ownServerName(name: string): string {
  return OWN + name;
}

/** The name of the server of the tools `think` and `todo`. */
export const BUILT_IN = `${OWN}built-in`;

/** A tool that is implemented in this module. */
interface BuiltInDefinition {
  readonly kind: "think" | "todo";
  readonly name: string;
  readonly description: string;
  readonly properties: Readonly<Record<string, object>>;
}

const text = (description: string): object => ({ type: "string", description });

export const BUILT_IN_TOOLS: readonly BuiltInDefinition[] = [
  {
    kind: "think",
    name: "think",
    description: "Notes a thought. It changes nothing, and nobody else sees it.",
    properties: { thought: text("The thought.") },
  },
  {
    kind: "todo",
    name: "create_todo",
    description: "Adds something to do to the list of this conversation.",
    properties: { description: text("What has to be done.") },
  },
  {
    kind: "todo",
    name: "update_todo",
    description: "Sets the state of something to do.",
    properties: {
      id: text("Its id, as create_todo and list_todos give it."),
      status: { type: "string", enum: ["pending", "in-progress", "completed"] },
    },
  },
  {
    kind: "todo",
    name: "list_todos",
    description: "Lists all that is to do in this conversation.",
    properties: {},
  },
];

const BUILT_INS: readonly AgentTool[] = BUILT_IN_TOOLS.map(makeTool);

/** Maximum number of todos, and maximum length of each, in UTF-16 units. */
const MAX_TODOS = 1000;
const MAX_TODO_LENGTH = 10_000;

/**
 * The tools of the agents of a file, in one conversation: the hub's, those of the file's own servers, `think` and
 * `todo`. A tool of an own server is renamed if another tool has its name.
 */
export class AgentFileToolbox implements Toolbox {
  readonly #hub: Toolbox;
  readonly #own: Toolbox | undefined;
  /**
   * The tools of the file's own servers: their names in the hub that runs these servers, by the names that the model
   * sees.
   */
  #ownNames: ReadonlyMap<string, string> = new Map();
  readonly #todos: { readonly description: string; status: string }[] = [];

  /** @param own the tools of the file's own servers; undefined: the file has no servers */
  constructor(hub: Toolbox, own: Toolbox | undefined) {
    this.#hub = hub;
    this.#own = own;
  }

  async tools(signal: AbortSignal): Promise<readonly AgentTool[]> {
    const [hubTools, ownTools = []] = await Promise.all([
      this.#hub.tools(signal),
      this.#own?.tools(signal),
    ]);
    const taken = new Set([...hubTools, ...BUILT_INS].map(({ name }) => name));
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
    const others = hubTools.filter(({ name }) => !BUILT_INS.some((tool) => tool.name === name));
    return [...others, ...own, ...BUILT_INS].toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  call(name: string, args: string, options: ToolCallOptions): Promise<ToolResult> {
    if (BUILT_IN_TOOLS.some((tool) => tool.name === name))
      return Promise.resolve(this.#callBuiltIn(name, args));
    const own = this.#ownNames.get(name);
    return own === undefined || this.#own === undefined
      ? this.#hub.call(name, args, options)
      : this.#own.call(own, args, options);
  }

  #callBuiltIn(name: string, json: string): ToolResult {
    const args = JSON.parse(json === "" ? "{}" : json) as Readonly<Record<string, unknown>>;
    switch (name) {
      case "think":
        return result("Noted.");
      case "create_todo": {
        const { description } = args;
        if (typeof description !== "string" || description === "")
          return errorResult("description must be a text.", "invalidParams");
        if (this.#todos.length >= MAX_TODOS)
          return errorResult("The list is full.", "invalidParams");
        this.#todos.push({ description: description.slice(0, MAX_TODO_LENGTH), status: "pending" });
        return result(`Added as ${this.#todos.length}.`);
      }
      case "update_todo": {
        const todo = this.#todos[Number(args["id"]) - 1];
        if (todo === undefined) return errorResult("There is no such id.", "invalidParams");
        todo.status = String(args["status"]).slice(0, 20);
        return result(this.#listTodos());
      }
      default:
        return result(this.#listTodos());
    }
  }

  #listTodos(): string {
    const lines = this.#todos.map(
      ({ description, status }, at) => `${at + 1} [${status}] ${description}`,
    );
    return lines.length === 0 ? "There is nothing to do." : lines.join("\n");
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

function makeTool({ name, description, properties }: BuiltInDefinition): AgentTool {
  const required = Object.keys(properties);
  return {
    name,
    server: BUILT_IN,
    remoteName: name,
    description,
    inputSchema: { type: "object", properties, required },
    isReadOnly: true,
    isIdempotent: false,
  };
}

function result(answer: string): ToolResult {
  const content = [{ type: "text", text: answer }] as const;
  return { content, isError: false, code: undefined, size: Buffer.byteLength(answer) };
}
