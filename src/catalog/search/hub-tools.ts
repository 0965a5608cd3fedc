import { utf8 } from "../../base/bytes.ts";
import type { ListedItem } from "../listing.ts";
import { toolItemOf } from "../unrouted-tool.ts";

/** The hub's own tools, by which clients find and call the tools of the servers. */
export type HubToolName =
  "search_tools" | "describe_tools" | "call_tool" | "call_read_only_tool" | "select_tools";

/** The hub's tools that call a tool of a server. */
export type CallingToolName = Extract<HubToolName, "call_tool" | "call_read_only_tool">;

/** The hub's tools that the hub itself answers. */
export type AnsweringToolName = Exclude<HubToolName, CallingToolName>;

export function isCallingTool(name: string): name is CallingToolName {
  return name === "call_tool" || name === "call_read_only_tool";
}

/**
 * Limits of the arguments of the hub's tools. `query`: in characters; `named`: names of tools that are selected;
 * `selected`: tools that a session can have selected.
 */
export const ARGUMENT_LIMITS = {
  query: 500,
  hits: 50,
  described: 20,
  named: 50,
  selected: 200,
} as const;

const QUERY = { type: "string", minLength: 1, maxLength: ARGUMENT_LIMITS.query } as const;
const HITS = { type: "integer", minimum: 1, maximum: ARGUMENT_LIMITS.hits } as const;
const STRING = { type: "string" } as const;
const COUNT = { type: "integer" } as const;
const STRINGS = { type: "array", items: STRING } as const;
const OBJECTS = { type: "array", items: { type: "object" } } as const;
const CALL_SCHEMA = {
  type: "object",
  properties: { name: STRING, arguments: { type: "object" } },
  required: ["name"],
} as const;
const READS_HUB = { readOnlyHint: true, idempotentHint: true, openWorldHint: false } as const;

/**
 * The definitions (MCP, Tool). They are constants of this version of toolmux, and contain nothing that depends on the
 * servers: when the servers change, the client's list, and so its prompt cache, stays the same.
 */
const DEFINITIONS: Readonly<Record<HubToolName, object>> = {
  search_tools: {
    name: "search_tools",
    description:
      "Finds tools of the connected servers by what they do. Returns names and signatures; then use call_tool.",
    inputSchema: {
      type: "object",
      properties: {
        query: { ...QUERY, description: "What the tool does, or its name" },
        server: STRING,
        limit: HITS,
        detail: { enum: ["brief", "signature", "full"], default: "signature" },
      },
      required: ["query"],
    },
    outputSchema: {
      type: "object",
      properties: { tools: OBJECTS, matches: COUNT, available: COUNT },
      required: ["tools", "matches", "available"],
    },
    annotations: READS_HUB,
  },
  describe_tools: {
    name: "describe_tools",
    description:
      "Full definitions of tools, and the instructions of their servers. Needed if a signature is not enough.",
    inputSchema: {
      type: "object",
      properties: {
        names: { ...STRINGS, minItems: 1, maxItems: ARGUMENT_LIMITS.described },
      },
      required: ["names"],
    },
    outputSchema: {
      type: "object",
      properties: { tools: OBJECTS, servers: { type: "object" }, notFound: OBJECTS },
      required: ["tools", "servers", "notFound"],
    },
    annotations: READS_HUB,
  },
  call_tool: {
    name: "call_tool",
    description: "Calls a tool that search_tools found, and returns the tool's own result.",
    inputSchema: CALL_SCHEMA,
    execution: { taskSupport: "optional" },
  },
  call_read_only_tool: {
    name: "call_read_only_tool",
    description: "As call_tool, for tools that search_tools marks readOnly.",
    inputSchema: CALL_SCHEMA,
    annotations: { readOnlyHint: true, openWorldHint: true },
    execution: { taskSupport: "optional" },
  },
  select_tools: {
    name: "select_tools",
    description:
      "Adds tools to the list of tools, so that they can be called directly: by names, servers, or a query as for search_tools.",
    inputSchema: {
      type: "object",
      properties: {
        names: { ...STRINGS, maxItems: ARGUMENT_LIMITS.named },
        servers: STRINGS,
        query: QUERY,
        limit: { ...HITS, maximum: ARGUMENT_LIMITS.selected },
        replace: { type: "boolean", description: "Remove those selected before" },
      },
    },
    outputSchema: {
      type: "object",
      properties: { selected: STRINGS, tools: COUNT, notFound: OBJECTS },
      required: ["selected", "tools", "notFound"],
    },
    annotations: { ...READS_HUB, readOnlyHint: false, destructiveHint: false },
  },
};

const items = new Map<HubToolName, ListedItem>();

/** The item of one of the hub's tools, as it is listed. It is made when it is first needed. */
export function hubToolItem(name: HubToolName): ListedItem {
  let item = items.get(name);
  if (item === undefined) {
    item = toolItemOf(name, utf8(JSON.stringify(DEFINITIONS[name])));
    items.set(name, item);
  }
  return item;
}

const SEARCH_TOOLS = ["search_tools", "describe_tools", "call_tool"] as const;
const SEARCH_TOOLS_WITH_READ_ONLY = [...SEARCH_TOOLS, "call_read_only_tool"] as const;
const SELECT_TOOLS = ["search_tools", "select_tools", "call_tool"] as const;

/** The instructions to models about the hub's tools, for each form of the list. */
export const HOW_TO = {
  search: [
    "Most tools are not listed. To find them: search_tools with a few words about what a tool should do.",
    "To call one: call_tool with its name and arguments. The signatures in search results are usually enough for that.",
    "describe_tools shows full definitions, and the instructions of the servers.",
  ],
  select: [
    "Most tools are not listed. To find them: search_tools with a few words about what a tool should do.",
    "To add tools to the list: select_tools. Then call them like any other tool.",
    "If a selected tool cannot be called by its name yet: call_tool with its name and arguments.",
  ],
} as const;

/** The hub's tools that a list has, in its order. @param hasReadOnlyCall whether `call_read_only_tool` is offered */
export function hubToolsOf(
  list: "search" | "select",
  hasReadOnlyCall: boolean,
): readonly HubToolName[] {
  if (list === "select") return SELECT_TOOLS;
  return hasReadOnlyCall ? SEARCH_TOOLS_WITH_READ_ONLY : SEARCH_TOOLS;
}
