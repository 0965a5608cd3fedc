import { type CallToolResult, fromJsonSchema } from "@modelcontextprotocol/server";

type Property = { readonly type: "string" | "integer" } & Readonly<Record<string, unknown>>;

/** A schema for a tool's arguments, an object with these properties, which TypeScript knows as `T`. */
export function schemaOf<T>(properties: Record<keyof T & string, Property>, ...required: string[]) {
  return fromJsonSchema<T>({ type: "object", properties, required, additionalProperties: false });
}

/** A result that says the same to a model and to a program. */
export function resultOf(structuredContent: Record<string, unknown>, text: string): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent };
}

export function textResult(text: string, isError = false): CallToolResult {
  return { content: [{ type: "text", text }], isError };
}
