import { McpServer } from "@modelcontextprotocol/server";
import { VERSION } from "../base/version.ts";
import { resultOf, schemaOf, textResult } from "./schema.ts";

const TRANSFORMS: Readonly<Record<string, { description: string; run: (text: string) => string }>> =
  {
    upper: { description: "The text in capital letters.", run: (text) => text.toUpperCase() },
    reverse: {
      description: "The text backwards.",
      run: (text) => Array.from(text).toReversed().join(""),
    },
    trim: {
      description: "The text without white space around it.",
      run: (text) => text.trim(),
    },
  };

/** Works on text. */
export function createTextServer(): McpServer {
  const server = new McpServer({ name: "demo-text", version: VERSION });
  const inputSchema = schemaOf<{ text: string }>({ text: { type: "string" } }, "text");
  const annotations = { readOnlyHint: true };
  for (const [name, { description, run }] of Object.entries(TRANSFORMS)) {
    const config = { description, inputSchema, annotations };
    server.registerTool(name, config, ({ text }) => textResult(run(text)));
  }
  server.registerTool(
    "count",
    { description: "How many characters, words and lines a text has.", inputSchema, annotations },
    ({ text }) => {
      const characters = Array.from(text).length;
      const words = text.split(/\s+/).filter(Boolean).length;
      const lines = text.split("\n").length;
      const counted = { characters, words, lines };
      return resultOf(counted, JSON.stringify(counted));
    },
  );
  return server;
}
