/**
 * An MCP server for the examples: notes, kept in memory. It needs only Node and speaks JSON-RPC over stdin and stdout,
 * one message on each line (protocol version 2025-11-25).
 */
import { createInterface } from "node:readline";

const notes = new Map([
  ["milk", "Buy two litres."],
  ["call", "Call the dentist on Monday."],
]);

const title = { type: "string", description: "The title of the note." };
const withTitle = { type: "object", properties: { title }, required: ["title"] };

const TOOLS = {
  list: {
    description: "Lists all notes.",
    inputSchema: { type: "object" },
    annotations: { readOnlyHint: true },
    run: () => [...notes].map(([name, text]) => `${name}: ${text}`).join("\n"),
  },
  write: {
    description: "Writes a note. A note of the same title is replaced.",
    inputSchema: {
      type: "object",
      properties: { title, text: { type: "string", description: "The text of the note." } },
      required: ["title", "text"],
    },
    run: ({ title: name, text }) => {
      notes.set(name, text);
      return `Wrote "${name}".`;
    },
  },
  delete: {
    description: "Deletes a note.",
    inputSchema: withTitle,
    annotations: { destructiveHint: true },
    run: ({ title: name }) => {
      if (!notes.delete(name)) throw new Error(`There is no note "${name}".`);
      return `Deleted "${name}".`;
    },
  },
};

const METHODS = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "notes", version: "1.0.0" },
  }),
  ping: () => ({}),
  "tools/list": () => ({
    tools: Object.entries(TOOLS).map(([name, { description, inputSchema, annotations }]) => ({
      name,
      description,
      inputSchema,
      annotations,
    })),
  }),
  "tools/call": ({ name, arguments: args = {} }) => {
    try {
      return { content: [{ type: "text", text: TOOLS[name].run(args) }] };
    } catch (error) {
      return { content: [{ type: "text", text: error.message }], isError: true };
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params = {} } = JSON.parse(line);
  if (id === undefined) continue;
  const answer =
    method in METHODS
      ? { result: METHODS[method](params) }
      : { error: { code: -32601, message: `Unknown method: ${method}` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
}
