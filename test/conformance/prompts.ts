import { fromJsonSchema, type McpServer, type PromptMessage } from "@modelcontextprotocol/server";
import { PNG } from "./media.ts";

/** Completion values of prompt arguments. */
const COMPLETIONS: readonly string[] = ["paris", "park", "party", "test", "testing"];

/** Prompts and completions of their arguments. */
export function registerPrompts(server: McpServer): void {
  const simple = { description: "A prompt without arguments." };
  server.registerPrompt("test_simple_prompt", simple, () => ({
    messages: [userMessage({ type: "text", text: "This is a simple prompt for testing." })],
  }));
  server.registerPrompt(
    "test_prompt_with_arguments",
    { description: "A prompt with two arguments.", argsSchema: stringsSchema("arg1", "arg2") },
    ({ arg1, arg2 }) => {
      const text = `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`;
      return { messages: [userMessage({ type: "text", text })] };
    },
  );
  server.registerPrompt(
    "test_prompt_with_embedded_resource",
    { description: "A prompt with a resource in it.", argsSchema: stringsSchema("resourceUri") },
    ({ resourceUri: uri }) => {
      const text = "Embedded resource content for testing.";
      const resource = { uri, mimeType: "text/plain", text };
      return {
        messages: [
          userMessage({ type: "resource", resource }),
          userMessage({ type: "text", text: "Please process the embedded resource above." }),
        ],
      };
    },
  );
  const illustrated = { description: "A prompt with an image in it." };
  server.registerPrompt("test_prompt_with_image", illustrated, () => ({
    messages: [
      userMessage({ type: "image", data: PNG, mimeType: "image/png" }),
      userMessage({ type: "text", text: "Please analyze the image above." }),
    ],
  }));
  server.server.setRequestHandler("completion/complete", ({ params: { argument } }) => {
    const values = COMPLETIONS.filter((word) => word.startsWith(argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });
}

function userMessage(content: PromptMessage["content"]): PromptMessage {
  return { role: "user", content };
}

/** A schema of required string arguments. */
function stringsSchema<Name extends string>(...names: readonly Name[]) {
  return fromJsonSchema<Record<Name, string>>({
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: "string" }])),
    required: [...names],
  });
}
