import { McpServer } from "@modelcontextprotocol/server";
import { registerLogging } from "./logging.ts";
import { registerPrompts } from "./prompts.ts";
import { registerQuestions } from "./questions.ts";
import { registerResources } from "./resources.ts";
import { registerTools } from "./tools.ts";

/** Offers and asks all that the scenarios of the official suites look for, under the names that they know. */
export function createServer(): McpServer {
  const server = new McpServer(
    { name: "everything", version: "1.0.0" },
    {
      capabilities: { completions: {}, logging: {}, resources: { subscribe: true } },
      instructions: "Call whatever there is.",
    },
  );
  registerTools(server);
  registerLogging(server);
  registerQuestions(server);
  registerResources(server);
  registerPrompts(server);
  return server;
}
