import { setTimeout } from "node:timers/promises";
import type { McpServer } from "@modelcontextprotocol/server";

/** Least urgent first. */
const LEVELS: readonly string[] = [
  "debug",
  "info",
  "notice",
  "warning",
  "error",
  "critical",
  "alert",
  "emergency",
];

/** Between two messages, in ms: they are to be on their way before the answer is. */
const PAUSE = 50;

/** A tool that says what it does while it does it. */
export function registerLogging(server: McpServer): void {
  let wanted = "debug";
  server.server.setRequestHandler("logging/setLevel", ({ params }) => {
    wanted = params.level;
    return {};
  });
  server.registerTool(
    "test_tool_with_logging",
    { description: "Logs three messages." },
    async ({ mcpReq: { notify } }) => {
      const log = async (data: string): Promise<void> => {
        if (LEVELS.indexOf("info") < LEVELS.indexOf(wanted)) return;
        const params = { level: "info", logger: "tools", data };
        await notify({ method: "notifications/message", params });
      };
      await log("Tool execution started");
      await setTimeout(PAUSE);
      await log("Tool processing data");
      await setTimeout(PAUSE);
      await log("Tool execution completed");
      return { content: [{ type: "text", text: "Three messages were logged." }] };
    },
  );
}
