import type { McpServer, ServerNotifier } from "@modelcontextprotocol/server";
import { textResult } from "./tools.ts";

/**
 * Tools that change the server's listings. A long-lived instance sends the notifications itself; where each request has
 * an instance of its own, `notify` sends them to subscribers.
 */
export function registerChangeTools(server: McpServer, notify: ServerNotifier | undefined): void {
  const tool = server.registerTool("test_now_and_then", { description: "Comes and goes." }, () =>
    textResult("It is there."),
  );
  const prompt = server.registerPrompt(
    "test_now_and_then",
    { description: "Comes and goes." },
    () => ({ messages: [{ role: "user", content: { type: "text", text: "It is there." } }] }),
  );
  server.registerTool("test_trigger_tool_change", { description: "Changes the tools." }, () => {
    if (notify === undefined) tool.update({ enabled: !tool.enabled });
    else notify.toolsChanged();
    return textResult("The tools have changed.");
  });
  server.registerTool("test_trigger_prompt_change", { description: "Changes the prompts." }, () => {
    if (notify === undefined) prompt.update({ enabled: !prompt.enabled });
    else notify.promptsChanged();
    return textResult("The prompts have changed.");
  });
  server.registerTool(
    "test_trigger_resource_update",
    { description: "Changes the resource to subscribe to." },
    async () => {
      const uri = "test://watched-resource";
      if (notify === undefined) await server.server.sendResourceUpdated({ uri });
      else notify.resourceUpdated(uri);
      return textResult("The resource has changed.");
    },
  );
}
