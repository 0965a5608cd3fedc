import { setTimeout } from "node:timers/promises";
import type { McpServer } from "@modelcontextprotocol/server";

/** Pause between messages, in ms, so that they are sent before the response. */
const PAUSE = 50;

/** Tools that send log messages. */
export function registerLoggingTools(server: McpServer): void {
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
