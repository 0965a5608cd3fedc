import { setTimeout } from "node:timers/promises";
import type { McpServer } from "@modelcontextprotocol/server";

/** Between two messages, in ms: they are to be on their way before the answer is. */
const PAUSE = 50;

/** Tools that say what they do while they do it, to those who want to hear it. */
export function registerLogging(server: McpServer): void {
  const description = "Logs three messages.";
  for (const name of ["test_tool_with_logging", "test_logging_tool"]) {
    server.registerTool(name, { description }, async ({ mcpReq }) => {
      // oxlint-disable-next-line typescript/no-deprecated -- there are clients yet that listen
      const { log } = mcpReq;
      await log("info", "Tool execution started", "tools");
      await setTimeout(PAUSE);
      await log("info", "Tool processing data", "tools");
      await setTimeout(PAUSE);
      await log("info", "Tool execution completed", "tools");
      return { content: [{ type: "text", text: "Three messages were logged." }] };
    });
  }
}
