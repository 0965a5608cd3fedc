import { setTimeout } from "node:timers/promises";
import {
  type CallToolResult,
  type ContentBlock,
  fromJsonSchema,
  type McpServer,
} from "@modelcontextprotocol/server";
import { PNG, WAV } from "./media.ts";

/** Pause between steps, in ms. */
const PAUSE = 50;
/** Longer than any HTTP server waits before it answers with an event stream, in ms. */
const LONG = 1200;

const TEXT: ContentBlock = { type: "text", text: "This is a simple text response for testing." };
const IMAGE: ContentBlock = { type: "image", data: PNG, mimeType: "image/png" };
const AUDIO: ContentBlock = { type: "audio", data: WAV, mimeType: "audio/wav" };
const EMBEDDED: ContentBlock = embed(
  "test://embedded-resource",
  "text/plain",
  "This is an embedded resource content.",
);
const MIXED: readonly ContentBlock[] = [
  { type: "text", text: "Multiple content types test:" },
  IMAGE,
  embed("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
];

/** Schema keywords that a relay could lose. */
const SCHEMA = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: {
    address: {
      $anchor: "addressDef",
      type: "object",
      properties: { street: { type: "string" }, city: { type: "string" } },
    },
  },
  properties: {
    name: { type: "string" },
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: { type: "string" },
    email: { type: "string" },
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};

/** Arguments that clients mirror into headers. */
const ROUTED = {
  type: "object",
  properties: {
    region: { type: "string", "x-mcp-header": "Region" },
    priority: { type: "integer", "x-mcp-header": "Priority" },
  },
  required: ["region"],
};

/** Tools without input requests. */
export function registerTools(server: McpServer): void {
  const offer = (name: string, description: string, ...content: ContentBlock[]): void =>
    void server.registerTool(name, { description }, () => ({ content }));
  offer("test_simple_text", "Returns a text.", TEXT);
  offer("test_image_content", "Returns an image.", IMAGE);
  offer("test_audio_content", "Returns a sound.", AUDIO);
  offer("test_embedded_resource", "Returns a resource.", EMBEDDED);
  offer("test_multiple_content_types", "Returns a text, an image and a resource.", ...MIXED);
  server.registerTool("test_error_handling", { description: "Fails." }, () => {
    throw new Error("This tool intentionally returns an error for testing");
  });
  server.registerTool(
    "test_tool_with_progress",
    { description: "Reports three steps." },
    async ({ mcpReq: { _meta, notify } }) => {
      const progressToken = _meta?.progressToken;
      for (const progress of [0, 50, 100]) {
        if (progress > 0) await setTimeout(PAUSE);
        if (progressToken === undefined) continue;
        const params = { progressToken, progress, total: 100 };
        await notify({ method: "notifications/progress", params });
      }
      return textResult("There were three steps.");
    },
  );
  server.registerTool(
    "test_reconnection",
    { description: "Lets the stream end before its answer is there, where there is a stream." },
    async ({ http }) => {
      await setTimeout(LONG);
      http?.closeSSE?.();
      await setTimeout(PAUSE);
      return textResult("This came after the stream had ended.");
    },
  );
  server.registerTool(
    "json_schema_2020_12_tool",
    {
      description: "Tool with JSON Schema 2020-12 features",
      inputSchema: fromJsonSchema<Record<string, unknown>>(SCHEMA),
    },
    (args) => textResult(JSON.stringify(args)),
  );
  server.registerTool(
    "test_headers",
    {
      description: "Has arguments that are also said in headers of HTTP.",
      inputSchema: fromJsonSchema<Record<string, unknown>>(ROUTED),
    },
    (args) => textResult(JSON.stringify(args)),
  );
}

/** A tool result with one text block. */
export function textResult(text: string): CallToolResult {
  return { content: [{ type: "text", text }] };
}

function embed(uri: string, mimeType: string, text: string): ContentBlock {
  return { type: "resource", resource: { uri, mimeType, text } };
}
